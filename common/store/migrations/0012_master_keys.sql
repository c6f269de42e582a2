-- The master keys that secrets may be sealed with, each by a keyed digest of a known text: it tells one key
-- from another and says nothing about either. A service that lacks one of them refuses to start.
create table master_keys (
    check_value bytea primary key check (octet_length(check_value) = 32),
    added_at timestamptz not null default hf_now()
);
grant select, insert on master_keys to holdfast_service;
