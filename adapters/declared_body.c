/* Builds the body of a declared action's request: JSON, a form, or plain text. */
#include "adapters/declared.h"
#include "adapters/path.h"
#include "adapters/shared.h"
#include "common/base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* One body on its way into a request. */
struct body {
    struct request *request;
    const struct template_values *values;
    struct error *err;
    char place[128]; /* JSON pointer of the template's node at hand */
};

/* ---- the format ---- */

/* Whether a Content-Type, without its parameters, is `type`, or ends in it when it starts with +.
 */
static bool media_type_is(const char *content_type, const char *type)
{
    size_t len = strcspn(content_type, "; \t"), type_len = strlen(type);
    if (type[0] == '+')
        return len > type_len && strncasecmp(content_type + len - type_len, type, type_len) == 0;
    return len == type_len && strncasecmp(content_type, type, len) == 0;
}

static bool is_json_type(const char *content_type)
{
    return !content_type || media_type_is(content_type, "application/json") ||
           media_type_is(content_type, "+json");
}

static bool is_form_type(const char *content_type)
{
    return content_type && media_type_is(content_type, "application/x-www-form-urlencoded");
}

/* Text is sent unescaped, so an input in it could change the structure of anything but plain text.
 */
static bool text_format_choose(const char *text, const char *content_type, enum body_format *out,
                               struct error *err)
{
    struct template template;
    if (!template_parse(text, TEMPLATE_IN_WRITE, "/bodyTemplate", &template, err))
        return false;
    const struct template_part *single = template_single(&template);
    bool has_input = false;
    for (size_t i = 0; i < template.count; i++)
        has_input |= template.parts[i].kind == TEMPLATE_INPUT;
    *out = BODY_TEXT;
    if (single && single->kind == TEMPLATE_INPUT && is_json_type(content_type)) {
        *out = BODY_JSON;
        return true;
    }
    if (content_type && (is_json_type(content_type) || is_form_type(content_type)))
        return error_set_at(err, ERROR_INVALID, "/bodyTemplate",
                            "for this Content-Type the body must be written as a JSON value, not as"
                            " text, so that inputs are escaped");
    if (has_input && content_type && !media_type_is(content_type, "text/plain"))
        return error_set_at(
            err, ERROR_INVALID, "/bodyTemplate",
            "inputs stand unescaped in a text body, which is safe in text/plain only");
    return true;
}

bool body_format_choose(const json_t *body, const char *content_type, enum body_format *out,
                        struct error *err)
{
    if (!body || json_is_null(body)) {
        *out = BODY_NONE;
        return true;
    }
    if (json_is_string(body))
        return text_format_choose(json_string_value(body), content_type, out, err);
    *out = is_form_type(content_type) ? BODY_FORM : BODY_JSON;
    if (*out == BODY_FORM && !json_is_object(body))
        return error_set_at(err, ERROR_INVALID, "/bodyTemplate", "a form must be an object");
    return *out == BODY_FORM || is_json_type(content_type) ||
           error_set_at(err, ERROR_INVALID, "/bodyTemplate",
                        "a body that is a JSON value is sent as JSON or as a form; the declared"
                        " Content-Type is neither");
}

const char *body_content_type(enum body_format format)
{
    switch (format) {
    case BODY_JSON:
        return "application/json";
    case BODY_FORM:
        return "application/x-www-form-urlencoded";
    case BODY_TEXT:
        return "text/plain; charset=utf-8";
    case BODY_NONE:
        break;
    }
    return NULL;
}

/* ---- what both JSON and forms need ---- */

static void put_literal(struct body *body, const char *text)
{
    request_put_literal(body->request, PLACE_BODY, text, strlen(text));
}

/* Steps into a member or item; the returned length is given to place_leave. */
static size_t place_enter(struct body *body, const char *name)
{
    size_t len = strlen(body->place);
    snprintf(body->place + len, sizeof(body->place) - len, "/%s", name);
    return len;
}

static void place_leave(struct body *body, size_t len)
{
    body->place[len] = '\0';
}

static bool body_fail(struct body *body, const char *sentence)
{
    return error_set_at(body->err, ERROR_INVALID, body->place, "%s", sentence);
}

static bool name_check(struct body *body, const char *name)
{
    return !strstr(name, "{{") || body_fail(body, "a member's name can't hold a template");
}

/* Whether the node is exactly one {{input.PATH}}; then *part is that reference. */
static bool is_input(struct body *body, const json_t *node, struct template_part *part)
{
    struct template template;
    const char *text = json_string_value(node);
    if (!text || !template_parse(text, TEMPLATE_IN_WRITE, body->place, &template, NULL))
        return false; /* an error is told where the string is put */
    const struct template_part *single = template_single(&template);
    if (!single || single->kind != TEMPLATE_INPUT)
        return false;
    *part = *single;
    return true;
}

/* Whether a member is left out: it is exactly an input that the caller left out. */
static bool is_left_out(struct body *body, const json_t *node)
{
    struct template_part part;
    return !body->values->input_trial && is_input(body, node, &part) &&
           !template_value(&part, body->values);
}

static bool put_template(struct body *body, const char *text)
{
    struct template template;
    return template_parse(text, TEMPLATE_IN_WRITE, body->place, &template, body->err) &&
           template_put(&template, body->values, PLACE_BODY, body->request, body->err);
}

static bool put_canonical(struct body *body, const json_t *value)
{
    struct buf text;
    buf_init(&text, REQUEST_BODY_MAX);
    bool ok = json_canonical(value, &text);
    if (ok && body->request->format == BODY_FORM)
        request_put_text(body->request, PLACE_BODY, text.data, text.len); /* 1e+21 holds a + */
    else if (ok)
        request_put_literal(body->request, PLACE_BODY, text.data, text.len);
    buf_free(&text);
    return ok || error_set(body->err, ERROR_TOO_LARGE, "the body is too large");
}

/* ---- JSON ---- */

static bool put_json(struct body *body, const json_t *node);

/* A string that is exactly one input becomes that input's value, whatever its type. */
static bool put_json_string(struct body *body, const json_t *node)
{
    struct template_part part;
    if (is_input(body, node, &part) && !body->values->input_trial) {
        const json_t *value = template_value(&part, body->values);
        return value ? put_canonical(body, value)
                     : template_missing(&part, body->values, body->err);
    }
    put_literal(body, "\"");
    if (!put_template(body, json_string_value(node)))
        return false;
    put_literal(body, "\"");
    return true;
}

static bool put_json_member(struct body *body, const char *name, const json_t *value, bool *first)
{
    size_t len = place_enter(body, name);
    bool ok = name_check(body, name);
    if (ok && !is_left_out(body, value)) {
        put_literal(body, *first ? "\"" : ",\"");
        request_put_text(body->request, PLACE_BODY, name, strlen(name));
        put_literal(body, "\":");
        *first = false;
        ok = put_json(body, value);
    }
    place_leave(body, len);
    return ok;
}

static bool put_json_object(struct body *body, const json_t *object)
{
    const char **names;
    size_t count;
    bool first = true;
    if (!names_sorted(object, &names, &count, body->err))
        return false;
    bool ok = true;
    put_literal(body, "{");
    for (size_t i = 0; ok && i < count; i++)
        ok = put_json_member(body, names[i], json_object_get(object, names[i]), &first);
    put_literal(body, "}");
    free(names);
    return ok;
}

/* An input that was left out is refused in a list: the items behind it would move. */
static bool put_json_array(struct body *body, const json_t *array)
{
    bool ok = true;
    put_literal(body, "[");
    for (size_t i = 0; ok && i < json_array_size(array); i++) {
        char index[24];
        snprintf(index, sizeof(index), "%zu", i);
        size_t len = place_enter(body, index);
        if (i > 0)
            put_literal(body, ",");
        ok = put_json(body, json_array_get(array, i));
        place_leave(body, len);
    }
    put_literal(body, "]");
    return ok;
}

static bool put_json(struct body *body, const json_t *node)
{
    if (json_is_object(node))
        return put_json_object(body, node);
    if (json_is_array(node))
        return put_json_array(body, node);
    if (json_is_string(node))
        return put_json_string(body, node);
    return put_canonical(body, node);
}

/* ---- forms ---- */

/* A form has no null: such a member is left out, as is one whose input was left out or is null. */
static bool has_no_form_value(struct body *body, const json_t *node)
{
    struct template_part part;
    if (json_is_null(node) || is_left_out(body, node))
        return true;
    return !body->values->input_trial && is_input(body, node, &part) &&
           json_is_null(template_value(&part, body->values));
}

static bool put_form_value(struct body *body, const json_t *node)
{
    if (json_is_string(node))
        return put_template(body, json_string_value(node));
    if (json_is_object(node) || json_is_array(node))
        return body_fail(body, "a form is flat: its values are strings, numbers and booleans");
    return put_canonical(body, node);
}

static bool put_form_member(struct body *body, const char *name, const json_t *value, bool *first)
{
    size_t len = place_enter(body, name);
    bool ok = name_check(body, name);
    if (ok && !has_no_form_value(body, value)) {
        if (!*first)
            put_literal(body, "&");
        request_put_text(body->request, PLACE_BODY, name, strlen(name));
        put_literal(body, "=");
        *first = false;
        ok = put_form_value(body, value);
    }
    place_leave(body, len);
    return ok;
}

static bool put_form(struct body *body, const json_t *object)
{
    const char **names;
    size_t count;
    bool first = true;
    if (!names_sorted(object, &names, &count, body->err))
        return false;
    bool ok = true;
    for (size_t i = 0; ok && i < count; i++)
        ok = put_form_member(body, names[i], json_object_get(object, names[i]), &first);
    free(names);
    return ok;
}

bool body_put(const json_t *node, const struct template_values *values, struct request *request,
              struct error *err)
{
    struct body body = {request, values, err, "/bodyTemplate"};
    switch (request->format) {
    case BODY_JSON:
        return put_json(&body, node);
    case BODY_FORM:
        return put_form(&body, node);
    case BODY_TEXT:
        return put_template(&body, json_string_value(node));
    case BODY_NONE:
        break;
    }
    return true;
}
