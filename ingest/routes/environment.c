/* The routes of a key's own environment, with its kill switch. */
#include "common/base/json.h"
#include "ingest/audit.h"
#include "ingest/routes/document.h"
#include "ingest/routes/parse.h"

#include <ctype.h>
#include <string.h>

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

/* What a halt or a resume is of: the whole environment, one action, or one destination. */
struct halt_part {
    const char *part; /* NULL: the whole environment */
    char name[301];
    const char *reason;
};

/* Hosts are compared in lower case; a port may be named. */
static bool destination_read(const char *text, struct halt_part *out, struct error *err)
{
    size_t len = strlen(text);
    for (size_t i = 0; i < len; i++) {
        if (text[i] <= ' ' || text[i] >= 0x7f || strchr("/@?#", text[i]) != NULL)
            return error_set_at(err, ERROR_INVALID, "/destination",
                                "must be a host, or host:port, and no URL");
        out->name[i] = (char)tolower((unsigned char)text[i]);
    }
    out->name[len] = '\0';
    out->part = "destination";
    return true;
}

static bool part_read(const json_t *body, struct halt_part *out, struct error *err)
{
    const char *action = NULL, *destination = NULL;
    *out = (struct halt_part){0};
    if (!json_field_text(body, "reason", false, 0, REASON_MAX, &out->reason, err) ||
        !json_field_text(body, "action", false, 1, 255, &action, err) ||
        !json_field_text(body, "destination", false, 1, 300, &destination, err))
        return false;
    if (action != NULL && destination != NULL)
        return error_set_at(err, ERROR_INVALID, "/destination",
                            "goes without action: halt one or the other");
    if (destination != NULL)
        return destination_read(destination, out, err);
    if (action != NULL) {
        out->part = "action";
        snprintf(out->name, sizeof out->name, "%s", action);
    }
    return true;
}

/* An action may be named by its id; what is not there any more can still be halted and resumed by
 * its name. False: answered. */
static bool action_name_find(struct route_worker *worker, struct call *call, struct halt_part *part)
{
    static const char sql[] = "select name from actions where environment_id = $1::int and "
                              "(name = $2 or prefixed('act', id) = $2) limit 1";
    char number[24];
    struct error err = {0};
    struct store_param params[] = {store_int(call->principal->environment, number),
                                   store_text(part->name)};
    if (part->part == NULL || strcmp(part->part, "action") != 0)
        return true;
    PGresult *r = store_query(worker->store, sql, params, 2, true, &err);
    if (r == NULL) {
        error_answer(call, &err);
        return false;
    }
    bool found = PQntuples(r) == 1;
    if (found)
        snprintf(part->name, sizeof part->name, "%s", row_text(r, 0, 0));
    else
        document_missing(call, "action", part->name);
    PQclear(r);
    return found;
}

static json_t *part_detail(const struct halt_part *part)
{
    json_t *detail = json_pack("{s:s?}", "reason", part->reason);
    if (part->part != NULL)
        json_object_set_new(detail, part->part, json_string(part->name));
    return detail;
}

/* Answers once no claim is between its checks and its COMMIT any more: what is in flight then may
 * leave until quietAt, and nothing else. */
static enum route_result halt_make(struct route_worker *worker, struct call *call,
                                   const struct halt_part *part)
{
    static const char whole[] = "select in_flight, iso(quiet_at) from halt($1::int, $2, $3)";
    static const char one[] =
        "select in_flight, iso(quiet_at) from halt_part($1::int, $4, $5, $2, $3)";
    char number[24];
    struct error err = {0};
    struct store_param params[] = {store_int(call->principal->environment, number),
                                   store_text(part->reason), store_uuid(&call->principal->key_id),
                                   store_text(part->part), store_text(part->name)};
    PGresult *r = store_query(worker->store, part->part != NULL ? one : whole, params,
                              part->part != NULL ? 5 : 3, true, &err);
    bool ok = r != NULL && audit_write(worker->store, call, "environment.halt",
                                       call->principal->environment_name, part_detail(part), &err);
    enum route_result result = ok ? halted_answer(worker, call, r) : error_answer(call, &err);
    PQclear(r);
    return result;
}

static enum route_result resume_make(struct route_worker *worker, struct call *call,
                                     const struct halt_part *part)
{
    static const char whole[] = "select resume($1::int)";
    static const char one[] = "select resume_part($1::int, $2, $3)";
    char number[24];
    struct error err = {0};
    struct store_param params[] = {store_int(call->principal->environment, number),
                                   store_text(part->part), store_text(part->name)};
    PGresult *r = store_query(worker->store, part->part != NULL ? one : whole, params,
                              part->part != NULL ? 3 : 1, true, &err);
    PQclear(r);
    if (r == NULL || !audit_write(worker->store, call, "environment.resume",
                                  call->principal->environment_name, part_detail(part), &err))
        return error_answer(call, &err);
    return environment_get_handle(worker, call);
}

typedef enum route_result (*part_make)(struct route_worker *worker, struct call *call,
                                       const struct halt_part *part);

/* Halt and resume read the same body. */
static enum route_result part_handle(struct route_worker *worker, struct call *call, part_make make)
{
    static const char *const members[] = {"reason", "action", "destination", NULL};
    struct error err = {0};
    struct halt_part part;
    json_t *body = body_read(call, true, members);
    enum route_result result = ROUTE_ANSWERED;
    if (body != NULL && !part_read(body, &part, &err))
        result = error_answer(call, &err);
    else if (body != NULL && action_name_find(worker, call, &part))
        result = make(worker, call, &part);
    json_decref(body);
    return result;
}

static enum route_result halt_handle(struct route_worker *worker, struct call *call)
{
    return part_handle(worker, call, halt_make);
}

static enum route_result resume_handle(struct route_worker *worker, struct call *call)
{
    return part_handle(worker, call, resume_make);
}

const struct route routes_environment[] = {
    {"GET", "/api/v2/environment", ROUTE_ANY_KEY, false, environment_get_handle},
    {"POST", "/api/v2/environment/halt", SCOPE_ENVIRONMENTS_HALT, true, halt_handle},
    {"POST", "/api/v2/environment/resume", SCOPE_ENVIRONMENTS_HALT, true, resume_handle},
    {0}};
