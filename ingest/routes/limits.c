/* The routes of impact limits: what an environment, an action or a resource may change in a period.
 */
#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/money.h"
#include "ingest/audit.h"
#include "ingest/routes/action_definition.h"
#include "ingest/routes/document.h"
#include "ingest/routes/parse.h"

#include <ctype.h>
#include <string.h>

#define NAME_MAX_BYTES 200
#define UNIT_MAX 32
#define RESOURCE_MAX 255

struct limit_body {
    const char *name; /* borrowed from the body, as the others */
    const char *dimension;
    const char *period;
    const char *action_name;
    const char *resource_prefix;
    char unit[UNIT_MAX + 1];
    int64_t amount;
};

/* ---- reading a body ---- */

static bool dimension_check(const char *dimension, struct error *err)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
    return (islower((unsigned char)dimension[0]) &&
            strspn(dimension, allowed) == strlen(dimension)) ||
           error_set_at(err, ERROR_INVALID, "/dimension",
                        "must be money, resource_mutations or a unit of lower-case letters, digits "
                        "and '_', beginning with a letter");
}

static bool period_check(const char *period, struct error *err)
{
    return strcmp(period, "day") == 0 || strcmp(period, "month") == 0 ||
           strcmp(period, "total") == 0 ||
           error_set_at(err, ERROR_INVALID, "/period", "must be day, month or total");
}

/* Money counts in a currency, given as currency or unit; anything else in itself. */
static bool unit_read(const json_t *body, struct limit_body *out, struct error *err)
{
    const char *currency = NULL, *unit = NULL;
    bool money = strcmp(out->dimension, "money") == 0;
    if (!json_field_text(body, "currency", false, 1, UNIT_MAX, &currency, err) ||
        !json_field_text(body, "unit", false, 1, UNIT_MAX, &unit, err))
        return false;
    if (!money && currency != NULL)
        return error_set_at(err, ERROR_INVALID, "/currency", "is for the dimension money only");
    if (!money && unit != NULL && strcmp(unit, out->dimension) != 0)
        return error_set_at(err, ERROR_INVALID, "/unit",
                            "must be the dimension's name, or be left out");
    if (currency != NULL && unit != NULL && strcasecmp(currency, unit) != 0)
        return error_set_at(err, ERROR_INVALID, "/unit", "is another currency than currency");
    const char *text = !money ? out->dimension : currency != NULL ? currency : unit;
    size_t len = text != NULL ? strlen(text) : 0;
    for (size_t i = 0; i < len; i++)
        out->unit[i] = (char)(money ? tolower((unsigned char)text[i]) : text[i]);
    return !money || money_currency_valid(out->unit) ||
           error_set_at(err, ERROR_INVALID, "/currency",
                        "must be a currency of three letters, such as usd");
}

static bool amount_read(const json_t *body, int64_t *out, struct error *err)
{
    const json_t *amount = json_object_get(body, "amount");
    if (amount == NULL)
        return error_set_at(err, ERROR_INVALID, "/amount", "is required");
    return json_amount(amount, "/amount", 0, MONEY_MAX, out, err);
}

static bool limit_body_read(const json_t *body, struct limit_body *out, struct error *err)
{
    return json_field_text(body, "name", true, 1, NAME_MAX_BYTES, &out->name, err) &&
           json_field_text(body, "dimension", true, 1, UNIT_MAX, &out->dimension, err) &&
           dimension_check(out->dimension, err) &&
           json_field_text(body, "period", true, 1, UNIT_MAX, &out->period, err) &&
           period_check(out->period, err) && unit_read(body, out, err) &&
           amount_read(body, &out->amount, err) &&
           json_field_text(body, "actionName", false, 1, ACTION_NAME_MAX, &out->action_name, err) &&
           json_field_text(body, "resourcePrefix", false, 1, RESOURCE_MAX, &out->resource_prefix,
                           err);
}

/* ---- one limit ---- */

/* The id in the path; one that can't be an id is no limit. False: answered. */
static bool limit_id_read(struct call *call, struct ulid *id)
{
    if (ulid_parse_prefixed("lim", call->segments[0], id))
        return true;
    document_missing(call, "impact limit", call->segments[0]);
    return false;
}

static enum route_result limit_answer(struct route_worker *worker, struct call *call, int status,
                                      const struct ulid *id)
{
    static const char sql[] = "select limit_json(l)::text from limits l "
                              "where l.id = $1 and l.environment_id = $2::int";
    char number[24], name[ULID_PREFIXED_SIZE];
    struct store_param params[] = {store_uuid(id), store_int(call->principal->environment, number)};
    return document_answer(worker, call, status, sql, params, 2, "impact limit",
                           ulid_format_prefixed("lim", id, name));
}

static enum route_result limit_get_handle(struct route_worker *worker, struct call *call)
{
    struct ulid id;
    return limit_id_read(call, &id) ? limit_answer(worker, call, 200, &id) : ROUTE_ANSWERED;
}

static enum route_result limits_list_handle(struct route_worker *worker, struct call *call)
{
    static const char sql[] =
        "select coalesce(json_agg(limit_json(x.l) order by (x.l).id), '[]')::text, "
        "(select count(*) from limits where environment_id = $1::int "
        "and (archived_at is null or $2::bool)) "
        "from (select l from limits l where l.environment_id = $1::int "
        "and (l.archived_at is null or $2::bool) "
        "order by l.id limit $3::bigint offset $4::bigint) x";
    char numbers[3][24];
    int64_t limit, offset;
    bool archived = false;
    if (!query_page(call, PAGE_MOST, &limit, &offset) ||
        !query_bool(call, "includeArchived", &archived))
        return ROUTE_ANSWERED;
    struct store_param params[] = {store_int(call->principal->environment, numbers[0]),
                                   store_text(archived ? "true" : "false"),
                                   store_int(limit, numbers[1]), store_int(offset, numbers[2])};
    return page_answer(worker, call, sql, params, 4, limit, offset);
}

/* ---- writing ---- */

static enum route_result limit_store_new(struct route_worker *worker, struct call *call,
                                         const struct limit_body *new, const json_t *body)
{
    static const char sql[] =
        "insert into limits (id, environment_id, name, dimension, unit, period, amount, "
        "action_name, resource_prefix) "
        "values ($1, $2::int, $3, $4, $5, $6::limit_period, $7::bigint, $8, $9)";
    char numbers[2][24], target[ULID_PREFIXED_SIZE];
    struct ulid id;
    struct error err = {0};
    ulid_new(&id, clock_wall_ms());
    struct store_param params[] = {store_uuid(&id),
                                   store_int(call->principal->environment, numbers[0]),
                                   store_text(new->name),
                                   store_text(new->dimension),
                                   store_text(new->unit),
                                   store_text(new->period),
                                   store_int(new->amount, numbers[1]),
                                   store_text(new->action_name),
                                   store_text(new->resource_prefix)};
    PGresult *r = store_query(worker->store, sql, params, 9, true, &err);
    PQclear(r);
    if (r == NULL ||
        !audit_write(worker->store, call, "limit.create", ulid_format_prefixed("lim", &id, target),
                     json_incref((json_t *)body), &err))
        return error_answer(call, &err);
    return limit_answer(worker, call, 201, &id);
}

static enum route_result limit_create_handle(struct route_worker *worker, struct call *call)
{
    static const char *const members[] = {"name",       "dimension",      "currency",
                                          "unit",       "period",         "amount",
                                          "actionName", "resourcePrefix", NULL};
    struct limit_body new = {0};
    struct error err = {0};
    enum route_result result = ROUTE_ANSWERED;
    json_t *body = body_read(call, false, members);
    if (body != NULL)
        result = limit_body_read(body, &new, &err) ? limit_store_new(worker, call, &new, body)
                                                   : error_answer(call, &err);
    json_decref(body);
    return result;
}

/* An amount below what is consumed and held is fine: nothing is left then, and nothing is released.
 */
static enum route_result limit_edit(struct route_worker *worker, struct call *call,
                                    const struct ulid *id, const char *name, const json_t *body)
{
    static const char sql[] =
        "update limits set name = coalesce($3, name), amount = coalesce($4::bigint, amount), "
        "updated_at = hf_now() where id = $1 and environment_id = $2::int returning 1";
    char numbers[2][24];
    struct error err = {0};
    int64_t amount = 0;
    bool has_amount = json_object_get(body, "amount") != NULL;
    if (has_amount && !amount_read(body, &amount, &err))
        return error_answer(call, &err);
    struct store_param params[] = {
        store_uuid(id), store_int(call->principal->environment, numbers[0]), store_text(name),
        has_amount ? store_int(amount, numbers[1]) : store_text(NULL)};
    PGresult *r = store_query(worker->store, sql, params, 4, true, &err);
    bool found = r != NULL && PQntuples(r) == 1;
    PQclear(r);
    if (r == NULL || (found && !audit_write(worker->store, call, "limit.patch", call->segments[0],
                                            json_incref((json_t *)body), &err)))
        return error_answer(call, &err);
    return limit_answer(worker, call, 200, id);
}

static enum route_result limit_patch_handle(struct route_worker *worker, struct call *call)
{
    static const char *const members[] = {"name", "amount", NULL};
    struct ulid id;
    struct error err = {0};
    const char *name = NULL;
    enum route_result result = ROUTE_ANSWERED;
    if (!limit_id_read(call, &id))
        return ROUTE_ANSWERED;
    json_t *body = body_read(call, false, members);
    if (body != NULL)
        result = json_field_text(body, "name", false, 1, NAME_MAX_BYTES, &name, &err)
                     ? limit_edit(worker, call, &id, name, body)
                     : error_answer(call, &err);
    json_decref(body);
    return result;
}

/* Ends its applying to new effects; what it holds is still settled. Archiving again changes
 * nothing. */
static enum route_result limit_archive_handle(struct route_worker *worker, struct call *call)
{
    static const char sql[] =
        "update limits set archived_at = hf_now(), updated_at = hf_now() "
        "where id = $1 and environment_id = $2::int and archived_at is null returning 1";
    char number[24];
    struct ulid id;
    struct error err = {0};
    if (!limit_id_read(call, &id))
        return ROUTE_ANSWERED;
    struct store_param params[] = {store_uuid(&id),
                                   store_int(call->principal->environment, number)};
    PGresult *r = store_query(worker->store, sql, params, 2, true, &err);
    bool archived = r != NULL && PQntuples(r) == 1;
    PQclear(r);
    if (r == NULL || (archived && !audit_write(worker->store, call, "limit.archive",
                                               call->segments[0], NULL, &err)))
        return error_answer(call, &err);
    return limit_answer(worker, call, 200, &id);
}

const struct route routes_limits[] = {
    {"GET", "/api/v2/impact-limits", SCOPE_LIMITS_READ, false, limits_list_handle},
    {"POST", "/api/v2/impact-limits", SCOPE_LIMITS_WRITE, true, limit_create_handle},
    {"GET", "/api/v2/impact-limits/{id}", SCOPE_LIMITS_READ, false, limit_get_handle},
    {"PATCH", "/api/v2/impact-limits/{id}", SCOPE_LIMITS_WRITE, true, limit_patch_handle},
    {"DELETE", "/api/v2/impact-limits/{id}", SCOPE_LIMITS_WRITE, true, limit_archive_handle},
    {0}};
