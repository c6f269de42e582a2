/* Many effects at once: a filter, one reason, a dry run first; the scheduler works through what was
 * asked for, and how far it is can be read. */
#include "common/base/json.h"
#include "ingest/audit.h"
#include "ingest/config_watch.h"
#include "ingest/routes/effect.h"
#include "ingest/routes/parse.h"

#include <stdlib.h>
#include <string.h>

enum { BATCH_MOST = 10000, REFERENCE_MAX = 500, ITEMS_STANDARD = 100 };
#define OLDER_MOST_S 3155760000LL /* 100 years */

struct batch {
    const char *act; /* resolve or reconcile */
    json_t *body;
    char *filter; /* JSON */
    bool dry_run;
    enum outcome outcome;
    const char *reason, *partial_effect, *external_reference;
};

/* ---- reading ---- */

static bool filter_read(const json_t *body, char **out, struct error *err)
{
    static const char *const members[] = {"action", "provider", "grade", "olderThan", NULL};
    const json_t *filter = json_object_get(body, "filter");
    const char *text = NULL, *grade = NULL;
    int64_t older_s = 0;
    if (!json_is_object(filter))
        return error_set_at(err, ERROR_INVALID, "/filter",
                            "must be an object; an empty one means every unknown effect");
    if (!json_only_members(filter, members, err) ||
        !json_field_text(filter, "action", false, 1, 255, &text, err) ||
        !json_field_text(filter, "provider", false, 1, 64, &text, err) ||
        !json_field_text(filter, "grade", false, 1, 32, &grade, err) ||
        !json_field_int(filter, "olderThan", false, 0, OLDER_MOST_S, &older_s, err))
        return error_place_under(err, "/filter");
    if (grade != NULL && strcmp(grade, "unknown") != 0 && strcmp(grade, "pending") != 0)
        return error_set_at(err, ERROR_INVALID, "/filter/grade", "must be unknown or pending");
    *out = json_dumps(filter, JSON_COMPACT);
    must(*out != NULL);
    return true;
}

static bool dry_run_read(const json_t *body, bool *out, struct error *err)
{
    const json_t *value = json_object_get(body, "dryRun");
    *out = json_is_true(value);
    return value == NULL || json_is_boolean(value) ||
           error_set_at(err, ERROR_INVALID, "/dryRun", "must be true or false");
}

static bool batch_read(struct batch *b, struct error *err)
{
    if (!filter_read(b->body, &b->filter, err) || !dry_run_read(b->body, &b->dry_run, err))
        return false;
    if (strcmp(b->act, "resolve") != 0)
        return true;
    return resolution_outcome_read(b->body, &b->outcome, err) &&
           resolution_reason_read(b->body, "reason", &b->reason, err) &&
           resolution_partial_read(b->body, &b->partial_effect, err) &&
           json_field_text(b->body, "externalReference", false, 1, REFERENCE_MAX,
                           &b->external_reference, err);
}

/* ---- answering ---- */

static enum route_result batch_answer(struct route_worker *worker, struct call *call, int status,
                                      const struct ulid *id, int64_t limit, int64_t offset)
{
    static const char sql[] =
        "select doc::text from batch_json($1, $2::int, $3::bigint, $4::bigint) doc "
        "where doc is not null";
    char numbers[3][24];
    struct store_param params[] = {store_uuid(id),
                                   store_int(call->principal->environment, numbers[0]),
                                   store_int(limit, numbers[1]), store_int(offset, numbers[2])};
    const char *name = call->segments[0] != NULL ? call->segments[0] : "";
    return document_answer(worker, call, status, sql, params, 4, "batch", name);
}

static enum route_result batch_dry_run(struct route_worker *worker, struct call *call,
                                       const struct batch *b)
{
    static const char sql[] =
        "select batch_dry_run($1::int, $2, $3::text::json, $4, $5::int)::text";
    char numbers[2][24];
    struct store_param params[] = {store_int(call->principal->environment, numbers[0]),
                                   store_text(b->act), store_text(b->filter),
                                   store_uuid(&call->principal->key_id),
                                   store_int(BATCH_MOST, numbers[1])};
    return document_answer(worker, call, 200, sql, params, 5, "batch", "");
}

static PGresult *batch_start(struct route_worker *worker, struct call *call, const struct batch *b,
                             const struct ulid *id, struct error *err)
{
    static const char sql[] =
        "select batch_start($1, $2::int, $3, $4::text::json, $5::text::effect_outcome, $6, $7, $8, "
        "$9, $10, $11::int)";
    char numbers[2][24];
    bool resolves = b->reason != NULL;
    struct store_param params[] = {store_uuid(id),
                                   store_int(call->principal->environment, numbers[0]),
                                   store_text(b->act),
                                   store_text(b->filter),
                                   store_text(resolves ? outcome_name(b->outcome) : NULL),
                                   store_text(b->reason),
                                   store_text(b->partial_effect),
                                   store_text(b->external_reference),
                                   store_uuid(&call->principal->key_id),
                                   store_text(call->principal->agent_id),
                                   store_int(BATCH_MOST, numbers[1])};
    return store_query(worker->store, sql, params, 11, true, err);
}

static enum route_result batch_run(struct route_worker *worker, struct call *call,
                                   const struct batch *b)
{
    struct error err = {0};
    struct ulid id;
    char name[ULID_PREFIXED_SIZE];
    ulid_new(&id, database_now_ms());
    PGresult *r = batch_start(worker, call, b, &id, &err);
    bool too_many = r != NULL && row_null(r, 0, 0);
    PQclear(r);
    if (too_many) {
        call_error(call, 409, "BATCH_TOO_LARGE", NULL,
                   "more than %d effects match; nothing was started. Narrow the filter.",
                   BATCH_MOST);
        return ROUTE_ANSWERED;
    }
    if (r == NULL ||
        !audit_write(worker->store, call, "effects.batch", ulid_format_prefixed("bat", &id, name),
                     json_incref(b->body), &err))
        return error_answer(call, &err);
    return batch_answer(worker, call, 202, &id, ITEMS_STANDARD, 0);
}

static enum route_result batch_handle(struct route_worker *worker, struct call *call,
                                      const char *act, const char *const *members)
{
    struct error err = {0};
    struct batch b = {.act = act, .body = body_read(call, false, members)};
    enum route_result result = ROUTE_ANSWERED;
    if (b.body != NULL && !batch_read(&b, &err))
        result = error_answer(call, &err);
    else if (b.body != NULL)
        result = b.dry_run ? batch_dry_run(worker, call, &b) : batch_run(worker, call, &b);
    free(b.filter);
    json_decref(b.body);
    return result;
}

static enum route_result resolve_handle(struct route_worker *worker, struct call *call)
{
    static const char *const members[] = {
        "filter", "dryRun", "outcome", "reason", "partialEffect", "externalReference", NULL};
    return batch_handle(worker, call, "resolve", members);
}

static enum route_result reconcile_handle(struct route_worker *worker, struct call *call)
{
    static const char *const members[] = {"filter", "dryRun", NULL};
    return batch_handle(worker, call, "reconcile", members);
}

static enum route_result get_handle(struct route_worker *worker, struct call *call)
{
    struct ulid id;
    int64_t limit, offset;
    if (!query_page(call, ITEMS_STANDARD, &limit, &offset))
        return ROUTE_ANSWERED;
    if (!ulid_parse_prefixed("bat", call->segments[0], &id))
        return document_missing(call, "batch", call->segments[0]);
    return batch_answer(worker, call, 200, &id, limit, offset);
}

const struct route routes_effect_batches[] = {
    {"POST", "/api/v2/actions/effects/batches/resolve", SCOPE_ACTIONS_RESOLVE, true,
     resolve_handle},
    {"POST", "/api/v2/actions/effects/batches/reconcile", SCOPE_ACTIONS_READ, true,
     reconcile_handle},
    {"GET", "/api/v2/actions/effects/batches/{id}", SCOPE_ACTIONS_READ, false, get_handle},
    {0}};
