-- How the functions of the protocol are planned: once a session, and always through the keys.
--
-- They look up a batch of ids in partitioned tables. The planner knows nothing of a partitioned table as a
-- whole (autovacuum analyses partitions only), takes its ids for hardly distinct, and so chooses to read
-- whole partitions and to join them; and as it thinks a plan made for the very ids far better, it plans
-- anew at each call, which takes several times as long as the work. Neither may get worse with the length
-- of the history, so: generic plans (bounds on the ids leave out partitions when they are run), and nothing
-- but index look-ups.
do $$ declare f regprocedure; begin
    for f in select oid from pg_proc where pronamespace = 'public'::regnamespace and proname = any (array[
        'accept_batch', 'claim_batch', 'claim_recover', 'settle_batch', 'settlement_closes',
        'approvals_ask', 'effects_deny', 'approval_refusal', 'approval_decide',
        'read_facts', 'read_ended', 'confirm_batch', 'invocation_json', 'effect_json', 'attempts_json', 'evidence_json'])
    loop
        execute format('alter function %s set plan_cache_mode = force_generic_plan', f);
        execute format('alter function %s set enable_hashjoin = off', f);
        execute format('alter function %s set enable_mergejoin = off', f);
        execute format('alter function %s set enable_seqscan = off', f);
    end loop;
end $$;
