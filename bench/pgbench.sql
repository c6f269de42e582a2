-- What one would write by hand, without batches: an effect is one row and two transactions, claimed
-- under its key, then settled.
\set r random(1, 9000000000000000000)
insert into bench.effects (key, request_hash, state) values ('k' || (:r)::bigint::text, 'sha256', 'claimed') on conflict do nothing;
update bench.effects set state = 'succeeded', response = '{"id":"obj_1","ok": true}', updated_at = now() where key = 'k' || (:r)::bigint::text and state = 'claimed';
