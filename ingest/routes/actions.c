/* The routes of actions: every edit appends a version, under a lock on the action's row. */
#include "common/base/clock.h"
#include "common/base/json.h"
#include "ingest/audit.h"
#include "ingest/routes/action_definition.h"
#include "ingest/routes/document.h"
#include "ingest/routes/parse.h"

#include <stdlib.h>
#include <string.h>

#define DEFINITION_MAX_BYTES ((size_t)8 << 20)

/* An action's row, locked, and its newest definition. */
struct stored_action {
    struct ulid id;
    char name[ACTION_NAME_MAX + 1];
    int version;
    json_t *definition; /* owned */
};

/* ---- parameters that every statement here takes: $1 environment, $2 name or id as text, $3 id
 * ---- */

struct action_ref {
    char environment[24];
    struct ulid id;
    struct store_param params[3];
};

static void ref_read(const struct call *call, struct action_ref *ref)
{
    const char *text = call->segments[0];
    bool by_id = ulid_parse_prefixed("act", text, &ref->id);
    ref->params[0] = store_int(call->principal->environment, ref->environment);
    ref->params[1] = store_text(text);
    ref->params[2] = store_uuid(by_id ? &ref->id : NULL);
}

#define ACTION_BY_REF                                                                              \
    "a.environment_id = $1::int and a.deleted_at is null and (a.name = $2 or a.id = $3)"

/* ---- reading ---- */

static enum route_result action_get_handle(struct route_worker *worker, struct call *call)
{
    static const char sql[] =
        "select action_json(a, v)::text from actions a "
        "join action_versions v on v.action_id = a.id and v.version = a.version "
        "where " ACTION_BY_REF;
    struct action_ref ref;
    ref_read(call, &ref);
    return document_answer(worker, call, 200, sql, ref.params, 3, "action", call->segments[0]);
}

static enum route_result actions_list_handle(struct route_worker *worker, struct call *call)
{
    static const char sql[] =
        "select coalesce(json_agg(x.doc order by x.name), '[]')::text, "
        "(select count(*) from actions where environment_id = $1::int and deleted_at is null) "
        "from (select action_json(a, v) as doc, a.name from actions a "
        "join action_versions v on v.action_id = a.id and v.version = a.version "
        "where a.environment_id = $1::int and a.deleted_at is null "
        "order by a.name limit $2::bigint offset $3::bigint) x";
    char numbers[3][24];
    int64_t limit, offset;
    if (!query_page(call, PAGE_MOST, &limit, &offset))
        return ROUTE_ANSWERED;
    struct store_param params[] = {store_int(call->principal->environment, numbers[0]),
                                   store_int(limit, numbers[1]), store_int(offset, numbers[2])};
    return page_answer(worker, call, sql, params, 3, limit, offset);
}

/* Oldest first. An action that does not exist is told from one page too far by its version 1. */
static enum route_result versions_list_handle(struct route_worker *worker, struct call *call)
{
    static const char sql[] =
        "select coalesce(json_agg(x.doc order by x.version), '[]')::text, max(x.total) "
        "from (select action_json(a, v) as doc, v.version, a.version::bigint as total "
        "from actions a join action_versions v on v.action_id = a.id "
        "where " ACTION_BY_REF " order by v.version limit $4::bigint offset $5::bigint) x";
    static const char exists_sql[] = "select a.version::bigint from actions a where " ACTION_BY_REF;
    char numbers[2][24];
    int64_t limit, offset;
    struct action_ref ref;
    struct error err = {0};
    if (!query_page(call, PAGE_MOST, &limit, &offset))
        return ROUTE_ANSWERED;
    ref_read(call, &ref);
    PGresult *r = store_query(worker->store, exists_sql, ref.params, 3, true, &err);
    if (r == NULL)
        return error_answer(call, &err);
    bool exists = PQntuples(r) == 1;
    PQclear(r);
    if (!exists)
        return document_missing(call, "action", call->segments[0]);
    struct store_param params[] = {ref.params[0], ref.params[1], ref.params[2],
                                   store_int(limit, numbers[0]), store_int(offset, numbers[1])};
    return page_answer(worker, call, sql, params, 5, limit, offset);
}

/* ---- writing ---- */

static bool version_insert(struct store *store, const struct call *call, const struct ulid *id,
                           int version, const json_t *definition, struct error *err)
{
    static const char sql[] =
        "insert into action_versions (action_id, version, definition, created_by, created_at) "
        "values ($1, $2::int, $3::json, $4, hf_now())";
    char number[24];
    struct buf text;
    buf_init(&text, DEFINITION_MAX_BYTES);
    if (!json_canonical(definition, &text)) {
        buf_free(&text);
        return error_set(err, ERROR_TOO_LARGE, "the action's definition is too large");
    }
    struct store_param params[] = {store_uuid(id), store_int(version, number),
                                   store_text(text.data), store_uuid(&call->principal->key_id)};
    PGresult *r = store_query(store, sql, params, 4, true, err);
    buf_free(&text);
    PQclear(r);
    return r != NULL;
}

/* A version's own words for the audit table: its number and what the body named. */
static json_t *edit_detail(int version, const json_t *body)
{
    const char *name;
    json_t *value;
    json_t *named = json_array();
    json_object_foreach((json_t *)body, name, value)
    {
        json_array_append_new(named, json_string(name));
    }
    return json_pack("{s:i, s:o}", "version", version, "members", named);
}

/* A unique name is the one thing that may be refused here for the caller's sake. */
static enum route_result name_taken_or(struct call *call, const struct error *err, const char *name)
{
    if (err->code != ERROR_CONFLICT || strcmp(err->place, "23505") != 0)
        return error_answer(call, err);
    call_error(call, 409, "CONFLICT", NULL,
               "an action named %s exists in this environment: edit it, or choose another name",
               name);
    return ROUTE_ANSWERED;
}

static enum route_result action_answer(struct route_worker *worker, struct call *call, int status,
                                       const struct ulid *id)
{
    static const char sql[] =
        "select action_json(a, v)::text from actions a join action_versions v "
        "on v.action_id = a.id and v.version = a.version where a.id = $1";
    struct store_param params[] = {store_uuid(id)};
    return document_answer(worker, call, status, sql, params, 1, "action", call->segments[0]);
}

static bool may_govern(const struct call *call)
{
    return (call->principal->scopes & SCOPE_BIT(SCOPE_ACTIONS_GOVERN)) != 0;
}

static bool govern_refused(struct call *call, const char *what, const char *name)
{
    call_error(call, 403, "AUTHORIZATION_ERROR", "{\"scope\":\"actions:govern\"}",
               "%s %s needs the scope actions:govern", what, name);
    return false;
}

/* A name keeps its guard: else whoever may write actions could give it to one without. False:
 * answered. */
static bool name_allowed(struct route_worker *worker, struct call *call, const json_t *definition)
{
    static const char sql[] =
        "select exists (select 1 from actions a join action_versions v on v.action_id = a.id "
        "where a.environment_id = $1::int and v.definition->>'name' = $2 "
        "and (v.definition->'adapter' is not null or v.definition->'impact' is not null "
        "or v.definition->'verify' is not null or v.definition->>'governed' = 'true' "
        "or v.definition->>'requiresApproval' = 'true'))";
    const char *name = json_string_value(json_object_get(definition, "name"));
    char environment[24];
    struct error err = {0};
    if (may_govern(call) || action_definition_guarded(definition))
        return true;
    struct store_param params[] = {store_int(call->principal->environment, environment),
                                   store_text(name)};
    PGresult *r = store_query(worker->store, sql, params, 2, true, &err);
    bool guarded = r != NULL && row_bool(r, 0, 0);
    PQclear(r);
    if (r == NULL)
        error_answer(call, &err);
    else if (guarded)
        govern_refused(call, "an ungoverned action under the name of the governed", name);
    return r != NULL && !guarded;
}

static bool govern_allowed(struct route_worker *worker, struct call *call,
                           const struct stored_action *stored, const json_t *definition)
{
    if (may_govern(call))
        return true;
    if (action_definition_needs_govern(stored->definition, definition))
        return govern_refused(call, "changing what makes the calls of the governed action",
                              stored->name);
    const char *name = json_string_value(json_object_get(definition, "name"));
    return strcmp(name, stored->name) == 0 || name_allowed(worker, call, definition);
}

static enum route_result action_store_new(struct route_worker *worker, struct call *call,
                                          const json_t *definition, const json_t *body)
{
    static const char sql[] = "insert into actions (id, environment_id, name, version) "
                              "values ($1, $2::int, $3, 1)";
    char environment[24], target[ULID_PREFIXED_SIZE];
    struct ulid id;
    struct error err = {0};
    const char *name = json_string_value(json_object_get(definition, "name"));
    ulid_new(&id, clock_wall_ms());
    struct store_param params[] = {
        store_uuid(&id), store_int(call->principal->environment, environment), store_text(name)};
    PGresult *r = store_query(worker->store, sql, params, 3, true, &err);
    PQclear(r);
    if (r == NULL)
        return name_taken_or(call, &err, name);
    if (!version_insert(worker->store, call, &id, 1, definition, &err) ||
        !audit_write(worker->store, call, "action.create", ulid_format_prefixed("act", &id, target),
                     edit_detail(1, body), &err))
        return error_answer(call, &err);
    return action_answer(worker, call, 201, &id);
}

static enum route_result action_create_handle(struct route_worker *worker, struct call *call)
{
    struct error err = {0};
    json_t *body = body_read(call, false, action_members);
    json_t *definition = NULL;
    enum route_result result = ROUTE_ANSWERED;
    if (body == NULL)
        goto done;
    definition = action_definition_create(body, &err);
    if (definition == NULL)
        result = error_answer(call, &err);
    else if (name_allowed(worker, call, definition))
        result = action_store_new(worker, call, definition, body);
done:
    json_decref(definition);
    json_decref(body);
    return result;
}

/* Locks the action's row by itself: a join would be checked again against the row as the one we
 * waited for left it, and miss the version that it made. False: answered. */
static bool action_row_lock(struct route_worker *worker, struct call *call,
                            struct stored_action *out)
{
    static const char sql[] =
        "select a.id, a.name, a.version from actions a where " ACTION_BY_REF " for update";
    struct action_ref ref;
    struct error err = {0};
    ref_read(call, &ref);
    PGresult *r = store_query(worker->store, sql, ref.params, 3, true, &err);
    bool found = r != NULL && PQntuples(r) == 1;
    if (found) {
        row_uuid(r, 0, 0, &out->id);
        snprintf(out->name, sizeof out->name, "%s", row_text(r, 0, 1));
        out->version = (int)row_int(r, 0, 2);
    } else if (r != NULL) {
        document_missing(call, "action", call->segments[0]);
    } else {
        error_answer(call, &err);
    }
    PQclear(r);
    return found;
}

/* Locks the action that the path names and reads its newest definition. False: answered. */
static bool action_lock(struct route_worker *worker, struct call *call, struct stored_action *out)
{
    static const char sql[] =
        "select definition::text from action_versions where action_id = $1 and version = $2::int";
    char number[24];
    struct error err = {0};
    *out = (struct stored_action){0};
    if (!action_row_lock(worker, call, out))
        return false;
    struct store_param params[] = {store_uuid(&out->id), store_int(out->version, number)};
    PGresult *r = store_query(worker->store, sql, params, 2, true, &err);
    if (r == NULL) {
        error_answer(call, &err);
        return false;
    }
    must(PQntuples(r) == 1);
    out->definition = json_loads(row_text(r, 0, 0), 0, NULL);
    must(out->definition != NULL); /* the column's type is json */
    PQclear(r);
    return true;
}

static enum route_result action_store_edit(struct route_worker *worker, struct call *call,
                                           const struct stored_action *stored,
                                           const json_t *definition, const json_t *body)
{
    static const char sql[] = "update actions set name = $2, version = $3::int, "
                              "updated_at = hf_now() where id = $1";
    char number[24], target[ULID_PREFIXED_SIZE];
    struct error err = {0};
    int version = stored->version + 1;
    const char *name = json_string_value(json_object_get(definition, "name"));
    struct store_param params[] = {store_uuid(&stored->id), store_text(name),
                                   store_int(version, number)};
    PGresult *r = store_query(worker->store, sql, params, 3, true, &err);
    PQclear(r);
    if (r == NULL)
        return name_taken_or(call, &err, name);
    if (!version_insert(worker->store, call, &stored->id, version, definition, &err) ||
        !audit_write(worker->store, call, "action.patch",
                     ulid_format_prefixed("act", &stored->id, target), edit_detail(version, body),
                     &err))
        return error_answer(call, &err);
    return action_answer(worker, call, 200, &stored->id);
}

/* An edit that changes nothing appends nothing. */
static enum route_result action_edit(struct route_worker *worker, struct call *call,
                                     const struct stored_action *stored, const json_t *body)
{
    struct error err = {0};
    enum route_result result = ROUTE_ANSWERED;
    json_t *definition = action_definition_patch(stored->definition, body, &err);
    if (definition == NULL)
        result = error_answer(call, &err);
    else if (json_equal(definition, stored->definition))
        result = action_answer(worker, call, 200, &stored->id);
    else if (govern_allowed(worker, call, stored, definition))
        result = action_store_edit(worker, call, stored, definition, body);
    json_decref(definition);
    return result;
}

static enum route_result action_patch_handle(struct route_worker *worker, struct call *call)
{
    struct stored_action stored = {0};
    enum route_result result = ROUTE_ANSWERED;
    json_t *body = body_read(call, false, action_members);
    if (body != NULL && action_lock(worker, call, &stored))
        result = action_edit(worker, call, &stored, body);
    json_decref(stored.definition);
    json_decref(body);
    return result;
}

/* The row stays for the invocations that refer to it; its name is free again. */
static enum route_result action_delete_handle(struct route_worker *worker, struct call *call)
{
    static const char sql[] =
        "update actions set deleted_at = hf_now(), updated_at = hf_now() where id = $1 "
        "returning json_build_object('id', prefixed('act', id), 'name', name, 'deleted', true)"
        "::text";
    char target[ULID_PREFIXED_SIZE];
    struct stored_action stored;
    struct error err = {0};
    if (!action_lock(worker, call, &stored))
        return ROUTE_ANSWERED;
    bool guarded = action_definition_guarded(stored.definition);
    json_decref(stored.definition);
    if (guarded && !may_govern(call)) {
        govern_refused(call, "deleting the governed action", stored.name);
        return ROUTE_ANSWERED;
    }
    ulid_format_prefixed("act", &stored.id, target);
    if (!audit_write(worker->store, call, "action.delete", target,
                     json_pack("{s:s, s:i}", "name", stored.name, "version", stored.version), &err))
        return error_answer(call, &err);
    struct store_param params[] = {store_uuid(&stored.id)};
    return document_answer(worker, call, 200, sql, params, 1, "action", stored.name);
}

/* ---- reserved ---- */

static enum route_result import_handle(struct route_worker *worker, struct call *call)
{
    (void)worker;
    return feature_refused(call, "Importing an OpenAPI document");
}

static enum route_result batch_handle(struct route_worker *worker, struct call *call)
{
    (void)worker;
    return feature_refused(call, "Batches of invocations");
}

static enum route_result previews_handle(struct route_worker *worker, struct call *call)
{
    (void)worker;
    return feature_refused(call, "Previews");
}

const struct route routes_actions[] = {
    {"GET", "/api/v2/actions", SCOPE_ACTIONS_READ, false, actions_list_handle},
    {"POST", "/api/v2/actions", SCOPE_ACTIONS_WRITE, true, action_create_handle},
    {"GET", "/api/v2/actions/{ref}", SCOPE_ACTIONS_READ, false, action_get_handle},
    {"PATCH", "/api/v2/actions/{ref}", SCOPE_ACTIONS_WRITE, true, action_patch_handle},
    {"DELETE", "/api/v2/actions/{ref}", SCOPE_ACTIONS_WRITE, true, action_delete_handle},
    {"GET", "/api/v2/actions/{ref}/versions", SCOPE_ACTIONS_READ, false, versions_list_handle},
    {"POST", "/api/v2/actions/import", SCOPE_ACTIONS_WRITE, false, import_handle},
    {"POST", "/api/v2/actions/batch", SCOPE_ACTIONS_INVOKE, false, batch_handle},
    {"POST", "/api/v2/actions/{ref}/previews", SCOPE_ACTIONS_INVOKE, false, previews_handle},
    {"GET", "/api/v2/actions/previews/{id}", SCOPE_ACTIONS_READ, false, previews_handle},
    {"POST", "/api/v2/actions/previews/{id}/refresh", SCOPE_ACTIONS_INVOKE, false, previews_handle},
    {0}};
