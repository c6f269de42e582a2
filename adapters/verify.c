/* Checking verify rules, and matching them on what a read-back answered. */
#include "adapters/verify.h"

#include "adapters/path.h"
#include "adapters/shared.h"
#include "common/base/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define EQUALS_MAY (TEMPLATE_INPUT | TEMPLATE_RESPONSE | TEMPLATE_EFFECT_ID)

/* ---- checking ---- */

/* A read-back that is refused, throttled or broken says nothing about the write, so no rule may
 * take such an answer for a confirmation. */
static bool status_may_confirm(json_int_t status)
{
    return (status >= 200 && status <= 299) || status == 404 || status == 410;
}

static bool equals_check(const json_t *equals, const char *place, struct error *err)
{
    struct template template;
    if (!equals || json_is_object(equals) || json_is_array(equals))
        return error_set_at(err, ERROR_INVALID, place,
                            "must be a string, a number, a boolean or null");
    if (!json_is_string(equals) || !strstr(json_string_value(equals), "{{"))
        return true;
    return template_parse(json_string_value(equals), EQUALS_MAY, place, &template, err) &&
           (template_single(&template) ||
            error_set_at(err, ERROR_INVALID, place,
                         "must be a literal or exactly one {{input.PATH}}, {{response.PATH}} or"
                         " {{effect.id}}"));
}

static bool match_check(const json_t *match, const char *place, struct error *err)
{
    static const char *const members[] = {"path", "equals", "absent", NULL};
    char equals_place[sizeof(err->place)];
    if (!json_is_object(match))
        return error_set_at(err, ERROR_INVALID, place, "must be an object");
    if (!json_only_members(match, members, err))
        return error_put_under(err, place);
    const json_t *path = json_object_get(match, "path");
    if (!json_is_string(path) ||
        !path_valid(json_string_value(path), json_string_length(path), true)) {
        error_set_at(err, ERROR_INVALID, "/path",
                     "must be a dotted path such as data.status; * stands for any item of a list");
        return error_put_under(err, place);
    }
    const json_t *absent = json_object_get(match, "absent");
    if (absent && !json_is_boolean(absent) && !json_is_null(absent)) {
        error_set_at(err, ERROR_INVALID, "/absent", "must be true or false");
        return error_put_under(err, place);
    }
    snprintf(equals_place, sizeof(equals_place), "%s/equals", place);
    return equals_check(json_object_get(match, "equals"), equals_place, err);
}

static bool matches_check(const json_t *matches, struct error *err)
{
    if (!matches || json_is_null(matches))
        return true;
    if (!json_is_array(matches) || json_array_size(matches) > VERIFY_MATCHES_MAX)
        return error_set_at(err, ERROR_INVALID, "/verify/match", "must be a list of at most %d",
                            VERIFY_MATCHES_MAX);
    for (size_t i = 0; i < json_array_size(matches); i++) {
        char place[48];
        snprintf(place, sizeof(place), "/verify/match/%zu", i);
        if (!match_check(json_array_get(matches, i), place, err))
            return false;
    }
    return true;
}

bool verify_check(const json_t *verify, struct error *err)
{
    static const char *const members[] = {"url", "status", "match", NULL};
    if (!json_is_object(verify))
        return error_set_at(err, ERROR_INVALID, "/verify", "must be an object");
    if (!json_only_members(verify, members, err))
        return error_put_under(err, "/verify");
    if (!json_is_string(json_object_get(verify, "url")))
        return error_set_at(err, ERROR_INVALID, "/verify/url", "must be a string");
    const json_t *status = json_object_get(verify, "status");
    if (!json_is_integer(status) || !status_may_confirm(json_integer_value(status)))
        return error_set_at(err, ERROR_INVALID, "/verify/status",
                            "must be 200 to 299, 404 or 410; other answers prove nothing");
    return matches_check(json_object_get(verify, "match"), err);
}

/* ---- matching ---- */

/* Reads `equals` as a reference; false when it is a literal. */
static bool equals_reference(const json_t *equals, struct template_part *out)
{
    struct template template;
    const char *text = json_string_value(equals);
    if (!text || !strstr(text, "{{") || !template_parse(text, EQUALS_MAY, "", &template, NULL) ||
        !template_single(&template))
        return false;
    *out = template.parts[0];
    return true;
}

bool verify_ready(const json_t *verify, const struct template_values *values, struct error *err)
{
    const json_t *matches = json_object_get(verify, "match");
    for (size_t i = 0; i < json_array_size(matches); i++) {
        struct template_part part;
        const json_t *equals = json_object_get(json_array_get(matches, i), "equals");
        if (!equals_reference(equals, &part) || part.kind == TEMPLATE_EFFECT_ID)
            continue;
        bool trial = part.kind == TEMPLATE_RESPONSE ? values->response_trial : values->input_trial;
        if (!trial && !template_value(&part, values))
            return template_missing(&part, values, err);
    }
    return true;
}

/* What a value at the path is compared with: a JSON value or, for the effect id, a text. */
struct wanted {
    const json_t *value;
    const char *text;
};

/* By value, whether either is written as an integer or as a real; never through rounding. */
static bool numbers_equal(const json_t *a, const json_t *b)
{
    if (json_is_integer(a) && json_is_integer(b))
        return json_integer_value(a) == json_integer_value(b);
    if (json_is_real(a) && json_is_real(b))
        return json_real_value(a) == json_real_value(b);
    double real = json_real_value(json_is_real(a) ? a : b);
    json_int_t integer = json_integer_value(json_is_real(a) ? b : a);
    return real == floor(real) && real >= -0x1p63 && real < 0x1p63 && (json_int_t)real == integer;
}

static bool is_wanted(const json_t *value, const void *opaque)
{
    const struct wanted *wanted = opaque;
    if (wanted->text)
        return json_is_string(value) && strcmp(json_string_value(value), wanted->text) == 0;
    if (json_is_number(value) && json_is_number(wanted->value))
        return numbers_equal(value, wanted->value);
    return json_equal(value, wanted->value);
}

static bool match_holds(const json_t *match, const struct verify_values *values, const json_t *body)
{
    struct template_part part;
    const json_t *path = json_object_get(match, "path");
    struct wanted wanted = {json_object_get(match, "equals"), NULL};
    if (equals_reference(wanted.value, &part)) {
        bool is_id = part.kind == TEMPLATE_EFFECT_ID;
        wanted.text = is_id ? values->effect_id : NULL;
        wanted.value = is_id ? NULL : template_value(&part, &values->values);
    }
    bool found =
        path_any(body, json_string_value(path), json_string_length(path), is_wanted, &wanted);
    return found != json_is_true(json_object_get(match, "absent"));
}

static bool matches_hold(const json_t *matches, const struct verify_values *values,
                         const json_t *body)
{
    for (size_t i = 0; i < json_array_size(matches); i++)
        if (!match_holds(json_array_get(matches, i), values, body))
            return false;
    return true;
}

void verify_judge(const json_t *verify, const struct verify_values *values,
                  const struct answer *answer, const char *transport, struct read_back *read)
{
    const json_t *matches = json_object_get(verify, "match");
    int status = (int)json_integer_value(json_object_get(verify, "status"));
    if (!read_back_take(read, answer, transport, status))
        return;
    bool matched = answer->status == status;
    if (matched && json_array_size(matches) > 0) {
        json_t *body = answer_json(answer);
        if (!body) {
            read_back_conclude(read, READ_UNUSABLE,
                               "The answer to the read-back is not JSON, so its match rules can't"
                               " be checked.");
            return;
        }
        matched = matches_hold(matches, values, body);
        json_decref(body);
    }
    if (matched)
        read_back_conclude(read, READ_MATCH, "The read-back matched the declared verify rule.");
    else
        read_back_conclude(read, READ_NOT_FOUND,
                           "The read-back did not match the declared verify rule. That does not "
                           "prove the write failed, so the outcome stays unknown.");
}
