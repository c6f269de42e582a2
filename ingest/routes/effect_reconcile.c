/* A read of the provider on demand: one call asks for it, those that come meanwhile wait for the
 * same read. It works while the environment is halted, since it only reads. */
#include "common/base/config.h"
#include "ingest/reconcile_wait.h"
#include "ingest/routes/effect.h"
#include "ingest/routes/parse.h"

#include <string.h>

#define PICK_UP_MS 5000 /* what a reconciler may take to begin a read that was asked for */

/* The word of reconcile_ask for this effect. False: answered. */
static bool reconcile_ask(struct route_worker *worker, struct call *call, const struct ulid *id,
                          char word[16])
{
    static const char sql[] = "select reconcile_ask($1, $2::int, $3::int)";
    char numbers[2][24];
    struct error err = {0};
    int64_t read_ms = config_int("HOLDFAST_READ_TIMEOUT_MS") + PICK_UP_MS;
    struct store_param params[] = {store_uuid(id),
                                   store_int(call->principal->environment, numbers[0]),
                                   store_int(read_ms, numbers[1])};
    PGresult *r = store_query(worker->store, sql, params, 3, true, &err);
    if (r == NULL) {
        error_answer(call, &err);
        return false;
    }
    snprintf(word, 16, "%s", row_text(r, 0, 0));
    PQclear(r);
    return true;
}

static enum route_result read_unavailable_refuse(struct call *call)
{
    call_error(
        call, 409, "READ_BACK_UNAVAILABLE", NULL,
        "The action of %s declares no read-back that could be made for it, so nothing can be "
        "looked up. A person must resolve it.",
        call->segments[0]);
    return ROUTE_ANSWERED;
}

static int64_t deadline_of(const struct call *call)
{
    int64_t most_ms = config_int("HOLDFAST_INVOKE_WAIT_MS");
    int64_t wait_ms = call->wait_ms >= 0 && call->wait_ms < most_ms ? call->wait_ms : most_ms;
    return call->arrived_ms + wait_ms;
}

/* The call is parked before the read can end, so that it misses nothing. */
static enum route_result read_wait(struct call *call, const struct ulid *id, bool lead)
{
    int environment = call->principal->environment;
    if (!reconcile_wait_add(id, call, lead, deadline_of(call))) {
        call_error(call, 503, "SERVICE_UNAVAILABLE", NULL,
                   "Holdfast has too many reads waiting; ask again later");
        call->retry_after_s = 1;
        return ROUTE_ANSWERED;
    }
    call = NULL; /* answered by whoever finds it there */
    if (lead)
        reconcile_wait_publish(id, environment);
    return ROUTE_PARKED;
}

static enum route_result effect_reconcile(struct route_worker *worker, struct call *call,
                                          const struct ulid *id)
{
    char word[16];
    if (!reconcile_ask(worker, call, id, word))
        return ROUTE_ANSWERED;
    if (strcmp(word, "lead") == 0 || strcmp(word, "join") == 0)
        return read_wait(call, id, word[0] == 'l');
    if (strcmp(word, "settled") == 0)
        return effect_settled_refuse(call);
    if (strcmp(word, "in_flight") == 0)
        return effect_in_flight_refuse(call);
    if (strcmp(word, "not_sent") == 0)
        return effect_not_sent_refuse(call);
    if (strcmp(word, "impossible") == 0)
        return read_unavailable_refuse(call);
    return effect_answer(worker, call, id); /* recent */
}

enum route_result effect_reconcile_handle(struct route_worker *worker, struct call *call)
{
    static const char *const members[] = {NULL};
    struct effect_facts facts;
    json_t *body = body_read(call, true, members);
    if (body == NULL)
        return ROUTE_ANSWERED;
    json_decref(body);
    return effect_facts_read(worker, call, "eff", &facts)
               ? effect_reconcile(worker, call, &facts.id)
               : ROUTE_ANSWERED;
}
