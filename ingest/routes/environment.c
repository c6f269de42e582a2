/* The routes of a key's own environment, with its kill switch. */
#include "common/base/json.h"
#include "ingest/audit.h"
#include "ingest/routes/document.h"
#include "ingest/routes/parse.h"

#define REASON_MAX 2000

static enum route_result environment_get_handle(struct route_worker *worker, struct call *call)
{
    static const char sql[] =
        "select environment_json(e)::text from environments e where e.id = $1::int";
    char number[24];
    struct store_param params[] = {store_int(call->principal->environment, number)};
    return document_answer(worker, call, 200, sql, params, 1, "environment",
                           call->principal->environment_name);
}

/* The environment as it is after the halt, in a statement of its own so that it sees it. */
static enum route_result halted_answer(struct route_worker *worker, struct call *call,
                                       const PGresult *halted)
{
    static const char sql[] =
        "select (environment_json(e)::jsonb || "
        "jsonb_build_object('inFlight', $2::bigint, 'quietAt', $3::text))::text "
        "from environments e where e.id = $1::int";
    char numbers[2][24];
    struct store_param params[] = {store_int(call->principal->environment, numbers[0]),
                                   store_int(row_int(halted, 0, 0), numbers[1]),
                                   store_text(row_text(halted, 0, 1))};
    return document_answer(worker, call, 200, sql, params, 3, "environment",
                           call->principal->environment_name);
}

/* Answers once no claim is between its checks and its COMMIT any more: what is in flight then may
 * leave until quietAt, and nothing else. */
static enum route_result environment_halt(struct route_worker *worker, struct call *call,
                                          const char *reason)
{
    static const char sql[] = "select in_flight, iso(quiet_at) from halt($1::int, $2, $3)";
    char number[24];
    struct error err = {0};
    struct store_param params[] = {store_int(call->principal->environment, number),
                                   store_text(reason), store_uuid(&call->principal->key_id)};
    PGresult *r = store_query(worker->store, sql, params, 3, true, &err);
    bool ok = r != NULL && audit_write(worker->store, call, "environment.halt",
                                       call->principal->environment_name,
                                       json_pack("{s:s?}", "reason", reason), &err);
    enum route_result result = ok ? halted_answer(worker, call, r) : error_answer(call, &err);
    PQclear(r);
    return result;
}

static enum route_result halt_handle(struct route_worker *worker, struct call *call)
{
    static const char *const members[] = {"reason", NULL};
    struct error err = {0};
    const char *reason = NULL;
    json_t *body = body_read(call, true, members);
    enum route_result result = ROUTE_ANSWERED;
    if (body != NULL)
        result = json_field_text(body, "reason", false, 0, REASON_MAX, &reason, &err)
                     ? environment_halt(worker, call, reason)
                     : error_answer(call, &err);
    json_decref(body);
    return result;
}

static enum route_result resume_handle(struct route_worker *worker, struct call *call)
{
    static const char *const members[] = {NULL};
    static const char sql[] = "select resume($1::int)";
    char number[24];
    struct error err = {0};
    json_t *body = body_read(call, true, members);
    if (body == NULL)
        return ROUTE_ANSWERED;
    json_decref(body);
    struct store_param params[] = {store_int(call->principal->environment, number)};
    PGresult *r = store_query(worker->store, sql, params, 1, true, &err);
    PQclear(r);
    if (r == NULL || !audit_write(worker->store, call, "environment.resume",
                                  call->principal->environment_name, NULL, &err))
        return error_answer(call, &err);
    return environment_get_handle(worker, call);
}

const struct route routes_environment[] = {
    {"GET", "/api/v2/environment", ROUTE_ANY_KEY, false, environment_get_handle},
    {"POST", "/api/v2/environment/halt", SCOPE_ENVIRONMENTS_HALT, true, halt_handle},
    {"POST", "/api/v2/environment/resume", SCOPE_ENVIRONMENTS_HALT, true, resume_handle},
    {0}};
