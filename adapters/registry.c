/* The table of adapters, and the rules that hold for every adapter action. */
#include "adapters/shared.h"
#include "common/base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct adapter *const adapters[] = {&declared_adapter, &stripe_refund_adapter,
                                                 &external_adapter};

const struct adapter *adapter_find(const char *type)
{
    for (size_t i = 0; i < sizeof(adapters) / sizeof(adapters[0]); i++)
        if (strcmp(adapters[i]->type, type) == 0)
            return adapters[i];
    return NULL;
}

const struct adapter *adapter_of(const json_t *definition)
{
    const json_t *adapter = json_object_get(definition, "adapter");
    if (!adapter || json_is_null(adapter))
        return &declared_adapter;
    const char *type = json_string_value(json_object_get(adapter, "type"));
    return type ? adapter_find(type) : NULL;
}

void prepared_free(struct prepared *prepared)
{
    request_free(prepared->request);
    *prepared = (struct prepared){0};
}

bool error_put_under(struct error *err, const char *prefix)
{
    if (err) {
        char place[sizeof(err->place)];
        snprintf(place, sizeof(place), "%s%.*s", prefix, (int)(sizeof(place) - 1 - strlen(prefix)),
                 err->place);
        memcpy(err->place, place, sizeof(place));
    }
    return false;
}

static int name_compare(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

bool names_sorted(const json_t *object, const char ***out, size_t *count, struct error *err)
{
    const char *name;
    json_t *value;
    size_t size = json_object_size(object);
    const char **names = calloc(size ? size : 1, sizeof(*names));
    *count = 0;
    *out = names;
    if (!names)
        return error_set(err, ERROR_MEMORY, "out of memory for an object's names");
    json_object_foreach((json_t *)object, name, value)
    {
        names[(*count)++] = name;
    }
    qsort(names, size, sizeof(*names), name_compare);
    return true;
}

bool secret_name_allowed(const char *name, size_t len)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    return len > 0 && len <= SECRET_NAME_MAX && strspn(name, allowed) >= len;
}

bool adapter_declarations_absent(const json_t *definition, struct error *err)
{
    static const char *const names[] = {"urlTemplate", "method", "headers", "bodyTemplate",
                                        "impact",      "verify", "governed"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const json_t *value = json_object_get(definition, names[i]);
        char place[sizeof(err->place)];
        snprintf(place, sizeof(place), "/%s", names[i]);
        if (value && !json_is_null(value))
            return error_set_at(err, ERROR_INVALID, place,
                                "an adapter action can't have it: its adapter says this itself");
    }
    return true;
}

bool adapter_definition_check(const json_t *definition, struct error *err)
{
    static const char *const members[] = {"type", "config", "credentialSecret", NULL};
    const json_t *adapter = json_object_get(definition, "adapter");
    if (!json_is_object(adapter))
        return error_set_at(err, ERROR_INVALID, "/adapter", "must be an object");
    if (!json_only_members(adapter, members, err))
        return error_put_under(err, "/adapter");
    if (!json_is_object(json_object_get(adapter, "config")))
        return error_set_at(err, ERROR_INVALID, "/adapter/config", "must be an object");
    const char *secret = json_string_value(json_object_get(adapter, "credentialSecret"));
    if (!secret || !secret_name_allowed(secret, strlen(secret)))
        return error_set_at(err, ERROR_INVALID, "/adapter/credentialSecret",
                            "must name a secret: upper-case letters, digits and _");
    return adapter_declarations_absent(definition, err) && effect_key_check(definition, err);
}
