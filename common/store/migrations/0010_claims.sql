-- Effects that a worker outside the fleet performs itself: it asks for the right to, once, under the same
-- policy, approval and limits, and reports how it ended.

-- No dispatcher claims such an effect.
alter table effects add column external boolean not null default false;
alter table open_effects add column external boolean not null default false;

-- Who was given the right, and until when it may report a failure. The attempt of the same claim carries the
-- deadlines and the holds.
create table grants (
    effect_id uuid not null primary key,
    holder text check (length(holder) between 1 and 200), -- what the worker calls itself; null: it did not say
    key_id uuid not null,
    agent_id text not null,
    at timestamptz not null,
    lease_until timestamptz not null
);
select fact_guard('grants'::regclass);
grant select, insert on grants to holdfast_service;

alter table settlements drop constraint settlements_reason_fits;
alter table settlements add constraint settlements_reason_fits check (case outcome
    when 'succeeded' then reason in ('provider_2xx', 'provider_record', 'manual', 'worker_report')
    when 'failed' then reason in ('provider_4xx', 'never_left', 'provider_record', 'manual', 'worker_report')
    else reason in ('refused', 'expired', 'cancelled', 'denied') end);
alter table evidence drop constraint evidence_kind_check;
alter table evidence add constraint evidence_kind_check check (kind in
    ('dispatch', 'reconcile', 'late', 'sweep', 'note', 'manual', 'conflict', 'worker'));
