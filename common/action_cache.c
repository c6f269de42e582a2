/* A bounded, shared table of action versions. */
#include "common/action_cache.h"

#include "common/base/json.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 256 };

struct entry {
    struct cached_action cached; /* first: what callers hold */
    struct ulid id;
    int version;
    char *name;
    json_t *definition;
    size_t users;
    struct entry *next;
};

struct action_cache {
    pthread_mutex_t lock;
    struct entry *buckets[BUCKETS];
    size_t count, max;
};

struct action_cache *action_cache_new(size_t max)
{
    struct action_cache *cache = calloc(1, sizeof *cache);
    must(cache != NULL);
    pthread_mutex_init(&cache->lock, NULL);
    cache->max = max;
    return cache;
}

static void entry_free(struct entry *entry)
{
    json_decref(entry->definition);
    free(entry->name);
    free(entry);
}

/* Frees what nobody holds. */
static void cache_shed(struct action_cache *cache)
{
    for (int i = 0; i < BUCKETS; i++) {
        for (struct entry **at = &cache->buckets[i]; *at != NULL;) {
            struct entry *entry = *at;
            if (entry->users > 0) {
                at = &entry->next;
                continue;
            }
            *at = entry->next;
            entry_free(entry);
            cache->count--;
        }
    }
}

void action_cache_free(struct action_cache *cache)
{
    if (cache == NULL)
        return;
    cache_shed(cache);
    must(cache->count == 0);
    pthread_mutex_destroy(&cache->lock);
    free(cache);
}

static struct entry **bucket_of(struct action_cache *cache, const struct ulid *id, int version)
{
    return &cache->buckets[(id->bytes[15] + 31u * id->bytes[14] + 17u * (unsigned)version) %
                           BUCKETS];
}

/* Under the lock: the entry with one user more, or NULL. */
static struct entry *cache_find(struct action_cache *cache, const struct ulid *id, int version)
{
    for (struct entry *e = *bucket_of(cache, id, version); e != NULL; e = e->next) {
        if (e->version == version && ulid_compare(&e->id, id) == 0) {
            e->users++;
            return e;
        }
    }
    return NULL;
}

static struct entry *entry_load(struct store *store, const struct ulid *id, const char *name,
                                int version, struct error *err)
{
    char number[24];
    struct store_param params[] = {store_uuid(id), store_int(version, number)};
    PGresult *r = store_query(store,
                              "select definition from action_versions where action_id = $1 "
                              "and version = $2::int",
                              params, 2, true, err);
    if (r == NULL)
        return NULL;
    struct entry *entry = calloc(1, sizeof *entry);
    must(entry != NULL);
    if (PQntuples(r) == 1)
        entry->definition = json_parse_object(row_text(r, 0, 0), strlen(row_text(r, 0, 0)), err);
    else
        error_set(err, ERROR_NOT_FOUND, "version %d of action %s does not exist", version, name);
    PQclear(r);
    entry->name = strdup(name);
    entry->id = *id;
    entry->version = version;
    entry->cached.action = (struct adapter_action){
        .name = entry->name, .version = version, .definition = entry->definition};
    if (entry->definition != NULL && entry->name != NULL) {
        entry->cached.adapter = adapter_of(entry->definition);
        if (entry->cached.adapter != NULL)
            return entry;
        error_set(err, ERROR_INTERNAL, "action %s has an adapter that this program lacks", name);
    }
    entry_free(entry);
    return NULL;
}

const struct cached_action *action_cache_get(struct action_cache *cache, struct store *store,
                                             const struct ulid *action, const char *name,
                                             int version, struct error *err)
{
    pthread_mutex_lock(&cache->lock);
    struct entry *entry = cache_find(cache, action, version);
    pthread_mutex_unlock(&cache->lock);
    if (entry != NULL)
        return &entry->cached;
    struct entry *loaded = entry_load(store, action, name, version, err);
    if (loaded == NULL)
        return NULL;
    pthread_mutex_lock(&cache->lock);
    entry = cache_find(cache, action, version); /* another thread may have been first */
    if (entry == NULL) {
        if (cache->count >= cache->max)
            cache_shed(cache);
        struct entry **bucket = bucket_of(cache, action, version);
        loaded->users = 1;
        loaded->next = *bucket;
        *bucket = loaded;
        cache->count++;
        entry = loaded;
        loaded = NULL;
    }
    pthread_mutex_unlock(&cache->lock);
    if (loaded != NULL)
        entry_free(loaded);
    return &entry->cached;
}

void action_cache_release(struct action_cache *cache, const struct cached_action *action)
{
    struct entry *entry = (struct entry *)(void *)(uintptr_t)action;
    pthread_mutex_lock(&cache->lock);
    must(entry->users > 0);
    entry->users--;
    pthread_mutex_unlock(&cache->lock);
}
