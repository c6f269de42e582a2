/* Actions as invokes use them: the current version with its compiled schema and its adapter. */
#ifndef HOLDFAST_ACTIONS_CACHE_H
#define HOLDFAST_ACTIONS_CACHE_H

#include "adapters/adapter.h"
#include "common/base/schema.h"
#include "common/store/store.h"
#include "ingest/config_cache.h"

#define ACTION_NAME_SIZE 256

struct action {
    struct cached head;
    struct ulid id;
    int environment;
    int version;
    char name[ACTION_NAME_SIZE];
    bool enabled;
    bool requires_approval;
    bool governed;
    json_t *definition;            /* as stored; read only */
    struct schema *schema;         /* NULL: any input */
    const struct adapter *adapter; /* static */
    const char *effect_key;        /* a template, in definition; NULL: none */
};

void actions_start(void);
void actions_stop(void);

/* By name or act_ id, as it is now. A reference, given back with action_release. NULL with err:
 * NOT_FOUND, or what the database said. */
struct action *action_get(struct store *store, int environment, const char *ref, struct error *err);
void action_release(struct action *action); /* NULL is fine */

#endif
