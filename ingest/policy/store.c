/* The statements that change policies. */
#include "ingest/policy/store.h"

#include "common/base/json.h"
#include "ingest/audit.h"
#include "ingest/config_watch.h"

#include <string.h>

#define DEFINITION_MAX_BYTES ((size_t)8 << 20)

bool policies_lock(struct store *store, int environment, struct error *err)
{
    char number[24];
    struct store_param params[] = {store_int(environment, number)};
    PGresult *r =
        store_query(store, "select pg_advisory_xact_lock(19, $1::int)", params, 1, true, err);
    PQclear(r);
    return r != NULL;
}

static bool version_insert(struct store *store, const struct policy_change *change,
                           const struct ulid *id, int version, const json_t *definition,
                           bool deleted, struct error *err)
{
    static const char sql[] =
        "insert into approval_policy_versions (policy_id, version, definition, deleted, "
        "change_note, created_by, created_at) "
        "values ($1, $2::int, $3::json, $4::bool, $5, $6, hf_now())";
    char number[24];
    struct buf text;
    buf_init(&text, DEFINITION_MAX_BYTES);
    if (!json_canonical(definition, &text)) {
        buf_free(&text);
        return error_set(err, ERROR_TOO_LARGE, "the policy's definition is too large");
    }
    struct store_param params[] = {
        store_uuid(id),           store_int(version, number),
        store_text(text.data),    store_text(deleted ? "true" : "false"),
        store_text(change->note), store_uuid(&change->call->principal->key_id)};
    PGresult *r = store_query(store, sql, params, 6, true, err);
    buf_free(&text);
    PQclear(r);
    return r != NULL;
}

static bool change_audit(struct store *store, const struct policy_change *change, const char *act,
                         const struct ulid *id, int version, const json_t *definition,
                         struct error *err)
{
    char target[ULID_PREFIXED_SIZE];
    json_t *detail = json_pack("{s:i, s:O, s:b, s:s?}", "version", version, "name",
                               json_object_get(definition, "name"), "file",
                               change->from_file ? 1 : 0, "changeNote", change->note);
    return audit_write(store, change->call, act, ulid_format_prefixed("pol", id, target), detail,
                       err);
}

bool policy_create(struct store *store, const struct policy_change *change,
                   const json_t *definition, struct ulid *id, struct error *err)
{
    static const char sql[] =
        "insert into approval_policies (id, environment_id, name, version, from_file) "
        "values ($1, $2::int, $3, 1, $4::bool)";
    char environment[24];
    ulid_new(id, database_now_ms());
    struct store_param params[] = {
        store_uuid(id), store_int(change->call->principal->environment, environment),
        store_text(json_string_value(json_object_get(definition, "name"))),
        store_text(change->from_file ? "true" : "false")};
    PGresult *r = store_query(store, sql, params, 4, true, err);
    PQclear(r);
    return r != NULL && version_insert(store, change, id, 1, definition, false, err) &&
           change_audit(store, change, "policy.create", id, 1, definition, err);
}

bool policy_edit(struct store *store, const struct policy_change *change, const struct ulid *id,
                 int version, const json_t *definition, struct error *err)
{
    static const char sql[] = "update approval_policies set name = $2, version = $3::int, "
                              "from_file = from_file or $4::bool, updated_at = hf_now() "
                              "where id = $1";
    char number[24];
    struct store_param params[] = {
        store_uuid(id), store_text(json_string_value(json_object_get(definition, "name"))),
        store_int(version + 1, number), store_text(change->from_file ? "true" : "false")};
    PGresult *r = store_query(store, sql, params, 4, true, err);
    PQclear(r);
    return r != NULL && version_insert(store, change, id, version + 1, definition, false, err) &&
           change_audit(store, change, "policy.patch", id, version + 1, definition, err);
}

bool policy_delete(struct store *store, const struct policy_change *change, const struct ulid *id,
                   int version, const json_t *definition, struct error *err)
{
    static const char sql[] = "update approval_policies set version = $2::int, deleted_at = "
                              "hf_now(), updated_at = hf_now() where id = $1";
    char number[24];
    struct store_param params[] = {store_uuid(id), store_int(version + 1, number)};
    PGresult *r = store_query(store, sql, params, 2, true, err);
    PQclear(r);
    return r != NULL && version_insert(store, change, id, version + 1, definition, true, err) &&
           change_audit(store, change, "policy.delete", id, version + 1, definition, err);
}
