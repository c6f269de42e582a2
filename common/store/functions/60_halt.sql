-- Halt and resume of an environment.

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
