-- Approvals: what is approved, the word of a person, and what the claim checks.
--
-- Before and after each of them a process may die, pause or ask again:
--   decide   not committed: nothing was said. Committed and not told to the dispatchers: the row is ready, and
--            the scheduler publishes it. Asked twice: the word of an agent is one row; the second is told so.
--            Against a cancel, an expiry or another word: the open row's lock decides who is first, and the
--            other finds the approval closed.
--   use      in the claim's own transaction: there is an attempt if and only if the approval is used.
--   expire   as the others; what is approved and not claimed in time is not sent.

-- What an approval of an effect stands for, as canonical JSON: made from the effect itself, so the claim can
-- tell whether it is still that. Names are plain, keys are visible ASCII, the input is canonical already.
create function approval_payload(p_effect uuid) returns text language sql stable as $$
    select '{"action":' || to_json(e.action_name) || ',"actionVersion":' || e.action_version || ',"input":' || e.input
           || ',"operationKey":' || coalesce(to_json(e.operation_key)::text, 'null')
           || ',"requestHash":"' || encode(e.request_hash, 'hex') || '"}'
    from effects e where e.id = p_effect
$$;

-- Stores the approvals that accepted effects wait for. p_gate says, as JSON, what ingest found out of each.
create function approvals_ask(p_effect uuid[], p_gate json[], p_now timestamptz) returns void language sql as $$
    insert into approvals (id, environment_id, effect_id, action_name, title, description, payload, payload_hash,
        required_approvals, policy_id, policy_version, requested_by, agent_id, run_id, parent_span_id, created_at,
        expires_at)
    select e.id, e.environment_id, e.id, e.action_name, 'Run ' || e.action_name || ' for agent ' || e.agent_id,
        g.gate ->> 'description', x.payload, sha256(convert_to(x.payload, 'UTF8')), (g.gate ->> 'required')::int,
        e.policy_id, e.policy_version, e.requested_by, e.agent_id, e.run_id, e.parent_span_id, p_now,
        least(o.dispatch_before, p_now + make_interval(secs => (g.gate ->> 'expires')::int))
    from unnest(p_effect, p_gate) g(id, gate)
    join effects e on e.id = g.id
    join open_effects o on o.id = g.id
    cross join lateral (select approval_payload(e.id) as payload) x
    order by e.id
$$;

-- Settles what a policy denies as soon as it is accepted: it is denied for good and holds its operation.
create function effects_deny(p_effect uuid[], p_now timestamptz) returns void language sql as $$
    insert into settlements (effect_id, outcome, reason, verification, error, evidence, settled_by, settled_at)
    select e.id, 'not_dispatched', 'denied', 'unverified',
        format('policy %s (version %s) denies it', prefixed('pol', e.policy_id), e.policy_version),
        'Decided by a policy; nothing was sent.', prefixed('pol', e.policy_id), p_now
    from effects e where e.id = any (p_effect) order by e.id
$$;

-- Why an effect may not be claimed with the approval that it has; no row when it may. Its open row and its
-- approval are locked. Everything is checked against the effect's own row and the words that were said, so
-- that changing any one of them by hand is not enough. p_again: for a replay of what it was used for.
create function approval_refusal(p_effect uuid, p_now timestamptz, p_again boolean default false)
returns table (reason settle_reason, why text) language plpgsql stable as $$
declare
    e effects%rowtype;
    p approvals%rowtype;
    v_said bigint;
begin
    select f.* into e from effects f where f.id = p_effect;
    select a.* into p from approvals a where a.id = p_effect and a.effect_id = p_effect;
    reason := 'refused';
    if p.id is null or e.approval_id is distinct from p_effect then
        why := 'it needs an approval and has none';
    elsif p.status <> 'approved' then
        why := format('approval %s is %s', prefixed('apr', p.id), p.status);
    elsif p.used_at is not null and not p_again then
        why := format('approval %s was used already', prefixed('apr', p.id));
    elsif p.expires_at <= p_now then
        reason := 'expired';
        why := format('approval %s expired before it was sent', prefixed('apr', p.id));
    elsif sha256(convert_to(approval_payload(p_effect), 'UTF8')) <> p.payload_hash
          or sha256(convert_to(p.payload, 'UTF8')) <> p.payload_hash or sha256(e.request) <> e.request_hash then
        why := format('what approval %s allows is not what would be sent', prefixed('apr', p.id));
    else
        select count(*) into v_said from approval_decisions d
        where d.approval_id = p.id and d.decision = 'approve' and d.agent_id <> e.agent_id
          and d.key_id <> e.requested_by;
        if v_said >= p.required_approvals then
            return;
        end if;
        why := format('approval %s has the word of %s of %s', prefixed('apr', p.id), v_said, p.required_approvals);
    end if;
    return next;
end $$;

-- The word of a person. Verdicts:
--   approved   it was the last one needed; an effect is ready now, and to be published
--   counted    it counts; others have to say theirs
--   denied     an effect is rejected now
--   missing    there is no such approval in the environment
--   own        it asks for a call of this key or of another of the same agent
--   decided    too late; detail is its status
--   expired    too late, though nobody has written it down yet
--   said       this agent has had its word
create function approval_decide(p_id uuid, p_environment int, p_key uuid, p_agent text, p_decision text, p_note text)
returns table (verdict text, detail text, effect_id uuid, destination text) language plpgsql as $$
#variable_conflict use_column
declare
    p approvals%rowtype;
    v_now timestamptz := hf_now();
    v_by text := prefixed('key', p_key);
    v_destination text;
    v_result text;
begin
    select a.* into p from approvals a where a.id = p_id and a.environment_id = p_environment;
    if not found then
        return query select 'missing', null, null::uuid, null;
        return;
    end if;
    if p.effect_id is not null then
        perform 1 from open_effects o where o.id = p.effect_id for update;
    end if;
    -- A new statement, so that it sees what whoever we waited for has done.
    select a.* into p from approvals a where a.id = p_id for update;
    if p.requested_by = p_key or p.agent_id = p_agent then
        return query select 'own', null, p.effect_id, null;
        return;
    elsif p.status <> 'pending' then
        return query select 'decided', p.status::text, p.effect_id, null;
        return;
    elsif p.expires_at <= v_now then
        return query select 'expired', null, p.effect_id, null;
        return;
    end if;
    insert into approval_decisions (approval_id, agent_id, key_id, decision, note, at)
    values (p_id, p_agent, p_key, p_decision, p_note, v_now) on conflict do nothing;
    if not found then
        return query select 'said', null, p.effect_id, null;
        return;
    end if;
    if p_decision = 'deny' then
        update approvals set status = 'denied', decision_origin = 'human', decided_by = p_key, decided_at = v_now,
            note = p_note, closed_at = case when p.effect_id is null then v_now end where id = p_id;
        if p.effect_id is not null then
            select b.result into v_result from reject_batch(array[p.effect_id], 'denied',
                format('%s denied approval %s', v_by, prefixed('apr', p_id)) || coalesce(', saying: ' || rtrim(p_note, '. '), ''), v_by) b;
            if v_result is distinct from 'settled' then
                raise exception 'approval % is open and its effect is not', prefixed('apr', p_id) using errcode = 'HF002';
            end if;
        end if;
        return query select 'denied', null, p.effect_id, null;
        return;
    end if;
    if (select count(*) from approval_decisions d where d.approval_id = p_id and d.decision = 'approve')
       < p.required_approvals then
        return query select 'counted', null, p.effect_id, null;
        return;
    end if;
    update approvals set status = 'approved', decision_origin = 'human', decided_by = p_key, decided_at = v_now,
        note = p_note, closed_at = case when p.effect_id is null then v_now end where id = p_id;
    if p.effect_id is not null then
        update open_effects o set stage = 'ready', published_at = v_now, publish_count = 0
        where o.id = p.effect_id and o.stage = 'awaiting_approval' returning o.destination into v_destination;
        if not found then
            raise exception 'approval % is open and its effect is not', prefixed('apr', p_id) using errcode = 'HF002';
        end if;
    end if;
    return query select 'approved', null, p.effect_id, v_destination;
end $$;

-- Expires what was asked for by itself and not decided in time. (With an effect, `expire` does.)
create function approvals_expire(p_limit int) returns setof uuid language sql as $$
    update approvals p set status = 'expired', decision_origin = 'system', decided_at = hf_now(), closed_at = hf_now()
    from (select a.id from approvals a
          where a.closed_at is null and a.expires_at <= hf_now() and a.effect_id is null
          order by a.id limit p_limit for update skip locked) s
    where p.id = s.id
    returning p.id
$$;

-- An approval as the wire shows it.
create function approval_json(p approvals) returns json language sql stable as $$
    select json_build_object(
        'id', prefixed('apr', p.id), 'status', p.status, 'title', p.title, 'description', p.description,
        'payload', p.payload::json, 'payloadHash', encode(p.payload_hash, 'hex'), 'action', p.action_name,
        'invocationId', case when p.effect_id is not null then prefixed('inv', p.effect_id) end,
        'previewId', case when p.preview_id is not null then prefixed('prv', p.preview_id) end,
        'requestedBy', prefixed('key', p.requested_by), 'agentId', p.agent_id,
        'requiredApprovals', p.required_approvals,
        'decisions', (select coalesce(json_agg(json_build_object(
            'by', prefixed('key', d.key_id), 'agentId', d.agent_id, 'decision', d.decision, 'note', d.note,
            'at', iso(d.at)) order by d.at, d.agent_id), '[]') from approval_decisions d where d.approval_id = p.id),
        'decidedBy', case when p.decided_by is not null then prefixed('key', p.decided_by) end,
        'decisionOrigin', p.decision_origin, 'note', p.note,
        'policy', case when p.policy_id is not null then json_build_object(
            'id', prefixed('pol', p.policy_id), 'version', p.policy_version) end,
        'runId', p.run_id, 'parentSpanId', p.parent_span_id, 'usedAt', iso(p.used_at),
        'expiresAt', iso(p.expires_at), 'createdAt', iso(p.created_at), 'decidedAt', iso(p.decided_at))
$$;

-- A version of a policy as the wire shows it.
create function policy_json(p approval_policies, v approval_policy_versions) returns json language sql stable as $$
    select json_build_object(
        'id', prefixed('pol', p.id), 'version', v.version, 'name', d -> 'name', 'matchKind', d -> 'matchKind',
        'matchActionName', d -> 'matchActionName', 'matchAgentId', d -> 'matchAgentId',
        'matchUserId', d -> 'matchUserId', 'matchTags', d -> 'matchTags', 'minAmount', d -> 'minAmount',
        'conditions', d -> 'conditions', 'condition', null, 'effect', d -> 'effect',
        'requiredApprovals', d -> 'requiredApprovals', 'priority', d -> 'priority', 'enabled', d -> 'enabled',
        'acknowledgeBroadScope', d -> 'acknowledgeBroadScope', 'fromFile', p.from_file, 'deleted', v.deleted,
        'changeNote', v.change_note, 'createdBy', prefixed('key', v.created_by),
        'createdAt', iso(p.created_at), 'updatedAt', iso(v.created_at))
    from (select v.definition as d) x
$$;
