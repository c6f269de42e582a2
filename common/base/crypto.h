/* Hashes, random bytes and the vault cipher, all through OpenSSL. */
#ifndef HOLDFAST_CRYPTO_H
#define HOLDFAST_CRYPTO_H

#include "common/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHA256_SIZE 32
#define SEAL_OVERHEAD 28 /* 12 bytes nonce in front, 16 bytes tag behind */

void crypto_sha256(const void *data, size_t len, uint8_t out[SHA256_SIZE]);
/* The hash of several parts, each preceded by its length (8 bytes, big-endian), so that no two
 * different lists of parts give the same hash. */
struct crypto_part {
    const void *data;
    size_t len;
};
void crypto_sha256_parts(const struct crypto_part *parts, size_t count, uint8_t out[SHA256_SIZE]);
void crypto_hex(const uint8_t *data, size_t len, char *out); /* out: 2*len+1, lower case */
void crypto_random(void *out, size_t len);                   /* never fails: must() */
bool crypto_equal(const void *a, const void *b, size_t len); /* constant time */
void crypto_wipe(void *data, size_t len);

/* AES-256-GCM. sealed = nonce || ciphertext || tag, SEAL_OVERHEAD longer than plain. `context` is
 * authenticated and not stored (environment, name, version). */
bool crypto_seal(const uint8_t key[32], const void *context, size_t context_len, const void *plain,
                 size_t plain_len, uint8_t *sealed, struct error *err);
bool crypto_open(const uint8_t key[32], const void *context, size_t context_len,
                 const uint8_t *sealed, size_t sealed_len, uint8_t *plain, struct error *err);

/* HMAC-SHA256. */
void crypto_hmac(const uint8_t *key, size_t key_len, const void *data, size_t len,
                 uint8_t out[SHA256_SIZE]);

/* Reads HOLDFAST_MASTER_KEY_FILE: 1 to `max` different keys of 64 hex digits with white space
 * between them; refuses a file that others can read (mode & 077). */
bool crypto_master_keys_load(const char *path, uint8_t keys[][32], size_t max, size_t *count,
                             struct error *err);

#endif
