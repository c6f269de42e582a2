-- Effects that undo another one: a compensation names its original, and each shows the other.

alter table effects add column compensates uuid;

create table compensations (
    compensation uuid not null primary key,
    original uuid not null,
    at timestamptz not null
);
create index compensations_original on compensations (original);
select fact_guard('compensations'::regclass);
grant select, insert on compensations to holdfast_service;
