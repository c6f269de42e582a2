-- The protocol: accept, claim, settle, sweep, and what is read back. Each function is called as the one
-- statement between BEGIN and COMMIT of a batch; none waits for a client while it holds a lock.
--
-- Before and after each of them a process may die, pause or ask again:
--   accept   not committed: nothing happened, the agent asks again with its key. Committed but the answer
--            lost: asking again finds the key. Asked twice at once: the key's primary key makes one wait.
--   claim    not committed: the row is still ready. Committed and the worker dies: the row is dispatching
--            with a deadline, and the sweep makes it unknown. Asked twice: the second finds no ready row.
--   settle   not committed: the row is still dispatching, the sweep makes it unknown. Asked twice: the
--            second finds it settled and appends what it knows as evidence.
--   sweep    only makes unknowns, and only past answer_by. A late answer may settle those.

-- Accepts a batch. The arrays are parallel, one element a call; no two calls of a batch share a key, an
-- operation or an original (the caller keeps such for the next batch), keys in ascending order.
-- p_gate is what the policies make of a call, as JSON: {"effect", "policy", "version", "required", "expires",
-- "description"}; null: no policy, no approval. What needs an approval is stored with it; what is denied is
-- settled at once.
-- p_external: a worker outside the fleet will perform it, no dispatcher claims it.
-- Verdicts, one row a call:
--   accepted          the call is stored under its own id
--   key_same          the key is known with the same request: effect_id is the one it made
--   key_reuse         the key is known with another request
--   operation_same    the operation is held by effect_id with the same input; the key is bound to it now
--   operation_reuse   the operation is held by effect_id with another input; detail is its status
--   halted            the environment is halted; nothing is stored
--   part_halted       its action or destination is halted, detail says which; nothing is stored
--   over_budget       the key has used its budget up, detail is PERIOD SECONDS LIMIT; nothing is stored
--   retry_refused     detail says why; nothing is stored
--   compensates_refused  the same
create function accept_batch(
    p_id uuid[], p_environment int[], p_key text[], p_key_hash bytea[], p_body_hash bytea[],
    p_operation text[], p_operation_hash bytea[], p_input_hash bytea[], p_retry_of uuid[],
    p_action uuid[], p_action_name text[], p_action_version int[], p_governed boolean[], p_adapter text[],
    p_destination text[], p_input text[], p_request bytea[], p_request_hash bytea[], p_secrets text[],
    p_provider_key text[], p_dimension text[], p_unit text[], p_amount bigint[], p_bound text[],
    p_resource text[], p_requested_by uuid[], p_agent text[], p_run text[], p_span text[],
    p_has_read_back boolean[], p_fault_drill boolean[], p_dispatch_before_s int[], p_gate text[] default null,
    p_external boolean[] default null, p_compensates uuid[] default null)
returns table (ord int, verdict text, effect_id uuid, detail text)
language plpgsql as $$
#variable_conflict use_column
declare
    v_now timestamptz := hf_now();
    v_lock bigint;
    v_verdict text[] := array_fill(null::text, array[cardinality(p_id)]);
    v_effect uuid[] := p_id;
    v_detail text[] := array_fill(null::text, array[cardinality(p_id)]);
    v_operation text[] := p_operation;
    v_operation_hash bytea[] := p_operation_hash;
    v_generation int[] := array_fill(0, array[cardinality(p_id)]);
    v_compensates uuid[] := coalesce(p_compensates, array_fill(null::uuid, array[cardinality(p_id)]));
    v_compensated uuid[] := '{}';
    v_budgeted uuid[];
    r record;
begin
    -- Calls that share an operation or an original with another transaction take turns, in one order.
    if exists (select 1 from unnest(p_operation_hash, p_retry_of, p_compensates) u(o, t, c)
               where o is not null or t is not null or c is not null)
    then
        -- A retry that names no operation of its own goes on under its original's.
        for r in select u.i, e.operation_key
                 from unnest(p_retry_of, p_operation_hash) with ordinality u(original, op, i)
                 join effects e on e.id = u.original
                 where u.op is null and e.operation_key is not null and e.environment_id = p_environment[u.i]
        loop
            v_operation[r.i] := r.operation_key;
            v_operation_hash[r.i] := sha256(convert_to(r.operation_key, 'UTF8'));
        end loop;
        -- The retry of a compensation is one too.
        for r in select u.i, e.compensates from unnest(p_retry_of) with ordinality u(original, i)
                 join effects e on e.id = u.original
                 where e.compensates is not null and v_compensates[u.i] is null and e.environment_id = p_environment[u.i]
        loop
            v_compensates[r.i] := r.compensates;
        end loop;
        for v_lock in
            select distinct hashtextextended(x.what, 17) as h from (
                select 'o' || p_environment[i] || encode(h, 'hex') as what
                from unnest(v_operation_hash) with ordinality u(h, i) where h is not null
                union all
                select 'r' || t::text from unnest(p_retry_of) t where t is not null
                union all
                select 'c' || c::text from unnest(v_compensates) c where c is not null) x
            order by h
        loop
            perform pg_advisory_xact_lock(v_lock);
        end loop;
    end if;

    -- What is there already. A new statement, so that it sees what those we waited for committed.
    for r in
        select u.i, k.effect_id as known, k.request_hash = p_body_hash[u.i] as same, e.halted_at is not null as halted
        from unnest(p_environment, p_key_hash) with ordinality u(env, hash, i)
        join environments e on e.id = u.env
        left join keys k on k.environment_id = u.env and k.key_hash = u.hash
        where k.effect_id is not null or e.halted_at is not null
    loop
        v_verdict[r.i] := case when r.known is null then 'halted' when r.same then 'key_same' else 'key_reuse' end;
        v_effect[r.i] := coalesce(r.known, v_effect[r.i]);
    end loop;

    if exists (select 1 from halts h where h.environment_id = any (p_environment)) then
        for r in
            select i, h.part || ' ' || h.name as what from generate_subscripts(p_id, 1) i
            cross join lateral part_halted(p_environment[i], p_action_name[i], p_destination[i]) h
            where v_verdict[i] is null
        loop
            v_verdict[r.i] := 'part_halted';
            v_detail[r.i] := r.what;
        end loop;
    end if;

    -- retryOf: a failed original of the same action, not in conflict, not retried before.
    for r in
        select u.i, case
            when e.id is null then 'no invocation of this environment has that id'
            when e.action_id <> p_action[u.i] then 'the original is an invocation of another action'
            when s.effect_id is null and o.outcome = 'unknown' then 'the original is unknown: it may have happened'
            when s.effect_id is null then 'the original is not settled'
            when s.outcome <> 'failed' then 'the original has not failed: its outcome is ' || s.outcome
            when c.effect_id is not null then 'the original is in conflict: what was found contradicts its outcome'
            when t.original is not null then 'the original has been retried already by ' || prefixed('inv', t.retry)
            end as reason
        from unnest(p_retry_of) with ordinality u(original, i)
        left join effects e on e.id = u.original and e.environment_id = p_environment[u.i]
        left join open_effects o on o.id = e.id
        left join settlements s on s.effect_id = e.id
        left join conflicts c on c.effect_id = e.id
        left join retries t on t.original = e.id
        where u.original is not null and v_verdict[u.i] is null
    loop
        if r.reason is not null then
            v_verdict[r.i] := 'retry_refused';
            v_detail[r.i] := r.reason;
        end if;
    end loop;

    -- Operations: who holds it now?
    for r in
        select u.i, h.effect_id as holder, h.generation, h.input_hash = p_input_hash[u.i] as same,
               s.outcome, s.reason, coalesce(o.outcome::text, s.outcome::text) as known
        from unnest(v_operation_hash) with ordinality u(hash, i)
        cross join lateral (
            select g.effect_id, g.generation, g.input_hash from operations g
            where g.environment_id = p_environment[u.i] and g.operation_hash = u.hash
            order by g.generation desc limit 1) h
        left join open_effects o on o.id = h.effect_id
        left join settlements s on s.effect_id = h.effect_id
        where u.hash is not null and v_verdict[u.i] is null
    loop
        if (r.outcome = 'not_dispatched' and r.reason <> 'denied')
           or (r.outcome = 'failed' and p_retry_of[r.i] = r.holder) then
            v_generation[r.i] := r.generation + 1;
        elsif r.same and p_retry_of[r.i] is null then
            v_verdict[r.i] := 'operation_same';
            v_effect[r.i] := r.holder;
        else
            v_verdict[r.i] := 'operation_reuse';
            v_effect[r.i] := r.holder;
            v_detail[r.i] := r.known;
        end if;
    end loop;

    -- compensates: a success, not in conflict, that no other effect undoes or may have undone. One that failed or
    -- was never sent undid nothing, so another may follow. Two of a batch: the second is refused.
    for r in
        select u.i, u.original, case
            when e.id is null then 'no effect of this environment has that id'
            when s.effect_id is null and o.outcome = 'unknown' then 'it is unknown: it may not have happened'
            when s.effect_id is null then 'it is not settled'
            when s.outcome <> 'succeeded' then 'it has not succeeded: its outcome is ' || s.outcome
            when c.effect_id is not null then 'it is in conflict: what was found contradicts its outcome'
            when f.compensates is distinct from u.original then 'the original of retryOf does not compensate it'
            else 'it is compensated already by ' || prefixed('eff', l.compensation) end as reason
        from unnest(v_compensates, p_retry_of) with ordinality u(original, retry_of, i)
        left join effects e on e.id = u.original and e.environment_id = p_environment[u.i]
        left join open_effects o on o.id = e.id
        left join settlements s on s.effect_id = e.id
        left join conflicts c on c.effect_id = e.id
        left join lateral (select y.compensates from effects y where y.id = u.retry_of
                           union all select u.original where u.retry_of is null) f on true
        left join lateral (select m.compensation from compensations m
                           left join settlements t on t.effect_id = m.compensation
                           left join conflicts d on d.effect_id = m.compensation
                           where m.original = e.id and (d.effect_id is not null or t.effect_id is null
                                                        or t.outcome = 'succeeded') limit 1) l on true
        where u.original is not null and v_verdict[u.i] is null
        order by u.i
    loop
        if r.reason is null and r.original = any (v_compensated) then
            r.reason := 'another call compensates it at this moment';
        end if;
        if r.reason is not null then
            v_verdict[r.i] := 'compensates_refused';
            v_effect[r.i] := r.original;
            v_detail[r.i] := r.reason;
        end if;
        v_compensated := v_compensated || r.original;
    end loop;

    -- Budgets: only what is new counts. The rows stay locked until the COMMIT, so that all ingests together keep
    -- to them; a key without a budget has none.
    v_budgeted := array(select k.id from api_keys k where k.id = any (p_requested_by)
                        and (k.calls_per_minute is not null or k.calls_per_month is not null) order by k.id);
    for r in
        select x.i, b.detail from (
            select i, p_requested_by[i] as key, row_number() over (partition by p_requested_by[i] order by i) as n
            from generate_subscripts(p_id, 1) i
            where v_verdict[i] is null and p_requested_by[i] = any (v_budgeted)) x
        join (select k as id, l.* from unnest(v_budgeted) k cross join lateral budget_left(k, v_now) l) b on b.id = x.key
        where v_budgeted <> '{}' and x.n > b.calls
    loop
        v_verdict[r.i] := 'over_budget';
        v_detail[r.i] := r.detail;
    end loop;

    -- The keys, in order. One that another transaction took meanwhile is answered from its row.
    with taken as (
        insert into keys (environment_id, key_hash, effect_id, request_hash)
        select p_environment[i], p_key_hash[i], v_effect[i], p_body_hash[i]
        from generate_subscripts(p_id, 1) i
        where v_verdict[i] is null or v_verdict[i] = 'operation_same'
        order by p_environment[i], p_key_hash[i]
        on conflict do nothing
        returning environment_id, key_hash)
    select array_agg(case when v_verdict[i] is null and x.taken then 'accepted'
                          when v_verdict[i] is null or (v_verdict[i] = 'operation_same' and not x.taken)
                          then 'lost' else v_verdict[i] end order by i)
    into v_verdict
    from (select i, (p_environment[i], p_key_hash[i]) in (select environment_id, key_hash from taken) as taken
          from generate_subscripts(p_id, 1) i) x;
    for r in
        select u.i, k.effect_id as known, k.request_hash = p_body_hash[u.i] as same
        from unnest(v_verdict) with ordinality u(what, i)
        join keys k on k.environment_id = p_environment[u.i] and k.key_hash = p_key_hash[u.i]
        where u.what = 'lost'
    loop
        v_verdict[r.i] := case when r.same then 'key_same' else 'key_reuse' end;
        v_effect[r.i] := r.known;
    end loop;

    if v_budgeted <> '{}' then
        perform budget_spend(p_requested_by[i], count(*)) from generate_subscripts(p_id, 1) i
        where v_verdict[i] = 'accepted' and p_requested_by[i] = any (v_budgeted)
        group by p_requested_by[i] order by p_requested_by[i];
    end if;

    insert into operations (environment_id, operation_hash, generation, effect_id, input_hash)
    select p_environment[i], v_operation_hash[i], v_generation[i], p_id[i], p_input_hash[i]
    from generate_subscripts(p_id, 1) i
    where v_verdict[i] = 'accepted' and v_operation_hash[i] is not null;

    insert into retries (original, retry, at)
    select p_retry_of[i], p_id[i], v_now from generate_subscripts(p_id, 1) i
    where v_verdict[i] = 'accepted' and p_retry_of[i] is not null;

    insert into compensations (compensation, original, at)
    select p_id[i], v_compensates[i], v_now from generate_subscripts(p_id, 1) i
    where v_verdict[i] = 'accepted' and v_compensates[i] is not null;

    insert into effects (id, environment_id, action_id, action_name, action_version, governed, adapter,
        destination, input, request, request_hash, secrets, idempotency_key, operation_key, provider_key,
        retry_of, run_id, parent_span_id, requested_by, agent_id, impact_dimension, impact_unit,
        impact_amount, impact_bound, resource, has_read_back, fault_drill, created_at, approval_id, policy_id,
        policy_version, external, compensates)
    select p_id[i], p_environment[i], p_action[i], p_action_name[i], p_action_version[i], p_governed[i],
        p_adapter[i], p_destination[i], p_input[i], p_request[i], p_request_hash[i],
        coalesce(string_to_array(nullif(p_secrets[i], ''), ','), '{}'), p_key[i], v_operation[i], p_provider_key[i],
        p_retry_of[i], p_run[i], p_span[i], p_requested_by[i], p_agent[i], p_dimension[i], p_unit[i],
        p_amount[i], p_bound[i], p_resource[i], p_has_read_back[i], p_fault_drill[i], v_now,
        case when p_gate[i] is not null and p_gate[i]::json ->> 'effect' = 'require_approval' then p_id[i] end,
        case when p_gate[i] is not null then (p_gate[i]::json ->> 'policy')::uuid end,
        case when p_gate[i] is not null then (p_gate[i]::json ->> 'version')::int end,
        coalesce(p_external[i], false), v_compensates[i]
    from generate_subscripts(p_id, 1) i where v_verdict[i] = 'accepted';

    insert into open_effects (id, environment_id, stage, destination, dispatch_before, published_at, gated, external)
    select p_id[i], p_environment[i],
           case when p_gate[i] is null or p_gate[i]::json ->> 'effect' = 'auto_approve' then 'ready'
                else 'awaiting_approval' end::effect_stage,
           p_destination[i], v_now + make_interval(secs => p_dispatch_before_s[i]), v_now,
           p_gate[i] is not null and p_gate[i]::json ->> 'effect' = 'require_approval',
           coalesce(p_external[i], false)
    from generate_subscripts(p_id, 1) i where v_verdict[i] = 'accepted';

    if exists (select 1 from unnest(p_gate) g where g is not null) then
        perform approvals_ask(array_agg(p_id[i]), array_agg(p_gate[i]::json), v_now)
        from generate_subscripts(p_id, 1) i
        where v_verdict[i] = 'accepted' and p_gate[i]::json ->> 'effect' = 'require_approval';
        perform effects_deny(array_agg(p_id[i]), v_now)
        from generate_subscripts(p_id, 1) i
        where v_verdict[i] = 'accepted' and p_gate[i]::json ->> 'effect' = 'auto_deny';
    end if;

    return query select i, v_verdict[i], v_effect[i], v_detail[i] from generate_subscripts(p_id, 1) i;
end $$;
