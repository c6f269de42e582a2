-- What the wire shows of an effect, made from the facts in one place.

-- The state of effects: the open row, else the settlement.
create view effect_states as
select e.id, e.environment_id, e.action_name, e.action_id, e.governed, e.adapter, e.created_at, e.agent_id,
       e.requested_by, e.retry_of,
       coalesce(o.stage, case when s.outcome = 'not_dispatched' then 'rejected' else 'settled' end::effect_stage) as stage,
       coalesce(o.outcome, s.outcome) as outcome,
       s.reason,
       case when o.outcome = 'unknown' then 'unknown'
            when o.id is not null then 'pending'
            when s.outcome = 'succeeded' and (f.effect_id is not null or s.verification = 'provider') then 'confirmed'
            when s.outcome = 'succeeded' then 'acknowledged'
            when s.outcome = 'failed' then 'failed'
            when s.reason = 'denied' then 'denied'
            else 'refused' end as grade,
       case when o.stage = 'awaiting_approval' then 'pending_approval'
            when o.outcome = 'unknown' then 'unknown'
            when o.id is not null then 'running'
            when s.outcome <> 'not_dispatched' then s.outcome::text
            when s.reason = 'denied' then 'denied'
            when s.reason = 'refused' then 'failed'
            else 'expired' end as status,
       case when f.effect_id is not null then 'provider'::verification
            else coalesce(s.verification, 'unverified') end as verification,
       coalesce(o.conflict, c.effect_id is not null) as conflict,
       o.answer_by, s.settled_at,
       -- Rises with everything that may still change what a settled call answers.
       (case when s.effect_id is null then 0 else 1 end
        + case when f.effect_id is null then 0 else 1 end
        + case when c.effect_id is null then 0 else 1 end
        + case when t.original is null then 0 else 1 end) as revision,
       t.retry as retried_by
from effects e
left join open_effects o on o.id = e.id
left join settlements s on s.effect_id = e.id
left join confirmations f on f.effect_id = e.id
left join conflicts c on c.effect_id = e.id
left join retries t on t.original = e.id;

-- A sentence about a limit's refusal and the like stands in settlements.error.
create function error_sentence(p_status text, p_stage effect_stage, p_outcome effect_outcome, p_reason settle_reason,
                               p_governed boolean, p_id uuid, p_http int, p_error text) returns text
language plpgsql stable as $$
declare
    v_it text;
begin
    if p_status = 'succeeded' then
        return null;
    end if;
    v_it := case when p_governed then 'effect ' || prefixed('eff', p_id) else 'invocation ' || prefixed('inv', p_id) end;
    return case
        when p_status = 'unknown' and not p_governed then
            'The destination may have received this request and the outcome cannot be confirmed. Do not retry; inspect invocation '
            || prefixed('inv', p_id) || '.'
        when p_status = 'unknown' then
            'The provider may have applied effect ' || prefixed('eff', p_id) || '; Holdfast is reconciling it. Do not retry; inspect the effect.'
        when p_status = 'running' then
            'The request for ' || v_it || ' is still running. Do not send it again; read invocation ' || prefixed('inv', p_id) || '.'
        when p_reason = 'never_left' then
            'The request for ' || v_it || ' never left. Fix the cause before sending it again.'
        when p_reason = 'provider_4xx' then
            'The provider refused ' || v_it || ' with HTTP ' || p_http || '. Fix the cause before sending it again.'
        when p_reason = 'provider_record' and p_outcome = 'failed' then
            'The provider''s own record says that ' || v_it || ' failed' || coalesce(': ' || p_error, '') || '.'
        when p_reason = 'manual' and p_outcome = 'failed' then
            'A person resolved ' || v_it || ' as failed: ' || p_error
        when p_reason = 'refused' then
            'The request for ' || v_it || ' was refused and never left: ' || p_error || '.'
        when p_reason = 'expired' then
            'The request for ' || v_it || ' expired and never left: ' || p_error || '.'
        when p_reason = 'cancelled' then
            'The request for ' || v_it || ' was cancelled and never left.'
        when p_reason = 'denied' then
            'The approval of ' || v_it || ' was denied; nothing was sent.'
        end;
end $$;

-- Invocations as the wire shows them, and what caches their answers: `revision` is 0 while open, such an
-- answer must not be cached; else it is kept under the key and for the request that the hashes name.
create function invocation_json(p_ids uuid[])
returns table (id uuid, environment_id int, revision int, stage effect_stage, status text, key_hash bytea,
               request_hash bytea, doc text)
language plpgsql stable as $$
#variable_conflict use_column
declare
    v_ids uuid[] := array(select u from unnest(p_ids) u order by u);
begin
    return query
    select e.id, e.environment_id, q.revision, q.stage, q.status, k.key_hash, k.request_hash, left(json_build_object(
        'id', prefixed('inv', e.id),
        'effectId', case when e.governed then prefixed('eff', e.id) end,
        'action', e.action_name,
        'actionVersion', e.action_version,
        'status', q.status,
        'responseStatus', coalesce(s.response_status, v.response_status),
        'response', case when s.response is null then null
                         when length(s.response) > 65536 and s.response_view is null
                             then to_json(left(convert_from(s.response, 'UTF8'), 65536))
                         else coalesce(s.response_view, convert_from(s.response, 'UTF8'))::json end,
        'error', error_sentence(q.status, q.stage, q.outcome, q.reason, e.governed, e.id, s.response_status, s.error),
        'pendingApproval', q.stage = 'awaiting_approval',
        'approvalId', null,
        'idempotencyKey', e.idempotency_key,
        'operationKey', e.operation_key,
        'retryOf', case when e.retry_of is not null then prefixed('inv', e.retry_of) end,
        'retriedBy', case when q.retried_by is not null then prefixed('inv', q.retried_by) end,
        'runId', e.run_id,
        'parentSpanId', e.parent_span_id,
        'requestedBy', prefixed('key', e.requested_by),
        'createdAt', iso(e.created_at),
        'settledAt', iso(q.settled_at))::text, -1)
        || case when e.governed then format(', "grade" : "%s"', q.grade) else '' end
        || case when s.response_truncated or (length(s.response) > 65536 and s.response_view is null)
                then ', "responseTruncated" : true' else '' end || '}'
    from effects e
    join effect_states q on q.id = e.id
    left join settlements s on s.effect_id = e.id
    left join keys k on k.environment_id = e.environment_id
        and k.key_hash = sha256(convert_to(e.idempotency_key, 'UTF8'))
    left join lateral (select x.response_status from evidence x
                       where s.effect_id is null and x.effect_id = e.id and x.kind = 'dispatch'
                       order by x.n desc limit 1) v on true
    where e.id = any (v_ids) and e.id between v_ids[1] and v_ids[cardinality(v_ids)];
end $$;

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
                           where w.effect_id = a.effect_id and w.seq = a.seq and w.kind in ('dispatch', 'sweep', 'late')
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
        'unresolvedExposure', q.outcome = 'unknown',
        'impact', case when e.impact_dimension is not null then json_build_object(
            'dimension', e.impact_dimension, 'unit', e.impact_unit, 'amount', e.impact_amount, 'bound', e.impact_bound) end,
        'reservations', (
            select coalesce(json_agg(json_build_object(
                'limitId', prefixed('lim', h.limit_id),
                'amount', case when s.outcome = 'succeeded' then coalesce(s.consumed, a.hold_amount) else a.hold_amount end,
                'state', case s.outcome when 'succeeded' then 'consumed' when 'failed' then 'released' else 'held' end)
                order by h.limit_id), '[]')
            from attempts a cross join lateral unnest(a.hold_limits) h(limit_id)
            where a.effect_id = e.id and a.seq = 1),
        'attempts', attempts_json(e.id),
        'evidence', evidence_json(e.id),
        'preview', null,
        'dependsOn', '[]'::json,
        'compensates', null,
        'provider', json_build_object('adapter', e.adapter, 'idempotencyKey', e.provider_key,
            'objectId', coalesce((select f.object_id from confirmations f where f.effect_id = e.id), s.object_id)),
        'responseStatus', coalesce(s.response_status, (
            select v.response_status from evidence v where s.effect_id is null and v.effect_id = e.id
            and v.kind = 'dispatch' order by v.n desc limit 1)),
        'error', error_sentence(q.status, q.stage, q.outcome, q.reason, e.governed, e.id, s.response_status, s.error),
        'nextReadBackAt', (select iso(r.due_at) from reads_due r where r.effect_id = e.id and r.due_at < 'infinity'),
        'replayableUntil', null,
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
    where e.id = any (p_ids) and e.governed
$$;

create function limit_json(l limits) returns json language sql stable as $$
    select json_build_object(
        'id', prefixed('lim', l.id), 'name', l.name, 'dimension', l.dimension, 'unit', l.unit, 'period', l.period,
        'periodStart', to_char(period_start(l.period, hf_now()), 'YYYY-MM-DD'),
        'amount', l.amount, 'consumed', u.consumed, 'reserved', l.reserved, 'unknownExposure', l.unknown_exposure,
        'available', greatest(l.amount - u.consumed - l.reserved, 0),
        'actionName', l.action_name, 'resourcePrefix', l.resource_prefix, 'archived', l.archived_at is not null,
        'createdAt', iso(l.created_at))
    from (select coalesce((select g.consumed from limit_usage g
                           where g.limit_id = l.id and g.period_start = period_start(l.period, hf_now())), 0) as consumed) u
$$;

-- A version of an action as the wire shows it.
create function action_json(a actions, v action_versions) returns json language sql stable as $$
    select json_build_object(
        'id', prefixed('act', a.id), 'name', d -> 'name', 'description', d -> 'description',
        'version', v.version, 'enabled', d -> 'enabled', 'requiresApproval', d -> 'requiresApproval',
        'governed', coalesce(d -> 'adapter', d -> 'impact', d -> 'verify') is not null
                    or coalesce(d ->> 'governed' = 'true', false),
        'adapter', d -> 'adapter', 'method', d -> 'method', 'urlTemplate', d -> 'urlTemplate',
        'headers', d -> 'headers', 'bodyTemplate', d -> 'bodyTemplate', 'inputSchema', d -> 'inputSchema',
        'impact', d -> 'impact', 'verify', d -> 'verify', 'effectKey', d -> 'effectKey',
        'createdAt', iso(a.created_at), 'updatedAt', iso(v.created_at))
    from (select v.definition as d) x
$$;

-- What may be shown of a secret: everything but its value.
create function secret_json(s secrets) returns json language sql stable as $$
    select json_build_object(
        'name', s.name, 'description', s.description, 'version', s.version, 'allowedHosts', s.allowed_hosts,
        'allowedPlacements', s.allowed_placements, 'createdAt', iso(s.created_at), 'updatedAt', iso(s.updated_at))
$$;

create function environment_json(e environments) returns json language sql stable as $$
    select json_build_object(
        'id', 'env_' || e.id, 'name', e.name, 'halted', e.halted_at is not null, 'haltedAt', iso(e.halted_at),
        'reason', e.halt_reason)
$$;

-- A page of an environment's effects and how many there are, null past 10,000. A null filter lets all
-- pass. What asks for open effects only is read from the table of those, however long the history is.
create function effects_page(p_environment int, p_open boolean, p_action text, p_outcome effect_outcome,
                             p_stage effect_stage, p_grade text, p_adapter text, p_older_s bigint,
                             p_by_age boolean, p_limit bigint, p_offset bigint)
returns table (docs text, total bigint) language plpgsql stable as $$
declare
    v_from text := case when p_open then 'open_effects k join effect_states q on q.id = k.id' else 'effect_states q' end;
    v_where text := 'q.environment_id = $1 and q.governed'
        || case when p_action is not null then ' and q.action_name = $2' else '' end
        || case when p_outcome is not null then ' and q.outcome = $3' else '' end
        || case when p_stage is not null then ' and q.stage = $4' else '' end
        || case when p_grade is not null then ' and q.grade = $5' else '' end
        || case when p_adapter is not null then ' and q.adapter = $6' else '' end
        || case when p_older_s is not null then ' and q.created_at <= hf_now() - make_interval(secs => $7)' else '' end;
    v_ids uuid[];
begin
    execute format('select array(select q.id from %s where %s order by q.id %s limit $8 offset $9)',
                   v_from, v_where, case when p_by_age then 'asc' else 'desc' end)
    into v_ids
    using p_environment, p_action, p_outcome, p_stage, p_grade, p_adapter, p_older_s, p_limit, p_offset;
    execute format('select nullif(count(*), 10001) from (select 1 from %s where %s limit 10001) x', v_from, v_where)
    into total
    using p_environment, p_action, p_outcome, p_stage, p_grade, p_adapter, p_older_s;
    select coalesce(json_agg(j.doc::json order by u.n), '[]')::text into docs
    from unnest(v_ids) with ordinality u(id, n) join effect_json(v_ids) j on j.id = u.id;
    return next;
end $$;
