-- What time does to an effect: sweep, expire; and the rejection of what was never sent.

-- What must have been settled long ago: claimed (or replayed) and nobody reported by answer_by. Makes
-- unknowns only. Returns what settle_batch says of each.
create function sweep(p_limit int, p_by text, p_read_ms int)
returns table (effect_id uuid, result text, environment_id int)
language plpgsql as $$
#variable_conflict use_column
declare
    v_ids uuid[];
    v_seqs int[];
    n int;
begin
    select array_agg(s.id order by s.id), array_agg(s.last_seq order by s.id) into v_ids, v_seqs from (
        select o.id, o.last_seq from open_effects o
        where o.answer_by <= hf_now() and o.stage in ('dispatching', 'reconciling')
        order by o.id limit p_limit for update) s;
    n := coalesce(cardinality(v_ids), 0);
    if n = 0 then
        return;
    end if;
    return query select b.effect_id, b.result, b.environment_id from settle_batch(
        v_ids, array_fill('sweep'::text, array[n]), v_seqs, array_fill('unknown'::effect_outcome, array[n]),
        array_fill(null::settle_reason, array[n]), array_fill('unverified'::verification, array[n]),
        array_fill(null::int, array[n]), array_fill(null::bytea, array[n]), array_fill(null::text, array[n]),
        array_fill(false, array[n]), array_fill(null::text, array[n]), array_fill(null::text, array[n]),
        array_fill('No worker reported how the write ended; it may have been applied.'::text, array[n]),
        array_fill(null::timestamptz, array[n]), array_fill(null::timestamptz, array[n]),
        array_fill(null::bigint, array[n]), array_fill(null::text, array[n]), array_fill(null::text, array[n]),
        array_fill(p_by, array[n]), p_read_ms, 0) b;
end $$;

-- Rejects what must not be sent any more: p_reason is expired (then only what is past its time), cancelled or
-- denied. Results as settle_batch's.
create function reject_batch(p_ids uuid[], p_reason settle_reason, p_error text, p_by text)
returns table (effect_id uuid, result text, environment_id int, stage effect_stage)
language sql as $$
    select * from settle_batch(
        p_ids, array_fill('reject'::text, array[cardinality(p_ids)]), array_fill(null::int, array[cardinality(p_ids)]),
        array_fill('not_dispatched'::effect_outcome, array[cardinality(p_ids)]),
        array_fill(p_reason, array[cardinality(p_ids)]),
        array_fill('unverified'::verification, array[cardinality(p_ids)]),
        array_fill(null::int, array[cardinality(p_ids)]), array_fill(null::bytea, array[cardinality(p_ids)]),
        array_fill(null::text, array[cardinality(p_ids)]), array_fill(false, array[cardinality(p_ids)]),
        array_fill(null::text, array[cardinality(p_ids)]), array_fill(p_error, array[cardinality(p_ids)]),
        array_fill('Nothing was sent.'::text, array[cardinality(p_ids)]),
        array_fill(null::timestamptz, array[cardinality(p_ids)]), array_fill(null::timestamptz, array[cardinality(p_ids)]),
        array_fill(null::bigint, array[cardinality(p_ids)]), array_fill(null::text, array[cardinality(p_ids)]),
        array_fill(null::text, array[cardinality(p_ids)]), array_fill(p_by, array[cardinality(p_ids)]), 0, 0)
$$;

-- Expires what has waited past dispatch_before, or past the end of its approval.
create function expire(p_limit int, p_by text)
returns table (effect_id uuid, result text, environment_id int, stage effect_stage)
language plpgsql as $$
#variable_conflict use_column
declare r record;
begin
    for r in
        select s.why, array_agg(s.id order by s.id) as ids from (
            select o.id, case when o.stage = 'awaiting_approval' then 'nobody decided its approval in time'
                              when o.dispatch_before <= hf_now() then 'nobody dispatched it in time'
                              else 'its approval expired before it was sent' end as why
            from open_effects o
            where o.stage in ('ready', 'awaiting_approval')
              and (o.dispatch_before <= hf_now()
                   or (o.gated and o.id in (select p.id from approvals p
                                            where p.closed_at is null and p.expires_at <= hf_now())))
            order by o.id limit p_limit for update of o skip locked) s -- one being claimed expires there
        group by s.why
    loop
        return query select b.effect_id, b.result, b.environment_id, b.stage
            from reject_batch(r.ids, 'expired', r.why, p_by) b;
    end loop;
end $$;
