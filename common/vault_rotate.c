/* Master key rotation: seals what another key sealed again, then forgets the other keys. */
#include "common/base/crypto.h"
#include "common/vault.h"
#include "common/vault_keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 100, CONTEXT_MAX = 160 };

struct cursor {
    char environment[24];
    char name[SECRET_NAME_MAX + 1];
};

struct value {
    uint8_t *sealed; /* NULL: what is stored stays */
    size_t len;
};

/* Seals one stored value again unless the first key sealed it. */
static bool value_reseal(const PGresult *r, int row, int col, int version, struct value *out,
                         struct error *err)
{
    char context[CONTEXT_MAX];
    size_t len;
    const uint8_t *sealed = row_bytes(r, row, col, &len);
    bool by_first;
    if (sealed == NULL)
        return true;
    size_t context_len = (size_t)snprintf(context, sizeof context, "%s/%s/%d", row_text(r, row, 0),
                                          row_text(r, row, 1), version);
    uint8_t *plain = malloc(len);
    if (plain == NULL)
        return error_set(err, ERROR_MEMORY, "out of memory for a secret");
    bool ok = vault_keys_open(context, context_len, sealed, len, plain, &by_first, err);
    if (ok && !by_first) {
        *out = (struct value){malloc(len), len};
        ok = out->sealed != NULL &&
             vault_keys_seal(context, context_len, plain, len - SEAL_OVERHEAD, out->sealed, err);
    }
    crypto_wipe(plain, len);
    free(plain);
    return ok;
}

static bool row_store(struct store *store, const PGresult *r, int row, const struct value *current,
                      const struct value *previous, struct error *err)
{
    static const char sql[] = "update secrets set sealed = coalesce($3, sealed), "
                              "previous_sealed = coalesce($4, previous_sealed) "
                              "where environment_id = $1::int and name = $2";
    struct store_param params[] = {store_text(row_text(r, row, 0)), store_text(row_text(r, row, 1)),
                                   store_bytes(current->sealed, (int)current->len),
                                   store_bytes(previous->sealed, (int)previous->len)};
    PGresult *done = store_query(store, sql, params, 4, true, err);
    PQclear(done);
    return done != NULL;
}

static bool row_reseal(struct store *store, const PGresult *r, int row, size_t *resealed,
                       struct error *err)
{
    struct value current = {0}, previous = {0};
    int version = (int)row_int(r, row, 2);
    bool ok = value_reseal(r, row, 3, version, &current, err) &&
              value_reseal(r, row, 4, version - 1, &previous, err);
    if (ok && (current.sealed != NULL || previous.sealed != NULL)) {
        ok = row_store(store, r, row, &current, &previous, err);
        (*resealed)++;
    }
    free(current.sealed);
    free(previous.sealed);
    return ok;
}

/* One batch inside an open transaction; *more: the cursor may go on. */
static bool batch_reseal(struct store *store, struct cursor *cursor, bool *more, size_t *resealed,
                         struct error *err)
{
    static const char sql[] =
        "select environment_id::text, name, version, sealed, previous_sealed from secrets "
        "where (environment_id, name) > ($1::int, $2) order by environment_id, name "
        "limit $3::int for update";
    char number[24];
    struct store_param params[] = {store_text(cursor->environment), store_text(cursor->name),
                                   store_int(BATCH, number)};
    PGresult *r = store_query(store, sql, params, 3, true, err);
    bool ok = r != NULL;
    int count = ok ? PQntuples(r) : 0;
    for (int i = 0; ok && i < count; i++)
        ok = row_reseal(store, r, i, resealed, err);
    *more = ok && count == BATCH;
    if (*more) {
        snprintf(cursor->environment, sizeof cursor->environment, "%s", row_text(r, count - 1, 0));
        snprintf(cursor->name, sizeof cursor->name, "%s", row_text(r, count - 1, 1));
    }
    PQclear(r);
    return ok;
}

static bool end_transaction(struct store *store, bool ok, struct error *err)
{
    if (ok)
        return store_commit(store, err);
    store_rollback(store);
    return false;
}

/* Nobody writes a secret from the lock to the COMMIT, and whoever waited for it finds its key gone
 * if that was an old one (vault_keys_may_seal). */
static bool rotation_end(struct store *store, size_t *resealed, struct error *err)
{
    static const char lock_sql[] = "lock table secrets in share row exclusive mode";
    static const char forget_sql[] = "delete from master_keys where check_value <> $1";
    struct cursor cursor = {.environment = "-1"};
    uint8_t first[SHA256_SIZE];
    bool more = true;
    if (!store_begin(store, err))
        return false;
    PGresult *r = store_query(store, lock_sql, NULL, 0, true, err);
    PQclear(r);
    bool ok = r != NULL;
    while (ok && more)
        ok = batch_reseal(store, &cursor, &more, resealed, err);
    if (ok) {
        vault_keys_check_value(first);
        struct store_param params[] = {store_bytes(first, sizeof first)};
        r = store_query(store, forget_sql, params, 1, true, err);
        PQclear(r);
        ok = r != NULL;
    }
    return end_transaction(store, ok, err);
}

bool vault_rotate(struct store *store, size_t *resealed, struct error *err)
{
    struct cursor cursor = {.environment = "-1"};
    bool more = true;
    *resealed = 0;
    if (!vault_keys_check(store, err))
        return false;
    while (more) {
        if (!store_begin(store, err))
            return false;
        bool ok = batch_reseal(store, &cursor, &more, resealed, err);
        if (!end_transaction(store, ok, err))
            return false;
    }
    return rotation_end(store, resealed, err);
}
