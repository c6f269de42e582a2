-- Approval policies, and approvals: bound to what was asked for, decided by somebody else, used once.
--
-- Lock order: open rows by id, approvals by id, limits by id. An approval of an effect is only ever changed
-- by who holds the effect's open row, so it is never fought over by itself.

-- Whom a policy may mean besides the agent.
alter table api_keys add column user_id text check (length(user_id) between 1 and 200);
alter table api_keys add column tags text[] not null default '{}';

create table approval_policies (
    id uuid primary key,
    environment_id int not null references environments,
    name text not null,
    version int not null check (version >= 1),
    from_file boolean not null default false, -- a policy file brought it: one that lacks it takes it away
    deleted_at timestamptz,
    created_at timestamptz not null default hf_now(),
    updated_at timestamptz not null default hf_now()
);
create unique index approval_policies_by_name on approval_policies (environment_id, name) where deleted_at is null;
create trigger changed after insert or update or delete on approval_policies
    for each statement execute function config_changed();

create table approval_policy_versions (
    policy_id uuid not null references approval_policies,
    version int not null check (version >= 1),
    definition json not null, -- of a tombstone: what was deleted
    deleted boolean not null default false,
    change_note text,
    created_by uuid not null,
    created_at timestamptz not null default hf_now(),
    primary key (policy_id, version)
);

create type approval_status as enum ('pending', 'approved', 'denied', 'expired');

-- The upper part is said once and never changes. The approval of an invocation has its ULID: apr_X is of
-- inv_X and eff_X.
create table approvals (
    id uuid primary key,
    environment_id int not null,
    effect_id uuid,                -- null: asked for by itself
    action_name text,
    title text not null,
    description text,
    payload text not null,         -- canonical JSON: what is approved
    payload_hash bytea not null,
    preview_id uuid,
    required_approvals int not null check (required_approvals between 1 and 10),
    policy_id uuid,                -- of the policy that asked for it
    policy_version int,
    requested_by uuid not null,
    agent_id text not null,
    run_id text,
    parent_span_id text,
    created_at timestamptz not null,
    expires_at timestamptz not null,
    -- ---- what becomes of it
    status approval_status not null default 'pending',
    decision_origin text check (decision_origin in ('human', 'policy', 'system')),
    decided_by uuid,               -- the key whose word ended it; null: no person
    decided_at timestamptz,
    note text,
    used_at timestamptz,           -- when the claim took it
    used_by uuid,                  -- that try of the claim
    closed_at timestamptz,         -- since when nothing can become of it any more
    constraint approvals_effect check (effect_id = id),
    constraint approvals_hash check (payload_hash = sha256(convert_to(payload, 'UTF8'))),
    constraint approvals_decided check ((status = 'pending') = (decided_at is null)
        and (decided_at is null) = (decision_origin is null)),
    constraint approvals_used check ((used_at is null) = (used_by is null)
        and (used_at is null or (status = 'approved' and effect_id is not null and closed_at is not null)))
);
create index approvals_open on approvals (expires_at) where closed_at is null;
create index approvals_of_environment on approvals (environment_id, id);

-- One word of one agent on one approval.
create table approval_decisions (
    approval_id uuid not null references approvals,
    agent_id text not null,
    key_id uuid not null,
    decision text not null check (decision in ('approve', 'deny')),
    note text,
    at timestamptz not null,
    primary key (approval_id, agent_id)
);

-- What may never happen to an approval, whoever writes: it is asked for undecided, what was asked for never
-- changes, it is decided once and by enough others, and used once.
create function approval_guarded() returns trigger language plpgsql as $$
begin
    if tg_op = 'INSERT' then
        if new.effect_id is not null and new.status <> 'pending' then
            raise exception 'the approval of an effect begins undecided' using errcode = 'HF004';
        end if;
        return new;
    end if;
    if (old.id, old.environment_id, old.effect_id, old.action_name, old.title, old.description, old.payload,
        old.payload_hash, old.preview_id, old.required_approvals, old.policy_id, old.policy_version, old.requested_by,
        old.agent_id, old.run_id, old.parent_span_id, old.created_at, old.expires_at)
       is distinct from
       (new.id, new.environment_id, new.effect_id, new.action_name, new.title, new.description, new.payload,
        new.payload_hash, new.preview_id, new.required_approvals, new.policy_id, new.policy_version, new.requested_by,
        new.agent_id, new.run_id, new.parent_span_id, new.created_at, new.expires_at) then
        raise exception 'what approval % asks for never changes', prefixed('apr', old.id) using errcode = 'HF003';
    end if;
    if old.closed_at is not null then
        raise exception 'approval % is closed', prefixed('apr', old.id) using errcode = 'HF004';
    end if;
    if old.status <> 'pending' and (old.status, old.decision_origin, old.decided_by, old.decided_at, old.note)
       is distinct from (new.status, new.decision_origin, new.decided_by, new.decided_at, new.note) then
        raise exception 'approval % was decided', prefixed('apr', old.id) using errcode = 'HF004';
    end if;
    if old.status = 'pending' and new.status = 'approved' and (
        select count(*) from approval_decisions d where d.approval_id = old.id and d.decision = 'approve'
        and d.agent_id <> old.agent_id and d.key_id <> old.requested_by) < old.required_approvals then
        raise exception 'approval % lacks the word of enough others', prefixed('apr', old.id) using errcode = 'HF004';
    end if;
    return new;
end $$;
create trigger approval_guarded before insert or update on approvals
    for each row execute function approval_guarded();
create trigger approval_kept before delete on approvals for each statement execute function fact_changed();
create trigger approval_not_truncated before truncate on approvals for each statement execute function fact_changed();

-- Whoever waits for the decision, in any process, hears of it. One who does not is looked after each second.
create function approval_told() returns trigger language plpgsql as $$ begin
    perform pg_notify('holdfast_approvals', new.id::text);
    return null;
end $$;
create trigger approval_told after update on approvals
    for each row when (old.status is distinct from new.status) execute function approval_told();

select fact_guard(t::regclass) from unnest(array['approval_policy_versions', 'approval_decisions']) t;

alter table effects add column approval_id uuid constraint effects_approval check (approval_id = id);
alter table effects add column policy_id uuid; -- the policy that decided, whatever it said
alter table effects add column policy_version int;

-- Whether it may only be claimed with an approval.
alter table open_effects add column gated boolean not null default false;
create function open_gate_fixed() returns trigger language plpgsql as $$ begin
    raise exception 'whether an effect needs an approval never changes' using errcode = 'HF001';
end $$;
create trigger open_gate before update of gated on open_effects
    for each row when (old.gated <> new.gated) execute function open_gate_fixed();

-- A settlement closes its open row, in the same statement, or is refused; one of what was never sent closes
-- the approval too.
create or replace function settlement_closes() returns trigger language plpgsql as $$
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
    if v_more > 0 then
        update approvals p set
            status = case when p.status = 'pending' then 'expired' else p.status end,
            decision_origin = case when p.status = 'pending' then 'system' else p.decision_origin end,
            decided_at = case when p.status = 'pending' then a.settled_at else p.decided_at end,
            note = case when p.status = 'pending' and a.reason <> 'expired' then 'The invocation was ' || a.reason || '.'
                        else p.note end,
            closed_at = a.settled_at
        from added a
        where a.outcome = 'not_dispatched' and p.id = a.effect_id and p.closed_at is null;
    end if;
    return null;
end $$;

grant select on approval_policies, approval_policy_versions, approvals, approval_decisions to holdfast_service;
grant insert, update on approval_policies to holdfast_service;
grant insert on approval_policy_versions, approvals, approval_decisions to holdfast_service;
grant update (status, decision_origin, decided_by, decided_at, note, used_at, used_by, closed_at) on approvals
    to holdfast_service;
