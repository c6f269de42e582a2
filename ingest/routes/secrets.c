/* The routes of the vault: values go in and never come out. */
#include "common/base/json.h"
#include "common/store/array.h"
#include "common/vault.h"
#include "common/vault_keys.h"
#include "ingest/audit.h"
#include "ingest/routes/document.h"
#include "ingest/routes/parse.h"

#include <ctype.h>
#include <string.h>

#define NAME_MAX_BYTES 100 /* as the table has it */
#define DESCRIPTION_MAX 2000
#define HOSTS_MAX 32 /* as many as the vault reads */
#define HOST_MAX 254 /* a leading dot and a name of 253 */
#define LIST_BYTES_MAX 32768
#define SEALED_BYTES_MAX (SECRET_VALUE_MAX + 256)

/* What a PUT says: a restriction that is left out is kept, null clears it. */
struct secret_body {
    const char *value; /* borrowed from the body, as the others */
    const char *description;
    const json_t *hosts, *placements; /* NULL: left out */
};

/* ---- reading a body ---- */

static bool name_check(const char *name, struct error *err)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    size_t len = strlen(name);
    return (len <= NAME_MAX_BYTES && strspn(name, allowed) == len) ||
           error_set_at(err, ERROR_INVALID, "name",
                        "must be 1 to %d upper-case letters, digits and '_'", NAME_MAX_BYTES);
}

/* A name or address without scheme, port or path, which would match no host; perhaps with a leading
 * dot. */
static bool host_valid(const char *host)
{
    if (host[0] == '.')
        host++;
    if (!isalnum((unsigned char)host[0]))
        return false;
    for (const char *at = host; *at != '\0'; at++)
        if (!isalnum((unsigned char)*at) && strchr("-._", *at) == NULL)
            return false;
    return true;
}

static bool placement_valid(const char *placement)
{
    return strcmp(placement, "url") == 0 || strcmp(placement, "header") == 0 ||
           strcmp(placement, "body") == 0;
}

static bool secret_body_read(const json_t *body, struct secret_body *out, struct error *err)
{
    out->hosts = json_object_get(body, "allowedHosts");
    out->placements = json_object_get(body, "allowedPlacements");
    if (!json_field_text(body, "value", true, 1, SECRET_VALUE_MAX, &out->value, err) ||
        !json_field_text(body, "description", false, 0, DESCRIPTION_MAX, &out->description, err))
        return false;
    if (out->hosts != NULL && !json_is_null(out->hosts) &&
        !field_text_list(out->hosts, "allowedHosts", HOSTS_MAX, HOST_MAX, host_valid,
                         "a host name without port, such as api.example.com or .example.com", err))
        return false;
    return out->placements == NULL || json_is_null(out->placements) ||
           field_text_list(out->placements, "allowedPlacements", 3, 16, placement_valid,
                           "url, header or body", err);
}

/* ---- reading ---- */

static enum route_result secret_answer(struct route_worker *worker, struct call *call)
{
    static const char sql[] =
        "select secret_json(s)::text from secrets s "
        "where s.environment_id = $1::int and s.name = $2 and s.sealed is not null";
    char number[24];
    struct store_param params[] = {store_int(call->principal->environment, number),
                                   store_text(call->segments[0])};
    return document_answer(worker, call, 200, sql, params, 2, "secret", call->segments[0]);
}

static enum route_result secrets_list_handle(struct route_worker *worker, struct call *call)
{
    static const char sql[] =
        "select coalesce(json_agg(x.doc order by x.name), '[]')::text, "
        "(select count(*) from secrets where environment_id = $1::int and sealed is not null) "
        "from (select secret_json(s) as doc, s.name from secrets s "
        "where s.environment_id = $1::int and s.sealed is not null "
        "order by s.name limit $2::bigint offset $3::bigint) x";
    char numbers[3][24];
    int64_t limit, offset;
    if (!query_page(call, PAGE_MOST, &limit, &offset))
        return ROUTE_ANSWERED;
    struct store_param params[] = {store_int(call->principal->environment, numbers[0]),
                                   store_int(limit, numbers[1]), store_int(offset, numbers[2])};
    return page_answer(worker, call, sql, params, 3, limit, offset);
}

/* ---- writing ---- */

/* Locks the secret's row, making it when there is none, and says the version to write. 0: err. */
static int secret_version_next(struct store *store, const struct store_param *key,
                               struct error *err)
{
    static const char make_sql[] = "insert into secrets (environment_id, name, version) "
                                   "values ($1::int, $2, 0) on conflict do nothing";
    static const char lock_sql[] = "select version + 1 from secrets "
                                   "where environment_id = $1::int and name = $2 for update";
    PGresult *r = store_query(store, make_sql, key, 2, true, err);
    PQclear(r);
    if (r == NULL || (r = store_query(store, lock_sql, key, 2, true, err)) == NULL)
        return 0;
    int version = (int)row_int(r, 0, 0);
    PQclear(r);
    return version;
}

/* A text array parameter of a list; SQL NULL for null and for what was left out. */
static struct store_param list_param(struct array *a, const json_t *list)
{
    struct store_param param = store_text(NULL);
    array_init(a, ARRAY_TEXT, LIST_BYTES_MAX);
    for (size_t i = 0; i < json_array_size(list); i++)
        array_put_text(a, json_string_value(json_array_get(list, i)));
    must(!json_is_array(list) || array_param(a, &param)); /* its bytes were counted */
    return param;
}

/* The value before stays for what was claimed with it, but not under other restrictions: whoever
 * loosens them knows the new value, perhaps not the old one. */
static bool secret_write(struct store *store, const struct store_param *key,
                         const struct secret_body *new, int version, const struct buf *sealed,
                         struct error *err)
{
    static const char sql[] =
        "update secrets set version = $3::int, sealed = $4, "
        "previous_sealed = case when ($6::bool and allowed_hosts is distinct from $7::text[]) "
        "or ($8::bool and allowed_placements is distinct from $9::text[]) then null else sealed "
        "end, "
        "description = coalesce($5, description), "
        "allowed_hosts = case when $6::bool then $7::text[] else allowed_hosts end, "
        "allowed_placements = case when $8::bool then $9::text[] else allowed_placements end, "
        "created_at = case when sealed is null then hf_now() else created_at end, "
        "updated_at = hf_now() where environment_id = $1::int and name = $2";
    char number[24];
    struct array hosts, placements;
    struct store_param params[] = {key[0],
                                   key[1],
                                   store_int(version, number),
                                   store_bytes(sealed->data, (int)sealed->len),
                                   store_text(new->description),
                                   store_text(new->hosts != NULL ? "true" : "false"),
                                   list_param(&hosts, new->hosts),
                                   store_text(new->placements != NULL ? "true" : "false"),
                                   list_param(&placements, new->placements)};
    PGresult *r = store_query(store, sql, params, 9, true, err);
    array_free(&hosts);
    array_free(&placements);
    PQclear(r);
    return r != NULL;
}

/* Which restrictions a PUT set, for the audit table; never the value. */
static json_t *put_detail(int version, const struct secret_body *new)
{
    json_t *detail = json_pack("{s:i}", "version", version);
    if (new->hosts != NULL)
        json_object_set(detail, "allowedHosts", (json_t *)new->hosts);
    if (new->placements != NULL)
        json_object_set(detail, "allowedPlacements", (json_t *)new->placements);
    return detail;
}

static enum route_result secret_put(struct route_worker *worker, struct call *call,
                                    const struct secret_body *new)
{
    const char *name = call->segments[0];
    int environment = call->principal->environment;
    char number[24];
    struct buf sealed;
    struct error err = {0};
    struct store_param key[] = {store_int(environment, number), store_text(name)};
    buf_init(&sealed, SEALED_BYTES_MAX);
    int version = secret_version_next(worker->store, key, &err);
    bool ok =
        version > 0 && vault_keys_may_seal(worker->store, &err) &&
        vault_seal(environment, name, version, new->value, strlen(new->value), &sealed, &err) &&
        secret_write(worker->store, key, new, version, &sealed, &err) &&
        audit_write(worker->store, call, "secret.put", name, put_detail(version, new), &err);
    buf_free(&sealed);
    return ok ? secret_answer(worker, call) : error_answer(call, &err);
}

static enum route_result secret_put_handle(struct route_worker *worker, struct call *call)
{
    static const char *const members[] = {"value", "description", "allowedHosts",
                                          "allowedPlacements", NULL};
    struct secret_body new = {0};
    struct error err = {0};
    enum route_result result = ROUTE_ANSWERED;
    json_t *body = body_read(call, false, members);
    if (body != NULL)
        result = name_check(call->segments[0], &err) && secret_body_read(body, &new, &err)
                     ? secret_put(worker, call, &new)
                     : error_answer(call, &err);
    json_decref(body);
    return result;
}

/* The row stays, so that the version goes on rising when the name is used again. */
static enum route_result secret_delete_handle(struct route_worker *worker, struct call *call)
{
    static const char sql[] =
        "update secrets set sealed = null, previous_sealed = null, description = null, "
        "allowed_hosts = null, allowed_placements = null, updated_at = hf_now() "
        "where environment_id = $1::int and name = $2 and sealed is not null "
        "returning json_build_object('name', name, 'deleted', true)::text";
    char number[24];
    struct error err = {0};
    struct store_param params[] = {store_int(call->principal->environment, number),
                                   store_text(call->segments[0])};
    if (!audit_write(worker->store, call, "secret.delete", call->segments[0], NULL, &err))
        return error_answer(call, &err);
    return document_answer(worker, call, 200, sql, params, 2, "secret", call->segments[0]);
}

const struct route routes_secrets[] = {
    {"GET", "/api/v2/secrets", SCOPE_SECRETS_READ, false, secrets_list_handle},
    {"GET", "/api/v2/secrets/{name}", SCOPE_SECRETS_READ, false, secret_answer},
    {"PUT", "/api/v2/secrets/{name}", SCOPE_SECRETS_WRITE, true, secret_put_handle},
    {"DELETE", "/api/v2/secrets/{name}", SCOPE_SECRETS_WRITE, true, secret_delete_handle},
    {0}};
