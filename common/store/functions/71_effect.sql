-- What the wire shows of an effect.

-- What a write attempt came to, in a word.
create function attempt_result(p_outcome effect_outcome, p_open boolean, p_ended boolean) returns text
language sql immutable as $$
    select case when p_outcome is not null then p_outcome::text
                when p_ended then 'unknown' when p_open then 'in_flight' else 'unknown' end
$$;

-- Write attempts and reads of one effect, in the order they happened.
create function attempts_json(p_id uuid) returns json language sql stable as $$
    select coalesce(json_agg(json_build_object(
        'seq', x.n, 'kind', x.kind, 'worker', x.worker, 'claimedAt', iso(x.claimed_at), 'sendBy', iso(x.send_by),
        'sentAt', iso(x.sent_at), 'finishedAt', iso(x.finished_at), 'result', x.result, 'evidence', x.text)
        order by x.n), '[]')
    from (select row_number() over (order by y.at, y.rank) as n, y.* from (
        select a.claimed_at as at, 0 as rank, a.kind::text as kind, a.worker, a.claimed_at, a.send_by,
               coalesce(s.sent_at, v.sent_at) as sent_at, coalesce(s.finished_at, v.finished_at) as finished_at,
               attempt_result(case when s.seq = a.seq then s.outcome end, o.id is not null, v.n is not null) as result,
               coalesce(case when s.seq = a.seq then s.evidence end, v.text) as text
        from attempts a
        left join open_effects o on o.id = a.effect_id
        left join settlements s on s.effect_id = a.effect_id and s.seq = a.seq
        left join lateral (select w.* from evidence w
                           where w.effect_id = a.effect_id and w.seq = a.seq and w.kind in ('dispatch', 'worker', 'sweep', 'late')
                           order by w.n limit 1) v on true
        where a.effect_id = p_id
        union all
        select r.at, 1, 'reconcile', r.by, null, null, null, r.at, 'unknown', r.text
        from evidence r where r.effect_id = p_id and r.kind = 'reconcile'
        union all
        select s.settled_at, 2, 'reconcile', s.settled_by, null, null, null, s.settled_at, s.outcome::text, s.evidence
        from settlements s where s.effect_id = p_id and s.reason = 'provider_record'
        union all
        select f.at, 3, 'reconcile', f.by, null, null, null, f.at, 'succeeded', f.evidence
        from confirmations f where f.effect_id = p_id) y) x
$$;

create function evidence_json(p_id uuid) returns json language sql stable as $$
    select coalesce(json_agg(json_build_object('at', iso(x.at), 'kind', x.kind, 'text', x.text, 'by', x.by)
                             order by x.at, x.n), '[]')
    from (select v.at, v.n, v.kind, v.text, v.by from evidence v where v.effect_id = p_id
          union all
          select s.settled_at, 9223372036854775806,
                 case when s.reason = 'manual' then 'manual' when s.reason = 'provider_record' then 'reconcile'
                      when s.outcome = 'not_dispatched' then 'claim' else 'dispatch' end, s.evidence, s.settled_by
          from settlements s where s.effect_id = p_id
          union all
          select f.at, 9223372036854775807, 'reconcile', f.evidence, f.by from confirmations f where f.effect_id = p_id) x
$$;

-- Effects as the wire shows them.
create function effect_json(p_ids uuid[]) returns table (id uuid, doc text)
language sql stable as $$
    select e.id, json_build_object(
        'id', prefixed('eff', e.id),
        'invocationId', prefixed('inv', e.id),
        'action', e.action_name,
        'actionVersion', e.action_version,
        'outcome', q.outcome,
        'stage', q.stage,
        'grade', q.grade,
        'verification', q.verification,
        'unresolvedExposure', q.outcome = 'unknown' or coalesce(x.rehold, 0) > 0,
        'impact', case when e.impact_dimension is not null then json_build_object(
            'dimension', e.impact_dimension, 'unit', e.impact_unit, 'amount', e.impact_amount, 'bound', e.impact_bound) end,
        'reservations', (
            select coalesce(json_agg(json_build_object(
                'limitId', prefixed('lim', h.limit_id),
                'amount', case r.state when 'consumed' then r.spent when 'held' then coalesce(x.rehold, a.hold_amount)
                          else a.hold_amount end,
                'state', r.state)
                order by h.limit_id), '[]')
            from attempts a cross join lateral unnest(a.hold_limits) h(limit_id)
            cross join lateral (select coalesce(k.consumed, case s.outcome when 'succeeded' then coalesce(s.consumed, a.hold_amount)
                                                                           else coalesce(s.consumed, 0) end) as spent) p
            cross join lateral (select p.spent, case when s.effect_id is null or x.rehold > 0 then 'held'
                                                     when p.spent > 0 or coalesce(q.corrected, s.outcome) = 'succeeded' then 'consumed'
                                                     else 'released' end as state) r
            where a.effect_id = e.id and a.seq = 1),
        'attempts', attempts_json(e.id),
        'evidence', evidence_json(e.id),
        'approvalId', case when e.approval_id is not null then prefixed('apr', e.approval_id) end,
        'policy', case when e.policy_id is not null then json_build_object(
            'id', prefixed('pol', e.policy_id), 'version', e.policy_version) end,
        'preview', null,
        'dependsOn', '[]'::json,
        'compensates', case when e.compensates is not null then prefixed('eff', e.compensates) end,
        'compensatedBy', coalesce((select json_agg(prefixed('eff', m.compensation) order by m.compensation)
                                   from compensations m where m.original = e.id), '[]'),
        'provider', json_build_object('adapter', e.adapter, 'idempotencyKey', e.provider_key,
            'objectId', coalesce((select f.object_id from confirmations f where f.effect_id = e.id), s.object_id)),
        'responseStatus', coalesce(s.response_status, (
            select v.response_status from evidence v where s.effect_id is null and v.effect_id = e.id
            and v.kind = 'dispatch' order by v.n desc limit 1)),
        'error', error_sentence(q.status, q.stage, q.outcome, q.reason, e.governed, e.id, s.response_status, s.error,
                                q.corrected),
        'nextReadBackAt', (select iso(r.due_at) from reads_due r where r.effect_id = e.id and r.due_at < 'infinity'),
        'replayableUntil', case when q.outcome = 'unknown' and not q.conflict then (
            select iso(a.claimed_at + make_interval(secs => replay_window_s(e.adapter))) from attempts a
            where a.effect_id = e.id and a.seq = 1
              and a.claimed_at + make_interval(secs => replay_window_s(e.adapter)) > hf_now()) end,
        'pendingReplay', (
            select json_build_object('seq', w.seq, 'requestedBy', prefixed('key', y.requested_by), 'requestedAt', iso(y.at),
                                     'sendBefore', iso(w.claim_before))
            from open_replays w join replays y on y.effect_id = w.effect_id and y.seq = w.seq where w.effect_id = e.id),
        'corrections', (
            select coalesce(json_agg(json_build_object('outcome', y.outcome, 'reason', y.reason, 'consumed', y.consumed,
                'partialEffect', y.partial_effect, 'externalReference', y.external_reference, 'by', y.by, 'at', iso(y.at))
                order by y.n), '[]')
            from corrections y where y.effect_id = e.id),
        'conflict', q.conflict,
        'retryOf', case when e.retry_of is not null then prefixed('inv', e.retry_of) end,
        'retriedBy', case when q.retried_by is not null then prefixed('inv', q.retried_by) end,
        'externalReference', s.external_reference,
        'partialEffect', s.partial_effect,
        'createdAt', iso(e.created_at),
        'settledAt', iso(q.settled_at))::text
    from effects e
    join effect_states q on q.id = e.id
    left join settlements s on s.effect_id = e.id
    left join corrections k on k.effect_id = e.id and k.n = q.corrections
    left join contradictions x on x.effect_id = e.id and x.n = coalesce(q.corrections, 0)
    where e.id = any (p_ids) and e.governed
$$;


-- A page of an environment's effects and how many there are, null past 10,000. A null filter lets all
-- pass. What asks for open effects only is read from the table of those, however long the history is.
create function effects_page(p_environment int, p_open boolean, p_action text, p_outcome effect_outcome,
                             p_stage effect_stage, p_grade text, p_adapter text, p_older_s bigint,
                             p_by_age boolean, p_limit bigint, p_offset bigint, p_held_to text[],
                             p_conflict boolean)
returns table (docs text, total bigint) language plpgsql stable as $$
declare
    v_from text := case when p_open then 'open_effects k join effect_states q on q.id = k.id'
                        when p_conflict then 'conflicts k join effect_states q on q.id = k.effect_id'
                        else 'effect_states q' end;
    v_where text := 'q.environment_id = $1 and q.governed'
        || case when p_action is not null then ' and q.action_name = $2' else '' end
        || case when p_outcome is not null then ' and q.outcome = $3' else '' end
        || case when p_stage is not null then ' and q.stage = $4' else '' end
        || case when p_grade is not null then ' and q.grade = $5' else '' end
        || case when p_adapter is not null then ' and q.adapter = $6' else '' end
        || case when p_older_s is not null then ' and q.created_at <= hf_now() - make_interval(secs => $7)' else '' end
        || case when p_conflict then ' and q.conflict' when not p_conflict then ' and not q.conflict' else '' end
        || case when p_held_to is not null then ' and q.action_name = any ($10)' else '' end;
    v_ids uuid[];
begin
    execute format('select array(select q.id from %s where %s order by q.id %s limit $8 offset $9)',
                   v_from, v_where, case when p_by_age then 'asc' else 'desc' end)
    into v_ids
    using p_environment, p_action, p_outcome, p_stage, p_grade, p_adapter, p_older_s, p_limit, p_offset,
          p_held_to;
    execute format('select nullif(count(*), 10001) from (select 1 from %s where %s limit 10001) x', v_from, v_where)
    into total
    using p_environment, p_action, p_outcome, p_stage, p_grade, p_adapter, p_older_s, p_limit, p_offset,
          p_held_to;
    select coalesce(json_agg(j.doc::json order by u.n), '[]')::text into docs
    from unnest(v_ids) with ordinality u(id, n) join effect_json(v_ids) j on j.id = u.id;
    return next;
end $$;
