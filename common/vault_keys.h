/* The master keys of a process: the first seals, all of them open, so that one can be exchanged
 * while the fleet runs. Which keys a database's secrets may be sealed with stands in its table
 * master_keys, as a keyed digest of a known text. */
#ifndef HOLDFAST_VAULT_KEYS_H
#define HOLDFAST_VAULT_KEYS_H

#include "common/base/crypto.h"
#include "common/base/error.h"
#include "common/store/store.h"

#define VAULT_KEYS_MAX 8

/* Reads HOLDFAST_MASTER_KEY_FILE once, before any thread; locked in memory, kept out of dumps and
 * overwritten when the process ends. */
bool vault_keys_load(struct error *err);

/* Holds the keys against the database, and writes down the first one when it is new there.
 * ERROR_INVALID: secrets may be sealed with a key that this process lacks, so it must not run.
 * ERROR_UNAVAILABLE: the database is away, nothing is known.
 * Died before the COMMIT: nothing is written, the next start does the same. Two at once: one waits
 * for the other, then sees its key. */
bool vault_keys_check(struct store *store, struct error *err);

/* Whether the sealing key is still one that the database expects; asked inside the transaction that
 * stores what was sealed, once it has a lock that a rotation waits for. */
bool vault_keys_may_seal(struct store *store, struct error *err);

/* How the database names the first key. */
void vault_keys_check_value(uint8_t out[SHA256_SIZE]);

/* Seals with the first key; as crypto_seal. */
bool vault_keys_seal(const void *context, size_t context_len, const void *plain, size_t plain_len,
                     uint8_t *sealed, struct error *err);
/* Opens with whichever key fits; *by_first says whether the first one did (NULL: nobody asks). */
bool vault_keys_open(const void *context, size_t context_len, const uint8_t *sealed, size_t len,
                     uint8_t *plain, bool *by_first, struct error *err);

/* A digest that only who has the master key can make; `which` counts the keys from 0. False: there
 * is no such key. */
bool vault_keys_digest(size_t which, const char *purpose, const void *data, size_t len,
                       uint8_t out[SHA256_SIZE]);

#endif
