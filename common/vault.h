/* The secrets of environments: sealed in Postgres with the master key, opened only in the memory of
 * the one who fills a request. A vault belongs to one thread. */
#ifndef HOLDFAST_VAULT_H
#define HOLDFAST_VAULT_H

#include "common/base/buf.h"
#include "common/base/error.h"
#include "common/http/fill.h"
#include "common/store/store.h"

#define SECRET_VALUE_MAX 65536

/* Loads the master keys and holds them against the database, before any thread; `name` is the
 * session's. A database that is away is asked again before the first secret is opened, and ends the
 * process when a key is missing. */
bool vault_start(const char *name, struct error *err);

/* Seals a value for storing: secrets.sealed of (environment, name, version). */
bool vault_seal(int environment, const char *name, int version, const char *value, size_t len,
                struct buf *out, struct error *err);

/* Seals again, with the first master key, every value that another one sealed, in batches that
 * hold no writer up for long; then forgets the other keys in the database, so that nobody seals
 * with them any more and a service may start without them. Needs the owner's rights. Killed at any
 * moment it leaves rows that open with keys that the database still names; run again, it goes on
 * where something is left. */
bool vault_rotate(struct store *store, size_t *resealed, struct error *err);

struct vault;
struct vault *vault_new(struct store *store); /* the store is borrowed */
void vault_free(struct vault *vault);         /* overwrites what it holds */

/* Overwrites what would be read again before its next use; for the owner's idle moments. */
void vault_forget_old(struct vault *vault);

/* The value of a secret. `version` 0: the newest, at most a second old; else exactly that one,
 * which is there as long as it is the newest or the one before: ERROR_CONFLICT when it is not,
 * ERROR_NOT_FOUND when the secret was deleted. Borrowed until the next call. */
bool vault_get(struct vault *vault, int environment, const char *name, int version,
               struct secret_value *out, struct error *err);

#endif
