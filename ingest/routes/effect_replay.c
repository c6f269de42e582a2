/* A replay: a person asks for the very request of an unknown effect to be sent once more, with the
 * key by which the provider recognises it. Asked here, it is checked again when a dispatcher claims
 * it. */
#include "adapters/adapter.h"
#include "common/base/config.h"
#include "common/base/json.h"
#include "ingest/audit.h"
#include "ingest/publish.h"
#include "ingest/routes/effect.h"
#include "ingest/routes/parse.h"

#include <stdlib.h>

#define REASON_MAX 4000

/* The columns of replay_ask. */
enum { COL_REASON, COL_WHY, COL_SEQ, COL_DESTINATION };

static PGresult *replay_ask(struct route_worker *worker, const struct call *call,
                            const struct effect_facts *facts, const char *reason, struct error *err)
{
    static const char sql[] = "select reason, why, seq, destination from replay_ask($1, $2::int, "
                              "$3, $4, $5, $6::int, $7::int, $8::int, $9::int)";
    const struct adapter *adapter = adapter_find(facts->adapter);
    char numbers[5][24];
    struct store_param params[] = {
        store_uuid(&facts->id),
        store_int(call->principal->environment, numbers[0]),
        store_uuid(&call->principal->key_id),
        store_text(call->principal->agent_id),
        store_text(reason),
        store_int(adapter != NULL ? adapter->replay_window_s : 0, numbers[1]),
        store_int(config_int("HOLDFAST_SEND_LEASE_MS"), numbers[2]),
        store_int(config_int("HOLDFAST_PROVIDER_TIMEOUT_MS"), numbers[3]),
        store_int(config_int("HOLDFAST_REPLAY_EXPIRES_S"), numbers[4])};
    return store_query(worker->store, sql, params, 9, true, err);
}

static void replay_refuse(struct call *call, const PGresult *r)
{
    char details[96];
    snprintf(details, sizeof details, "{\"reason\":\"%s\"}", row_text(r, 0, COL_REASON));
    call_error(call, 409, "REPLAY_REFUSED", details, "%s cannot be replayed: %s. Nothing was sent.",
               call->segments[0], row_text(r, 0, COL_WHY));
}

static void replay_publish(void *what)
{
    publish_effect(what);
}

/* The message goes out once the replay is committed. */
static void replay_remember(struct call *call, const struct effect_facts *facts, const PGresult *r)
{
    struct effect_message *asked = calloc(1, sizeof *asked);
    must(asked != NULL);
    asked->effect = facts->id;
    asked->environment = call->principal->environment;
    asked->seq = row_int(r, 0, COL_SEQ);
    snprintf(asked->destination, sizeof asked->destination, "%s", row_text(r, 0, COL_DESTINATION));
    call->committed = replay_publish;
    call->committed_what = asked;
}

static enum route_result effect_replay(struct route_worker *worker, struct call *call,
                                       const struct effect_facts *facts, const char *reason)
{
    struct error err = {0};
    PGresult *r = replay_ask(worker, call, facts, reason, &err);
    if (r == NULL)
        return error_answer(call, &err);
    if (!row_null(r, 0, COL_REASON)) {
        replay_refuse(call, r);
        PQclear(r);
        return ROUTE_ANSWERED;
    }
    replay_remember(call, facts, r);
    json_t *detail =
        json_pack("{s:I, s:s?}", "seq", (json_int_t)row_int(r, 0, COL_SEQ), "reason", reason);
    PQclear(r);
    if (!audit_write(worker->store, call, "effect.replay", call->segments[0], detail, &err))
        return error_answer(call, &err);
    return effect_answer(worker, call, &facts->id);
}

enum route_result effect_replay_handle(struct route_worker *worker, struct call *call)
{
    static const char *const members[] = {"reason", NULL};
    struct effect_facts facts;
    struct error err = {0};
    const char *reason = NULL;
    enum route_result result = ROUTE_ANSWERED;
    json_t *body = body_read(call, true, members);
    if (body == NULL)
        return ROUTE_ANSWERED;
    if (!json_field_text(body, "reason", false, 1, REASON_MAX, &reason, &err))
        result = error_answer(call, &err);
    else if (effect_facts_read(worker, call, "eff", &facts) &&
             effect_is_of_another(call, &facts, "SELF_REPLAY_REFUSED"))
        result = effect_replay(worker, call, &facts, reason);
    json_decref(body);
    return result;
}
