/* The ring of master keys, and the table that says which of them a database needs. */
#include "common/vault_keys.h"

#include "common/base/config.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define KEY_SIZE 32

static const char check_purpose[] = "holdfast master key check";

static uint8_t keys[VAULT_KEYS_MAX][KEY_SIZE] __attribute__((aligned(4096)));
static size_t key_count;

static void keys_wipe(void)
{
    crypto_wipe(keys, sizeof keys);
    key_count = 0;
}

bool vault_keys_load(struct error *err)
{
    const char *path = config_text("HOLDFAST_MASTER_KEY_FILE");
    if (path[0] == '\0')
        return error_set_at(
            err, ERROR_INVALID, "HOLDFAST_MASTER_KEY_FILE",
            "the file with the master key must be named: secrets can't be opened without it");
    (void)mlock(keys, sizeof keys); /* best effort: the limit may be small */
    (void)madvise(keys, sizeof keys, MADV_DONTDUMP);
    if (!crypto_master_keys_load(path, keys, VAULT_KEYS_MAX, &key_count, err))
        return false;
    must(atexit(keys_wipe) == 0);
    return true;
}

bool vault_keys_digest(size_t which, const char *purpose, const void *data, size_t len,
                       uint8_t out[SHA256_SIZE])
{
    uint8_t derived[SHA256_SIZE];
    if (which >= key_count)
        return false;
    crypto_hmac(keys[which], KEY_SIZE, purpose, strlen(purpose), derived);
    crypto_hmac(derived, sizeof derived, data, len, out);
    crypto_wipe(derived, sizeof derived);
    return true;
}

bool vault_keys_seal(const void *context, size_t context_len, const void *plain, size_t plain_len,
                     uint8_t *sealed, struct error *err)
{
    must(key_count > 0);
    return crypto_seal(keys[0], context, context_len, plain, plain_len, sealed, err);
}

bool vault_keys_open(const void *context, size_t context_len, const uint8_t *sealed, size_t len,
                     uint8_t *plain, bool *by_first, struct error *err)
{
    for (size_t i = 0; i < key_count; i++) {
        if (by_first != NULL)
            *by_first = i == 0;
        if (crypto_open(keys[i], context, context_len, sealed, len, plain, err))
            return true;
    }
    return false;
}

/* ---- what the database expects ---- */

static void check_value(size_t which, uint8_t out[SHA256_SIZE])
{
    must(vault_keys_digest(which, check_purpose, "1", 1, out));
}

static bool has_key(const uint8_t *value, size_t len)
{
    uint8_t own[SHA256_SIZE];
    for (size_t i = 0; i < key_count; i++) {
        check_value(i, own);
        if (len == sizeof own && crypto_equal(own, value, sizeof own))
            return true;
    }
    return false;
}

static bool keys_refuse(struct error *err)
{
    return error_set_at(err, ERROR_INVALID, "HOLDFAST_MASTER_KEY_FILE",
                        "the file lacks a master key that this database's secrets may be sealed "
                        "with; it must hold every key in use, the one to seal with first");
}

/* Before the table was there, a secret itself is the witness. */
static bool old_secret_check(struct store *store, struct error *err)
{
    static const char sql[] =
        "select environment_id::text || '/' || name || '/' || version, sealed "
        "from secrets where sealed is not null limit 1";
    PGresult *r = store_query(store, sql, NULL, 0, true, err);
    bool ok = r != NULL;
    if (ok && PQntuples(r) == 1) {
        size_t len;
        const char *context = row_text(r, 0, 0);
        const uint8_t *sealed = row_bytes(r, 0, 1, &len);
        uint8_t *plain = malloc(len);
        must(plain != NULL);
        ok = vault_keys_open(context, strlen(context), sealed, len, plain, NULL, NULL) ||
             keys_refuse(err);
        crypto_wipe(plain, len);
        free(plain);
    }
    PQclear(r);
    return ok;
}

static bool expected_check(struct store *store, bool *first_known, struct error *err)
{
    static const char sql[] = "select check_value from master_keys";
    uint8_t first[SHA256_SIZE];
    PGresult *r = store_query(store, sql, NULL, 0, true, err);
    bool ok = r != NULL;
    check_value(0, first);
    *first_known = false;
    for (int i = 0; ok && i < PQntuples(r); i++) {
        size_t len;
        const uint8_t *value = row_bytes(r, i, 0, &len);
        *first_known = *first_known || (len == sizeof first && crypto_equal(first, value, len));
        ok = has_key(value, len) || keys_refuse(err);
    }
    bool none = ok && PQntuples(r) == 0;
    PQclear(r);
    return ok && (!none || old_secret_check(store, err));
}

static bool check_inside(struct store *store, struct error *err)
{
    static const char lock_sql[] =
        "select pg_advisory_xact_lock(hashtextextended('holdfast master keys', 0))";
    static const char insert_sql[] = "insert into master_keys (check_value) values ($1)";
    bool first_known;
    uint8_t first[SHA256_SIZE];
    PGresult *r = store_query(store, lock_sql, NULL, 0, true, err);
    PQclear(r);
    if (r == NULL || !expected_check(store, &first_known, err))
        return false;
    if (first_known)
        return true;
    check_value(0, first);
    struct store_param params[] = {store_bytes(first, sizeof first)};
    r = store_query(store, insert_sql, params, 1, true, err);
    PQclear(r);
    return r != NULL;
}

void vault_keys_check_value(uint8_t out[SHA256_SIZE])
{
    check_value(0, out);
}

bool vault_keys_check(struct store *store, struct error *err)
{
    if (!store_begin(store, err))
        return false;
    if (check_inside(store, err))
        return store_commit(store, err);
    store_rollback(store);
    return false;
}

bool vault_keys_may_seal(struct store *store, struct error *err)
{
    static const char sql[] = "select 1 from master_keys where check_value = $1";
    uint8_t first[SHA256_SIZE];
    check_value(0, first);
    struct store_param params[] = {store_bytes(first, sizeof first)};
    PGresult *r = store_query(store, sql, params, 1, true, err);
    bool ok = r != NULL && (PQntuples(r) == 1 ||
                            error_set(err, ERROR_UNAVAILABLE,
                                      "this process seals with a master key that was rotated out"));
    PQclear(r);
    return ok;
}
