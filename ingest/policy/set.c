/* Reading an environment's policies, and keeping them for as long as they are current. */
#include "ingest/policy/set.h"

#include "common/base/json.h"
#include "ingest/config_watch.h"

#include <stdlib.h>
#include <string.h>

#define ENVIRONMENTS_MAX 1024 /* cached */

static struct config_cache *sets;

void policies_start(void)
{
    sets = config_cache_new(ENVIRONMENTS_MAX);
}

void policies_stop(void)
{
    config_cache_free(sets);
    sets = NULL;
}

static void set_free(struct cached *item)
{
    struct policy_set *set = (struct policy_set *)item;
    for (size_t i = 0; i < set->count; i++)
        policy_free(set->policies[i]);
    free(set->policies);
    free(set);
}

void policy_set_release(struct policy_set *set)
{
    if (set != NULL)
        cached_release(&set->head);
}

/* What is stored was checked when it was stored. One that can't be read nevertheless stops every
 * call of its environment: what it would have denied must not run. */
static struct policy *policy_read(const PGresult *r, int row, struct error *err)
{
    struct error why = {0};
    struct ulid id;
    size_t len;
    row_uuid(r, row, 0, &id);
    const char *text = row_bytes(r, row, 2, &len);
    json_t *definition = json_parse_object(text, len, &why);
    struct policy *policy =
        definition != NULL ? policy_compile(definition, &id, (int)row_int(r, row, 1), &why) : NULL;
    json_decref(definition);
    if (policy == NULL)
        error_set(err, ERROR_INTERNAL, "a policy is stored damaged: %.200s", why.text);
    return policy;
}

struct policy_set *policy_set_load(struct store *store, int environment, struct error *err)
{
    static const char sql[] =
        "select p.id, p.version, v.definition from approval_policies p "
        "join approval_policy_versions v on v.policy_id = p.id and v.version = p.version "
        "where p.environment_id = $1::int and p.deleted_at is null";
    char number[24];
    struct store_param params[] = {store_int(environment, number)};
    PGresult *r = store_query(store, sql, params, 1, true, err);
    if (r == NULL)
        return NULL;
    struct policy_set *set = calloc(1, sizeof *set);
    must(set != NULL);
    cached_init(&set->head, set_free);
    size_t rows = (size_t)PQntuples(r);
    set->policies = calloc(rows + 1, sizeof *set->policies);
    must(set->policies != NULL);
    for (; set->count < rows; set->count++) {
        set->policies[set->count] = policy_read(r, (int)set->count, err);
        if (set->policies[set->count] == NULL)
            break;
    }
    PQclear(r);
    if (set->count == rows) {
        qsort(set->policies, set->count, sizeof *set->policies, policy_compare);
        return set;
    }
    policy_set_release(set);
    return NULL;
}

struct policy_set *policy_set_get(struct store *store, int environment, struct error *err)
{
    uint8_t key[SHA256_SIZE];
    crypto_sha256(&environment, sizeof environment, key);
    struct policy_set *set = (struct policy_set *)config_cache_get(sets, key);
    if (set != NULL)
        return set;
    int64_t revision = config_revision();
    set = policy_set_load(store, environment, err);
    if (set != NULL)
        config_cache_put(sets, key, &set->head, revision);
    return set;
}
