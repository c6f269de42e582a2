/* Operation keys made from an input: the effectKey template of an action ("refund:{payment_id}").
 */
#include "adapters/path.h"
#include "adapters/shared.h"
#include "common/base/json.h"
#include "common/http/escape.h"

#include <stdio.h>
#include <string.h>

#define EFFECT_KEY_MAX 255

/* Reads the template up to its next field, which `field` and `field_len` then name (NULL: no more).
 * False with err at "/effectKey". */
static bool field_next(const char **at, struct buf *literal, const char **field, size_t *field_len,
                       struct error *err)
{
    size_t len = strcspn(*at, "{}");
    for (size_t i = 0; i < len; i++)
        if ((*at)[i] <= ' ' || (*at)[i] >= 0x7f)
            return error_set_at(err, ERROR_INVALID, "/effectKey", "must be visible ASCII");
    buf_put(literal, *at, len);
    *at += len;
    *field = NULL;
    if (!**at)
        return true;
    const char *close = strchr(*at, '}');
    *field = *at + 1;
    *field_len = close ? (size_t)(close - *field) : 0;
    if (**at != '{' || !close || !path_valid(*field, *field_len, false))
        return error_set_at(err, ERROR_INVALID, "/effectKey",
                            "must be text with fields of the input in braces, such as"
                            " refund:{payment_id}");
    *at = close + 1;
    return true;
}

bool effect_key_check(const json_t *definition, struct error *err)
{
    const json_t *value = json_object_get(definition, "effectKey");
    const char *at = json_string_value(value);
    const char *field;
    size_t field_len, fields = 0;
    struct buf literal;
    if (!value || json_is_null(value))
        return true;
    if (!at)
        return error_set_at(err, ERROR_INVALID, "/effectKey", "must be a string");
    buf_init(&literal, EFFECT_KEY_MAX);
    bool ok = true;
    do {
        ok = field_next(&at, &literal, &field, &field_len, err);
        fields += ok && field;
    } while (ok && field);
    if (ok && literal.failed)
        ok = error_set_at(err, ERROR_INVALID, "/effectKey", "is too long");
    if (ok && fields == 0)
        ok = error_set_at(err, ERROR_INVALID, "/effectKey",
                          "names no field of the input, so all calls would be one operation");
    buf_free(&literal);
    return ok;
}

/* Appends a field's value, percent-encoded: so the key stays visible ASCII, and two inputs can't
 * give the same key by holding the template's own separators. */
static bool field_put(const json_t *input, const char *field, size_t len, struct buf *out,
                      struct error *err)
{
    char place[sizeof(err->place)];
    struct buf text;
    const json_t *value = path_find(input, field, len);
    path_pointer("/input", field, len, place, sizeof(place));
    if (!value)
        return error_set_at(err, ERROR_INVALID, place, "is missing, and effectKey needs it");
    buf_init(&text, EFFECT_KEY_MAX);
    if (json_is_string(value))
        buf_put(&text, json_string_value(value), json_string_length(value));
    else if (json_is_number(value) || json_is_boolean(value))
        json_canonical(value, &text);
    bool ok = !text.failed && text.len > 0;
    if (ok)
        escape_put(out, PLACE_URL, BODY_NONE, text.data, text.len);
    buf_free(&text);
    return ok || error_set_at(err, ERROR_INVALID, place,
                              "must be a string of 1 to %d bytes, a number or a boolean, as"
                              " effectKey needs it",
                              EFFECT_KEY_MAX);
}

bool effect_key_expand(const char *tmpl, const json_t *input, char **out, struct error *err)
{
    struct buf key;
    const char *field;
    size_t field_len;
    buf_init(&key, EFFECT_KEY_MAX);
    do {
        if (!field_next(&tmpl, &key, &field, &field_len, err) ||
            (field && !field_put(input, field, field_len, &key, err))) {
            buf_free(&key);
            return false;
        }
    } while (field);
    if (key.failed) {
        buf_free(&key);
        return error_set_at(err, ERROR_INVALID, "/input",
                            "gives an operation key of more than %d bytes by effectKey",
                            EFFECT_KEY_MAX);
    }
    *out = buf_take(&key, NULL);
    return *out || error_set(err, ERROR_MEMORY, "out of memory for an operation key");
}
