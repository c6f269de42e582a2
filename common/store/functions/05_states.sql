-- The state of an effect, and the sentence that goes with it.

-- The state of effects: the open row, else the settlement.
create view effect_states as
select e.id, e.environment_id, e.action_name, e.action_id, e.governed, e.adapter, e.created_at, e.agent_id,
       e.requested_by, e.retry_of,
       coalesce(o.stage, case when s.outcome = 'not_dispatched' then 'rejected' else 'settled' end::effect_stage) as stage,
       coalesce(o.outcome, s.outcome) as outcome,
       s.reason,
       case when o.outcome = 'unknown' then 'unknown'
            when o.id is not null then 'pending'
            when k.outcome is not null then case k.outcome when 'succeeded' then 'acknowledged' else 'failed' end
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
       case when k.outcome is not null then 'manual'::verification
            when f.effect_id is not null then 'provider'
            else coalesce(s.verification, 'unverified') end as verification,
       coalesce(o.conflict, c.effect_id is not null and (k.n is null or exists (
           select 1 from contradictions x where x.effect_id = e.id and x.n >= k.n))) as conflict,
       o.answer_by, s.settled_at,
       -- Rises with everything that may still change what a settled call answers.
       (case when s.effect_id is null then 0 else 1 end
        + case when f.effect_id is null then 0 else 1 end
        + case when c.effect_id is null then 0 else 1 end
        + case when t.original is null then 0 else 1 end
        + coalesce(k.n, 0)
        + case when k.n is null then 0 else (select count(*)::int from contradictions x where x.effect_id = e.id and x.n >= k.n) end) as revision,
       t.retry as retried_by,
       -- What a person found out about a settlement that was contradicted. The settlement stays.
       k.n as corrections, k.outcome as corrected
from effects e
left join open_effects o on o.id = e.id
left join settlements s on s.effect_id = e.id
left join confirmations f on f.effect_id = e.id
left join conflicts c on c.effect_id = e.id
left join retries t on t.original = e.id
left join lateral (select y.n, y.outcome from corrections y where y.effect_id = e.id order by y.n desc limit 1) k on true;

-- A sentence about a limit's refusal and the like stands in settlements.error.
create function error_sentence(p_status text, p_stage effect_stage, p_outcome effect_outcome, p_reason settle_reason,
                               p_governed boolean, p_id uuid, p_http int, p_error text, p_corrected effect_outcome) returns text
language plpgsql stable as $$
declare
    v_it text;
begin
    if p_corrected <> p_outcome then
        return 'Effect ' || prefixed('eff', p_id) || ' was settled ' || p_outcome || ', and a person corrected that later: it '
            || case p_corrected when 'succeeded' then 'did happen. Do not send it again.' else 'did not happen.' end;
    end if;
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
        when p_status = 'pending_approval' then
            'The request for ' || v_it || ' waits for approval ' || prefixed('apr', p_id)
            || ' and was not sent. Do not send it again; read the approval, or invocation ' || prefixed('inv', p_id) || '.'
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
        when p_reason = 'worker_report' and p_outcome = 'failed' then
            'The worker that performed ' || v_it || ' reported that it failed: ' || p_error || '.'
        when p_reason = 'refused' then
            'The request for ' || v_it || ' was refused and never left: ' || p_error || '.'
        when p_reason = 'expired' then
            'The request for ' || v_it || ' expired and never left: ' || p_error || '.'
        when p_reason = 'cancelled' then
            'The request for ' || v_it || ' was cancelled and never left.'
        when p_reason = 'denied' then
            'The request for ' || v_it || ' was denied and never left: ' || p_error
            || '. Do not send it again in another form.'
        end;
end $$;

grant select on effect_states to holdfast_service;
