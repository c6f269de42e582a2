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

-- ---------------------------------------------------------------- accept

-- Accepts a batch. The arrays are parallel, one element a call; no two calls of a batch share a key, an
-- operation or an original (the caller keeps such for the next batch), keys in ascending order.
-- Verdicts, one row a call:
--   accepted          the call is stored under its own id
--   key_same          the key is known with the same request: effect_id is the one it made
--   key_reuse         the key is known with another request
--   operation_same    the operation is held by effect_id with the same input; the key is bound to it now
--   operation_reuse   the operation is held by effect_id with another input; detail is its status
--   halted            the environment is halted; nothing is stored
--   retry_refused     detail says why; nothing is stored
create function accept_batch(
    p_id uuid[], p_environment int[], p_key text[], p_key_hash bytea[], p_body_hash bytea[],
    p_operation text[], p_operation_hash bytea[], p_input_hash bytea[], p_retry_of uuid[],
    p_action uuid[], p_action_name text[], p_action_version int[], p_governed boolean[], p_adapter text[],
    p_destination text[], p_input text[], p_request bytea[], p_request_hash bytea[], p_secrets text[],
    p_provider_key text[], p_dimension text[], p_unit text[], p_amount bigint[], p_bound text[],
    p_resource text[], p_requested_by uuid[], p_agent text[], p_run text[], p_span text[],
    p_has_read_back boolean[], p_fault_drill boolean[], p_dispatch_before_s int[])
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
    r record;
begin
    -- Calls that share an operation or an original with another transaction take turns, in one order.
    if exists (select 1 from unnest(p_operation_hash, p_retry_of) u(o, t) where o is not null or t is not null)
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
        for v_lock in
            select distinct hashtextextended(x.what, 17) as h from (
                select 'o' || p_environment[i] || encode(h, 'hex') as what
                from unnest(v_operation_hash) with ordinality u(h, i) where h is not null
                union all
                select 'r' || t::text from unnest(p_retry_of) t where t is not null) x
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

    insert into operations (environment_id, operation_hash, generation, effect_id, input_hash)
    select p_environment[i], v_operation_hash[i], v_generation[i], p_id[i], p_input_hash[i]
    from generate_subscripts(p_id, 1) i
    where v_verdict[i] = 'accepted' and v_operation_hash[i] is not null;

    insert into retries (original, retry, at)
    select p_retry_of[i], p_id[i], v_now from generate_subscripts(p_id, 1) i
    where v_verdict[i] = 'accepted' and p_retry_of[i] is not null;

    insert into effects (id, environment_id, action_id, action_name, action_version, governed, adapter,
        destination, input, request, request_hash, secrets, idempotency_key, operation_key, provider_key,
        retry_of, run_id, parent_span_id, requested_by, agent_id, impact_dimension, impact_unit,
        impact_amount, impact_bound, resource, has_read_back, fault_drill, created_at)
    select p_id[i], p_environment[i], p_action[i], p_action_name[i], p_action_version[i], p_governed[i],
        p_adapter[i], p_destination[i], p_input[i], p_request[i], p_request_hash[i],
        coalesce(string_to_array(nullif(p_secrets[i], ''), ','), '{}'), p_key[i], v_operation[i], p_provider_key[i],
        p_retry_of[i], p_run[i], p_span[i], p_requested_by[i], p_agent[i], p_dimension[i], p_unit[i],
        p_amount[i], p_bound[i], p_resource[i], p_has_read_back[i], p_fault_drill[i], v_now
    from generate_subscripts(p_id, 1) i where v_verdict[i] = 'accepted';

    insert into open_effects (id, environment_id, stage, destination, dispatch_before, published_at)
    select p_id[i], p_environment[i], 'ready', p_destination[i],
           v_now + make_interval(secs => p_dispatch_before_s[i]), v_now
    from generate_subscripts(p_id, 1) i where v_verdict[i] = 'accepted';

    return query select i, v_verdict[i], v_effect[i], v_detail[i] from generate_subscripts(p_id, 1) i;
end $$;

-- ---------------------------------------------------------------- claim

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
--   held      halted: left ready
--   damaged   an attempt exists though the effect was ready: left as it is, an operator must look
-- Facts are looked up one by one (`lateral`, `limit 1`): a join on a range of ids would read all that lies
-- between the oldest of the batch and the newest.
create function claim_batch(p_ids uuid[], p_claim_id uuid, p_worker text, p_incarnation uuid,
                            p_lease_ms int, p_provider_ms int)
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
    select array_agg(s.id) into v_ready from (
        select o.id from open_effects o where o.id = any (p_ids) and o.stage = 'ready'
        order by o.id for update skip locked) s;
    if v_ready is null then
        return;
    end if;

    -- A halt takes this lock exclusively: once it has it, no claim is between here and its COMMIT.
    for v_env in select distinct o.environment_id from open_effects o where o.id = any (v_ready) order by 1 loop
        perform pg_advisory_xact_lock_shared(1, v_env);
    end loop;
    select coalesce(array_agg(e.id), '{}') into v_halted from environments e
    where e.halted_at is not null
      and e.id in (select o.environment_id from open_effects o where o.id = any (v_ready));

    -- What may not run whatever the limits say.
    for r in
        select e.id, o.dispatch_before <= v_now as expired,
               case when c.effect_id is not null then 'the original ' || prefixed('inv', e.retry_of) || ' is in conflict'
                    when k.revoked_at is not null then 'the key that asked was revoked'
                    when x.missing is not null then 'secret ' || x.missing || ' does not exist'
               end as why
        from open_effects o
        cross join lateral (select * from effects f where f.id = o.id and f.id between v_min and v_max limit 1) e
        left join conflicts c on c.effect_id = e.retry_of
        left join api_keys k on k.id = e.requested_by
        left join lateral (
            select n as missing from unnest(e.secrets) n
            where not exists (select 1 from secrets s where s.environment_id = e.environment_id
                              and s.name = n and s.sealed is not null)
            order by n limit 1) x on true
        where o.id = any (v_ready) and o.environment_id <> all (v_halted)
          and (o.dispatch_before <= v_now or c.effect_id is not null or k.revoked_at is not null
               or x.missing is not null)
        order by e.id
    loop
        v_no := v_no || r.id;
        v_no_reason := v_no_reason || case when r.expired then 'expired'::settle_reason else 'refused' end;
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
               secrets text[], secret_versions int[])
language plpgsql as $$
#variable_conflict use_column
begin
    perform 1 from open_effects o where o.id = any (p_ids) order by o.id for update;
    return query
        select e.id, 'claimed', null, e.environment_id, e.governed, e.action_id, e.action_name, e.action_version,
               e.adapter, e.destination, e.input, e.request, e.provider_key, e.fault_drill,
               e.secrets, a.secret_versions
        from attempts a join effects e on e.id = a.effect_id
        where a.effect_id = any (p_ids) and a.seq = 1 and a.claim_id = p_claim_id
        order by e.id;
end $$;

-- ---------------------------------------------------------------- settle

-- Settles a batch: ids ascending and distinct. p_kind says who speaks: dispatch (a write attempt's end),
-- reconcile (a read of the provider), manual (a person), reject (expired, cancelled), sweep.
-- What happens to each is decided under the locks, from the rows alone:
--   settled      the settlement is in, the open row gone, the limits moved
--   unknown      now reconciling; held; a read is due (only on demand where it is in conflict already)
--   pending      now reconciling, not final at the provider; held; a read is due
--   evidence     appended as evidence; nothing moved
--   late         the effect was settled before: appended as evidence
--   conflict     late, and it contradicts the outcome: marked
--   wrong_stage  refused: the effect is not where this could settle it; nothing appended
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
               s.outcome as settled_outcome, a.hold_amount, a.hold_limits, a.hold_periods,
               o.conflict as in_conflict, i.kind in ('dispatch', 'sweep') and i.seq = o.last_seq as ends_flight,
               case
               when e.id is null then 'missing'
               when o.id is null and i.kind in ('manual', 'reject') then 'wrong_stage'
               when o.id is null and i.outcome in ('succeeded', 'failed') and s.outcome <> i.outcome then 'conflict'
               when o.id is null then 'late'
               when i.kind = 'manual' and o.answer_by > v_now then 'in_flight'
               when (i.outcome = 'not_dispatched') <> (o.stage in ('ready', 'awaiting_approval')) then 'wrong_stage'
               when i.kind = 'sweep' and not (o.answer_by <= v_now) then 'wrong_stage'
               when o.conflict and i.kind <> 'manual' then case o.stage when 'dispatching' then 'unknown' else 'evidence' end
               when i.outcome = 'failed' and i.reason in ('never_left', 'provider_4xx') and o.last_seq > 1 then 'evidence'
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
            d.consumed, d.reference, d.partial, d.by, v_now
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
    ), delta as (
        select h.limit_id, h.period,
            sum(case when d.result = 'settled' then d.hold_amount else 0 end)::bigint as released,
            sum(case when d.result = 'settled' and d.outcome = 'succeeded' then coalesce(d.consumed, d.hold_amount)
                else 0 end)::bigint as consumed,
            sum(case when d.result = 'unknown' then d.hold_amount
                     when d.result in ('settled', 'pending') and d.was = 'unknown' then -d.hold_amount
                     else 0 end)::bigint as exposed
        from decided d cross join lateral unnest(d.hold_limits, d.hold_periods) h(limit_id, period)
        where d.result in ('settled', 'unknown', 'pending')
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
               or (d.result = 'settled' and d.reason = 'provider_2xx')
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
                   and (d.reason = 'provider_2xx' or (d.reason = 'manual' and d.outcome = 'failed'))))
        returning 1
    )
    select d.id, d.result, d.env, d.was_stage from decided d order by d.id;
end $$;

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

-- Rejects what must not be sent any more: p_reason is expired (then only what is past its time) or
-- cancelled. Results as settle_batch's.
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

-- Expires what has waited past dispatch_before.
create function expire(p_limit int, p_by text)
returns table (effect_id uuid, result text, environment_id int)
language plpgsql as $$
#variable_conflict use_column
declare v_ids uuid[];
begin
    select array_agg(s.id order by s.id) into v_ids from (
        select o.id from open_effects o
        where o.stage in ('ready', 'awaiting_approval') and o.dispatch_before <= hf_now()
        order by o.id limit p_limit for update skip locked) s; -- one being claimed expires there
    if v_ids is null then
        return;
    end if;
    return query select b.effect_id, b.result, b.environment_id
        from reject_batch(v_ids, 'expired', 'nobody dispatched it in time', p_by) b;
end $$;

-- ---------------------------------------------------------------- the scheduler's other work

-- Ready effects whose message may be lost: the interval doubles a row to p_max_ms. Moves published_at, so
-- that a row is taken once an interval. p_lag_ms is how far the consumers are behind.
create function republish_take(p_limit int, p_after_ms int, p_max_ms int, p_lag_ms bigint)
returns table (effect_id uuid, environment_id int, destination text)
language sql as $$
    update open_effects o set published_at = hf_now(), publish_count = o.publish_count + 1
    from (select q.id from open_effects q join environments e on e.id = q.environment_id
          where q.stage = 'ready' and e.halted_at is null
            and q.published_at + make_interval(secs => (p_lag_ms + least(p_after_ms * 2.0 ^ least(q.publish_count, 20), p_max_ms)) / 1000.0)
                <= hf_now()
          order by q.published_at limit p_limit for update of q skip locked) s
    where o.id = s.id
    returning o.id, o.environment_id, o.destination
$$;

-- Reads that are due, unknowns first; each is leased by moving its time.
create function reads_take(p_limit int, p_lease_ms int)
returns table (effect_id uuid, environment_id int, purpose text)
language sql as $$
    update reads_due r set due_at = hf_now() + make_interval(secs => p_lease_ms / 1000.0)
    from (select q.effect_id from reads_due q
          where q.due_at <= hf_now()
          order by q.purpose = 'confirm', q.due_at limit p_limit for update skip locked) s
    where r.effect_id = s.effect_id
    returning r.effect_id, r.environment_id, r.purpose
$$;

-- ---------------------------------------------------------------- reads

-- What a read-back works from: effects that are open and unknown or pending, or settled with a read due.
create function read_facts(p_ids uuid[])
returns table (effect_id uuid, environment_id int, action_id uuid, action_name text, action_version int,
               adapter text, input text, provider_key text, dimension text, unit text, amount bigint,
               bound text, resource text, created_at timestamptz, object_id text, response bytea,
               open boolean, in_flight boolean, conflict boolean, purpose text, step int, tries int, reads int,
               give_up_at timestamptz, due boolean)
language sql stable as $$
    select e.id, e.environment_id, e.action_id, e.action_name, e.action_version, e.adapter, e.input,
           e.provider_key, e.impact_dimension, e.impact_unit, e.impact_amount, e.impact_bound, e.resource,
           e.created_at, s.object_id, coalesce(s.response, v.response), o.id is not null,
           coalesce(o.answer_by > hf_now(), false), coalesce(o.conflict, c.effect_id is not null),
           r.purpose, r.step, r.tries, r.reads, r.give_up_at, r.effect_id is not null
    from effects e
    left join open_effects o on o.id = e.id
    left join settlements s on s.effect_id = e.id
    left join conflicts c on c.effect_id = e.id
    left join reads_due r on r.effect_id = e.id
    left join lateral (select x.response from evidence x
                       where x.effect_id = e.id and x.kind = 'dispatch' and x.response is not null
                       order by x.n desc limit 1) v on true
    where e.id = any (p_ids)
$$;

-- A read that settled nothing. p_kind: not_found and not_final use up a step; unusable uses up none and is
-- tried again; impossible ends the reads. p_next_ms is when the next one is due, NULL for never by itself.
-- Evidence is written for each, but for not_final (settle_batch has) and for the unusable ones after the
-- first of a row, which say nothing new. A confirming read ends with its time or its third look.
create function read_ended(p_id uuid[], p_kind text[], p_text text[], p_status int[], p_next_ms bigint[], p_by text[])
returns table (effect_id uuid) language plpgsql as $$
#variable_conflict use_column
begin
    return query
    with told as (
        select * from unnest(p_id, p_kind, p_text, p_status, p_next_ms, p_by) t(id, kind, text, status, next_ms, by)
    ), moved as (
        update reads_due r set
            step = r.step + case when t.kind = 'unusable' then 0 else 1 end,
            tries = case when t.kind = 'unusable' then r.tries + 1 else 0 end,
            reads = r.reads + case when t.kind = 'unusable' then 0 else 1 end,
            due_at = case when t.next_ms is null then 'infinity'
                          else hf_now() + make_interval(secs => t.next_ms / 1000.0) end,
            last_read_at = hf_now(), running_until = null
        from told t
        where r.effect_id = t.id and t.kind <> 'impossible'
          and (r.give_up_at is null or r.give_up_at > hf_now())
          and not (r.purpose = 'confirm' and t.kind <> 'unusable' and r.reads + 1 >= 3)
        returning r.effect_id, r.tries
    ), ended as (
        delete from reads_due r using told t
        where r.effect_id = t.id and r.effect_id not in (select m.effect_id from moved m)
        returning r.effect_id
    ), written as (
        insert into evidence (effect_id, at, kind, text, by, response_status)
        select t.id, hf_now(), 'reconcile', t.text, t.by, t.status
        from told t left join moved m on m.effect_id = t.id
        where t.kind <> 'not_final' and not (t.kind = 'unusable' and coalesce(m.tries, 1) > 1)
        returning 1
    )
    select t.id from told t;
end $$;

-- A confirming read matched.
create function confirm_batch(p_id uuid[], p_text text[], p_object text[], p_by text[])
returns table (effect_id uuid) language plpgsql as $$
#variable_conflict use_column
begin
    delete from reads_due r where r.effect_id = any (p_id);
    return query
    insert into confirmations (effect_id, at, evidence, object_id, by)
    select t.id, hf_now(), t.text, t.object, t.by
    from unnest(p_id, p_text, p_object, p_by) t(id, text, object, by)
    join settlements s on s.effect_id = t.id and s.outcome = 'succeeded'
    order by t.id on conflict do nothing
    returning confirmations.effect_id;
end $$;

-- A read found what contradicts the record: marks it, open or settled. Reads of an open one go on being
-- possible on demand; none is scheduled.
create function conflict_mark(p_id uuid, p_text text, p_by text) returns boolean language plpgsql as $$
declare v_new boolean;
begin
    perform 1 from open_effects o where o.id = p_id for update;
    insert into conflicts (effect_id, at, evidence, by) values (p_id, hf_now(), p_text, p_by)
    on conflict do nothing;
    v_new := found;
    insert into evidence (effect_id, at, kind, text, by) values (p_id, hf_now(), 'conflict', p_text, p_by);
    update open_effects set conflict = true where id = p_id and not conflict;
    update reads_due set due_at = 'infinity', running_until = null, last_read_at = hf_now()
    where effect_id = p_id and exists (select 1 from open_effects o where o.id = p_id);
    if not found then -- settled before: nothing more is to be read
        delete from reads_due where effect_id = p_id;
    end if;
    return v_new;
end $$;

-- Someone wants the provider read now. Answers: settled, in_flight, not_sent, impossible (no read-back is
-- declared), recent (read within the last second), join (a read is under way), lead (publish it).
create function reconcile_ask(p_id uuid, p_environment int, p_timeout_ms int) returns text
language plpgsql as $$
declare
    v_now timestamptz := hf_now();
    o record;
    r record;
begin
    select q.* into o from open_effects q where q.id = p_id and q.environment_id = p_environment for update;
    if not found then
        return case when exists (select 1 from effects e where e.id = p_id and e.environment_id = p_environment)
                    then 'settled' else 'missing' end;
    end if;
    if o.stage in ('ready', 'awaiting_approval') then
        return 'not_sent';
    end if;
    if o.answer_by > v_now then
        return 'in_flight';
    end if;
    select d.* into r from reads_due d where d.effect_id = p_id for update;
    if not found then
        if not (select e.has_read_back from effects e where e.id = p_id) then
            return 'impossible';
        end if;
        insert into reads_due (effect_id, environment_id, purpose, due_at, running_until)
        values (p_id, p_environment, 'unknown', 'infinity', v_now + make_interval(secs => p_timeout_ms / 1000.0));
        return 'lead';
    end if;
    if r.running_until > v_now then
        return 'join';
    end if;
    if r.last_read_at > v_now - interval '1 second' then
        return 'recent';
    end if;
    update reads_due set running_until = v_now + make_interval(secs => p_timeout_ms / 1000.0)
    where effect_id = p_id;
    return 'lead';
end $$;

-- ---------------------------------------------------------------- halt

-- Stops an environment. Waits for the claims that are between their checks and their COMMIT, so that after
-- the answer nothing new is claimed; what was claimed may leave until quiet_at.
create function halt(p_environment int, p_reason text, p_key uuid)
returns table (in_flight bigint, quiet_at timestamptz) language plpgsql as $$
begin
    perform pg_advisory_xact_lock(1, p_environment);
    update environments set halted_at = coalesce(halted_at, hf_now()), halt_reason = p_reason, halted_by = p_key
    where id = p_environment;
    return query select count(*), coalesce(max(o.send_by), hf_now()) from open_effects o
        where o.environment_id = p_environment and o.send_by > hf_now();
end $$;

create function resume(p_environment int) returns void language plpgsql as $$ begin
    update environments set halted_at = null, halt_reason = null, halted_by = null where id = p_environment;
    -- What waited is published afresh at the next tick.
    update open_effects set published_at = '-infinity', publish_count = 0
    where environment_id = p_environment and stage = 'ready';
end $$;
