/* What ingest keeps of the configuration (keys, compiled actions): bounded, by a 32-byte hash, and
 * only as long as the revision at which it was read is the current one. */
#ifndef HOLDFAST_CONFIG_CACHE_H
#define HOLDFAST_CONFIG_CACHE_H

#include "common/base/crypto.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* Stands first in what is cached. Counted: who got one gives it back with cached_release. */
struct cached {
    atomic_int references;
    void (*free)(struct cached *item);
};
void cached_init(struct cached *item, void (*free)(struct cached *item)); /* one reference */
void cached_release(struct cached *item);                                 /* NULL is fine */

struct config_cache;

/* At most about `entries` (rounded up to a power of two). Never NULL. */
struct config_cache *config_cache_new(size_t entries);
void config_cache_free(struct config_cache *cache);

/* A reference, or NULL: not there, or read at another revision. Any thread. */
struct cached *config_cache_get(struct config_cache *cache, const uint8_t key[SHA256_SIZE]);
/* Keeps an item, with a reference of its own. `revision` is what config_revision() said before the
 * item was read from the database; 0 keeps nothing. */
void config_cache_put(struct config_cache *cache, const uint8_t key[SHA256_SIZE],
                      struct cached *item, int64_t revision);

#endif
