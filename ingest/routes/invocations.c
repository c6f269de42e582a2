/* The log of invocations, one of them, and taking one back before it is sent. */
#include "common/effect.h"
#include "common/transition.h"
#include "ingest/actions_cache.h"
#include "ingest/audit.h"
#include "ingest/routes/effect.h"
#include "ingest/routes/parse.h"

#include <stdlib.h>
#include <string.h>

#define PAGE_STANDARD 50

/* ---- lists ---- */

/* What a page is cut from; `counted` stops where the wire says null. */
#define PAGE_OF(rows)                                                                              \
    "with page as (" rows " order by q.id desc limit $5::bigint offset $6::bigint), "              \
    "counted as (select count(*) as n from (" rows " limit 10001) c) "                             \
    "select (select coalesce('[' || string_agg(j.doc, ',' order by j.id desc) || ']', '[]') "      \
    "from invocation_json(array(select id from page)) j), "                                        \
    "(select case when n <= 10000 then n end from counted)"

#define ROWS_WHERE                                                                                 \
    "where q.environment_id = $1::int and ($2::text is null or q.action_name = $2) "               \
    "and ($3::uuid is null or q.action_id = $3) and ($4::text is null or q.status = $4) "          \
    "and ($7::text is null or q.action_name = any (string_to_array($7, ',')))"

static const char page_of_all[] = PAGE_OF("select q.id from effect_states q " ROWS_WHERE);

/* What is open is found from the small table, however many others there are. */
static const char page_of_open[] =
    PAGE_OF("select q.id from open_effects w join effect_states q on q.id = w.id " ROWS_WHERE);

static bool status_is_open(const char *status)
{
    return status != NULL && (strcmp(status, "pending_approval") == 0 ||
                              strcmp(status, "running") == 0 || strcmp(status, "unknown") == 0);
}

static enum route_result page_find(struct route_worker *worker, struct call *call,
                                   const char *action_name, const struct ulid *action_id)
{
    static const char *const statuses[] = {"pending_approval", "running", "succeeded", "failed",
                                           "unknown",          "denied",  "expired",   NULL};
    const char *status = NULL;
    int64_t limit, offset;
    char environment[24], limit_text[24], offset_text[24];
    if (!query_page(call, PAGE_STANDARD, &limit, &offset) ||
        !query_word(call, "status", statuses, &status))
        return ROUTE_ANSWERED;
    char *held_to = principal_actions_list(call->principal);
    struct store_param params[] = {store_int(call->principal->environment, environment),
                                   store_text(action_name),
                                   store_uuid(action_id),
                                   store_text(status),
                                   store_int(limit, limit_text),
                                   store_int(offset, offset_text),
                                   store_text(held_to)};
    enum route_result result =
        page_answer(worker, call, status_is_open(status) ? page_of_open : page_of_all, params, 7,
                    limit, offset);
    free(held_to);
    return result;
}

static enum route_result invocations_list(struct route_worker *worker, struct call *call)
{
    return page_find(worker, call, call_query(call, "action"), NULL);
}

static enum route_result invocations_of_action(struct route_worker *worker, struct call *call)
{
    struct error err = {0};
    struct action *action =
        action_get(worker->store, call->principal->environment, call->segments[0], &err);
    if (action == NULL)
        return error_answer(call, &err);
    struct ulid id = action->id;
    action_release(action);
    return page_find(worker, call, NULL, &id);
}

/* ---- one ---- */

enum route_result invocation_answer(struct route_worker *worker, struct call *call,
                                    const struct ulid *id)
{
    static const char sql[] =
        "select doc from invocation_json(array[$1::uuid]) where environment_id = $2::int "
        "and ($3::text is null or exists (select 1 from effects e where e.id = $1 "
        "and e.action_name = any (string_to_array($3, ','))))";
    char environment[24];
    char *held_to = principal_actions_list(call->principal);
    struct store_param params[] = {
        store_uuid(id), store_int(call->principal->environment, environment), store_text(held_to)};
    enum route_result result =
        document_answer(worker, call, 200, sql, params, 3, "invocation", call->segments[0]);
    free(held_to);
    return result;
}

static enum route_result invocation_get(struct route_worker *worker, struct call *call)
{
    struct ulid id;
    if (!ulid_parse_prefixed("inv", call->segments[0], &id))
        return document_missing(call, "invocation", call->segments[0]);
    return invocation_answer(worker, call, &id);
}

/* ---- cancel ---- */

/* Whether the caller may: it is an invocation of its environment and of an action its key is held
 * to. False: answered. */
static bool cancel_allowed(struct route_worker *worker, struct call *call, const struct ulid *id)
{
    static const char sql[] =
        "select action_name from effects where id = $1 and environment_id = $2::int";
    char environment[24];
    struct error err = {0};
    struct store_param params[] = {store_uuid(id),
                                   store_int(call->principal->environment, environment)};
    PGresult *r = store_query(worker->store, sql, params, 2, true, &err);
    if (r == NULL) {
        call_error_value(call, &err);
        return false;
    }
    bool found = PQntuples(r) == 1;
    bool allowed = found && principal_may_use(call->principal, row_text(r, 0, 0));
    if (!found)
        document_missing(call, "invocation", call->segments[0]);
    else if (!allowed)
        call_error(call, 403, "AUTHORIZATION_ERROR", NULL,
                   "this API key is held to other actions than that of this invocation");
    PQclear(r);
    return allowed;
}

/* Rejects it if it was not claimed. False with the call answered; *from is where it was. */
static bool cancel_try(struct route_worker *worker, struct call *call, const struct ulid *id,
                       const char *by, enum stage *from)
{
    static const char sql[] = "select result, stage::text from reject_batch(array[$1::uuid], "
                              "'cancelled', 'cancelled by ' || $2::text, $2)";
    struct error err = {0};
    struct store_param params[] = {store_uuid(id), store_text(by)};
    PGresult *r = store_query(worker->store, sql, params, 2, true, &err);
    if (r == NULL) {
        call_error_value(call, &err);
        return false;
    }
    bool cancelled = PQntuples(r) == 1 && strcmp(row_text(r, 0, 0), "settled") == 0 &&
                     stage_parse(row_text(r, 0, 1), from);
    PQclear(r);
    if (!cancelled)
        call_error(
            call, 409, "CANCEL_REFUSED", NULL,
            "Invocation %s cannot be cancelled any more: it was claimed, so it may have been "
            "sent, or it has ended. Read it to see where it is.",
            call->segments[0]);
    return cancelled;
}

static enum route_result invocation_cancel(struct route_worker *worker, struct call *call)
{
    struct ulid id;
    enum stage from;
    char by[ULID_PREFIXED_SIZE];
    struct error err = {0};
    if (!ulid_parse_prefixed("inv", call->segments[0], &id))
        return document_missing(call, "invocation", call->segments[0]);
    ulid_format_prefixed("key", &call->principal->key_id, by);
    if (!cancel_allowed(worker, call, &id) || !cancel_try(worker, call, &id, by, &from))
        return ROUTE_ANSWERED;
    if (!audit_write(worker->store, call, "invocation.cancel", call->segments[0], NULL, &err))
        return error_answer(call, &err);
    transition_made(&id, from, STAGE_REJECTED, OUTCOME_NOT_DISPATCHED, REASON_CANCELLED, by);
    return invocation_answer(worker, call, &id);
}

const struct route routes_invocations[] = {
    {"GET", "/api/v2/actions/invocations", SCOPE_ACTIONS_READ, false, invocations_list},
    {"GET", "/api/v2/actions/invocations/{id}", SCOPE_ACTIONS_READ, false, invocation_get},
    {"GET", "/api/v2/actions/{ref}/invocations", SCOPE_ACTIONS_READ, false, invocations_of_action},
    {"POST", "/api/v2/actions/invocations/{id}/cancel", SCOPE_ACTIONS_INVOKE, true,
     invocation_cancel},
    {0},
};
