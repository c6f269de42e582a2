-- The scheduler's other work: what is published again, and which reads are due.

-- Ready effects whose message may be lost: the interval doubles a row to p_max_ms. Moves published_at, so
-- that a row is taken once an interval. p_lag_ms is how far the consumers are behind.
create function republish_take(p_limit int, p_after_ms int, p_max_ms int, p_lag_ms bigint)
returns table (effect_id uuid, environment_id int, destination text)
language sql as $$
    update open_effects o set published_at = hf_now(), publish_count = o.publish_count + 1
    from (select q.id from open_effects q join environments e on e.id = q.environment_id
          where q.stage = 'ready' and not q.external and e.halted_at is null
            and not exists (select 1 from halts h join effects f on f.id = q.id
                            cross join lateral part_halted(q.environment_id, f.action_name, q.destination)
                            where h.environment_id = q.environment_id)
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
