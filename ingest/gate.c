/* Deciding whether a call runs, waits for a person or is denied. */
#include "ingest/gate.h"

#include "common/base/config.h"
#include "common/base/json.h"
#include "ingest/policy/set.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define GATE_MAX_BYTES ((size_t)64 << 10)

/* What accept_batch is told, as JSON. */
static char *gate_text_make(const struct action *action, const struct policy_decision *decision,
                            const char *effect, int required)
{
    const char *description = json_string_value(json_object_get(action->definition, "description"));
    struct buf out;
    buf_init(&out, GATE_MAX_BYTES);
    buf_printf(&out, "{\"effect\":\"%s\",\"required\":%d,\"expires\":%" PRId64, effect, required,
               config_int("HOLDFAST_APPROVAL_EXPIRES_S"));
    if (decision->policy != NULL) {
        char id[UUID_TEXT_SIZE];
        buf_printf(&out, ",\"policy\":\"%s\",\"version\":%d",
                   ulid_uuid_format(&decision->policy->id, id), decision->policy->version);
    }
    if (description != NULL) {
        buf_puts(&out, ",\"description\":");
        json_put_string(&out, description, strlen(description));
    }
    buf_puts(&out, "}");
    char *text = buf_take(&out, NULL);
    must(text != NULL);
    return text;
}

static void gate_set(struct accept_call *a, const struct policy_decision *decision)
{
    bool wanted = decision->effect == POLICY_REQUIRE_APPROVAL ||
                  (decision->effect == POLICY_NONE && a->action->requires_approval);
    a->gate = decision->effect == POLICY_AUTO_DENY ? GATE_DENIED
              : wanted                             ? GATE_APPROVAL
                                                   : GATE_OPEN;
    if (a->gate == GATE_OPEN && decision->policy == NULL)
        return;
    enum policy_effect effect = wanted ? POLICY_REQUIRE_APPROVAL : decision->effect;
    a->gate_text = gate_text_make(a->action, decision, policy_effect_name(effect),
                                  decision->required > 0 ? decision->required : 1);
}

bool gate_decide(struct store *store, struct accept_call *a, json_t *input, struct error *err)
{
    const struct principal *principal = a->call->principal;
    struct policy_request request = {.action = a->action->name,
                                     .input = input,
                                     .agent = principal->agent_id,
                                     .user =
                                         principal->user_id[0] != '\0' ? principal->user_id : NULL,
                                     .tags = principal->tags,
                                     .impact = &a->impact};
    struct policy_decision decision;
    struct policy_set *set = policy_set_get(store, principal->environment, err);
    if (set == NULL)
        return false;
    policy_decide(set->policies, set->count, &request, &decision);
    gate_set(a, &decision);
    policy_set_release(set);
    return true;
}
