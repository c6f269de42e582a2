-- The functions and views of earlier migrations move to ../functions, where migrate makes them anew; and a
-- word for what a worker outside the fleet reported of an effect that it performed itself.
drop view if exists effect_states;
do $$ declare f regprocedure; begin
    for f in select oid from pg_proc where pronamespace = 'public'::regnamespace and proname = any (array[
        'accept_batch', 'limits_of', 'claim_batch', 'claim_recover', 'settle_batch', 'sweep', 'reject_batch',
        'expire', 'republish_take', 'reads_take', 'read_facts', 'read_ended', 'confirm_batch', 'conflict_mark',
        'reconcile_ask', 'halt', 'resume', 'error_sentence', 'invocation_json', 'attempt_result',
        'attempts_json', 'evidence_json', 'effect_json', 'limit_json', 'action_json', 'secret_json',
        'environment_json', 'effects_page'])
    loop
        execute format('drop function %s', f);
    end loop;
end $$;
alter type settle_reason add value 'worker_report' after 'manual';
