/* What a policy may say: reading, merging and checking its definition, and compiling it. */
#include "common/base/json.h"
#include "common/base/money.h"
#include "ingest/policy/policy.h"
#include "ingest/routes/parse.h"

#include <stdlib.h>
#include <string.h>

#define REFERENCE_MAX 200 /* of an action's, agent's or user's name */
#define PRIORITY_MAX 1000000

const char *const policy_members[] = {"name",
                                      "matchKind",
                                      "matchActionName",
                                      "matchAgentId",
                                      "matchUserId",
                                      "matchTags",
                                      "minAmount",
                                      "conditions",
                                      "effect",
                                      "requiredApprovals",
                                      "priority",
                                      "enabled",
                                      "acknowledgeBroadScope",
                                      NULL};

static const char *const kind_names[] = {"any", "action", "custom"};
static const char *const effect_names[] = {"none", "require_approval", "auto_approve", "auto_deny"};

const char *policy_effect_name(enum policy_effect effect)
{
    return effect_names[effect];
}

bool policy_effect_parse(const char *name, enum policy_effect *out)
{
    for (int i = 0; i < 4; i++) {
        if (strcmp(effect_names[i], name) == 0) {
            *out = (enum policy_effect)i;
            return true;
        }
    }
    return false;
}

/* ---- checks ---- */

static bool kind_read(const json_t *definition, enum policy_kind *out, struct error *err)
{
    const char *text = NULL;
    if (!json_field_text(definition, "matchKind", true, 1, 32, &text, err))
        return false;
    for (int i = 0; i < 3; i++) {
        if (strcmp(text, kind_names[i]) == 0) {
            *out = (enum policy_kind)i;
            return true;
        }
    }
    return error_set_at(err, ERROR_INVALID, "/matchKind", "must be any, action or custom");
}

static bool effect_read(const json_t *definition, enum policy_effect *out, struct error *err)
{
    const char *text = NULL;
    return json_field_text(definition, "effect", true, 1, 32, &text, err) &&
           ((policy_effect_parse(text, out) && *out != POLICY_NONE) ||
            error_set_at(err, ERROR_INVALID, "/effect",
                         "must be require_approval, auto_approve or auto_deny"));
}

static bool name_read(const json_t *definition, const char **out, struct error *err)
{
    return json_field_text(definition, "name", true, 1, POLICY_NAME_MAX, out, err) &&
           ((*out)[strspn(*out, " \t\r\n")] != '\0' ||
            error_set_at(err, ERROR_INVALID, "/name", "must say something"));
}

static bool amount_read(const json_t *definition, int64_t *out, struct error *err)
{
    const json_t *value = json_object_get(definition, "minAmount");
    *out = -1;
    return value == NULL || json_amount(value, "/minAmount", 0, MONEY_MAX, out, err);
}

static bool tags_read(const json_t *definition, const json_t **out, struct error *err)
{
    *out = json_object_get(definition, "matchTags");
    return *out == NULL || field_text_list(*out, "matchTags", POLICY_TAGS_MAX, POLICY_TAG_MAX, NULL,
                                           "a tag of 1 to 100 bytes", err);
}

static bool conditions_read(const json_t *definition, struct schema **out, struct error *err)
{
    const json_t *document = json_object_get(definition, "conditions");
    if (document == NULL)
        return true;
    if (!json_is_object(document))
        return error_set_at(err, ERROR_INVALID, "/conditions", "must be a JSON Schema, an object");
    *out = schema_compile(document, err);
    return *out != NULL || (err != NULL && error_place_under(err, "/conditions"));
}

static bool fits_together(const struct policy *p, struct error *err)
{
    if (p->action != NULL && p->kind != POLICY_ACTION)
        return error_set_at(err, ERROR_INVALID, "/matchActionName", "goes with matchKind action");
    if (p->min_amount >= 0 && p->kind == POLICY_CUSTOM)
        return error_set_at(err, ERROR_INVALID, "/minAmount",
                            "can't match a custom request, which declares no impact");
    if (p->required > 1 && p->effect != POLICY_REQUIRE_APPROVAL)
        return error_set_at(err, ERROR_INVALID, "/requiredApprovals",
                            "goes with effect require_approval");
    return true;
}

/* Whether nothing narrows it down: it decides about every action or request there is. */
static bool policy_is_broad(const struct policy *p)
{
    const json_t *conditions = json_object_get(p->definition, "conditions");
    return p->action == NULL && p->agent == NULL && p->user == NULL && p->tags == NULL &&
           p->min_amount < 0 && json_object_size(conditions) == 0;
}

static bool broad_acknowledged(const struct policy *p, struct error *err)
{
    if (p->effect != POLICY_AUTO_DENY || !policy_is_broad(p) ||
        json_is_true(json_object_get(p->definition, "acknowledgeBroadScope")))
        return true;
    return error_set_at(err, ERROR_INVALID, "/acknowledgeBroadScope",
                        "must be true: this auto_deny applies to every %s",
                        p->kind == POLICY_CUSTOM   ? "custom request"
                        : p->kind == POLICY_ACTION ? "action"
                                                   : "action and request");
}

static bool definition_read(struct policy *p, struct error *err)
{
    const json_t *d = p->definition;
    bool acknowledged = false;
    int64_t required = 1;
    bool ok =
        name_read(d, &p->name, err) && kind_read(d, &p->kind, err) &&
        json_field_text(d, "matchActionName", false, 1, REFERENCE_MAX, &p->action, err) &&
        json_field_text(d, "matchAgentId", false, 1, REFERENCE_MAX, &p->agent, err) &&
        json_field_text(d, "matchUserId", false, 1, REFERENCE_MAX, &p->user, err) &&
        tags_read(d, &p->tags, err) && amount_read(d, &p->min_amount, err) &&
        effect_read(d, &p->effect, err) &&
        json_field_int(d, "requiredApprovals", false, 1, POLICY_APPROVALS_MAX, &required, err) &&
        json_field_int(d, "priority", false, -PRIORITY_MAX, PRIORITY_MAX, &p->priority, err) &&
        json_field_bool(d, "enabled", false, &p->enabled, err) &&
        json_field_bool(d, "acknowledgeBroadScope", false, &acknowledged, err);
    p->required = (int)required;
    return ok && fits_together(p, err) && broad_acknowledged(p, err) &&
           conditions_read(d, &p->conditions, err);
}

/* ---- making one ---- */

struct policy *policy_compile(const json_t *definition, const struct ulid *id, int version,
                              struct error *err)
{
    struct policy *p = calloc(1, sizeof *p);
    must(p != NULL);
    p->definition = json_incref((json_t *)definition);
    p->version = version;
    p->enabled = true;
    if (id != NULL)
        p->id = *id;
    if (definition_read(p, err))
        return p;
    policy_free(p);
    return NULL;
}

void policy_free(struct policy *policy)
{
    if (policy == NULL)
        return;
    schema_free(policy->conditions);
    json_decref(policy->definition);
    free(policy);
}

static bool defaults_set(json_t *definition)
{
    return json_set_default(definition, "effect", json_string("require_approval")) &&
           json_set_default(definition, "requiredApprovals", json_integer(1)) &&
           json_set_default(definition, "priority", json_integer(0)) &&
           json_set_default(definition, "enabled", json_true()) &&
           json_set_default(definition, "acknowledgeBroadScope", json_false());
}

json_t *policy_definition_make(const json_t *stored, const json_t *body, struct error *err)
{
    json_t *definition = stored != NULL ? json_copy((json_t *)stored) : json_object();
    bool ok = definition != NULL && json_merge_members(definition, body, policy_members) &&
              defaults_set(definition);
    if (!ok)
        error_set(err, ERROR_MEMORY, "out of memory for a policy");
    struct policy *checked = ok ? policy_compile(definition, NULL, 0, err) : NULL;
    if (checked == NULL) {
        json_decref(definition);
        return NULL;
    }
    policy_free(checked);
    return definition;
}
