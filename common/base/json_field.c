/* Reading parsed JSON: pointers, amounts, and the typed members that routes ask for. */
#include "common/base/json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Turns ~1 into / and ~0 into ~, in place. False on any other use of ~. */
static bool token_unescape(char *token)
{
    char *to = token;
    for (const char *from = token; *from; from++) {
        char c = *from;
        if (c == '~') {
            from++;
            if (*from != '0' && *from != '1')
                return false;
            c = *from == '1' ? '/' : '~';
        }
        *to++ = c;
    }
    *to = '\0';
    return true;
}

static json_t *array_at_token(json_t *array, const char *token)
{
    size_t digits = strspn(token, "0123456789");
    if (digits == 0 || digits > 9 || token[digits] || (token[0] == '0' && digits > 1))
        return NULL;
    return json_array_get(array, (size_t)strtoul(token, NULL, 10));
}

static json_t *value_at_token(json_t *value, const char *token)
{
    return json_is_array(value) ? array_at_token(value, token) : json_object_get(value, token);
}

json_t *json_at_pointer(json_t *root, const char *pointer)
{
    if (!*pointer)
        return root;
    if (*pointer != '/')
        return NULL;
    char *copy = strdup(pointer + 1);
    json_t *value = copy ? root : NULL;
    char *token = copy;
    while (value && token) {
        char *slash = strchr(token, '/');
        if (slash)
            *slash = '\0';
        value = token_unescape(token) ? value_at_token(value, token) : NULL;
        token = slash ? slash + 1 : NULL;
    }
    free(copy);
    return value;
}

bool json_amount(const json_t *value, const char *place, int64_t least, int64_t most, int64_t *out,
                 struct error *err)
{
    if (!json_is_integer(value))
        return error_set_at(err, ERROR_INVALID, place,
                            "must be an integer in minor units, without point or exponent");
    int64_t amount = json_integer_value(value);
    if (amount < least || amount > most)
        return error_set_at(err, ERROR_INVALID, place,
                            "must be from %" PRId64 " to %" PRId64 " minor units", least, most);
    *out = amount;
    return true;
}

static bool field_fail(struct error *err, const char *name, const char *sentence)
{
    char place[sizeof(err->place)];
    snprintf(place, sizeof(place), "/%s", name);
    return error_set_at(err, ERROR_INVALID, place, "%s", sentence);
}

/* Finds the member. *out is NULL when it is absent or null; false when it was required. */
static bool field_find(const json_t *object, const char *name, bool required, const json_t **out,
                       struct error *err)
{
    const json_t *value = json_object_get(object, name);
    *out = json_is_null(value) ? NULL : value;
    if (!*out && required)
        return field_fail(err, name, "is required");
    return true;
}

bool json_field_text(const json_t *object, const char *name, bool required, size_t least,
                     size_t most, const char **out, struct error *err)
{
    const json_t *value;
    if (!field_find(object, name, required, &value, err))
        return false;
    if (!value)
        return true;
    if (!json_is_string(value))
        return field_fail(err, name, "must be a string");
    size_t len = json_string_length(value);
    if (len < least || len > most) {
        char sentence[96];
        snprintf(sentence, sizeof(sentence), "must be from %zu to %zu bytes long", least, most);
        return field_fail(err, name, sentence);
    }
    *out = json_string_value(value);
    return true;
}

bool json_field_bool(const json_t *object, const char *name, bool required, bool *out,
                     struct error *err)
{
    const json_t *value;
    if (!field_find(object, name, required, &value, err))
        return false;
    if (!value)
        return true;
    if (!json_is_boolean(value))
        return field_fail(err, name, "must be true or false");
    *out = json_is_true(value);
    return true;
}

bool json_field_int(const json_t *object, const char *name, bool required, int64_t least,
                    int64_t most, int64_t *out, struct error *err)
{
    const json_t *value;
    if (!field_find(object, name, required, &value, err))
        return false;
    if (!value)
        return true;
    if (!json_is_integer(value))
        return field_fail(err, name, "must be an integer");
    int64_t number = json_integer_value(value);
    if (number < least || number > most) {
        char sentence[96];
        snprintf(sentence, sizeof(sentence), "must be from %" PRId64 " to %" PRId64, least, most);
        return field_fail(err, name, sentence);
    }
    *out = number;
    return true;
}

static bool name_listed(const char *const *names, const char *name)
{
    for (; *names; names++)
        if (strcmp(*names, name) == 0)
            return true;
    return false;
}

bool json_only_members(const json_t *object, const char *const *names, struct error *err)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)object, name, value)
    {
        if (!name_listed(names, name))
            return field_fail(err, name, "is not a member that is known here");
    }
    return true;
}

bool json_merge_members(json_t *object, const json_t *changes, const char *const *names)
{
    for (; *names; names++) {
        json_t *given = json_object_get(changes, *names);
        if (json_is_null(given))
            json_object_del(object, *names);
        else if (given && json_object_set(object, *names, given) != 0)
            return false;
    }
    return true;
}

bool json_set_default(json_t *object, const char *name, json_t *value)
{
    if (!json_object_get(object, name))
        return json_object_set_new(object, name, value) == 0;
    json_decref(value);
    return true;
}
