/* A set-associative table: an item lives in one of four places that its hash names, so the size is
 * fixed and nothing is ever walked. */
#include "ingest/config_cache.h"

#include "common/base/error.h"
#include "ingest/config_watch.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define WAYS 4

struct place {
    uint8_t key[SHA256_SIZE];
    struct cached *item; /* NULL: empty */
    int64_t revision;
    uint64_t used; /* the cache's clock when it was last asked for */
};

struct config_cache {
    pthread_mutex_t lock;
    size_t sets; /* a power of two */
    uint64_t clock;
    struct place *places;
};

void cached_init(struct cached *item, void (*free_item)(struct cached *item))
{
    atomic_init(&item->references, 1);
    item->free = free_item;
}

void cached_release(struct cached *item)
{
    if (item != NULL && atomic_fetch_sub(&item->references, 1) == 1)
        item->free(item);
}

struct config_cache *config_cache_new(size_t entries)
{
    struct config_cache *cache = calloc(1, sizeof *cache);
    must(cache != NULL);
    cache->sets = 1;
    while (cache->sets * WAYS < entries)
        cache->sets *= 2;
    cache->places = calloc(cache->sets * WAYS, sizeof *cache->places);
    must(cache->places != NULL);
    pthread_mutex_init(&cache->lock, NULL);
    return cache;
}

void config_cache_free(struct config_cache *cache)
{
    if (cache == NULL)
        return;
    for (size_t i = 0; i < cache->sets * WAYS; i++)
        cached_release(cache->places[i].item);
    pthread_mutex_destroy(&cache->lock);
    free(cache->places);
    free(cache);
}

static struct place *set_of(struct config_cache *cache, const uint8_t key[SHA256_SIZE])
{
    uint64_t hash;
    memcpy(&hash, key, sizeof hash);
    return &cache->places[(hash & (cache->sets - 1)) * WAYS];
}

/* The place that holds the key, else the one to overwrite: empty, or not asked for the longest. */
static struct place *place_find(struct config_cache *cache, const uint8_t key[SHA256_SIZE])
{
    struct place *set = set_of(cache, key);
    struct place *oldest = &set[0];
    for (int i = 0; i < WAYS; i++) {
        if (set[i].item != NULL && crypto_equal(set[i].key, key, SHA256_SIZE))
            return &set[i];
        if (set[i].used < oldest->used)
            oldest = &set[i];
    }
    return oldest;
}

struct cached *config_cache_get(struct config_cache *cache, const uint8_t key[SHA256_SIZE])
{
    int64_t revision = config_revision();
    struct cached *found = NULL;
    pthread_mutex_lock(&cache->lock);
    struct place *place = place_find(cache, key);
    if (place->item != NULL && place->revision == revision &&
        crypto_equal(place->key, key, SHA256_SIZE)) {
        found = place->item;
        atomic_fetch_add(&found->references, 1);
        place->used = ++cache->clock;
    }
    pthread_mutex_unlock(&cache->lock);
    return found;
}

void config_cache_put(struct config_cache *cache, const uint8_t key[SHA256_SIZE],
                      struct cached *item, int64_t revision)
{
    if (revision == 0)
        return;
    atomic_fetch_add(&item->references, 1);
    pthread_mutex_lock(&cache->lock);
    struct place *place = place_find(cache, key);
    struct cached *old = place->item;
    memcpy(place->key, key, SHA256_SIZE);
    place->item = item;
    place->revision = revision;
    place->used = ++cache->clock;
    pthread_mutex_unlock(&cache->lock);
    cached_release(old);
}
