/* Making, merging and checking the definitions of actions. */
#include "ingest/routes/action_definition.h"

#include "adapters/adapter.h"
#include "common/base/json.h"
#include "common/base/schema.h"
#include "common/base/ulid.h"
#include "ingest/routes/parse.h"

#include <ctype.h>
#include <string.h>

#define DESCRIPTION_MAX 4000

const char *const action_members[] = {
    "name",    "description",  "adapter",     "urlTemplate",      "method",
    "headers", "bodyTemplate", "inputSchema", "requiresApproval", "enabled",
    "impact",  "verify",       "governed",    "effectKey",        NULL};

/* What makes a declared action governed. */
static const char *const declarations[] = {"impact", "verify", "governed"};
enum { DECLARATIONS = sizeof declarations / sizeof declarations[0] };

bool action_name_check(const char *name, struct error *err)
{
    static const char *const reserved[] = {"effects", "invocations", "previews", "import", "batch"};
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.";
    struct ulid id;
    if (!isalnum((unsigned char)name[0]) || strlen(name) > ACTION_NAME_MAX ||
        name[strspn(name, allowed)] != '\0')
        return error_set_at(err, ERROR_INVALID, "/name",
                            "must be 1 to %d letters, digits, '_', '-' and '.', beginning with a "
                            "letter or digit",
                            ACTION_NAME_MAX);
    for (size_t i = 0; i < sizeof reserved / sizeof reserved[0]; i++)
        if (strcmp(reserved[i], name) == 0)
            return error_set_at(err, ERROR_INVALID, "/name",
                                "is a word of the API's paths and can't name an action");
    if (ulid_parse_prefixed("act", name, &id))
        return error_set_at(err, ERROR_INVALID, "/name", "reads as the id of an action");
    return true;
}

/* ---- checks ---- */

static bool schema_check(const json_t *definition, struct error *err)
{
    const json_t *document = json_object_get(definition, "inputSchema");
    if (document == NULL)
        return true;
    struct schema *schema = schema_compile(document, err);
    if (schema == NULL)
        return err == NULL ? false : error_place_under(err, "/inputSchema");
    schema_free(schema);
    return true;
}

static bool destination_check(const json_t *definition, struct error *err)
{
    const json_t *adapter = json_object_get(definition, "adapter");
    bool has_url = json_object_get(definition, "urlTemplate") != NULL;
    if (adapter != NULL && has_url)
        return error_set_at(err, ERROR_INVALID, "/urlTemplate",
                            "can't stand beside adapter: an action has one of the two");
    if (adapter == NULL && !has_url)
        return error_set_at(err, ERROR_INVALID, "/urlTemplate",
                            "is missing: an action has either urlTemplate or adapter");
    if (adapter == NULL)
        return true;
    if (!json_is_object(adapter))
        return error_set_at(err, ERROR_INVALID, "/adapter", "must be an object");
    if (adapter_of(definition) == NULL)
        return error_set_at(err, ERROR_INVALID, "/adapter/type",
                            "must name an adapter of this version, such as stripe.refund");
    return true;
}

static bool definition_check(const json_t *definition, struct error *err)
{
    const char *text = NULL;
    bool flag = false;
    return json_field_text(definition, "name", true, 1, ACTION_NAME_MAX, &text, err) &&
           action_name_check(text, err) &&
           json_field_text(definition, "description", false, 0, DESCRIPTION_MAX, &text, err) &&
           json_field_bool(definition, "enabled", true, &flag, err) &&
           json_field_bool(definition, "requiresApproval", true, &flag, err) &&
           json_field_bool(definition, "governed", false, &flag, err) &&
           schema_check(definition, err) && destination_check(definition, err) &&
           adapter_of(definition)->check(definition, err);
}

/* ---- merging ---- */

/* governed:false takes every declaration away, so it can't come with one. An adapter action has
 * none; its adapter refuses the member itself. */
static bool governed_false_apply(json_t *definition, const json_t *body, struct error *err)
{
    if (!json_is_false(json_object_get(body, "governed")) ||
        json_object_get(definition, "adapter") != NULL)
        return true;
    for (int i = 0; i < DECLARATIONS; i++) {
        const json_t *given = json_object_get(body, declarations[i]);
        if (given != NULL && !json_is_null(given) && !json_is_false(given))
            return error_set_at(err, ERROR_INVALID, "/governed",
                                "false removes every declaration and can't come with %s",
                                declarations[i]);
        json_object_del(definition, declarations[i]);
    }
    return true;
}

/* A method in upper case, as it is sent; one that is no text is left for the adapter to refuse. */
static bool method_normalise(json_t *definition)
{
    char upper[16];
    const char *method = json_string_value(json_object_get(definition, "method"));
    size_t len = method != NULL ? strlen(method) : sizeof upper;
    if (len >= sizeof upper)
        return true;
    for (size_t i = 0; i <= len; i++)
        upper[i] = (char)toupper((unsigned char)method[i]);
    return json_object_set_new(definition, "method", json_string(upper)) == 0;
}

/* An adapter action has no method; the default of the template that it was before goes with it. */
static bool defaults_set(json_t *definition, const json_t *body)
{
    if (json_object_get(definition, "adapter") != NULL) {
        if (json_object_get(body, "method") == NULL)
            json_object_del(definition, "method");
    } else if (!json_set_default(definition, "method", json_string("POST")) ||
               !method_normalise(definition)) {
        return false;
    }
    return json_set_default(definition, "enabled", json_true()) &&
           json_set_default(definition, "requiresApproval", json_false());
}

json_t *action_definition_patch(const json_t *stored, const json_t *body, struct error *err)
{
    json_t *definition = json_copy((json_t *)stored);
    bool ok = definition != NULL && json_merge_members(definition, body, action_members) &&
              defaults_set(definition, body);
    if (!ok)
        error_set(err, ERROR_MEMORY, "out of memory for an action");
    ok = ok && governed_false_apply(definition, body, err) && definition_check(definition, err);
    if (!ok) {
        json_decref(definition);
        return NULL;
    }
    return definition;
}

json_t *action_definition_create(const json_t *body, struct error *err)
{
    json_t *nothing = json_object();
    json_t *definition = nothing != NULL ? action_definition_patch(nothing, body, err) : NULL;
    json_decref(nothing);
    return definition;
}

/* ---- what needs actions:govern ---- */

static bool definition_governed(const json_t *definition)
{
    return adapter_of(definition) != NULL && adapter_of(definition)->governed(definition);
}

bool action_definition_guarded(const json_t *definition)
{
    return definition_governed(definition) ||
           json_is_true(json_object_get(definition, "requiresApproval"));
}

/* What makes another request of the same call, or lets another call through. */
static const char *const forming[] = {"name",    "adapter",      "urlTemplate", "method",
                                      "headers", "bodyTemplate", "inputSchema", "effectKey"};

static bool member_differs(const json_t *before, const json_t *after, const char *name)
{
    const json_t *had = json_object_get(before, name), *has = json_object_get(after, name);
    return (had == NULL) != (has == NULL) || (had != NULL && !json_equal(had, has));
}

bool action_definition_needs_govern(const json_t *before, const json_t *after)
{
    for (int i = 0; i < DECLARATIONS; i++)
        if (json_object_get(before, declarations[i]) != NULL &&
            member_differs(before, after, declarations[i]))
            return true;
    if (json_is_true(json_object_get(before, "requiresApproval")) &&
        !json_is_true(json_object_get(after, "requiresApproval")))
        return true;
    if (!action_definition_guarded(before))
        return false;
    for (size_t i = 0; i < sizeof forming / sizeof forming[0]; i++)
        if (member_differs(before, after, forming[i]))
            return true;
    return definition_governed(before) && !definition_governed(after);
}
