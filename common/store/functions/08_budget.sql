-- Budgets: how many new calls a key may make in a minute and in a month (UTC, by the database's clock).

-- What a key has left, after locking its rows; `detail` says which period is the narrower: PERIOD SECONDS LIMIT, with
-- the seconds until it ends. A call accepted by a transaction that began in the last period counts for this one.
create function budget_left(p_key uuid, p_now timestamptz) returns table (calls bigint, detail text)
language plpgsql as $$
#variable_conflict use_column
begin
    insert into key_usage as u (key_id, period, period_start, calls)
    select p_key, p.period, date_trunc(p.period, p_now at time zone 'UTC') at time zone 'UTC', 0
    from (values ('minute'), ('month')) p(period)
    on conflict (key_id, period) do update set
        calls = case when u.period_start >= excluded.period_start then u.calls else 0 end,
        period_start = greatest(u.period_start, excluded.period_start);
    return query
    select greatest(l.most - u.calls, 0),
           format('%s %s %s', u.period, ceil(extract(epoch from
               (u.period_start at time zone 'UTC' + ('1 ' || u.period)::interval) at time zone 'UTC' - p_now)), l.most)
    from api_keys k
    cross join lateral (values ('minute', k.calls_per_minute::bigint), ('month', k.calls_per_month)) l(period, most)
    join key_usage u on u.key_id = k.id and u.period = l.period
    where k.id = p_key and l.most is not null
    order by 1, u.period desc limit 1;
end $$;

create function budget_spend(p_key uuid, p_calls bigint) returns void language sql as $$
    update key_usage u set calls = u.calls + p_calls where u.key_id = p_key
$$;

-- What a key may use and has used, as the wire shows it; null without a budget.
create function budget_json(p_key uuid) returns json language sql stable as $$
    select case when k.calls_per_minute is not null or k.calls_per_month is not null then json_build_object(
        'callsPerMinute', k.calls_per_minute, 'callsPerMonth', k.calls_per_month,
        'usedThisMinute', coalesce((
            select u.calls from key_usage u where u.key_id = k.id and u.period = 'minute'
            and u.period_start >= date_trunc('minute', hf_now() at time zone 'UTC') at time zone 'UTC'), 0),
        'usedThisMonth', coalesce((
            select u.calls from key_usage u where u.key_id = k.id and u.period = 'month'
            and u.period_start >= date_trunc('month', hf_now() at time zone 'UTC') at time zone 'UTC'), 0)) end
    from api_keys k where k.id = p_key
$$;
