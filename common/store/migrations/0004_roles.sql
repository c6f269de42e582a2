-- The role that services work under: it may add facts and read them, never change or remove one, and has
-- no right on partitions. Services take it with SET ROLE right after they connect, so a login needs only
-- to be a member of it.
do $$ begin
    if not exists (select 1 from pg_roles where rolname = 'holdfast_service') then
        create role holdfast_service nologin;
    end if;
exception when duplicate_object or unique_violation then null; -- another migration at the same moment
end $$;

grant usage on schema public to holdfast_service;
grant select on all tables in schema public to holdfast_service;
do $$ declare p regclass; begin
    for p in select inhrelid::regclass from pg_inherits join pg_class c on c.oid = inhparent where c.relkind = 'p' loop
        execute format('revoke all on %s from holdfast_service', p);
    end loop;
end $$;
grant insert on keys, operations, effects, attempts, settlements, confirmations, conflicts, retries, evidence,
    audit, action_versions to holdfast_service;
grant insert, update, delete on open_effects, reads_due to holdfast_service;
grant insert, update on environments, api_keys, actions, secrets, limits, limit_usage, config_revision
    to holdfast_service;
grant insert, delete on write_replies to holdfast_service;
grant usage on sequence evidence_order to holdfast_service;
