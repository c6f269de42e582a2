-- Read-backs: what they work from, and what becomes of their answers.

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
declare
    v_new boolean;
    s settlements%rowtype;
    k corrections%rowtype;
    v_rehold bigint;
begin
    perform 1 from open_effects o where o.id = p_id for update;
    perform 1 from limits l where l.id in (select unnest(a.hold_limits) from attempts a where a.effect_id = p_id and a.seq = 1)
    order by l.id for update;
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
    -- Settled: what was released counts again, until a person corrects it.
    select t.* into s from settlements t where t.effect_id = p_id;
    if found then
        select c.* into k from corrections c where c.effect_id = p_id order by c.n desc limit 1;
        insert into contradictions (effect_id, n, rehold, at)
        select p_id, coalesce(k.n, 0),
            case when coalesce(k.outcome, s.outcome) = 'failed'
                 then greatest(a.hold_amount - coalesce(k.consumed, s.consumed, 0), 0) else 0 end, hf_now()
        from attempts a where a.effect_id = p_id and a.seq = 1
        on conflict do nothing returning rehold into v_rehold;
        update limits l set reserved = l.reserved + v_rehold, unknown_exposure = l.unknown_exposure + v_rehold
        where v_rehold > 0 and l.id in (select unnest(a.hold_limits) from attempts a where a.effect_id = p_id and a.seq = 1);
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
