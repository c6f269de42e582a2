/* Which policy decides about a request. */
#include "ingest/policy/policy.h"

#include <string.h>

static bool text_matches(const char *wanted, const char *is)
{
    return wanted == NULL || (is != NULL && strcmp(wanted, is) == 0);
}

static bool tag_listed(char *const *tags, const char *wanted)
{
    for (; tags != NULL && *tags != NULL; tags++)
        if (strcmp(*tags, wanted) == 0)
            return true;
    return false;
}

static bool tags_match(const json_t *wanted, char *const *tags)
{
    for (size_t i = 0; i < json_array_size(wanted); i++)
        if (!tag_listed(tags, json_string_value(json_array_get(wanted, i))))
            return false;
    return true;
}

static bool kind_matches(const struct policy *p, const struct policy_request *request)
{
    if (p->kind == POLICY_ANY)
        return true;
    return (p->kind == POLICY_CUSTOM) == request->custom;
}

static bool amount_matches(const struct policy *p, const struct impact *impact)
{
    if (p->min_amount < 0)
        return true;
    if (impact == NULL || !impact->declared)
        return false;
    return impact->has_amount ? impact->amount >= p->min_amount : p->effect != POLICY_AUTO_APPROVE;
}

/* What the conditions are about: {action, input, agentId, userId}. */
static json_t *subject_make(const struct policy_request *request)
{
    json_t *subject = json_pack("{s:s?, s:O, s:s, s:s?}", "action", request->action, "input",
                                request->input, "agentId", request->agent, "userId", request->user);
    must(subject != NULL);
    return subject;
}

enum met { MET_NOT, MET, MET_UNDECIDED };

static enum met conditions_met(const struct policy *p, const json_t *subject)
{
    struct error err = {0};
    if (schema_validate(p->conditions, subject, &err))
        return MET;
    return err.code == ERROR_INVALID ? MET_NOT : MET_UNDECIDED;
}

int policy_compare(const void *left, const void *right)
{
    const struct policy *a = *(struct policy *const *)left;
    const struct policy *b = *(struct policy *const *)right;
    if (a->priority != b->priority)
        return a->priority > b->priority ? -1 : 1;
    return ulid_compare(&a->id, &b->id);
}

static void decision_take(struct policy_decision *out, const struct policy *p, bool undecided)
{
    *out = (struct policy_decision){
        .policy = p, .effect = p->effect, .required = p->required, .undecided = undecided};
    if (undecided && p->effect == POLICY_AUTO_APPROVE)
        out->effect = POLICY_REQUIRE_APPROVAL;
}

void policy_decide(struct policy *const *policies, size_t count,
                   const struct policy_request *request, struct policy_decision *out)
{
    json_t *subject = NULL;
    *out = (struct policy_decision){.effect = POLICY_NONE};
    for (size_t i = 0; i < count; i++) {
        const struct policy *p = policies[i];
        if (!p->enabled || !kind_matches(p, request) || !text_matches(p->action, request->action) ||
            !text_matches(p->agent, request->agent) || !text_matches(p->user, request->user) ||
            !tags_match(p->tags, request->tags) || !amount_matches(p, request->impact))
            continue;
        if (p->conditions != NULL && subject == NULL)
            subject = subject_make(request);
        enum met met = p->conditions != NULL ? conditions_met(p, subject) : MET;
        if (met == MET_NOT)
            continue;
        decision_take(out, p, met == MET_UNDECIDED);
        break;
    }
    json_decref(subject);
}
