-- The gate for what the fleet does not send: a worker outside asks for the right to perform an effect once.
--
-- Before and after it a process may die, pause or ask again:
--   not committed: the row is still ready and external; whoever asks next may be granted it.
--   committed and the answer lost: the attempt has a deadline, so the effect becomes unknown by itself. The same
--     holder may ask again with the same key and is told of its own grant; nobody else is.
--   asked twice at once: the open row's lock decides, the second finds it dispatching.
--   the lease ends: the sweep makes it unknown, as with any attempt that nobody reported; it is never free again.

-- A claim as the wire shows it. `granted` is its status while the lease lasts and nothing was reported.
create function claim_json(p_id uuid) returns json language sql stable as $$
    select json_build_object(
        'id', prefixed('clm', e.id), 'effectId', prefixed('eff', e.id), 'invocationId', prefixed('inv', e.id),
        'action', e.action_name, 'actionVersion', e.action_version,
        'status', case q.stage when 'dispatching' then 'granted' when 'ready' then 'waiting' else q.status end,
        'outcome', q.outcome, 'grade', q.grade, 'conflict', q.conflict,
        'operationKey', e.operation_key, 'idempotencyKey', e.provider_key, 'holder', g.holder,
        'approvalId', case when e.approval_id is not null then prefixed('apr', e.approval_id) end,
        'error', error_sentence(q.status, q.stage, q.outcome, q.reason, e.governed, e.id, s.response_status, s.error,
                                q.corrected),
        'grantedAt', iso(g.at), 'leaseUntil', iso(g.lease_until), 'settledAt', iso(q.settled_at))
    from effects e
    join effect_states q on q.id = e.id
    left join settlements s on s.effect_id = e.id
    left join grants g on g.effect_id = e.id
    where e.id = p_id
$$;

-- Grants a batch: parallel arrays, ids may repeat (one of them is granted at most). One row a call, `ord` its
-- place. `granted`: this very try (p_claim_id) has the right. `leased`: somebody has it and may still report.
create function grant_batch(p_ids uuid[], p_holder text[], p_key uuid[], p_agent text[], p_lease_ms int,
                            p_claim_id uuid, p_worker text, p_incarnation uuid)
returns table (ord int, granted boolean, is_external boolean, holder text, leased boolean, status text, outcome text,
               error text, doc text)
language plpgsql as $$
#variable_conflict use_column
declare
    v_ids uuid[] := array(select distinct u from unnest(p_ids) u order by 1);
    v_claimed uuid[];
begin
    -- Waits, where claim_batch would skip: a try of ours whose COMMIT answer was lost has ended then.
    perform 1 from open_effects o where o.id = any (v_ids) and o.external order by o.id for update;
    v_claimed := array(select c.effect_id from claim_batch(v_ids, p_claim_id, p_worker, p_incarnation, p_lease_ms - 1, 1, true) c
                       where c.verdict = 'claimed');
    -- A statement of its own, so that it sees the attempts.
    insert into grants (effect_id, holder, key_id, agent_id, at, lease_until)
    select a.effect_id, p_holder[f.n], p_key[f.n], p_agent[f.n], a.claimed_at, a.answer_by
    from attempts a
    cross join lateral (select min(i) as n from generate_subscripts(p_ids, 1) i where p_ids[i] = a.effect_id) f
    where a.effect_id = any (v_claimed) and a.seq = 1;
    return query
        select u.i::int,
               coalesce(a.claim_id = p_claim_id, false)
                   and u.i = (select min(n) from generate_subscripts(p_ids, 1) n where p_ids[n] = u.id),
               e.external, g.holder, coalesce(o.stage = 'dispatching' and o.answer_by > hf_now(), false),
               j.doc ->> 'status', j.doc ->> 'outcome', j.doc ->> 'error', j.doc::text
        from unnest(p_ids) with ordinality u(id, i)
        join effects e on e.id = u.id
        cross join lateral (select claim_json(u.id) as doc) j
        left join open_effects o on o.id = u.id
        left join grants g on g.effect_id = u.id
        left join attempts a on a.effect_id = u.id and a.seq = 1
        order by u.i;
end $$;
