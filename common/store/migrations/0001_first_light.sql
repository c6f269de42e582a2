-- The tables: facts are appended and never changed; one small table says what is open.
--
-- An effect's state is its row in open_effects, else its row in settlements. Times are the database's
-- (hf_now). Amounts are minor units. Identifiers are ULIDs kept as uuid. Lock order everywhere: open
-- rows by id, the environment's advisory lock, limits by id.

create type effect_stage as enum
    ('awaiting_approval', 'ready', 'dispatching', 'reconciling', 'settled', 'rejected');
create type effect_outcome as enum ('pending', 'unknown', 'succeeded', 'failed', 'not_dispatched');
create type settle_reason as enum
    ('provider_2xx', 'provider_4xx', 'never_left', 'provider_record', 'manual',
     'refused', 'expired', 'cancelled', 'denied');
create type verification as enum ('unverified', 'provider', 'manual');
create type attempt_kind as enum ('dispatch', 'replay');
create type limit_period as enum ('day', 'month', 'total');

-- Now, for everything that machines must agree on: the transaction's start. A superuser may move it
-- for tests: alter database ... set holdfast.clock_offset = '1 day'.
create function hf_now() returns timestamptz language sql stable as $$
    select now() + coalesce(nullif(current_setting('holdfast.clock_offset', true), ''), '0')::interval
$$;

-- ---------------------------------------------------------------- identifiers and shapes

-- In plpgsql, whose plans are kept: an SQL function would be inlined, and this expression planned anew, at
-- each place of each statement that shows an id.
create function ulid_text(id uuid) returns text language plpgsql immutable parallel safe as $$
declare
    b bytea := uuid_send(id);
    a text := '0123456789ABCDEFGHJKMNPQRSTVWXYZ';
begin
    return substr(a, 1 + ((get_byte(b, 0) >> 5) & 31), 1) ||
           substr(a, 1 + ((get_byte(b, 0)) & 31), 1) ||
           substr(a, 1 + ((get_byte(b, 1) >> 3) & 31), 1) ||
           substr(a, 1 + (((get_byte(b, 1) << 2) | (get_byte(b, 2) >> 6)) & 31), 1) ||
           substr(a, 1 + ((get_byte(b, 2) >> 1) & 31), 1) ||
           substr(a, 1 + (((get_byte(b, 2) << 4) | (get_byte(b, 3) >> 4)) & 31), 1) ||
           substr(a, 1 + (((get_byte(b, 3) << 1) | (get_byte(b, 4) >> 7)) & 31), 1) ||
           substr(a, 1 + ((get_byte(b, 4) >> 2) & 31), 1) ||
           substr(a, 1 + (((get_byte(b, 4) << 3) | (get_byte(b, 5) >> 5)) & 31), 1) ||
           substr(a, 1 + ((get_byte(b, 5)) & 31), 1) ||
           substr(a, 1 + ((get_byte(b, 6) >> 3) & 31), 1) ||
           substr(a, 1 + (((get_byte(b, 6) << 2) | (get_byte(b, 7) >> 6)) & 31), 1) ||
           substr(a, 1 + ((get_byte(b, 7) >> 1) & 31), 1) ||
           substr(a, 1 + (((get_byte(b, 7) << 4) | (get_byte(b, 8) >> 4)) & 31), 1) ||
           substr(a, 1 + (((get_byte(b, 8) << 1) | (get_byte(b, 9) >> 7)) & 31), 1) ||
           substr(a, 1 + ((get_byte(b, 9) >> 2) & 31), 1) ||
           substr(a, 1 + (((get_byte(b, 9) << 3) | (get_byte(b, 10) >> 5)) & 31), 1) ||
           substr(a, 1 + ((get_byte(b, 10)) & 31), 1) ||
           substr(a, 1 + ((get_byte(b, 11) >> 3) & 31), 1) ||
           substr(a, 1 + (((get_byte(b, 11) << 2) | (get_byte(b, 12) >> 6)) & 31), 1) ||
           substr(a, 1 + ((get_byte(b, 12) >> 1) & 31), 1) ||
           substr(a, 1 + (((get_byte(b, 12) << 4) | (get_byte(b, 13) >> 4)) & 31), 1) ||
           substr(a, 1 + (((get_byte(b, 13) << 1) | (get_byte(b, 14) >> 7)) & 31), 1) ||
           substr(a, 1 + ((get_byte(b, 14) >> 2) & 31), 1) ||
           substr(a, 1 + (((get_byte(b, 14) << 3) | (get_byte(b, 15) >> 5)) & 31), 1) ||
           substr(a, 1 + ((get_byte(b, 15)) & 31), 1);
end $$;

create function prefixed(prefix text, id uuid) returns text language sql immutable parallel safe as $$
    select prefix || '_' || ulid_text(id)
$$;

-- The smallest ULID of a moment: the bound of a partition.
create function ulid_floor(at timestamptz) returns uuid language sql immutable as $$
    select (lpad(to_hex((extract(epoch from at) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid
$$;

create function iso(at timestamptz) returns text language sql stable parallel safe as $$
    select to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
$$;

-- The UTC period that a moment falls in, by its first day.
create function period_start(period limit_period, at timestamptz) returns date
language sql stable as $$
    select case period
        when 'day' then (at at time zone 'UTC')::date
        when 'month' then date_trunc('month', at at time zone 'UTC')::date
        else date '1970-01-01' end
$$;

-- ---------------------------------------------------------------- what people configure

create table environments (
    id int generated always as identity primary key,
    name text not null unique check (name ~ '^[a-z0-9][a-z0-9_-]{0,62}$'),
    halted_at timestamptz,
    halt_reason text,
    halted_by uuid,
    created_at timestamptz not null default hf_now()
);

create table api_keys (
    id uuid primary key,
    environment_id int not null references environments,
    name text not null,
    agent_id text not null check (length(agent_id) between 1 and 200),
    scopes text[] not null,
    actions text[], -- null: every action
    secret_hash bytea not null unique check (length(secret_hash) = 32),
    expires_at timestamptz,
    revoked_at timestamptz,
    created_at timestamptz not null default hf_now()
);

create table actions (
    id uuid primary key,
    environment_id int not null references environments,
    name text not null,
    version int not null,
    deleted_at timestamptz,
    created_at timestamptz not null default hf_now(),
    updated_at timestamptz not null default hf_now()
);
create unique index actions_by_name on actions (environment_id, name) where deleted_at is null;

create table action_versions (
    action_id uuid not null references actions,
    version int not null check (version >= 1),
    definition json not null,
    created_by uuid,
    created_at timestamptz not null default hf_now(),
    primary key (action_id, version)
);

-- The value is sealed with the master key; its version rises with every write and outlives a delete.
create table secrets (
    environment_id int not null references environments,
    name text not null check (name ~ '^[A-Z0-9_]{1,100}$'),
    version int not null,
    sealed bytea, -- null: deleted
    previous_sealed bytea, -- of version - 1: for what was claimed just before a rotation
    description text,
    allowed_hosts text[],
    allowed_placements text[],
    created_at timestamptz not null default hf_now(),
    updated_at timestamptz not null default hf_now(),
    primary key (environment_id, name)
);

create table limits (
    id uuid primary key,
    environment_id int not null references environments,
    name text not null,
    dimension text not null check (dimension ~ '^[a-z][a-z0-9_]{0,31}$'),
    unit text not null check (length(unit) between 1 and 32),
    period limit_period not null,
    amount bigint not null check (amount between 0 and 9007199254740991),
    reserved bigint not null default 0 check (reserved >= 0),
    unknown_exposure bigint not null default 0 check (unknown_exposure >= 0),
    action_name text,
    resource_prefix text,
    archived_at timestamptz,
    created_at timestamptz not null default hf_now(),
    updated_at timestamptz not null default hf_now(),
    constraint limits_exposure_is_held check (unknown_exposure <= reserved)
) with (fillfactor = 20);
create index limits_by_what on limits (environment_id, dimension, unit);

-- What a limit has consumed in each of its periods: a hold is consumed in the period it was made in.
create table limit_usage (
    limit_id uuid not null references limits,
    period_start date not null,
    consumed bigint not null check (consumed >= 0),
    primary key (limit_id, period_start)
) with (fillfactor = 20);

-- One row that every change of configuration moves, so that caches can ask whether they are current.
create table config_revision (one boolean primary key default true check (one), revision bigint not null);
insert into config_revision values (true, 1);

create function config_changed() returns trigger language plpgsql as $$ begin
    update config_revision set revision = revision + 1;
    notify holdfast_config;
    return null;
end $$;
create trigger changed after insert or update or delete on environments
    for each statement execute function config_changed();
create trigger changed after insert or update or delete on api_keys
    for each statement execute function config_changed();
create trigger changed after insert or update or delete on actions
    for each statement execute function config_changed();
create trigger changed after insert or update or delete on secrets
    for each statement execute function config_changed();

-- ---------------------------------------------------------------- facts

-- An idempotency key belongs to its invocation for as long as that exists.
create table keys (
    environment_id int not null,
    key_hash bytea not null,     -- sha256 of the key
    effect_id uuid not null,
    request_hash bytea not null, -- sha256 of the canonical request
    primary key (environment_id, key_hash)
);

-- A business operation across invocations; a retry takes the next generation.
create table operations (
    environment_id int not null,
    operation_hash bytea not null,
    generation int not null,
    effect_id uuid not null,
    input_hash bytea not null,
    primary key (environment_id, operation_hash, generation)
);

create table effects (
    id uuid not null,
    environment_id int not null,
    action_id uuid not null,
    action_name text not null,
    action_version int not null,
    governed boolean not null,
    adapter text not null,
    destination text not null,      -- host:port
    input text not null,            -- canonical JSON
    request bytea not null,         -- the slotted request (common/http/request.h)
    request_hash bytea not null,
    secrets text[] not null default '{}', -- names of those the request has slots for, in order
    idempotency_key text not null,
    operation_key text,
    provider_key text not null,     -- what the provider is asked to deduplicate on
    retry_of uuid,
    run_id text,
    parent_span_id text,
    requested_by uuid not null,
    agent_id text not null,
    impact_dimension text,          -- null: nothing declared
    impact_unit text,
    impact_amount bigint check (impact_amount between 0 and 9007199254740991), -- null: no quantity
    impact_bound text,
    resource text,
    has_read_back boolean not null,
    fault_drill boolean not null default false,
    created_at timestamptz not null,
    primary key (id)
) partition by range (id);

create table attempts (
    effect_id uuid not null,
    seq int not null check (seq >= 1),
    kind attempt_kind not null,
    claim_id uuid not null,      -- of one try of one claim transaction
    worker text not null,
    incarnation uuid not null,   -- of the worker's process
    requested_by uuid,           -- of a replay
    claimed_at timestamptz not null,
    send_by timestamptz not null,
    answer_by timestamptz not null,
    secret_versions int[] not null default '{}', -- of effects.secrets, as they were when claimed
    hold_amount bigint not null default 0 check (hold_amount >= 0),
    hold_limits uuid[] not null default '{}',
    hold_periods date[] not null default '{}',
    primary key (effect_id, seq),
    -- The dispatch is attempt 1 and only that, so the primary key refuses a second dispatch.
    constraint attempts_one_dispatch check ((kind = 'dispatch') = (seq = 1)),
    constraint attempts_deadlines check (claimed_at < send_by and send_by < answer_by),
    constraint attempts_holds check (cardinality(hold_limits) = cardinality(hold_periods))
) partition by range (effect_id);

create table settlements (
    effect_id uuid not null primary key,
    outcome effect_outcome not null check (outcome in ('succeeded', 'failed', 'not_dispatched')),
    reason settle_reason not null,
    verification verification not null,
    response_status int,
    response bytea,        -- the answer's body as it arrived, capped
    response_view text,    -- JSON text to show where the bytes themselves are not valid JSON
    response_truncated boolean not null default false,
    object_id text,        -- the provider's id of what was made
    error text,            -- what went wrong, for a person; null when nothing did
    evidence text not null,
    seq int,               -- of the write attempt whose end this is; null when it is no attempt's
    sent_at timestamptz,   -- when the gate opened; null: it never did, or nobody knows
    finished_at timestamptz,
    consumed bigint check (consumed between 0 and 9007199254740991), -- null: what was held
    external_reference text,
    partial_effect text,
    settled_by text not null,
    settled_at timestamptz not null,
    constraint settlements_reason_fits check (case outcome
        when 'succeeded' then reason in ('provider_2xx', 'provider_record', 'manual')
        when 'failed' then reason in ('provider_4xx', 'never_left', 'provider_record', 'manual')
        else reason in ('refused', 'expired', 'cancelled', 'denied') end)
) partition by range (effect_id);

-- A read-back that matched, after a 2xx had settled the effect.
create table confirmations (
    effect_id uuid not null primary key,
    at timestamptz not null,
    evidence text not null,
    object_id text,
    by text not null
) partition by range (effect_id);

-- What was found to contradict the record. Only a person goes on from here.
create table conflicts (
    effect_id uuid not null primary key,
    at timestamptz not null,
    evidence text not null,
    by text not null
) partition by range (effect_id);

create table retries (
    original uuid not null primary key,
    retry uuid not null unique,
    at timestamptz not null
);

create sequence evidence_order;
create table evidence (
    effect_id uuid not null,
    n bigint not null default nextval('evidence_order'),
    at timestamptz not null,
    -- dispatch: a write attempt ended without a settlement; reconcile: a read-back; late: lost the race
    -- to settle; sweep: nobody reported in time; note, manual: a person; conflict
    kind text not null
        check (kind in ('dispatch', 'reconcile', 'late', 'sweep', 'note', 'manual', 'conflict')),
    seq int,               -- of the write attempt it is about
    text text not null,
    by text not null,
    response_status int,
    response bytea,
    sent_at timestamptz,
    finished_at timestamptz,
    primary key (effect_id, n)
) partition by range (effect_id);

create table audit (
    n bigint generated always as identity primary key,
    at timestamptz not null default hf_now(),
    environment_id int not null,
    key_id uuid,
    agent_id text,
    act text not null,
    target text,
    detail json not null default '{}'
);

-- The recorded replies of writes other than invoke.
create table write_replies (
    environment_id int not null,
    key_hash bytea not null,
    request_hash bytea not null,
    status int not null,
    body text not null,
    created_at timestamptz not null default hf_now(),
    primary key (environment_id, key_hash)
);
create index write_replies_age on write_replies (created_at);

-- ---------------------------------------------------------------- what is open

-- One row from accept to settlement; small, HOT-updated, without any index but its key.
create table open_effects (
    id uuid primary key,
    environment_id int not null,
    stage effect_stage not null
        check (stage in ('awaiting_approval', 'ready', 'dispatching', 'reconciling')),
    outcome effect_outcome not null default 'pending' check (outcome in ('pending', 'unknown')),
    conflict boolean not null default false,
    last_seq int not null default 0,  -- of the newest write attempt
    answer_by timestamptz,            -- a write is in flight until then; null: none is
    send_by timestamptz,
    worker text,
    destination text not null,
    dispatch_before timestamptz not null,
    published_at timestamptz not null,
    publish_count int not null default 0,
    constraint open_unknown_is_reconciling check (outcome <> 'unknown' or stage = 'reconciling'),
    constraint open_dispatching_has_deadline check (stage <> 'dispatching' or answer_by is not null)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0);

-- A row while a read of the provider is wanted.
create table reads_due (
    effect_id uuid primary key,
    environment_id int not null,
    purpose text not null check (purpose in ('unknown', 'confirm', 'watch')),
    due_at timestamptz not null,
    step int not null default 0,       -- rung of the schedule
    tries int not null default 0,      -- reads without a usable answer since the last usable one
    reads int not null default 0,      -- usable reads so far
    give_up_at timestamptz,            -- null: never
    running_until timestamptz,         -- a read asked for on demand is under way until then
    last_read_at timestamptz
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0);

-- ---------------------------------------------------------------- the state table, and who guards it

-- The same table as transition.c's; a test holds the two against each other.
create function stage_may_move(a effect_stage, b effect_stage) returns boolean
language sql immutable as $$
    select (a, b) in (
        ('awaiting_approval'::effect_stage, 'ready'::effect_stage), ('awaiting_approval', 'rejected'),
        ('ready', 'dispatching'), ('ready', 'rejected'),
        ('dispatching', 'reconciling'), ('dispatching', 'settled'),
        ('reconciling', 'settled'))
$$;

create function open_move_checked() returns trigger language plpgsql as $$ begin
    if not stage_may_move(old.stage, new.stage) then
        raise exception 'effect % may not move from % to %', prefixed('eff', old.id), old.stage, new.stage
            using errcode = 'HF001';
    end if;
    return new;
end $$;
create trigger open_move before update of stage on open_effects
    for each row when (old.stage is distinct from new.stage) execute function open_move_checked();

create function open_id_fixed() returns trigger language plpgsql as $$ begin
    raise exception 'the identity of an open row never changes' using errcode = 'HF001';
end $$;
create trigger open_id before update of id, environment_id on open_effects
    for each row when (old.id <> new.id or old.environment_id <> new.environment_id)
    execute function open_id_fixed();

-- A settlement closes its open row, in the same statement, or is refused.
create function settlement_closes() returns trigger language plpgsql as $$
declare
    v_settled uuid[];
    v_rejected uuid[];
    v_closed bigint;
    v_more bigint;
begin
    select coalesce(array_agg(a.effect_id) filter (where a.outcome <> 'not_dispatched'), '{}'),
           coalesce(array_agg(a.effect_id) filter (where a.outcome = 'not_dispatched'), '{}')
    into v_settled, v_rejected from added a;
    delete from open_effects o where o.id = any (v_settled) and stage_may_move(o.stage, 'settled');
    get diagnostics v_closed = row_count;
    delete from open_effects o where o.id = any (v_rejected) and stage_may_move(o.stage, 'rejected');
    get diagnostics v_more = row_count;
    if cardinality(v_settled) + cardinality(v_rejected) <> v_closed + v_more then
        raise exception 'settled % effects but % were open for it',
            cardinality(v_settled) + cardinality(v_rejected), v_closed + v_more using errcode = 'HF002';
    end if;
    return null;
end $$;

create function open_delete_refused() returns trigger language plpgsql as $$ begin
    if pg_trigger_depth() < 2 then
        raise exception 'an open effect ends by its settlement only' using errcode = 'HF001';
    end if;
    return null;
end $$;
create trigger open_delete before delete on open_effects
    for each statement execute function open_delete_refused();
create trigger open_truncate before truncate on open_effects
    for each statement execute function open_delete_refused();

create function fact_changed() returns trigger language plpgsql as $$ begin
    raise exception '% are facts: % is refused', tg_table_name, tg_op using errcode = 'HF003';
end $$;

-- Guards one table of facts, whether it is a parent, a partition or plain. Idempotent.
create function fact_guard(p_table regclass) returns void language plpgsql as $$ begin
    execute format('create or replace trigger fact_kept before update or delete on %s '
                   'for each statement execute function fact_changed()', p_table);
    execute format('create or replace trigger fact_not_truncated before truncate on %s '
                   'for each statement execute function fact_changed()', p_table);
end $$;

-- Monthly partitions from this month to `p_ahead` months on, each with its guards; and a default one.
-- Safe to call at any time and from several sessions.
-- Runs with its owner's right: services may ask for it.
create function partitions_ensure(p_ahead int) returns void
language plpgsql security definer set search_path = public, pg_temp as $$
declare
    v_parent text;
    v_name text;
    v_from timestamptz;
    i int;
begin
    perform pg_advisory_xact_lock(hashtextextended('holdfast.partitions', 0));
    foreach v_parent in array array['effects', 'attempts', 'settlements', 'confirmations',
                                    'conflicts', 'evidence'] loop
        for i in -1..p_ahead loop
            v_from := date_trunc('month', hf_now() at time zone 'UTC') at time zone 'UTC'
                      + make_interval(months => i);
            v_name := case i when -1 then v_parent || '_default'
                      else v_parent || to_char(v_from at time zone 'UTC', '_YYYY_MM') end;
            continue when to_regclass(v_name) is not null;
            if i = -1 then
                execute format('create table %I partition of %I default', v_name, v_parent);
            else
                execute format('create table %I partition of %I for values from (%L) to (%L)', v_name,
                               v_parent, ulid_floor(v_from), ulid_floor(v_from + interval '1 month'));
            end if;
            perform fact_guard(v_name::regclass);
            if v_parent = 'settlements' then
                execute format('create trigger settlement_closes after insert on %I '
                               'referencing new table as added for each statement '
                               'execute function settlement_closes()', v_name);
            end if;
        end loop;
    end loop;
end $$;

select fact_guard(t::regclass) from unnest(array['keys', 'operations', 'effects', 'attempts', 'settlements',
    'confirmations', 'conflicts', 'retries', 'evidence', 'audit', 'action_versions']) t;
create trigger settlement_closes after insert on settlements
    referencing new table as added for each statement execute function settlement_closes();
select partitions_ensure(3);
