/* The secrets of environments: sealed in Postgres with the master key, opened only in the memory of
 * the one who fills a request. A vault belongs to one thread. */
#ifndef HOLDFAST_VAULT_H
#define HOLDFAST_VAULT_H

#include "common/base/buf.h"
#include "common/base/error.h"
#include "common/http/fill.h"
#include "common/store/store.h"

#define SECRET_VALUE_MAX 65536

/* Reads HOLDFAST_MASTER_KEY_FILE once, before any thread; kept locked in memory. */
bool vault_key_load(struct error *err);

/* Seals a value for storing: secrets.sealed of (environment, name, version). */
bool vault_seal(int environment, const char *name, int version, const char *value, size_t len,
                struct buf *out, struct error *err);

struct vault;
struct vault *vault_new(struct store *store); /* the store is borrowed */
void vault_free(struct vault *vault);         /* overwrites what it holds */

/* The value of a secret. `version` 0: the newest, at most a second old; else exactly that one,
 * which is there as long as it is the newest or the one before: ERROR_CONFLICT when it is not,
 * ERROR_NOT_FOUND when the secret was deleted. Borrowed until the next call. */
bool vault_get(struct vault *vault, int environment, const char *name, int version,
               struct secret_value *out, struct error *err);

#endif
