-- What the wire shows of an invocation.

-- Bytes that a provider answered, as far as they can be shown: JSON, else text, else with escapes.
create function body_view(p_body bytea) returns json language plpgsql immutable as $$
declare
    v_text text;
begin
    if p_body is null then
        return null;
    end if;
    begin
        v_text := convert_from(p_body, 'UTF8');
    exception when others then
        return to_json(encode(substr(p_body, 1, 65536), 'escape'));
    end;
    if length(p_body) <= 65536 then
        begin
            return v_text::json;
        exception when others then null;
        end;
    end if;
    return to_json(left(v_text, 65536));
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
        'response', case when s.effect_id is null then body_view(v.response)
                         when s.response is null then null
                         when length(s.response) > 65536 and s.response_view is null
                             then to_json(left(convert_from(s.response, 'UTF8'), 65536))
                         else coalesce(s.response_view, convert_from(s.response, 'UTF8'))::json end,
        'error', error_sentence(q.status, q.stage, q.outcome, q.reason, e.governed, e.id, s.response_status, s.error,
                                q.corrected),
        'cause', case when q.status = 'failed' and q.reason <> 'manual' then s.error end,
        'pendingApproval', q.stage = 'awaiting_approval',
        'approvalId', case when e.approval_id is not null then prefixed('apr', e.approval_id) end,
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
                     or length(v.response) > 65536
                then ', "responseTruncated" : true' else '' end || '}'
    from effects e
    join effect_states q on q.id = e.id
    left join settlements s on s.effect_id = e.id
    left join keys k on k.environment_id = e.environment_id
        and k.key_hash = sha256(convert_to(e.idempotency_key, 'UTF8'))
    left join lateral (select x.response_status, x.response from evidence x
                       where s.effect_id is null and x.effect_id = e.id and x.kind = 'dispatch'
                       order by x.n desc limit 1) v on true
    where e.id = any (v_ids) and e.id between v_ids[1] and v_ids[cardinality(v_ids)];
end $$;
