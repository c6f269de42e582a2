-- What a person makes of many effects at once, and of a settled one that was contradicted.

-- A person says what is so of a settled effect in conflict. The settlement stays; grade and limits go by the
-- correction. p_consumed: what happened, of each limit that was held; null: all of it when it succeeded or may have,
-- else nothing. False: it is not settled, or not in conflict (any more: somebody else was first).
--   not committed: nothing is said. Committed, and asked again: it is not in conflict any more.
--   against a contradiction found at this moment: the limits' locks say who is first; one that comes after the
--   correction marks the effect anew.
create function effect_correct(p_id uuid, p_outcome effect_outcome, p_reason text, p_consumed bigint, p_partial text,
                               p_reference text, p_by text)
returns boolean language plpgsql as $$
declare
    v_now timestamptz := hf_now();
    a attempts%rowtype;
    s settlements%rowtype;
    k corrections%rowtype;
    v_new bigint;
    v_more bigint;
    v_rehold bigint;
begin
    perform pg_advisory_xact_lock(hashtextextended(p_id::text, 19));
    select b.* into a from attempts b where b.effect_id = p_id and b.seq = 1;
    perform 1 from limits l where l.id = any (a.hold_limits) order by l.id for update;
    if not exists (select 1 from effect_states q where q.id = p_id and q.stage = 'settled' and q.conflict) then
        return false;
    end if;
    select t.* into s from settlements t where t.effect_id = p_id;
    select c.* into k from corrections c where c.effect_id = p_id order by c.n desc limit 1;
    v_new := coalesce(p_consumed, case when p_outcome = 'succeeded' or p_partial in ('possible', 'confirmed')
                                       then a.hold_amount else 0 end);
    v_more := v_new - coalesce(k.consumed, s.consumed, case s.outcome when 'succeeded' then a.hold_amount else 0 end);
    select x.rehold into v_rehold from contradictions x where x.effect_id = p_id and x.n = coalesce(k.n, 0);
    insert into corrections (effect_id, n, outcome, reason, consumed, partial_effect, external_reference, by, at)
    values (p_id, coalesce(k.n, 0) + 1, p_outcome, p_reason, v_new, p_partial, p_reference, p_by, v_now);
    update limits l set reserved = l.reserved - v_rehold, unknown_exposure = l.unknown_exposure - v_rehold
    where v_rehold > 0 and l.id = any (a.hold_limits);
    insert into limit_usage as u (limit_id, period_start, consumed)
    select h.id, h.period, greatest(v_more, 0) from unnest(a.hold_limits, a.hold_periods) h(id, period)
    where v_more <> 0 order by h.id
    on conflict (limit_id, period_start) do update set consumed = u.consumed + v_more;
    delete from reads_due r where r.effect_id = p_id;
    return true;
end $$;

-- Whether consuming that much keeps every limit that an effect holds countable.
create function consumption_fits(p_id uuid, p_amount bigint) returns boolean language sql stable as $$
    select not exists (
        select 1 from attempts a
        cross join lateral unnest(a.hold_limits, a.hold_periods) h(limit_id, period)
        join limit_usage u on u.limit_id = h.limit_id and u.period_start = h.period
        where a.effect_id = p_id and a.seq = 1 and u.consumed::numeric + p_amount > 9007199254740991)
$$;

-- ---------------------------------------------------------------- batches

-- Why a batch leaves an open effect as it is; null: it does what it is to do.
create function batch_skip(p_act text, p_effect effects, p_open open_effects, p_key api_keys) returns text
language sql stable as $$
    select case
        when p_key.revoked_at is not null then 'key_revoked'
        when p_open.id is null then 'already_settled'
        when p_act = 'resolve' and (p_effect.requested_by = p_key.id or p_effect.agent_id = p_key.agent_id)
            then 'self_resolution_refused'
        when p_open.answer_by > hf_now() then 'in_flight'
        when p_open.conflict then 'conflict' -- each of those wants a look of its own
        when p_act = 'reconcile' and not p_effect.has_read_back then 'read_back_unavailable' end
$$;

-- The unknown (or pending) effects of an environment that a filter {action, provider, grade, olderThan} lets pass: at
-- most p_limit, oldest first, none of an action that the key is not for. `skip` as batch_skip.
create function batch_candidates(p_environment int, p_act text, p_filter json, p_key uuid, p_limit int)
returns table (effect_id uuid, skip text) language sql stable as $$
    select o.id, batch_skip(p_act, e, o, k)
    from open_effects o
    join effects e on e.id = o.id
    join api_keys k on k.id = p_key
    where o.environment_id = p_environment and o.stage = 'reconciling' and e.governed
      and o.outcome = coalesce(p_filter ->> 'grade', 'unknown')::effect_outcome
      and (k.actions is null or e.action_name = any (k.actions))
      and (p_filter ->> 'action' is null or e.action_name = p_filter ->> 'action')
      and (p_filter ->> 'provider' is null or e.adapter = p_filter ->> 'provider')
      and (p_filter ->> 'olderThan' is null
           or e.created_at <= hf_now() - make_interval(secs => (p_filter ->> 'olderThan')::float8))
    order by o.id limit p_limit
$$;

-- Starts a batch of what the filter lets pass now: how many. Null when that is more than p_most: nothing is started.
create function batch_start(p_id uuid, p_environment int, p_act text, p_filter json, p_outcome effect_outcome,
                            p_reason text, p_partial text, p_reference text, p_key uuid, p_agent text, p_most int)
returns int language plpgsql as $$
declare
    v_ids uuid[] := array(select c.effect_id from batch_candidates(p_environment, p_act, p_filter, p_key, p_most + 1) c);
begin
    if cardinality(v_ids) > p_most then
        return null;
    end if;
    insert into effect_batches (id, environment_id, act, filter, outcome, reason, partial_effect, external_reference,
                                requested_by, agent_id, total, at)
    values (p_id, p_environment, p_act, p_filter, p_outcome, p_reason, p_partial, p_reference, p_key, p_agent,
            cardinality(v_ids), hf_now());
    insert into effect_batch_items (batch_id, effect_id) select p_id, u from unnest(v_ids) u;
    return cardinality(v_ids);
end $$;

-- What would be done, without doing it.
create function batch_dry_run(p_environment int, p_act text, p_filter json, p_key uuid, p_most int) returns json
language sql stable as $$
    select json_build_object(
        'dryRun', true, 'act', p_act, 'filter', p_filter, 'total', count(*), 'tooMany', count(*) > p_most,
        'eligible', count(*) filter (where c.skip is null), 'skipped', count(*) filter (where c.skip is not null),
        'items', coalesce(json_agg(json_build_object('effectId', prefixed('eff', c.effect_id), 'skip', c.skip)
                                   order by c.effect_id), '[]'))
    from batch_candidates(p_environment, p_act, p_filter, p_key, p_most + 1) c
$$;

-- Settles a chunk as its batch says, each with the one reason, and tells the audit of each. Results by effect.
create function batch_resolve(b effect_batches, p_ids uuid[], p_read_ms int)
returns table (effect_id uuid, result text) language plpgsql as $$
#variable_conflict use_column
declare
    n int := cardinality(p_ids);
    v_by text := prefixed('key', b.requested_by);
    r record;
begin
    for r in
        select t.effect_id, case t.result when 'settled' then 'resolved' else t.result end as result
        from settle_batch(
            p_ids, array_fill('manual'::text, array[n]), array_fill(null::int, array[n]),
            array_fill(b.outcome, array[n]), array_fill('manual'::settle_reason, array[n]),
            array_fill('manual'::verification, array[n]), array_fill(null::int, array[n]),
            array_fill(null::bytea, array[n]), array_fill(null::text, array[n]), array_fill(false, array[n]),
            array_fill(null::text, array[n]),
            array_fill(case when b.outcome = 'failed' then b.reason end, array[n]), array_fill(b.reason, array[n]),
            array_fill(null::timestamptz, array[n]), array_fill(null::timestamptz, array[n]),
            array_fill(null::bigint, array[n]), array_fill(b.external_reference, array[n]),
            array_fill(b.partial_effect, array[n]), array_fill(v_by, array[n]), p_read_ms, 0) t
    loop
        if r.result = 'resolved' then
            insert into audit (environment_id, key_id, agent_id, act, target, detail)
            values (b.environment_id, b.requested_by, b.agent_id, 'effect.resolve', prefixed('eff', r.effect_id),
                    json_build_object('batch', prefixed('bat', b.id), 'outcome', b.outcome, 'reason', b.reason,
                                      'partialEffect', b.partial_effect, 'externalReference', b.external_reference));
        end if;
        return query select r.effect_id, r.result;
    end loop;
end $$;

-- One chunk of the oldest batch that has anything to do, in one transaction: what is done and that it is done are
-- written together. One that dies before its COMMIT has done nothing, and the next begins behind what was committed.
-- Everything is checked anew, under the locks. One row an effect of the chunk; `outcome` as it was settled, or null.
create function batch_step(p_limit int, p_read_ms int)
returns table (effect_id uuid, result text, outcome effect_outcome) language plpgsql as $$
#variable_conflict use_column
declare
    b effect_batches%rowtype;
    v_ids uuid[];
    v_do uuid[];
begin
    select x.* into b from effect_batches x
    where x.id = (select i.batch_id from effect_batch_items i where i.result is null order by i.batch_id limit 1);
    if not found then
        return;
    end if;
    -- The open rows first, in id order, as everywhere.
    v_ids := array(select i.effect_id from effect_batch_items i
                   where i.batch_id = b.id and i.result is null order by i.effect_id limit p_limit);
    perform 1 from open_effects o where o.id = any (v_ids) order by o.id for update;
    v_ids := array(select i.effect_id from effect_batch_items i
                   where i.batch_id = b.id and i.effect_id = any (v_ids) and i.result is null
                   order by i.effect_id for update);
    update effect_batch_items i set done_at = hf_now(), result = coalesce(s.skip, 'asked')
    from (select e.id, batch_skip(b.act, e, o, k) as skip
          from effects e left join open_effects o on o.id = e.id join api_keys k on k.id = b.requested_by
          where e.id = any (v_ids)) s
    where i.batch_id = b.id and i.effect_id = s.id;
    v_do := array(select i.effect_id from effect_batch_items i
                  where i.batch_id = b.id and i.effect_id = any (v_ids) and i.result = 'asked' order by 1);
    if b.act = 'resolve' and v_do <> '{}' then
        update effect_batch_items i set result = t.result
        from batch_resolve(b, v_do, p_read_ms) t where i.batch_id = b.id and i.effect_id = t.effect_id;
    elsif v_do <> '{}' then
        insert into reads_due as r (effect_id, environment_id, purpose, due_at)
        select u, b.environment_id, 'unknown', hf_now() from unnest(v_do) u order by u
        on conflict (effect_id) do update set due_at = least(r.due_at, excluded.due_at);
    end if;
    return query
        select i.effect_id, i.result, case i.result when 'resolved' then b.outcome end
        from effect_batch_items i where i.batch_id = b.id and i.effect_id = any (v_ids);
end $$;

-- A batch as the wire shows it, with a page of its items.
create function batch_json(p_id uuid, p_environment int, p_limit bigint, p_offset bigint) returns json
language sql stable as $$
    select json_build_object(
        'id', prefixed('bat', b.id), 'act', b.act, 'filter', b.filter, 'outcome', b.outcome, 'reason', b.reason,
        'partialEffect', b.partial_effect, 'externalReference', b.external_reference,
        'requestedBy', prefixed('key', b.requested_by), 'createdAt', iso(b.at),
        'status', case when c.done = b.total then 'finished' else 'running' end,
        'total', b.total, 'done', c.done, 'finishedAt', case when c.done = b.total then iso(coalesce(c.last, b.at)) end,
        'counts', (select coalesce(json_object_agg(x.result, x.n), '{}') from (
            select i.result, count(*) as n from effect_batch_items i
            where i.batch_id = b.id and i.result is not null group by i.result) x),
        'items', (select coalesce(json_agg(json_build_object(
            'effectId', prefixed('eff', x.effect_id), 'result', x.result, 'at', iso(x.done_at)) order by x.effect_id), '[]')
            from (select * from effect_batch_items i where i.batch_id = b.id order by i.effect_id
                  limit p_limit offset p_offset) x))
    from effect_batches b
    cross join lateral (select count(i.result) as done, max(i.done_at) as last
                        from effect_batch_items i where i.batch_id = b.id) c
    where b.id = p_id and b.environment_id = p_environment
$$;
