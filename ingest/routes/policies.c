/* The routes of approval policies: each edit appends a version, a delete a tombstone. */
#include "common/base/json.h"
#include "ingest/policy/evaluate.h"
#include "ingest/policy/set.h"
#include "ingest/policy/store.h"
#include "ingest/routes/document.h"
#include "ingest/routes/parse.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define NOTE_MAX 2000
#define VERSIONS_STANDARD 50

/* A policy's row and its newest definition. */
struct stored_policy {
    struct ulid id;
    int version;
    json_t *definition; /* owned */
};

/* ---- reading ---- */

static bool policy_id_read(struct call *call, struct ulid *id)
{
    if (ulid_parse_prefixed("pol", call->segments[0], id))
        return true;
    document_missing(call, "policy", call->segments[0]);
    return false;
}

#define NEWEST                                                                                     \
    "from approval_policies p join approval_policy_versions v "                                    \
    "on v.policy_id = p.id and v.version = p.version "

static enum route_result policy_answer(struct route_worker *worker, struct call *call, int status,
                                       const struct ulid *id)
{
    static const char sql[] =
        "select policy_json(p, v)::text " NEWEST "where p.id = $1 and p.environment_id = $2::int";
    char number[24];
    struct store_param params[] = {store_uuid(id), store_int(call->principal->environment, number)};
    return document_answer(worker, call, status, sql, params, 2, "policy",
                           call->segments[0] != NULL ? call->segments[0] : "");
}

static enum route_result policy_get_handle(struct route_worker *worker, struct call *call)
{
    static const char sql[] =
        "select policy_json(p, v)::text " NEWEST
        "where p.id = $1 and p.environment_id = $2::int and p.deleted_at is null";
    char number[24];
    struct ulid id;
    if (!policy_id_read(call, &id))
        return ROUTE_ANSWERED;
    struct store_param params[] = {store_uuid(&id),
                                   store_int(call->principal->environment, number)};
    return document_answer(worker, call, 200, sql, params, 2, "policy", call->segments[0]);
}

/* In the order in which they are asked. With actionName, those that could decide about that action.
 */
static enum route_result policies_list_handle(struct route_worker *worker, struct call *call)
{
#define ROWS                                                                                       \
    NEWEST "where p.environment_id = $1::int and p.deleted_at is null "                            \
           "and ($2::text is null or (v.definition ->> 'matchKind' <> 'custom' "                   \
           "and coalesce(v.definition ->> 'matchActionName', $2) = $2))"
    static const char sql[] =
        "select coalesce(json_agg(x.doc order by x.priority desc, x.id), '[]')::text, "
        "(select count(*) " ROWS ") from (select policy_json(p, v) as doc, p.id, "
        "(v.definition ->> 'priority')::int as priority " ROWS
        " order by 3 desc, 2 limit $3::bigint offset $4::bigint) x";
#undef ROWS
    char numbers[3][24];
    int64_t limit, offset;
    if (!query_page(call, PAGE_MOST, &limit, &offset))
        return ROUTE_ANSWERED;
    struct store_param params[] = {store_int(call->principal->environment, numbers[0]),
                                   store_text(call_query(call, "actionName")),
                                   store_int(limit, numbers[1]), store_int(offset, numbers[2])};
    return page_answer(worker, call, sql, params, 4, limit, offset);
}

/* ---- versions ---- */

/* {"success", "data": [...], "pagination": {"limit", "nextBefore"}}: newest first. */
static void versions_answer(struct call *call, const PGresult *r, int64_t limit)
{
    struct buf out;
    buf_init(&out, (size_t)32 << 20);
    buf_printf(&out,
               "{\"success\":true,\"data\":%s,\"pagination\":{\"limit\":%" PRId64
               ",\"nextBefore\":%s}}",
               row_text(r, 0, 0), limit, row_null(r, 0, 1) ? "null" : row_text(r, 0, 1));
    if (out.failed)
        call_error(call, 413, "PAYLOAD_TOO_LARGE", NULL, "the page is too large: ask for fewer");
    else
        call_recorded(call, 200, out.data);
    buf_free(&out);
}

/* Also of a policy that was deleted. */
static enum route_result versions_list_handle(struct route_worker *worker, struct call *call)
{
    static const char sql[] =
        "select coalesce(json_agg(x.doc order by x.version desc), '[]')::text, "
        "case when min(x.version) > 1 and count(*) = $4::bigint then min(x.version)::text end, "
        "(select count(*) from approval_policies where id = $1 and environment_id = $2::int) "
        "from (select policy_json(p, v) as doc, v.version from approval_policies p "
        "join approval_policy_versions v on v.policy_id = p.id "
        "where p.id = $1 and p.environment_id = $2::int and v.version < $3::bigint "
        "order by v.version desc limit $4::bigint) x";
    char numbers[3][24];
    struct ulid id;
    struct error err = {0};
    int64_t limit = VERSIONS_STANDARD, before = INT32_MAX;
    if (!query_int(call, "limit", 1, PAGE_MOST, &limit) ||
        !query_int(call, "before", 1, INT32_MAX, &before) || !policy_id_read(call, &id))
        return ROUTE_ANSWERED;
    struct store_param params[] = {store_uuid(&id),
                                   store_int(call->principal->environment, numbers[0]),
                                   store_int(before, numbers[1]), store_int(limit, numbers[2])};
    PGresult *r = store_query(worker->store, sql, params, 4, true, &err);
    if (r == NULL)
        return error_answer(call, &err);
    if (row_int(r, 0, 2) == 1)
        versions_answer(call, r, limit);
    else
        document_missing(call, "policy", call->segments[0]);
    PQclear(r);
    return ROUTE_ANSWERED;
}

static enum route_result version_get_handle(struct route_worker *worker, struct call *call)
{
    static const char sql[] =
        "select policy_json(p, v)::text from approval_policies p "
        "join approval_policy_versions v on v.policy_id = p.id "
        "where p.id = $1 and p.environment_id = $2::int and v.version::text = $3";
    char number[24];
    struct ulid id;
    if (!policy_id_read(call, &id))
        return ROUTE_ANSWERED;
    struct store_param params[] = {store_uuid(&id), store_int(call->principal->environment, number),
                                   store_text(call->segments[1])};
    return document_answer(worker, call, 200, sql, params, 3, "policy version", call->segments[1]);
}

/* ---- writing ---- */

static json_t *policy_body_read(struct call *call, const char **note)
{
    static const char *const members[] = {"name",
                                          "matchKind",
                                          "matchActionName",
                                          "matchAgentId",
                                          "matchUserId",
                                          "matchTags",
                                          "minAmount",
                                          "conditions",
                                          "effect",
                                          "priority",
                                          "enabled",
                                          "requiredApprovals",
                                          "condition",
                                          "changeNote",
                                          "acknowledgeBroadScope",
                                          NULL};
    struct error err = {0};
    json_t *body = body_read(call, false, members);
    const json_t *condition = json_object_get(body, "condition");
    *note = NULL;
    if (body == NULL)
        return NULL;
    if (condition != NULL && !json_is_null(condition))
        feature_refused(call, "condition (a CEL expression); say it as conditions, a JSON Schema");
    else if (!json_field_text(body, "changeNote", false, 0, NOTE_MAX, note, &err))
        error_answer(call, &err);
    else
        return body;
    json_decref(body);
    return NULL;
}

static enum route_result name_taken_or(struct call *call, const struct error *err,
                                       const json_t *definition)
{
    if (err->code != ERROR_CONFLICT || strcmp(err->place, "23505") != 0)
        return error_answer(call, err);
    call_error(call, 409, "CONFLICT", NULL,
               "a policy named %.200s exists in this environment: edit it, or choose another name",
               json_string_value(json_object_get(definition, "name")));
    return ROUTE_ANSWERED;
}

/* Whether there is room for one more. False: answered. */
static bool policy_room(struct route_worker *worker, struct call *call)
{
    static const char sql[] = "select count(*) from approval_policies "
                              "where environment_id = $1::int and deleted_at is null";
    char number[24];
    struct error err = {0};
    struct store_param params[] = {store_int(call->principal->environment, number)};
    PGresult *r = policies_lock(worker->store, call->principal->environment, &err)
                      ? store_query(worker->store, sql, params, 1, true, &err)
                      : NULL;
    bool room = r != NULL && row_int(r, 0, 0) < POLICIES_MAX;
    if (r == NULL)
        error_answer(call, &err);
    else if (!room)
        call_error(call, 409, "CONFLICT", NULL,
                   "the environment has %d policies, which is as many as it may: delete one first",
                   POLICIES_MAX);
    PQclear(r);
    return room;
}

static enum route_result policy_create_handle(struct route_worker *worker, struct call *call)
{
    struct policy_change change = {.call = call};
    struct error err = {0};
    struct ulid id;
    enum route_result result = ROUTE_ANSWERED;
    json_t *body = policy_body_read(call, &change.note);
    json_t *definition = body != NULL ? policy_definition_make(NULL, body, &err) : NULL;
    if (body != NULL && definition == NULL)
        result = error_answer(call, &err);
    else if (body != NULL && policy_room(worker, call))
        result = policy_create(worker->store, &change, definition, &id, &err)
                     ? policy_answer(worker, call, 201, &id)
                     : name_taken_or(call, &err, definition);
    json_decref(definition);
    json_decref(body);
    return result;
}

/* Locks the environment's policies and reads the one that the path names. False: answered. */
static bool policy_lock(struct route_worker *worker, struct call *call, struct stored_policy *out)
{
    static const char sql[] =
        "select p.version, v.definition::text " NEWEST
        "where p.id = $1 and p.environment_id = $2::int and p.deleted_at is null";
    char number[24];
    struct error err = {0};
    if (!policy_id_read(call, &out->id))
        return false;
    struct store_param params[] = {store_uuid(&out->id),
                                   store_int(call->principal->environment, number)};
    PGresult *r = policies_lock(worker->store, call->principal->environment, &err)
                      ? store_query(worker->store, sql, params, 2, true, &err)
                      : NULL;
    bool found = r != NULL && PQntuples(r) == 1;
    if (found) {
        out->version = (int)row_int(r, 0, 0);
        out->definition = json_loads(row_text(r, 0, 1), 0, NULL);
        must(out->definition != NULL); /* the column's type is json */
    } else if (r != NULL) {
        document_missing(call, "policy", call->segments[0]);
    } else {
        error_answer(call, &err);
    }
    PQclear(r);
    return found;
}

/* An edit that changes nothing appends nothing. */
static enum route_result policy_patch(struct route_worker *worker, struct call *call,
                                      const struct stored_policy *stored, const json_t *body,
                                      const struct policy_change *change)
{
    struct error err = {0};
    enum route_result result;
    json_t *definition = policy_definition_make(stored->definition, body, &err);
    if (definition == NULL)
        return error_answer(call, &err);
    if (json_equal(definition, stored->definition) ||
        policy_edit(worker->store, change, &stored->id, stored->version, definition, &err))
        result = policy_answer(worker, call, 200, &stored->id);
    else
        result = name_taken_or(call, &err, definition);
    json_decref(definition);
    return result;
}

static enum route_result policy_patch_handle(struct route_worker *worker, struct call *call)
{
    struct policy_change change = {.call = call};
    struct stored_policy stored = {0};
    enum route_result result = ROUTE_ANSWERED;
    json_t *body = policy_body_read(call, &change.note);
    if (body != NULL && policy_lock(worker, call, &stored))
        result = policy_patch(worker, call, &stored, body, &change);
    json_decref(stored.definition);
    json_decref(body);
    return result;
}

static enum route_result policy_delete_handle(struct route_worker *worker, struct call *call)
{
    struct policy_change change = {.call = call};
    struct stored_policy stored = {0};
    struct error err = {0};
    if (!policy_lock(worker, call, &stored))
        return ROUTE_ANSWERED;
    bool ok =
        policy_delete(worker->store, &change, &stored.id, stored.version, stored.definition, &err);
    json_decref(stored.definition);
    return ok ? policy_answer(worker, call, 200, &stored.id) : error_answer(call, &err);
}

/* ---- evaluating ---- */

static enum route_result policy_evaluate_handle(struct route_worker *worker, struct call *call)
{
    struct error err = {0};
    enum route_result result = ROUTE_ANSWERED;
    json_t *body = body_read(call, false, evaluation_members);
    struct policy_set *set = NULL;
    json_t *answer = NULL;
    if (body == NULL)
        return result;
    set = policy_set_load(worker->store, call->principal->environment, &err);
    if (set != NULL)
        answer =
            evaluation_run(worker->store, call->principal, set->policies, set->count, body, &err);
    if (answer != NULL) {
        char *text = json_dumps(answer, JSON_COMPACT);
        must(text != NULL);
        call_data(call, 200, text);
        free(text);
    } else {
        result = error_answer(call, &err);
    }
    json_decref(answer);
    policy_set_release(set);
    json_decref(body);
    return result;
}

const struct route routes_policies[] = {
    {"GET", "/api/v2/approval-policies", SCOPE_POLICIES_READ, false, policies_list_handle},
    {"POST", "/api/v2/approval-policies", SCOPE_POLICIES_WRITE, true, policy_create_handle},
    {"POST", "/api/v2/approval-policies/evaluate", SCOPE_POLICIES_READ, false,
     policy_evaluate_handle},
    {"GET", "/api/v2/approval-policies/{id}", SCOPE_POLICIES_READ, false, policy_get_handle},
    {"PATCH", "/api/v2/approval-policies/{id}", SCOPE_POLICIES_WRITE, true, policy_patch_handle},
    {"DELETE", "/api/v2/approval-policies/{id}", SCOPE_POLICIES_WRITE, true, policy_delete_handle},
    {"GET", "/api/v2/approval-policies/{id}/versions", SCOPE_POLICIES_READ, false,
     versions_list_handle},
    {"GET", "/api/v2/approval-policies/{id}/versions/{n}", SCOPE_POLICIES_READ, false,
     version_get_handle},
    {0}};
