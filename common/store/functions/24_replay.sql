-- Replays: the same bytes with the same provider key once more, because a person asks for it.
--
-- Before and after each of them a process may die, pause or ask again:
--   ask      not committed: nothing is asked for. Committed and its message lost: the scheduler publishes it, until
--            claim_before. Asked twice: the open row's lock makes the second find the first (in_flight).
--   claim    as claim_batch: attempt (effect, seq) is inserted once, with deadlines of its own. Committed and the
--            worker dies: past answer_by the sweep says that nobody reported it. The effect was unknown and stays so.
--   expire   what nobody claimed in time ends as not sent; a message that comes later finds nothing to claim.
-- A replay that is under way outlives the open row when something else settles the effect: its gate may open until
-- its send_by all the same, which is why halt asks the attempts.

-- How long a provider keeps the keys of an adapter's requests; null: nobody promised. As the adapters say.
create function replay_window_s(p_adapter text) returns int language sql immutable as $$
    select case p_adapter when 'stripe.refund' then 86400 end
$$;

-- Why an effect may not be replayed now; no row when it may. Its open row is locked, and the environment's
-- advisory lock is held, shared. p_over: when an answer could come in at the latest.
create function replay_refusal(p_effect uuid, p_window_until timestamptz, p_over timestamptz, p_asker uuid,
                               p_now timestamptz)
returns table (reason text, why text) language plpgsql stable as $$
declare
    e effects%rowtype;
    o open_effects%rowtype;
    a attempts%rowtype;
begin
    select f.* into e from effects f where f.id = p_effect;
    select q.* into o from open_effects q where q.id = p_effect;
    select b.* into a from attempts b where b.effect_id = p_effect and b.seq = 1;
    if o.answer_by > p_now then
        reason := 'in_flight';
        why := 'a write of it may still be answered';
    elsif o.conflict then
        reason := 'conflict';
        why := 'it is in conflict: only a person settles it';
    elsif o.id is null or o.outcome <> 'unknown' then
        reason := 'not_unknown';
        why := 'its outcome is not unknown';
    elsif e.external then
        reason := 'replay_unsupported';
        why := 'a worker outside performed it: nobody here knows what it sent';
    elsif p_window_until is null then
        reason := 'replay_unsupported';
        why := 'its provider does not promise to recognise a request that is sent twice';
    elsif p_window_until <= p_over then
        reason := 'window_closed';
        why := 'the provider may have forgotten its key by the time an answer could come';
    elsif (select n.halted_at is not null from environments n where n.id = e.environment_id)
          or exists (select 1 from part_halted(e.environment_id, e.action_name, e.destination)) then
        reason := 'halted';
        why := 'the environment, its action or its destination is halted';
    elsif exists (select 1 from api_keys k where k.id in (e.requested_by, p_asker) and k.revoked_at is not null) then
        reason := 'key_revoked';
        why := 'the key that made the call, or that asked for the replay, was revoked';
    elsif e.approval_id is not null and exists (select 1 from approval_refusal(e.id, p_now, true)) then
        reason := 'approval_not_valid';
        why := (select x.why from approval_refusal(e.id, p_now, true) x);
    elsif array(select s.version from unnest(e.secrets) with ordinality n(name, i)
                join secrets s on s.environment_id = e.environment_id and s.name = n.name and s.sealed is not null
                order by n.i) is distinct from a.secret_versions then
        reason := 'credential_changed';
        why := 'a secret of it is not of the version that the first attempt used';
    else
        return;
    end if;
    return next;
end $$;

-- Asks for a replay. p_window_s: as the adapter says, null or 0 for never. One row: reason and why when it is
-- refused, else the replay to publish.
create function replay_ask(p_id uuid, p_environment int, p_key uuid, p_agent text, p_reason text, p_window_s int,
                           p_lease_ms int, p_provider_ms int, p_wait_s int)
returns table (reason text, why text, seq int, destination text) language plpgsql as $$
#variable_conflict use_column
declare
    v_now timestamptz := hf_now();
    v_flight interval := make_interval(secs => (p_lease_ms + p_provider_ms) / 1000.0);
    v_until timestamptz;
    v_last int;
begin
    select o.last_seq, o.destination into v_last, destination from open_effects o
    where o.id = p_id and o.environment_id = p_environment for update;
    perform pg_advisory_xact_lock_shared(1, p_environment);
    if p_window_s > 0 then
        select a.claimed_at + make_interval(secs => p_window_s) into v_until
        from attempts a where a.effect_id = p_id and a.seq = 1;
    end if;
    select x.reason, x.why into reason, why from replay_refusal(p_id, v_until, v_now + v_flight, p_key, v_now) x;
    if reason is null and exists (select 1 from open_replays w where w.effect_id = p_id) then
        reason := 'in_flight';
        why := 'a replay of it is asked for already';
    end if;
    if reason is not null then
        return next;
        return;
    end if;
    seq := 1 + greatest(v_last, (select max(r.seq) from replays r where r.effect_id = p_id));
    insert into replays (effect_id, seq, environment_id, requested_by, agent_id, reason, at, claim_before, window_until)
    values (p_id, seq, p_environment, p_key, p_agent, p_reason, v_now,
            least(v_now + make_interval(secs => p_wait_s), v_until - v_flight), v_until);
    insert into open_replays (effect_id, seq, environment_id, destination, claim_before, published_at)
    select p_id, seq, p_environment, destination, r.claim_before, v_now from replays r
    where r.effect_id = p_id and r.seq = replay_ask.seq;
    insert into evidence (effect_id, at, kind, text, by)
    values (p_id, v_now, 'note', format('Replay %s was asked for%s', seq, coalesce(': ' || rtrim(p_reason, '. '), '')) || '.',
            prefixed('key', p_key));
    return next;
end $$;

-- A replay that will never be claimed. Its row of open_replays is locked.
create function replay_end(p_effect uuid, p_seq int, p_why text, p_by text) returns void language sql as $$
    delete from open_replays w where w.effect_id = p_effect and w.seq = p_seq;
    insert into evidence (effect_id, at, kind, text, by)
    values (p_effect, hf_now(), 'note', format('Replay %s was not sent: %s.', p_seq, p_why), p_by)
$$;

-- Claims replays; parallel arrays, p_ids ascending, a pair may come twice. One row for each that was still asked
-- for. Verdicts:
--   claimed   may be sent before send_by, by the caller whose COMMIT answered COMMIT
--   not_sent  ended; detail says why. The effect is as it was
--   held      halted: waits, until its claim_before
create function replay_claim(p_ids uuid[], p_seqs int[], p_claim_id uuid, p_worker text, p_incarnation uuid,
                             p_lease_ms int, p_provider_ms int)
returns table (effect_id uuid, verdict text, detail text, environment_id int, governed boolean,
               action_id uuid, action_name text, action_version int, adapter text, destination text,
               input text, request bytea, provider_key text, fault_drill boolean,
               secrets text[], secret_versions int[], seq int)
language plpgsql as $$
#variable_conflict use_column
declare
    v_now timestamptz := hf_now();
    v_send_by timestamptz := v_now + make_interval(secs => p_lease_ms / 1000.0);
    v_answer_by timestamptz := v_send_by + make_interval(secs => p_provider_ms / 1000.0);
    v_env int;
    v_reason text;
    v_why text;
    r record;
begin
    perform 1 from open_effects o where o.id = any (p_ids) order by o.id for update;
    perform 1 from open_replays w where w.effect_id = any (p_ids) order by w.effect_id for update;
    for v_env in select distinct w.environment_id from open_replays w where w.effect_id = any (p_ids) order by 1 loop
        perform pg_advisory_xact_lock_shared(1, v_env);
    end loop;
    for r in
        select p.* from open_replays w join replays p on p.effect_id = w.effect_id and p.seq = w.seq
        where (w.effect_id, w.seq) in (select u.id, u.seq from unnest(p_ids, p_seqs) u(id, seq))
        order by w.effect_id
    loop
        v_reason := null;
        v_why := 'nobody sent it in time';
        if r.claim_before > v_now then
            select x.reason, x.why into v_reason, v_why
            from replay_refusal(r.effect_id, r.window_until, v_answer_by, r.requested_by, v_now) x;
            if not found then
                insert into attempts (effect_id, seq, kind, claim_id, worker, incarnation, requested_by, claimed_at,
                                      send_by, answer_by, secret_versions)
                select r.effect_id, r.seq, 'replay', p_claim_id, p_worker, p_incarnation, r.requested_by, v_now,
                       v_send_by, v_answer_by, a.secret_versions
                from attempts a where a.effect_id = r.effect_id and a.seq = 1;
                update open_effects o set last_seq = r.seq, worker = p_worker, send_by = v_send_by,
                    answer_by = v_answer_by
                where o.id = r.effect_id;
                delete from open_replays w where w.effect_id = r.effect_id;
                -- Its answer, or the lack of one, is worth a look at the record.
                update reads_due d set due_at = least(d.due_at, v_answer_by), step = 0 where d.effect_id = r.effect_id;
                continue;
            end if;
        end if;
        if v_reason is distinct from 'halted' then
            perform replay_end(r.effect_id, r.seq, v_why, p_worker);
        end if;
        effect_id := r.effect_id;
        verdict := case when v_reason = 'halted' then 'held' else 'not_sent' end;
        detail := v_why;
        environment_id := r.environment_id;
        seq := r.seq;
        return next;
    end loop;
    return query select * from claim_recover(p_ids, p_claim_id);
end $$;

-- Ends what nobody claimed in time, or whose effect is settled by now.
create function replays_expire(p_limit int, p_by text) returns setof uuid language plpgsql as $$
declare
    v_ids uuid[] := array(
        select w.effect_id from open_replays w
        where w.claim_before <= hf_now() or not exists (select 1 from open_effects o where o.id = w.effect_id)
        order by 1 limit p_limit);
    r record;
begin
    perform 1 from open_effects o where o.id = any (v_ids) order by o.id for update;
    for r in
        select w.*, o.id is not null as is_open from open_replays w left join open_effects o on o.id = w.effect_id
        where w.effect_id = any (v_ids) and (w.claim_before <= hf_now() or o.id is null)
        order by w.effect_id for update of w
    loop
        perform replay_end(r.effect_id, r.seq,
                           case when r.is_open then 'nobody sent it in time' else 'the effect is settled' end, p_by);
        return next r.effect_id;
    end loop;
end $$;

-- As republish_take, for the messages of replays.
create function replays_take(p_limit int, p_after_ms int, p_max_ms int, p_lag_ms bigint)
returns table (effect_id uuid, environment_id int, destination text, seq int)
language sql as $$
    update open_replays w set published_at = hf_now(), publish_count = w.publish_count + 1
    from (select q.effect_id from open_replays q join environments e on e.id = q.environment_id
          where e.halted_at is null and q.claim_before > hf_now()
            and q.published_at + make_interval(secs => (p_lag_ms + least(p_after_ms * 2.0 ^ least(q.publish_count, 20), p_max_ms)) / 1000.0)
                <= hf_now()
          order by q.published_at limit p_limit for update of q skip locked) s
    where w.effect_id = s.effect_id
    returning w.effect_id, w.environment_id, w.destination, w.seq
$$;
