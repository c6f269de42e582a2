/* Deciding about described requests. */
#include "ingest/policy/evaluate.h"

#include "common/base/json.h"
#include "common/base/money.h"
#include "ingest/actions_cache.h"
#include "ingest/routes/parse.h"

#include <stdlib.h>
#include <string.h>

#define REFERENCE_MAX 200

const char *const evaluation_members[] = {"kind", "actionName", "agentId", "userId",
                                          "tags", "payload",    "amount",  NULL};

/* A described request, and what is known of its action. */
struct described {
    struct policy_request request;
    json_t *payload;                 /* a reference */
    char *tags[POLICY_TAGS_MAX + 1]; /* borrowed texts */
    struct impact impact;
    struct action *action; /* a reference; NULL: custom, or there is none of that name */
    char input_error[640]; /* why the action would refuse the payload, "" when it would not */
};

static void described_free(struct described *d)
{
    action_release(d->action);
    json_decref(d->payload);
}

/* ---- reading ---- */

static bool tags_read(const json_t *body, struct described *d, struct error *err)
{
    const json_t *tags = json_object_get(body, "tags");
    d->request.tags = d->tags;
    if (tags == NULL || json_is_null(tags) || json_array_size(tags) == 0)
        return tags == NULL || json_is_null(tags) || json_is_array(tags) ||
               error_set_at(err, ERROR_INVALID, "/tags", "must be a list of strings");
    if (!field_text_list(tags, "tags", POLICY_TAGS_MAX, POLICY_TAG_MAX, NULL,
                         "a tag of 1 to 100 bytes", err))
        return false;
    for (size_t i = 0; i < json_array_size(tags); i++)
        d->tags[i] = (char *)json_string_value(json_array_get(tags, i));
    return true;
}

static bool kind_read(const json_t *body, struct described *d, struct error *err)
{
    const char *kind = NULL;
    if (!json_field_text(body, "kind", true, 1, 32, &kind, err) ||
        !json_field_text(body, "actionName", false, 1, REFERENCE_MAX, &d->request.action, err))
        return false;
    d->request.custom = strcmp(kind, "custom") == 0;
    if (!d->request.custom && strcmp(kind, "action") != 0)
        return error_set_at(err, ERROR_INVALID, "/kind", "must be action or custom");
    if (d->request.custom && d->request.action != NULL)
        return error_set_at(err, ERROR_INVALID, "/actionName", "goes with kind action");
    if (!d->request.custom && d->request.action == NULL)
        return error_set_at(err, ERROR_INVALID, "/actionName", "is missing: name the action");
    return true;
}

static bool described_read(json_t *body, struct described *d, struct error *err)
{
    json_t *payload = json_object_get(body, "payload");
    d->request.agent = "";
    if (!kind_read(body, d, err) ||
        !json_field_text(body, "agentId", false, 1, REFERENCE_MAX, &d->request.agent, err) ||
        !json_field_text(body, "userId", false, 1, REFERENCE_MAX, &d->request.user, err) ||
        !tags_read(body, d, err))
        return false;
    if (payload != NULL && !json_is_null(payload) && !json_is_object(payload))
        return error_set_at(err, ERROR_INVALID, "/payload", "must be an object");
    d->payload = json_is_object(payload) ? json_incref(payload) : json_object();
    must(d->payload != NULL);
    d->request.input = d->payload;
    d->request.impact = &d->impact;
    return true;
}

/* ---- what the action adds ---- */

/* A payload that the action would refuse has an impact that nobody knows. */
static void action_ask(struct described *d)
{
    struct adapter_action action = {.name = d->action->name,
                                    .version = d->action->version,
                                    .definition = d->action->definition};
    struct prepared prepared = {0};
    struct error err = {0};
    if (d->action->adapter->prepare(&action, d->payload, &prepared, &err))
        d->impact = prepared.impact;
    else
        d->impact.declared = d->action->governed;
    if (err.code == ERROR_NONE && d->action->schema != NULL)
        schema_validate(d->action->schema, d->payload, &err);
    prepared_free(&prepared);
    if (err.code != ERROR_NONE)
        snprintf(d->input_error, sizeof d->input_error, "%s: %s", err.place, err.text);
}

static bool action_add(struct store *store, const struct principal *principal, const json_t *body,
                       struct described *d, struct error *err)
{
    const json_t *amount = json_object_get(body, "amount");
    if (!d->request.custom) {
        d->action = action_get(store, principal->environment, d->request.action, err);
        if (d->action == NULL && err->code != ERROR_NOT_FOUND)
            return false;
        *err = (struct error){0};
    }
    if (d->action != NULL)
        action_ask(d);
    if (amount == NULL || json_is_null(amount))
        return true;
    d->impact.declared = d->impact.has_amount = true;
    return json_amount(amount, "/amount", 0, MONEY_MAX, &d->impact.amount, err);
}

/* ---- the answer ---- */

static json_t *policy_shown(const struct policy *policy)
{
    char id[ULID_PREFIXED_SIZE];
    if (policy == NULL)
        return json_null();
    bool stored = policy->version > 0;
    return json_pack(
        "{s:s?, s:i, s:s, s:I}", "id", stored ? ulid_format_prefixed("pol", &policy->id, id) : NULL,
        "version", policy->version, "name", policy->name, "priority", (json_int_t)policy->priority);
}

static const char *reason_of(const struct policy_decision *decision, bool wanted)
{
    if (decision->undecided)
        return "the policy's conditions could not be checked, so a person has to decide";
    if (decision->policy != NULL)
        return "the first policy that matches decides";
    return wanted ? "no policy matches, and an approval is required without one"
                  : "no policy matches, and the action does not require an approval";
}

static json_t *answer_make(const struct described *d, const struct policy_decision *decision)
{
    bool by_default = decision->effect == POLICY_NONE &&
                      (d->request.custom || (d->action != NULL && d->action->requires_approval));
    bool wanted = by_default || decision->effect == POLICY_REQUIRE_APPROVAL;
    json_t *answer = json_pack(
        "{s:s, s:b, s:o, s:b, s:b, s:i, s:s, s:s?, s:b, s:s?}", "effect",
        policy_effect_name(decision->effect), "matched", decision->policy != NULL, "policy",
        policy_shown(decision->policy), "requiresApproval", wanted, "denied",
        decision->effect == POLICY_AUTO_DENY, "requiredApprovals",
        !wanted                  ? 0
        : decision->required > 0 ? decision->required
                                 : 1,
        "reason", reason_of(decision, wanted), "actionName", d->request.action, "actionFound",
        d->action != NULL, "inputError", d->input_error[0] != '\0' ? d->input_error : NULL);
    json_t *impact = json_null();
    if (d->impact.declared && d->impact.has_amount)
        impact = json_pack("{s:s, s:s, s:I}", "dimension", d->impact.dimension, "unit",
                           d->impact.unit, "amount", (json_int_t)d->impact.amount);
    must(answer != NULL && impact != NULL && json_object_set_new(answer, "impact", impact) == 0);
    return answer;
}

json_t *evaluation_run(struct store *store, const struct principal *principal,
                       struct policy *const *policies, size_t count, json_t *request,
                       struct error *err)
{
    struct described d = {0};
    struct policy_decision decision;
    json_t *answer = NULL;
    if (described_read(request, &d, err) && action_add(store, principal, request, &d, err)) {
        policy_decide(policies, count, &d.request, &decision);
        answer = answer_make(&d, &decision);
    }
    described_free(&d);
    return answer;
}
