-- Replays; corrections of what was settled and then contradicted; resolutions and reads by the batch; budgets
-- of keys; halts of an action or a destination.

-- ---------------------------------------------------------------- replays

-- Somebody asked for the same bytes to be sent again. Made under the open row's lock; the attempt of the same
-- number is its claim.
create table replays (
    effect_id uuid not null,
    seq int not null check (seq > 1),
    environment_id int not null,
    requested_by uuid not null,
    agent_id text not null,
    reason text,
    at timestamptz not null,
    claim_before timestamptz not null, -- not claimed by then: never
    window_until timestamptz not null, -- until when the provider keeps the key
    primary key (effect_id, seq)
);
create index replays_recent on replays (environment_id, claim_before);
select fact_guard('replays'::regclass);

-- Those of them that nobody has claimed: one an effect at most.
create table open_replays (
    effect_id uuid primary key,
    seq int not null,
    environment_id int not null,
    destination text not null,
    claim_before timestamptz not null,
    published_at timestamptz not null,
    publish_count int not null default 0,
    foreign key (effect_id, seq) references replays (effect_id, seq)
);

-- ---------------------------------------------------------------- conflicts of what is settled

-- Something contradicted what an effect was settled as, or what its last correction said (n: how many
-- corrections there were). What may have happened counts again: `rehold` is reserved and exposed until the
-- correction n + 1.
create table contradictions (
    effect_id uuid not null,
    n int not null check (n >= 0),
    rehold bigint not null check (rehold >= 0),
    at timestamptz not null,
    primary key (effect_id, n)
);
select fact_guard('contradictions'::regclass);

-- What a person found out about a settled effect in conflict. The settlement stays as it is.
create table corrections (
    effect_id uuid not null,
    n int not null check (n >= 1),
    outcome effect_outcome not null check (outcome in ('succeeded', 'failed')),
    reason text not null,
    consumed bigint not null check (consumed between 0 and 9007199254740991), -- of each limit, in all
    partial_effect text,
    external_reference text,
    by text not null,
    at timestamptz not null,
    primary key (effect_id, n)
);
select fact_guard('corrections'::regclass);

-- What was released and found afterwards counts again.
insert into contradictions (effect_id, n, rehold, at)
select c.effect_id, 0, greatest(a.hold_amount - coalesce(s.consumed, 0), 0), c.at
from conflicts c
join settlements s on s.effect_id = c.effect_id and s.outcome = 'failed' and s.settled_at <= c.at
join attempts a on a.effect_id = c.effect_id and a.seq = 1;
update limits l set reserved = l.reserved + h.amount, unknown_exposure = l.unknown_exposure + h.amount
from (select x.limit_id, sum(k.rehold)::bigint as amount
      from contradictions k join attempts a on a.effect_id = k.effect_id and a.seq = 1
      cross join lateral unnest(a.hold_limits) x(limit_id) group by x.limit_id) h
where l.id = h.limit_id;

-- ---------------------------------------------------------------- many at once

create table effect_batches (
    id uuid primary key,
    environment_id int not null,
    act text not null check (act in ('resolve', 'reconcile')),
    filter json not null,
    outcome effect_outcome check (outcome in ('succeeded', 'failed')),
    reason text,
    partial_effect text,
    external_reference text,
    requested_by uuid not null,
    agent_id text not null,
    total int not null check (total between 0 and 10000),
    at timestamptz not null,
    constraint effect_batches_resolve check ((act = 'resolve') = (outcome is not null and reason is not null))
);
create index effect_batches_of_environment on effect_batches (environment_id, id);
select fact_guard('effect_batches'::regclass);

create table effect_batch_items (
    batch_id uuid not null references effect_batches,
    effect_id uuid not null,
    result text,               -- null: still to do
    done_at timestamptz,
    primary key (batch_id, effect_id),
    constraint effect_batch_items_done check ((result is null) = (done_at is null))
);
create index effect_batch_items_to_do on effect_batch_items (batch_id, effect_id) where result is null;

-- ---------------------------------------------------------------- budgets

alter table api_keys add column calls_per_minute int check (calls_per_minute between 1 and 1000000000);
alter table api_keys add column calls_per_month bigint check (calls_per_month between 1 and 9007199254740991);
create index api_keys_with_budget on api_keys (id)
    where calls_per_minute is not null or calls_per_month is not null;

-- What a key with a budget has used of the period it is in.
create table key_usage (
    key_id uuid not null references api_keys,
    period text not null check (period in ('minute', 'month')),
    period_start timestamptz not null,
    calls bigint not null check (calls >= 0),
    primary key (key_id, period)
) with (fillfactor = 20);

-- ---------------------------------------------------------------- halts of a part

create table halts (
    environment_id int not null references environments,
    part text not null check (part in ('action', 'destination')),
    name text not null check (length(name) between 1 and 300), -- an action's, or host or host:port
    reason text,
    halted_by uuid not null,
    halted_at timestamptz not null,
    primary key (environment_id, part, name)
);

grant select on replays, open_replays, contradictions, corrections, effect_batches, effect_batch_items, key_usage,
    halts to holdfast_service;
grant insert on replays, contradictions, corrections, effect_batches to holdfast_service;
grant insert, update, delete on open_replays, halts to holdfast_service;
grant insert, update on effect_batch_items, key_usage to holdfast_service;
