-- Halt and resume: of an environment, of one of its actions, of a destination.

-- What may still leave: everything claimed whose send_by has not passed. The open rows say so of what is open; a
-- replay may outlive its open row, so of replays the attempts are asked (one is claimed before claim_before, and no
-- lease is longer than ten minutes). A null part: of the whole environment.
create function may_leave(p_environment int, p_part text, p_name text)
returns table (in_flight bigint, quiet_at timestamptz) language sql stable as $$
    select count(distinct x.id), coalesce(max(x.send_by), hf_now())
    from (select o.id, o.send_by from open_effects o
          where o.environment_id = p_environment and o.send_by > hf_now()
          union all
          select a.effect_id, a.send_by
          from replays r join attempts a on a.effect_id = r.effect_id and a.seq = r.seq
          where r.environment_id = p_environment and r.claim_before > hf_now() - interval '10 minutes'
            and a.send_by > hf_now()) x
    where p_part is null or exists (
        select 1 from effects e
        where e.id = x.id and (p_part = 'action' and e.action_name = p_name
            or p_part = 'destination'
               and p_name in (lower(e.destination), lower(regexp_replace(e.destination, ':[0-9]+$', '')))))
$$;

-- Stops an environment. Waits for the claims that are between their checks and their COMMIT, so that after
-- the answer nothing new is claimed; what was claimed may leave until quiet_at.
create function halt(p_environment int, p_reason text, p_key uuid)
returns table (in_flight bigint, quiet_at timestamptz) language plpgsql as $$
begin
    perform pg_advisory_xact_lock(1, p_environment);
    update environments set halted_at = coalesce(halted_at, hf_now()), halt_reason = p_reason, halted_by = p_key
    where id = p_environment;
    return query select * from may_leave(p_environment, null, null);
end $$;

create function resume(p_environment int) returns void language plpgsql as $$ begin
    update environments set halted_at = null, halt_reason = null, halted_by = null where id = p_environment;
    -- What waited is published afresh at the next tick.
    update open_effects set published_at = '-infinity', publish_count = 0
    where environment_id = p_environment and stage = 'ready';
    update open_replays set published_at = '-infinity', publish_count = 0 where environment_id = p_environment;
end $$;

-- The same of one action, or of one destination: a host, or host:port. Halted again, it keeps its first time.
create function halt_part(p_environment int, p_part text, p_name text, p_reason text, p_key uuid)
returns table (in_flight bigint, quiet_at timestamptz) language plpgsql as $$
begin
    perform pg_advisory_xact_lock(1, p_environment);
    insert into halts (environment_id, part, name, reason, halted_by, halted_at)
    values (p_environment, p_part, p_name, p_reason, p_key, hf_now())
    on conflict (environment_id, part, name) do update set reason = excluded.reason, halted_by = excluded.halted_by;
    return query select * from may_leave(p_environment, p_part, p_name);
end $$;

create function resume_part(p_environment int, p_part text, p_name text) returns void language plpgsql as $$ begin
    delete from halts h where h.environment_id = p_environment and h.part = p_part and h.name = p_name;
    update open_effects set published_at = '-infinity', publish_count = 0
    where environment_id = p_environment and stage = 'ready';
    update open_replays set published_at = '-infinity', publish_count = 0 where environment_id = p_environment;
end $$;
