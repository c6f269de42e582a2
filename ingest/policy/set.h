/* The policies of an environment, as they are now: read and compiled once a revision of the
 * configuration, shared by the route threads. */
#ifndef HOLDFAST_POLICY_SET_H
#define HOLDFAST_POLICY_SET_H

#include "common/store/store.h"
#include "ingest/config_cache.h"
#include "ingest/policy/policy.h"

struct policy_set {
    struct cached head;
    struct policy **policies; /* owned, in the order in which they are asked */
    size_t count;
};

void policies_start(void);
void policies_stop(void);

/* A reference, given back with policy_set_release; NULL with err. */
struct policy_set *policy_set_get(struct store *store, int environment, struct error *err);
void policy_set_release(struct policy_set *set); /* NULL is fine */

/* The same as the open transaction sees it, from no cache. */
struct policy_set *policy_set_load(struct store *store, int environment, struct error *err);

#endif
