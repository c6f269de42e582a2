/* Action versions by id, for those who read answers and build read-backs. A version never changes,
 * so an entry is good for ever; the cache is bounded. Thread-safe. */
#ifndef HOLDFAST_ACTION_CACHE_H
#define HOLDFAST_ACTION_CACHE_H

#include "adapters/adapter.h"
#include "common/store/store.h"

struct cached_action {
    struct adapter_action action; /* what adapters take */
    const struct adapter *adapter;
};

struct action_cache;
struct action_cache *action_cache_new(size_t max);
void action_cache_free(struct action_cache *cache); /* all entries given back */

/* Loads through `store` when it is not there. The entry stays until action_cache_release. NULL with
 * err (ERROR_NOT_FOUND, ERROR_UNAVAILABLE, ...). */
const struct cached_action *action_cache_get(struct action_cache *cache, struct store *store,
                                             const struct ulid *action, const char *name,
                                             int version, struct error *err);
void action_cache_release(struct action_cache *cache, const struct cached_action *action);

#endif
