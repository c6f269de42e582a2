-- Settle: what an end, a read, a person or a deadline does to an effect, decided under the locks.

-- Settles a batch: ids ascending and distinct. p_kind says who speaks: dispatch (a write attempt's end),
-- reconcile (a read of the provider), manual (a person), worker (one outside the fleet, of what it performed
-- itself), reject (expired, cancelled), sweep.
-- What happens to each is decided under the locks, from the rows alone:
--   settled      the settlement is in, the open row gone, the limits moved
--   unknown      now reconciling; held; a read is due (only on demand where it is in conflict already)
--   pending      now reconciling, not final at the provider; held; a read is due
--   evidence     appended as evidence; nothing moved
--   late         the effect was settled before: appended as evidence
--   conflict     late, and it contradicts the outcome: marked
--   wrong_stage  refused: the effect is not where this could settle it; nothing appended
--   lease_ended  refused: a worker may report a failure only while it holds the lease; nothing appended
--   in_flight    refused: a write may still be answered; nothing appended
--   missing      no such effect
create function settle_batch(
    p_id uuid[], p_kind text[], p_seq int[], p_outcome effect_outcome[], p_reason settle_reason[],
    p_verification verification[], p_status int[], p_response bytea[], p_view text[], p_truncated boolean[],
    p_object text[], p_error text[], p_evidence text[], p_sent_at timestamptz[], p_finished_at timestamptz[],
    p_consumed bigint[], p_reference text[], p_partial text[], p_by text[], p_read_ms int, p_confirm_ms int)
returns table (effect_id uuid, result text, environment_id int, stage effect_stage)
language plpgsql as $$
#variable_conflict use_column
declare
    v_now timestamptz := hf_now();
    v_min uuid := p_id[1];
    v_max uuid := p_id[cardinality(p_id)];
begin
    perform 1 from open_effects o where o.id = any (p_id) order by o.id for update;
    perform 1 from limits l
    where l.id in (select unnest(a.hold_limits) from attempts a
                   where a.effect_id = any (p_id) and a.effect_id between v_min and v_max and a.seq = 1)
    order by l.id for update;

    return query
    with decided as materialized (
        select i.*, o.environment_id as env, o.stage as was_stage, o.outcome as was, o.last_seq, e.has_read_back,
               s.outcome as settled_outcome, s.consumed as settled_consumed, a.hold_amount, a.hold_limits, a.hold_periods,
               -- of a failure, as a person says: the part that happened, or may have
               case when i.kind = 'manual' and i.outcome = 'failed' and i.partial in ('possible', 'confirmed')
                    then coalesce(i.consumed, a.hold_amount) end as part,
               o.conflict as in_conflict, i.kind in ('dispatch', 'worker', 'sweep') and i.seq = o.last_seq as ends_flight,
               case
               when e.id is null then 'missing'
               when o.id is null and i.kind in ('manual', 'reject') then 'wrong_stage'
               when o.id is null and i.outcome in ('succeeded', 'failed')
                   and coalesce((select k.outcome from corrections k where k.effect_id = i.id order by k.n desc limit 1), s.outcome) <> i.outcome
                   -- the end of one write of several says nothing of the others
                   and not (i.outcome = 'failed' and i.kind = 'dispatch' and exists (
                       select 1 from attempts b where b.effect_id = i.id and b.effect_id between v_min and v_max and b.seq > 1)) then 'conflict'
               when o.id is null then 'late'
               when i.kind = 'manual' and o.answer_by > v_now then 'in_flight'
               when i.kind = 'worker' and i.outcome = 'failed'
                   and not (o.stage = 'dispatching' and o.answer_by > v_now) then 'lease_ended'
               when (i.outcome = 'not_dispatched') <> (o.stage in ('ready', 'awaiting_approval')) then 'wrong_stage'
               when i.kind = 'sweep' and not (o.answer_by <= v_now) then 'wrong_stage'
               when o.conflict and i.kind <> 'manual' then case o.stage when 'dispatching' then 'unknown' else 'evidence' end
               when i.outcome = 'failed' and i.kind = 'dispatch' and o.last_seq > 1 then 'evidence'
               when i.outcome in ('succeeded', 'failed', 'not_dispatched') then 'settled'
               when i.outcome = 'unknown' and o.stage = 'dispatching' then 'unknown'
               when i.outcome = 'pending' and (o.stage = 'dispatching' or o.outcome = 'unknown') then 'pending'
               else 'evidence' end as result
        from unnest(p_id, p_kind, p_seq, p_outcome, p_reason, p_verification, p_status, p_response, p_view,
                    p_truncated, p_object, p_error, p_evidence, p_sent_at, p_finished_at, p_consumed,
                    p_reference, p_partial, p_by)
             i(id, kind, seq, outcome, reason, verification, status, response, view, truncated, object, error,
               evidence, sent_at, finished_at, consumed, reference, partial, by)
        left join lateral (select * from effects f where f.id = i.id and f.id between v_min and v_max limit 1) e on true
        left join open_effects o on o.id = i.id
        left join lateral (select * from settlements t
                           where t.effect_id = i.id and t.effect_id between v_min and v_max limit 1) s on true
        left join lateral (select * from attempts b where b.effect_id = i.id
                           and b.effect_id between v_min and v_max and b.seq = 1 limit 1) a on true
    ), settling as (
        insert into settlements (effect_id, outcome, reason, verification, response_status, response,
            response_view, response_truncated, object_id, error, evidence, seq, sent_at, finished_at, consumed,
            external_reference, partial_effect, settled_by, settled_at)
        select d.id, d.outcome, d.reason, d.verification, d.status, d.response, d.view,
            coalesce(d.truncated, false), d.object, d.error, d.evidence, d.seq, d.sent_at, d.finished_at,
            case when d.outcome = 'failed' then d.part else d.consumed end, d.reference, d.partial, d.by, v_now
        from decided d where d.result = 'settled' order by d.id
        returning 1
    ), moving as (
        update open_effects o set
            stage = 'reconciling', outcome = d.result::effect_outcome,
            answer_by = case when d.ends_flight or d.was_stage = 'dispatching' then null else o.answer_by end,
            send_by = case when d.ends_flight or d.was_stage = 'dispatching' then null else o.send_by end
        from decided d where o.id = d.id and d.result in ('unknown', 'pending')
        returning 1
    ), ending as ( -- the end of a replay, or a second word on the dispatch: nothing is in flight any more
        update open_effects o set answer_by = null, send_by = null
        from decided d where o.id = d.id and d.result = 'evidence' and d.ends_flight
            and o.stage = 'reconciling' and o.answer_by is not null
        returning 1
    ), telling as (
        insert into evidence (effect_id, at, kind, seq, text, by, response_status, response, sent_at, finished_at)
        select d.id, v_now,
            case when d.result in ('late', 'conflict') then d.result
                 when d.kind = 'reject' then 'note' else d.kind end,
            d.seq, d.evidence, d.by, d.status, d.response, d.sent_at, d.finished_at
        from decided d where d.result in ('unknown', 'pending', 'evidence', 'late', 'conflict') order by d.id
        returning 1
    ), contradicting as (
        insert into conflicts (effect_id, at, evidence, by)
        select d.id, v_now, format('The effect was settled %s, and then: %s', d.settled_outcome, d.evidence), d.by
        from decided d where d.result = 'conflict'
        on conflict do nothing returning 1
    ), contradicted as ( -- what was released and happened all the same counts again, until a person corrects it
        insert into contradictions (effect_id, n, rehold, at)
        select d.id, coalesce(k.n, 0),
            case when d.outcome = 'succeeded'
                 then greatest(d.hold_amount - coalesce(k.consumed, d.settled_consumed, 0), 0) else 0 end, v_now
        from decided d
        left join lateral (select c.n, c.consumed from corrections c where c.effect_id = d.id order by c.n desc limit 1) k on true
        where d.result = 'conflict' order by d.id
        on conflict do nothing returning effect_id, rehold
    ), delta as (
        select h.limit_id, h.period,
            sum(case d.result when 'settled' then d.hold_amount when 'conflict' then -k.rehold else 0 end)::bigint as released,
            sum(case when d.result = 'settled' and d.outcome = 'succeeded' then coalesce(d.consumed, d.hold_amount)
                     when d.result = 'settled' then coalesce(d.part, 0)
                     else 0 end)::bigint as consumed,
            sum(case when d.result = 'conflict' then k.rehold
                     when d.result = 'unknown' then d.hold_amount
                     when d.result in ('settled', 'pending') and d.was = 'unknown' then -d.hold_amount
                     else 0 end)::bigint as exposed
        from decided d
        left join contradicted k on k.effect_id = d.id
        cross join lateral unnest(d.hold_limits, d.hold_periods) h(limit_id, period)
        where d.result in ('settled', 'unknown', 'pending') or k.rehold > 0
        group by h.limit_id, h.period
    ), holding as (
        update limits l set reserved = l.reserved - t.released, unknown_exposure = l.unknown_exposure + t.exposed
        from (select limit_id, sum(released)::bigint as released, sum(exposed)::bigint as exposed
              from delta group by limit_id) t
        where l.id = t.limit_id and (t.released <> 0 or t.exposed <> 0)
        returning 1
    ), consuming as (
        insert into limit_usage as u (limit_id, period_start, consumed)
        select limit_id, period, consumed from delta where consumed > 0 order by limit_id, period
        on conflict (limit_id, period_start) do update set consumed = u.consumed + excluded.consumed
        returning 1
    ), reading as (
        insert into reads_due as r (effect_id, environment_id, purpose, due_at, give_up_at)
        select d.id, d.env,
            case when d.result <> 'settled' then 'unknown' when d.outcome = 'succeeded' then 'confirm' else 'watch' end,
            v_now + make_interval(secs => case when d.result = 'settled' and d.outcome = 'succeeded'
                                               then p_confirm_ms else p_read_ms end / 1000.0),
            case when d.result <> 'settled' then null
                 when d.outcome = 'succeeded' then v_now + interval '15 minutes'
                 else v_now + interval '24 hours' end
        from decided d
        where d.has_read_back
          and (d.result in ('unknown', 'pending') and not d.in_conflict
               or (d.result = 'settled' and d.reason in ('provider_2xx', 'worker_report'))
               or (d.result = 'settled' and d.reason = 'manual' and d.outcome = 'failed'))
        order by d.id
        on conflict (effect_id) do update set purpose = excluded.purpose, due_at = excluded.due_at,
            give_up_at = excluded.give_up_at, step = 0, tries = 0, reads = 0
        returning 1
    ), read_no_more as ( -- nor once the provider's record agrees with a failure, or contradicts what is settled
        delete from reads_due r using decided d
        where r.effect_id = d.id
          and (d.kind = 'reconcile' and (d.result = 'conflict' or (d.result = 'late' and d.outcome = 'failed'))
               or d.result = 'settled' and not (d.has_read_back
                   and (d.reason in ('provider_2xx', 'worker_report') or (d.reason = 'manual' and d.outcome = 'failed'))))
        returning 1
    )
    select d.id, d.result, d.env, d.was_stage from decided d order by d.id;
end $$;
