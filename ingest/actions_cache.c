/* Reading actions from the database and compiling what invokes need of them, once a revision. */
#include "ingest/actions_cache.h"

#include "common/base/json.h"
#include "ingest/config_watch.h"

#include <stdlib.h>
#include <string.h>

#define ACTIONS_MAX 4096 /* cached: by name and by id count separately */

static struct config_cache *actions;

void actions_start(void)
{
    actions = config_cache_new(ACTIONS_MAX);
}

void actions_stop(void)
{
    config_cache_free(actions);
    actions = NULL;
}

void action_release(struct action *action)
{
    if (action != NULL)
        cached_release(&action->head);
}

static void action_free(struct cached *item)
{
    struct action *action = (struct action *)item;
    schema_free(action->schema);
    json_decref(action->definition);
    free(action);
}

static bool schema_read(struct action *action, struct error *err)
{
    const json_t *schema = json_object_get(action->definition, "inputSchema");
    if (schema == NULL || json_is_null(schema))
        return true;
    action->schema = schema_compile(schema, err);
    return action->schema != NULL;
}

/* Everything that follows from the definition. What is stored was checked when it was stored, so a
 * failure here is ours. */
static bool definition_read(struct action *action, const char *text, size_t len, struct error *err)
{
    struct error why = {0};
    bool enabled = true, requires_approval = false;
    action->definition = json_parse_object(text, len, &why);
    if (action->definition == NULL ||
        !json_field_bool(action->definition, "enabled", false, &enabled, &why) ||
        !json_field_bool(action->definition, "requiresApproval", false, &requires_approval, &why) ||
        !json_field_text(action->definition, "effectKey", false, 1, 1024, &action->effect_key,
                         &why) ||
        !schema_read(action, &why))
        return error_set(err, ERROR_INTERNAL, "action %s version %d is stored damaged: %.128s",
                         action->name, action->version, why.text);
    action->enabled = enabled;
    action->requires_approval = requires_approval;
    action->adapter = adapter_of(action->definition);
    if (action->adapter == NULL)
        return error_set(err, ERROR_INTERNAL, "action %s has an adapter that this build lacks",
                         action->name);
    action->governed = action->adapter->governed(action->definition);
    return true;
}

static struct action *action_read(const PGresult *r, int environment, struct error *err)
{
    struct action *action = calloc(1, sizeof *action);
    size_t len;
    must(action != NULL);
    cached_init(&action->head, action_free);
    action->environment = environment;
    row_uuid(r, 0, 0, &action->id);
    snprintf(action->name, sizeof action->name, "%s", row_text(r, 0, 1));
    action->version = (int)row_int(r, 0, 2);
    const char *text = row_bytes(r, 0, 3, &len);
    if (definition_read(action, text, len, err))
        return action;
    action_release(action);
    return NULL;
}

static struct action *action_load(struct store *store, int environment, const char *ref,
                                  struct error *err)
{
    static const char sql[] =
        "select a.id, a.name, a.version, v.definition "
        "from actions a join action_versions v on v.action_id = a.id and v.version = a.version "
        "where a.environment_id = $1::int and a.deleted_at is null and (a.name = $2 or a.id = $3) "
        "order by a.id = $3 limit 1";
    char number[24];
    struct ulid id;
    bool by_id = ulid_parse_prefixed("act", ref, &id);
    struct store_param params[] = {store_int(environment, number), store_text(ref),
                                   store_uuid(by_id ? &id : NULL)};
    struct action *action = NULL;
    PGresult *r = store_query(store, sql, params, 3, true, err);
    if (r == NULL)
        return NULL;
    if (PQntuples(r) == 1)
        action = action_read(r, environment, err);
    else
        error_set(err, ERROR_NOT_FOUND, "there is no action %.128s in this environment", ref);
    PQclear(r);
    return action;
}

struct action *action_get(struct store *store, int environment, const char *ref, struct error *err)
{
    uint8_t key[SHA256_SIZE];
    struct crypto_part parts[] = {{&environment, sizeof environment}, {ref, strlen(ref)}};
    crypto_sha256_parts(parts, 2, key);
    struct action *action = (struct action *)config_cache_get(actions, key);
    if (action != NULL)
        return action;
    int64_t revision = config_revision();
    action = action_load(store, environment, ref, err);
    if (action != NULL)
        config_cache_put(actions, key, &action->head, revision);
    return action;
}
