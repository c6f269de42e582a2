/* The route that tells a key about itself, and about nothing else. */
#include "common/base/clock.h"
#include "ingest/routes/document.h"

#include <stdlib.h>

static json_t *names_json(char *const *names)
{
    if (names == NULL)
        return json_null();
    json_t *list = json_array();
    for (; *names != NULL; names++)
        json_array_append_new(list, json_string(*names));
    return list;
}

static json_t *scopes_json(uint32_t scopes)
{
    json_t *list = json_array();
    for (int i = 0; i < SCOPE_COUNT; i++)
        if ((scopes & SCOPE_BIT(i)) != 0)
            json_array_append_new(list, json_string(scope_name((enum scope)i)));
    return list;
}

static json_t *expiry_json(int64_t expires_at_us)
{
    char text[32];
    return expires_at_us == 0 ? json_null()
                              : json_string(clock_format_us(expires_at_us, text, sizeof text));
}

/* What the key may use and has used; JSON null without a budget. NULL with err. */
static json_t *budget_read(struct route_worker *worker, const struct principal *key,
                           struct error *err)
{
    struct store_param param = store_uuid(&key->key_id);
    PGresult *r = store_query(worker->store, "select budget_json($1)::text", &param, 1, true, err);
    if (r == NULL)
        return NULL;
    const char *text = row_text(r, 0, 0);
    json_t *budget = text != NULL ? json_loads(text, 0, NULL) : json_null();
    must(budget != NULL);
    PQclear(r);
    return budget;
}

static enum route_result identity_handle(struct route_worker *worker, struct call *call)
{
    const struct principal *key = call->principal;
    char key_id[ULID_PREFIXED_SIZE], environment_id[24];
    struct error err = {0};
    json_t *budget = budget_read(worker, key, &err);
    if (budget == NULL)
        return error_answer(call, &err);
    ulid_format_prefixed("key", &key->key_id, key_id);
    snprintf(environment_id, sizeof environment_id, "env_%d", key->environment);
    json_t *identity = json_pack("{s:s, s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o}", "type", "api_key",
                                 "keyId", key_id, "environmentId", environment_id, "environment",
                                 key->environment_name, "agentId", key->agent_id, "scopes",
                                 scopes_json(key->scopes), "actions", names_json(key->actions),
                                 "expiresAt", expiry_json(key->expires_at_us), "budget", budget);
    char *text = identity != NULL ? json_dumps(identity, JSON_COMPACT) : NULL;
    must(text != NULL);
    call_data(call, 200, text);
    free(text);
    json_decref(identity);
    return ROUTE_ANSWERED;
}

const struct route routes_identity[] = {
    {"GET", "/api/v2/auth/identity", ROUTE_ANY_KEY, false, identity_handle}, {0}};
