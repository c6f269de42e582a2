/* Keys: looked up by the hash of what the caller sent, so the secret itself is compared nowhere. */
#include "ingest/access.h"

#include "common/base/crypto.h"
#include "common/base/log.h"
#include "ingest/config_cache.h"
#include "ingest/config_watch.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define KEYS_MAX 4096 /* cached, unknown ones included */
#define TOKEN_MAX_BYTES 512

/* A key as the database had it; also one that it did not have, so that a wrong key in a loop does
 * not ask again and again. */
struct key_entry {
    struct cached head;
    bool known;
    bool revoked;
    struct principal principal;
};

static struct config_cache *keys;

void access_start(void)
{
    keys = config_cache_new(KEYS_MAX);
}

void access_stop(void)
{
    config_cache_free(keys);
    keys = NULL;
}

static struct key_entry *entry_of(const struct principal *principal)
{
    return (struct key_entry *)((char *)principal - offsetof(struct key_entry, principal));
}

void access_release(const struct principal *principal)
{
    if (principal != NULL)
        cached_release(&entry_of(principal)->head);
}

static void names_free(char **names)
{
    for (char **name = names; name != NULL && *name != NULL; name++)
        free(*name);
    free(names);
}

static void entry_free(struct cached *item)
{
    struct key_entry *entry = (struct key_entry *)item;
    names_free(entry->principal.actions);
    names_free(entry->principal.tags);
    free(entry);
}

/* ---- from the database ---- */

/* A text array column as a NULL-terminated list; NULL for SQL NULL. */
static char **names_read(const PGresult *r, int row, int col)
{
    if (row_null(r, row, col))
        return NULL;
    int count = row_array_length(r, row, col);
    char **names = calloc((size_t)count + 1, sizeof *names);
    must(names != NULL);
    for (int i = 0; i < count; i++) {
        size_t len;
        const char *name = row_array_text(r, row, col, i, &len);
        names[i] = strndup(name != NULL ? name : "", len);
        must(names[i] != NULL);
    }
    return names;
}

static uint32_t scopes_read(const PGresult *r, int row, int col)
{
    uint32_t scopes = 0;
    for (int i = 0; i < row_array_length(r, row, col); i++) {
        size_t len;
        enum scope scope;
        const char *name = row_array_text(r, row, col, i, &len);
        if (name != NULL && scope_parse(name, len, &scope))
            scopes |= SCOPE_BIT(scope);
    }
    return scopes;
}

static void principal_read(const PGresult *r, struct key_entry *entry)
{
    struct principal *p = &entry->principal;
    row_uuid(r, 0, 0, &p->key_id);
    p->environment = (int)row_int(r, 0, 1);
    snprintf(p->environment_name, sizeof p->environment_name, "%s", row_text(r, 0, 2));
    snprintf(p->agent_id, sizeof p->agent_id, "%s", row_text(r, 0, 3));
    p->scopes = scopes_read(r, 0, 4);
    p->actions = names_read(r, 0, 5);
    p->expires_at_us = row_time_us(r, 0, 6);
    entry->revoked = row_bool(r, 0, 7);
    const char *user = row_text(r, 0, 8);
    snprintf(p->user_id, sizeof p->user_id, "%s", user != NULL ? user : "");
    p->tags = names_read(r, 0, 9);
    entry->known = true;
}

static struct key_entry *entry_load(struct store *store, const uint8_t hash[SHA256_SIZE],
                                    struct error *err)
{
    static const char sql[] =
        "select k.id, k.environment_id, e.name, k.agent_id, k.scopes, k.actions, k.expires_at, "
        "k.revoked_at is not null, k.user_id, k.tags "
        "from api_keys k join environments e on e.id = k.environment_id where k.secret_hash = $1";
    struct store_param params[] = {store_bytes(hash, SHA256_SIZE)};
    int64_t revision = config_revision();
    PGresult *r = store_query(store, sql, params, 1, true, err);
    if (r == NULL)
        return NULL;
    struct key_entry *entry = calloc(1, sizeof *entry);
    must(entry != NULL);
    cached_init(&entry->head, entry_free);
    if (PQntuples(r) == 1)
        principal_read(r, entry);
    PQclear(r);
    config_cache_put(keys, hash, &entry->head, revision);
    return entry;
}

/* ---- the check ---- */

/* The token of "Authorization: Bearer TOKEN", or NULL. */
static const char *token_read(const struct call *call)
{
    const char *header = call_header(call, "Authorization");
    if (header == NULL || strncasecmp(header, "Bearer ", 7) != 0)
        return NULL;
    header += 7;
    header += strspn(header, " ");
    size_t len = strlen(header);
    return len > 0 && len <= TOKEN_MAX_BYTES ? header : NULL;
}

/* Why the key does not open anything, or NULL. */
static const char *entry_refusal(const struct key_entry *entry)
{
    int64_t expires_us = entry->principal.expires_at_us;
    if (!entry->known)
        return "this API key is not known";
    if (entry->revoked)
        return "this API key was revoked";
    if (expires_us != 0 && expires_us / 1000 <= database_now_ms())
        return "this API key has expired";
    return NULL;
}

static bool scope_check(struct call *call)
{
    int scope = call->route->scope;
    if (scope == ROUTE_ANY_KEY || (call->principal->scopes & SCOPE_BIT(scope)) != 0)
        return true;
    char details[64];
    snprintf(details, sizeof details, "{\"scope\":\"%s\"}", scope_name((enum scope)scope));
    call_error(call, 403, "AUTHORIZATION_ERROR", details, "this API key lacks the scope %s",
               scope_name((enum scope)scope));
    return false;
}

static bool refuse(struct call *call, const char *why)
{
    call_error(call, 401, "AUTHENTICATION_FAILED", NULL, "%s", why);
    return false;
}

bool access_check(struct store *store, struct call *call)
{
    uint8_t hash[SHA256_SIZE];
    struct error err = {0};
    if (call->route->scope == ROUTE_NO_KEY)
        return true;
    const char *token = token_read(call);
    if (token == NULL)
        return refuse(call, "send an API key as Authorization: Bearer KEY");
    crypto_sha256(token, strlen(token), hash);
    struct key_entry *entry = (struct key_entry *)config_cache_get(keys, hash);
    if (entry == NULL)
        entry = entry_load(store, hash, &err);
    if (entry == NULL) {
        call_error_value(call, &err);
        return false;
    }
    const char *why = entry_refusal(entry);
    if (why != NULL) {
        cached_release(&entry->head);
        return refuse(call, why);
    }
    call->principal = &entry->principal;
    return scope_check(call);
}
