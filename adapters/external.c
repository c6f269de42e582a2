/* external: an effect that the fleet does not send. A worker of the user's performs it under a
 * claim (POST /api/v2/claims); the action only says what it changes, so that limits and policies
 * apply. */
#include "adapters/impact.h"
#include "adapters/shared.h"
#include "common/base/json.h"

#include <stdio.h>
#include <string.h>

static const json_t *impact_of(const json_t *definition)
{
    const json_t *config = json_object_get(json_object_get(definition, "adapter"), "config");
    const json_t *impact = json_object_get(config, "impact");
    return impact != NULL && !json_is_null(impact) ? impact : NULL;
}

static bool external_check(const json_t *definition, struct error *err)
{
    static const char *const members[] = {"type", "config", NULL};
    static const char *const config_members[] = {"impact", NULL};
    const json_t *adapter = json_object_get(definition, "adapter");
    const json_t *config = json_object_get(adapter, "config");
    if (!json_only_members(adapter, members, err))
        return error_put_under(err, "/adapter");
    if (config != NULL && !json_is_object(config))
        return error_set_at(err, ERROR_INVALID, "/adapter/config", "must be an object");
    if (config != NULL && !json_only_members(config, config_members, err))
        return error_put_under(err, "/adapter/config");
    const json_t *impact = impact_of(definition);
    if (impact != NULL && !impact_check(impact, err))
        return error_put_under(err, "/adapter/config");
    return adapter_declarations_absent(definition, err) && effect_key_check(definition, err);
}

static bool external_governed(const json_t *definition)
{
    (void)definition;
    return true;
}

/* No request: there is nothing that the fleet could send. */
static bool external_prepare(const struct adapter_action *action, const json_t *input,
                             struct prepared *out, struct error *err)
{
    const json_t *impact = impact_of(action->definition);
    return impact == NULL || impact_evaluate(impact, input, &out->impact, err);
}

static void external_read_answer(const struct adapter_action *action, const json_t *input,
                                 const struct answer *answer, struct answer_meaning *out)
{
    (void)action;
    (void)input;
    (void)answer;
    *out = (struct answer_meaning){.what = MEANING_SUCCEEDED};
}

static void external_read_back_start(const struct read_back_facts *facts, struct read_back *read)
{
    (void)facts;
    read_back_conclude(read, READ_IMPOSSIBLE,
                       "The effect was performed outside the fleet, and its action says no way to "
                       "read it back.");
}

static void external_read_back_answer(const struct read_back_facts *facts,
                                      const struct answer *answer, const char *transport,
                                      struct read_back *read)
{
    (void)answer;
    (void)transport;
    external_read_back_start(facts, read);
}

const struct adapter external_adapter = {
    .type = "external",
    .check = external_check,
    .governed = external_governed,
    .prepare = external_prepare,
    .read_answer = external_read_answer,
    .read_back_start = external_read_back_start,
    .read_back_answer = external_read_back_answer,
};
