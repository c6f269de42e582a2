-- Claim: the checks, the attempt and the holds, under the locks.

-- The limits that apply to an impact. (`l.*`, since `l` would keep it from being inlined.)
create function limits_of(p_environment int, p_dimension text, p_unit text, p_action text, p_resource text)
returns setof limits language sql stable as $$
    select l.* from limits l
    where l.environment_id = p_environment and l.archived_at is null
      and l.dimension = p_dimension and l.unit = p_unit
      and (l.action_name is null or l.action_name = p_action)
      and (l.resource_prefix is null or starts_with(coalesce(p_resource, ''), l.resource_prefix))
$$;

-- Claims a batch: p_ids ascending. One row an effect that was ready and lockable; what is missing was
-- claimed by somebody else, is settled, halted or being claimed now. Verdicts:
--   claimed   may be sent before send_by, by the caller whose COMMIT answered COMMIT
--   refused   settled not_dispatched; detail says why
--   expired   settled not_dispatched
--   held      its environment is halted: left ready (what falls under the halt of a part is not mentioned)
--   damaged   an attempt exists though the effect was ready: left as it is, an operator must look
-- Facts are looked up one by one (`lateral`, `limit 1`): a join on a range of ids would read all that lies
-- between the oldest of the batch and the newest.
create function claim_batch(p_ids uuid[], p_claim_id uuid, p_worker text, p_incarnation uuid,
                            p_lease_ms int, p_provider_ms int, p_external boolean default false)
returns table (effect_id uuid, verdict text, detail text, environment_id int, governed boolean,
               action_id uuid, action_name text, action_version int, adapter text, destination text,
               input text, request bytea, provider_key text, fault_drill boolean,
               secrets text[], secret_versions int[])
language plpgsql as $$
#variable_conflict use_column
declare
    v_now timestamptz := hf_now();
    v_min uuid := p_ids[1];
    v_max uuid := p_ids[cardinality(p_ids)];
    v_ready uuid[];
    v_gated uuid[];
    v_env int;
    v_halted int[];
    v_limits uuid[];
    v_left bigint[];
    v_name text[];
    v_amount bigint[];
    v_take uuid[] := '{}';
    v_take_limits text[] := '{}';
    v_take_periods text[] := '{}';
    v_no uuid[] := '{}';
    v_no_reason settle_reason[] := '{}';
    v_no_detail text[] := '{}';
    v_plain uuid[];
    v_claimed uuid[];
    v_why text;
    v_at int;
    r record;
begin
    -- Open rows first, in id order; a row that somebody else has in hand is not ours.
    select array_agg(s.id), coalesce(array_agg(s.id) filter (where s.gated), '{}') into v_ready, v_gated from (
        select o.id, o.gated from open_effects o where o.id = any (p_ids) and o.stage = 'ready' and o.external = p_external
        order by o.id for update skip locked) s;
    if v_ready is null then
        return;
    end if;

    -- Then their approvals.
    if v_gated <> '{}' then
        perform 1 from approvals p where p.id = any (v_gated) order by p.id for update;
    end if;

    -- A halt takes this lock exclusively: once it has it, no claim is between here and its COMMIT.
    for v_env in select distinct o.environment_id from open_effects o where o.id = any (v_ready) order by 1 loop
        perform pg_advisory_xact_lock_shared(1, v_env);
    end loop;
    select coalesce(array_agg(e.id), '{}') into v_halted from environments e
    where e.halted_at is not null
      and e.id in (select o.environment_id from open_effects o where o.id = any (v_ready));

    -- What falls under a halted action or destination is left ready, too.
    if exists (select 1 from halts h where h.environment_id in (select o.environment_id from open_effects o where o.id = any (v_ready))) then
        v_ready := array(
            select o.id from open_effects o
            cross join lateral (select f.action_name from effects f where f.id = o.id and f.id between v_min and v_max limit 1) e
            where o.id = any (v_ready) and not exists (select 1 from part_halted(o.environment_id, e.action_name, o.destination))
            order by o.id);
    end if;

    -- What may not run whatever the limits say.
    for r in
        select e.id, o.dispatch_before <= v_now as expired,
               case when c.effect_id is not null then 'the original ' || prefixed('inv', e.retry_of) || ' is in conflict'
                    when m.why is not null then m.why
                    when k.revoked_at is not null then 'the key that asked was revoked'
                    when x.missing is not null then 'secret ' || x.missing || ' does not exist'
                    else g.why end as why, g.reason
        from open_effects o
        cross join lateral (select * from effects f where f.id = o.id and f.id between v_min and v_max limit 1) e
        left join conflicts c on c.effect_id = e.retry_of
        left join lateral (
            select prefixed('eff', d.effect_id) || ', which it is to compensate or which compensated the same, is in conflict' as why
            from conflicts d
            where d.effect_id = e.compensates
               or d.effect_id in (select n.compensation from compensations n where n.original = e.compensates and n.compensation <> e.id)
            order by 1 limit 1) m on e.compensates is not null
        left join api_keys k on k.id = e.requested_by
        left join lateral (
            select n as missing from unnest(e.secrets) n
            where not exists (select 1 from secrets s where s.environment_id = e.environment_id
                              and s.name = n and s.sealed is not null)
            order by n limit 1) x on true
        left join lateral (select h.reason, h.why from approval_refusal(o.id, v_now) h
                           where o.gated or e.approval_id is not null) g on true
        where o.id = any (v_ready) and o.environment_id <> all (v_halted)
          and (o.dispatch_before <= v_now or c.effect_id is not null or k.revoked_at is not null
               or x.missing is not null or g.why is not null or m.why is not null)
        order by e.id
    loop
        v_no := v_no || r.id;
        v_no_reason := v_no_reason || case when r.expired or r.reason = 'expired' then 'expired'::settle_reason
                                           else 'refused' end;
        v_no_detail := v_no_detail || case when r.expired then 'nobody dispatched it in time' else r.why end;
    end loop;

    -- The limits that apply to any of the rest, locked in id order and read again under the lock.
    select array_agg(s.id) into v_limits from (
        select l.id from limits l
        where l.id in (select m.id from open_effects o
                       cross join lateral (select * from effects f where f.id = o.id and f.id between v_min and v_max limit 1) e
                       cross join lateral limits_of(e.environment_id, e.impact_dimension, e.impact_unit,
                                                    e.action_name, e.resource) m
                       where o.id = any (v_ready) and o.environment_id <> all (v_halted)
                         and o.id <> all (v_no) and e.impact_dimension is not null)
        order by l.id for update) s;
    if v_limits is not null then
        select array_agg(l.id order by l.id), array_agg(l.name order by l.id), array_agg(l.amount order by l.id),
               array_agg(l.amount - l.reserved - coalesce(u.consumed, 0) order by l.id)
        into v_limits, v_name, v_amount, v_left
        from limits l
        left join limit_usage u on u.limit_id = l.id and u.period_start = period_start(l.period, v_now)
        where l.id = any (v_limits) and l.archived_at is null;
    end if;
    -- One by one, in id order: each takes its part of every limit that applies, or is refused.
    for r in
        select e.id, e.impact_amount,
               array_agg(l.id order by l.id) as ids,
               array_agg(period_start(l.period, v_now) order by l.id) as periods
        from open_effects o
        cross join lateral (select * from effects f where f.id = o.id and f.id between v_min and v_max limit 1) e
        cross join lateral limits_of(e.environment_id, e.impact_dimension, e.impact_unit, e.action_name, e.resource) l
        where v_limits is not null and o.id = any (v_ready) and o.environment_id <> all (v_halted)
          and o.id <> all (v_no) and l.id = any (v_limits)
        group by e.id, e.impact_amount order by e.id
    loop
        v_why := null;
        if r.impact_amount is null then
            v_why := format('the impact has no quantity, and limit %s (%s) applies', prefixed('lim', r.ids[1]),
                            v_name[array_position(v_limits, r.ids[1])]);
        else
            for i in 1..cardinality(r.ids) loop
                v_at := array_position(v_limits, r.ids[i]);
                if v_left[v_at] < r.impact_amount then
                    v_why := format('limit %s (%s) has %s of %s left, %s asked for', prefixed('lim', r.ids[i]),
                                    v_name[v_at], greatest(v_left[v_at], 0), v_amount[v_at], r.impact_amount);
                    exit;
                end if;
            end loop;
        end if;
        if v_why is not null then
            v_no := v_no || r.id;
            v_no_reason := v_no_reason || 'refused'::settle_reason;
            v_no_detail := v_no_detail || v_why;
        else
            for i in 1..cardinality(r.ids) loop
                v_at := array_position(v_limits, r.ids[i]);
                v_left[v_at] := v_left[v_at] - r.impact_amount;
            end loop;
            v_take := v_take || r.id;
            v_take_limits := v_take_limits || r.ids::text;
            v_take_periods := v_take_periods || r.periods::text;
        end if;
    end loop;
    -- The rest has no limit to ask.
    select coalesce(array_agg(o.id order by o.id), '{}') into v_plain from open_effects o
    where o.id = any (v_ready) and o.environment_id <> all (v_halted)
      and o.id <> all (v_no) and o.id <> all (v_take);

    with made as (
        insert into attempts (effect_id, seq, kind, claim_id, worker, incarnation, claimed_at, send_by,
                              answer_by, secret_versions, hold_amount, hold_limits, hold_periods)
        select t.id, 1, 'dispatch', p_claim_id, p_worker, p_incarnation, v_now,
               v_now + make_interval(secs => p_lease_ms / 1000.0),
               v_now + make_interval(secs => (p_lease_ms + p_provider_ms) / 1000.0),
               array(select s.version from unnest(e.secrets) with ordinality n(name, i)
                     join secrets s on s.environment_id = e.environment_id and s.name = n.name order by n.i),
               case when t.limits is null then 0 else e.impact_amount end,
               coalesce(t.limits::uuid[], '{}'), coalesce(t.periods::date[], '{}')
        from (select * from unnest(v_take, v_take_limits, v_take_periods) x(id, limits, periods)
              union all select p, null, null from unnest(v_plain) p) t
        cross join lateral (select * from effects f where f.id = t.id and f.id between v_min and v_max limit 1) e
        on conflict do nothing
        returning effect_id)
    select coalesce(array_agg(effect_id), '{}') into v_claimed from made;

    -- What was claimed has used its approval up.
    if v_gated <> '{}' then
        update approvals p set used_at = v_now, used_by = p_claim_id, closed_at = v_now
        where p.id = any (v_gated) and p.id = any (v_claimed);
    end if;

    -- The holds follow from the attempts that were made.
    update limits l set reserved = l.reserved + h.amount
    from (select x.limit_id, sum(a.hold_amount)::bigint as amount
          from attempts a cross join lateral unnest(a.hold_limits) x(limit_id)
          where a.effect_id = any (v_claimed) and a.effect_id between v_min and v_max and a.seq = 1
          group by x.limit_id) h
    where l.id = h.limit_id;

    update open_effects o set stage = 'dispatching', last_seq = 1, worker = p_worker,
        send_by = v_now + make_interval(secs => p_lease_ms / 1000.0),
        answer_by = v_now + make_interval(secs => (p_lease_ms + p_provider_ms) / 1000.0)
    where o.id = any (v_claimed);

    if cardinality(v_no) > 0 then
        insert into settlements (effect_id, outcome, reason, verification, error, evidence, settled_by, settled_at)
        select n.id, 'not_dispatched', n.reason, 'unverified', n.detail, 'Checked in the claim; nothing was sent.',
               p_worker, v_now
        from unnest(v_no, v_no_reason, v_no_detail) n(id, reason, detail);
    end if;

    return query
        select e.id,
               case when n.reason is not null then n.reason::text
                    when e.environment_id = any (v_halted) then 'held'
                    when e.id = any (v_claimed) then 'claimed' else 'damaged' end,
               n.detail, e.environment_id, e.governed, e.action_id, e.action_name, e.action_version,
               e.adapter, e.destination, e.input, e.request, e.provider_key, e.fault_drill,
               coalesce(e.secrets, '{}'), coalesce(a.secret_versions, '{}')
        from unnest(v_ready) w(id)
        cross join lateral (select * from effects f where f.id = w.id and f.id between v_min and v_max limit 1) e
        left join lateral (select * from attempts b where b.effect_id = e.id
                           and b.effect_id between v_min and v_max and b.seq = 1 limit 1) a on true
        left join unnest(v_no, v_no_reason, v_no_detail) n(id, reason, detail) on n.id = e.id
        order by e.id;
end $$;

-- After a lost COMMIT answer: waits for whoever holds the rows (so the doubtful transaction has ended) and
-- says which attempts of that try exist, as claim_batch would have. Nothing else was claimed by it.
create function claim_recover(p_ids uuid[], p_claim_id uuid)
returns table (effect_id uuid, verdict text, detail text, environment_id int, governed boolean,
               action_id uuid, action_name text, action_version int, adapter text, destination text,
               input text, request bytea, provider_key text, fault_drill boolean,
               secrets text[], secret_versions int[], seq int)
language plpgsql as $$
#variable_conflict use_column
begin
    perform 1 from open_effects o where o.id = any (p_ids) order by o.id for update;
    return query
        select e.id, 'claimed', null, e.environment_id, e.governed, e.action_id, e.action_name, e.action_version,
               e.adapter, e.destination, e.input, e.request, e.provider_key, e.fault_drill,
               e.secrets, a.secret_versions, a.seq
        from attempts a join effects e on e.id = a.effect_id
        where a.effect_id = any (p_ids) and a.claim_id = p_claim_id
        order by e.id;
end $$;
