-- What the wire shows of limits, actions, secrets and environments.

create function limit_json(l limits) returns json language sql stable as $$
    select json_build_object(
        'id', prefixed('lim', l.id), 'name', l.name, 'dimension', l.dimension, 'unit', l.unit, 'period', l.period,
        'periodStart', to_char(period_start(l.period, hf_now()), 'YYYY-MM-DD'),
        'amount', l.amount, 'consumed', u.consumed, 'reserved', l.reserved, 'unknownExposure', l.unknown_exposure,
        'available', greatest(l.amount - u.consumed - l.reserved, 0),
        'actionName', l.action_name, 'resourcePrefix', l.resource_prefix, 'archived', l.archived_at is not null,
        'createdAt', iso(l.created_at))
    from (select coalesce((select g.consumed from limit_usage g
                           where g.limit_id = l.id and g.period_start = period_start(l.period, hf_now())), 0) as consumed) u
$$;

-- A version of an action as the wire shows it.
create function action_json(a actions, v action_versions) returns json language sql stable as $$
    select json_build_object(
        'id', prefixed('act', a.id), 'name', d -> 'name', 'description', d -> 'description',
        'version', v.version, 'enabled', d -> 'enabled', 'requiresApproval', d -> 'requiresApproval',
        'governed', coalesce(d -> 'adapter', d -> 'impact', d -> 'verify') is not null
                    or coalesce(d ->> 'governed' = 'true', false),
        'adapter', d -> 'adapter', 'method', d -> 'method', 'urlTemplate', d -> 'urlTemplate',
        'headers', d -> 'headers', 'bodyTemplate', d -> 'bodyTemplate', 'inputSchema', d -> 'inputSchema',
        'impact', d -> 'impact', 'verify', d -> 'verify', 'effectKey', d -> 'effectKey',
        'createdAt', iso(a.created_at), 'updatedAt', iso(v.created_at))
    from (select v.definition as d) x
$$;

-- What may be shown of a secret: everything but its value.
create function secret_json(s secrets) returns json language sql stable as $$
    select json_build_object(
        'name', s.name, 'description', s.description, 'version', s.version, 'allowedHosts', s.allowed_hosts,
        'allowedPlacements', s.allowed_placements, 'createdAt', iso(s.created_at), 'updatedAt', iso(s.updated_at))
$$;

create function environment_json(e environments) returns json language sql stable as $$
    select json_build_object(
        'id', 'env_' || e.id, 'name', e.name, 'halted', e.halted_at is not null, 'haltedAt', iso(e.halted_at),
        'reason', e.halt_reason,
        'halts', (select coalesce(json_agg(json_build_object(
            h.part, h.name, 'reason', h.reason, 'haltedAt', iso(h.halted_at), 'haltedBy', prefixed('key', h.halted_by))
            order by h.part, h.name), '[]') from halts h where h.environment_id = e.id))
$$;
