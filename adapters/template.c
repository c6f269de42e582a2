/* Parsing templates, and putting their values where they stand. */
#include "adapters/template.h"

#include "adapters/path.h"
#include "adapters/shared.h"
#include "common/base/json.h"
#include "common/http/escape.h"

#include <stdio.h>
#include <string.h>

/* ---- parsing ---- */

static bool starts_with(const char *text, size_t len, const char *prefix)
{
    size_t prefix_len = strlen(prefix);
    return len >= prefix_len && memcmp(text, prefix, prefix_len) == 0;
}

/* Reads what stands between the braces. False when it is no reference at all. */
static bool reference_read(const char *text, size_t len, struct template_part *out)
{
    static const struct {
        const char *prefix;
        enum template_kind kind;
    } kinds[] = {{"input.", TEMPLATE_INPUT},
                 {"response.", TEMPLATE_RESPONSE},
                 {"secret:", TEMPLATE_SECRET},
                 {"effect.id", TEMPLATE_EFFECT_ID}};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (!starts_with(text, len, kinds[i].prefix))
            continue;
        size_t skip = strlen(kinds[i].prefix);
        *out = (struct template_part){kinds[i].kind, text + skip, len - skip};
        if (out->kind == TEMPLATE_SECRET)
            return secret_name_allowed(out->text, out->len);
        if (out->kind == TEMPLATE_EFFECT_ID)
            return out->len == 0;
        return path_valid(out->text, out->len, false);
    }
    return false;
}

static bool part_add(struct template *template, struct template_part part, const char *place,
                     struct error *err)
{
    if (part.kind == TEMPLATE_TEXT && part.len == 0)
        return true;
    if (template->count == TEMPLATE_PARTS_MAX)
        return error_set_at(err, ERROR_INVALID, place, "the template has more than %d parts",
                            TEMPLATE_PARTS_MAX);
    template->parts[template->count++] = part;
    return true;
}

static bool reference_add(struct template *template, const char *text, size_t len, unsigned allowed,
                          const char *place, struct error *err)
{
    struct template_part part;
    int shown = len < 64 ? (int)len : 64;
    if (!reference_read(text, len, &part))
        return error_set_at(
            err, ERROR_INVALID, place,
            "{{%.*s}} is not known; write {{input.PATH}}, {{secret:NAME}} (upper case)"
            " or {{effect.id}}, without blanks",
            shown, text);
    if (!(part.kind & allowed))
        return error_set_at(err, ERROR_INVALID, place, "{{%.*s}} can't stand here", shown, text);
    return part_add(template, part, place, err);
}

bool template_parse(const char *source, unsigned allowed, const char *place, struct template *out,
                    struct error *err)
{
    out->count = 0;
    for (;;) {
        const char *open = strstr(source, "{{");
        size_t len = open ? (size_t)(open - source) : strlen(source);
        if (!part_add(out, (struct template_part){TEMPLATE_TEXT, source, len}, place, err))
            return false;
        if (!open)
            return true;
        const char *close = strstr(open, "}}");
        if (!close)
            return error_set_at(err, ERROR_INVALID, place, "a {{ is never closed");
        if (!reference_add(out, open + 2, (size_t)(close - open) - 2, allowed, place, err))
            return false;
        source = close + 2;
    }
}

/* ---- values ---- */

const struct template_part *template_single(const struct template *template)
{
    bool single = template->count == 1 && template->parts[0].kind != TEMPLATE_TEXT;
    return single ? &template->parts[0] : NULL;
}

const json_t *template_value(const struct template_part *part, const struct template_values *values)
{
    const json_t *root = part->kind == TEMPLATE_RESPONSE ? values->response : values->input;
    return path_find(root, part->text, part->len);
}

static bool is_trial(const struct template_part *part, const struct template_values *values)
{
    return part->kind == TEMPLATE_RESPONSE ? values->response_trial : values->input_trial;
}

bool template_missing(const struct template_part *part, const struct template_values *values,
                      struct error *err)
{
    char place[sizeof(err->place)];
    if (part->kind == TEMPLATE_RESPONSE)
        return error_set_at(
            err, ERROR_INVALID, "/response", "The read-back needs response.%.*s, and %s.",
            (int)part->len, part->text,
            values->response ? "the answer that was kept does not hold it" : "no answer was kept");
    path_pointer("/input", part->text, part->len, place, sizeof(place));
    return error_set_at(err, ERROR_INVALID, place, "input.%.*s is needed and missing",
                        (int)part->len, part->text);
}

static bool part_fail(const struct template_part *part, struct error *err, const char *sentence)
{
    char place[sizeof(err->place)];
    const char *root = part->kind == TEMPLATE_RESPONSE ? "/response" : "/input";
    path_pointer(root, part->text, part->len, place, sizeof(place));
    return error_set_at(err, ERROR_INVALID, place, "%s.%.*s %s", root + 1, (int)part->len,
                        part->text, sentence);
}

/* Appends a value's text: a string as it is, a number or boolean in canonical form. */
static bool value_text(const struct template_part *part, const json_t *value, struct buf *out,
                       struct error *err)
{
    bool ok;
    if (json_is_string(value))
        ok = buf_put(out, json_string_value(value), json_string_length(value));
    else if (json_is_number(value) || json_is_boolean(value))
        ok = json_canonical(value, out);
    else
        return part_fail(part, err, "must be a string, a number or a boolean to stand in text");
    return ok || error_set(err, ERROR_MEMORY, "out of memory for a value");
}

/* ---- putting ---- */

/* Whether part `at` of a URL lies before the query. */
static bool stands_in_path(const struct template *template, size_t at)
{
    for (size_t i = 0; i < at; i++)
        if (template->parts[i].kind == TEMPLATE_TEXT &&
            memchr(template->parts[i].text, '?', template->parts[i].len))
            return false;
    return true;
}

/* Whether part `at` of a path is a whole segment: bounded by slashes or the path's ends. */
static bool is_whole_segment(const struct template *template, size_t at)
{
    const struct template_part *before = at > 0 ? &template->parts[at - 1] : NULL;
    const struct template_part *after = at + 1 < template->count ? &template->parts[at + 1] : NULL;
    bool opens = !before || (before->kind == TEMPLATE_TEXT && before->text[before->len - 1] == '/');
    bool closes = !after || (after->kind == TEMPLATE_TEXT && strchr("/?", after->text[0]));
    return opens && closes;
}

static bool is_dots(const struct buf *text)
{
    return strcmp(text->data, ".") == 0 || strcmp(text->data, "..") == 0;
}

/* Refuses here, where the input's name is known, what the request would refuse without it. */
static bool value_may_stand(const struct template *template, size_t at, enum place place,
                            const struct buf *text, struct error *err)
{
    const struct template_part *part = &template->parts[at];
    if (place == PLACE_HEADER && text_has_control(text->data, text->len))
        return part_fail(part, err, "holds a control character and can't stand in a header");
    if (place != PLACE_URL || !stands_in_path(template, at))
        return true;
    if (text->len == 0)
        return part_fail(part, err, "is empty and can't stand in the path of a URL");
    if (is_dots(text) && is_whole_segment(template, at))
        return part_fail(part, err, "can't be . or .. in the path of a URL");
    return true;
}

static bool value_put(const struct template *template, size_t at,
                      const struct template_values *values, enum place place,
                      struct request *request, struct error *err)
{
    const struct template_part *part = &template->parts[at];
    if (is_trial(part, values)) {
        request_put_text(request, place, "x", 1);
        return true;
    }
    const json_t *value = template_value(part, values);
    if (!value)
        return template_missing(part, values, err);
    struct buf text;
    buf_init(&text, REQUEST_BODY_MAX);
    bool ok =
        value_text(part, value, &text, err) && value_may_stand(template, at, place, &text, err);
    if (ok)
        request_put_text(request, place, text.data, text.len);
    buf_free(&text);
    return ok;
}

static void secret_put(const struct template_part *part, enum place place, struct request *request)
{
    char name[SECRET_NAME_MAX + 1];
    snprintf(name, sizeof(name), "%.*s", (int)part->len, part->text);
    request_put_secret(request, place, name);
}

bool template_put(const struct template *template, const struct template_values *values,
                  enum place place, struct request *request, struct error *err)
{
    for (size_t i = 0; i < template->count; i++) {
        const struct template_part *part = &template->parts[i];
        switch (part->kind) {
        case TEMPLATE_TEXT:
            /* The author writes a URL already encoded; everything else is text to be escaped. */
            if (place == PLACE_URL)
                request_put_literal(request, place, part->text, part->len);
            else
                request_put_text(request, place, part->text, part->len);
            break;
        case TEMPLATE_SECRET:
            secret_put(part, place, request);
            break;
        case TEMPLATE_EFFECT_ID:
            request_put_effect_id(request, place);
            break;
        case TEMPLATE_INPUT:
        case TEMPLATE_RESPONSE:
            if (!value_put(template, i, values, place, request, err))
                return false;
            break;
        }
    }
    return true;
}
