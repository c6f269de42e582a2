-- Whether a part of an environment is halted.

-- The halt of a part that an action, or a destination (host:port), falls under; no row when there is none.
create function part_halted(p_environment int, p_action text, p_destination text)
returns table (part text, name text, reason text) language sql stable as $$
    select h.part, h.name, h.reason from halts h
    where h.environment_id = p_environment
      and (h.part = 'action' and h.name = p_action
           or h.part = 'destination'
              and h.name in (lower(p_destination), lower(regexp_replace(p_destination, ':[0-9]+$', ''))))
    order by h.part, h.name limit 1
$$;
