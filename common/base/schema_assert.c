/* The keywords that look at a value by itself: types, numbers, lengths, patterns, counts, names. */
#include "common/base/schema_run.h"

#include <stdio.h>
#include <string.h>

/* --- values of any type --- */

static unsigned value_types(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_NULL:
        return SCHEMA_TYPE_NULL;
    case JSON_TRUE:
    case JSON_FALSE:
        return SCHEMA_TYPE_BOOLEAN;
    case JSON_STRING:
        return SCHEMA_TYPE_STRING;
    case JSON_OBJECT:
        return SCHEMA_TYPE_OBJECT;
    case JSON_ARRAY:
        return SCHEMA_TYPE_ARRAY;
    default:
        return SCHEMA_TYPE_NUMBER | (schema_number_is_integer(value) ? SCHEMA_TYPE_INTEGER : 0);
    }
}

static bool check_type(struct schema_run *run, const struct schema_rule *rule,
                       const struct schema_spot *spot)
{
    return (value_types(spot->value) & rule->types) ||
           schema_run_fail(run, spot->place, "type: must be %s", rule->want);
}

static bool check_const(struct schema_run *run, const struct schema_rule *rule,
                        const struct schema_spot *spot)
{
    if (schema_value_equal(spot->value, rule->value, &run->work))
        return true;
    return schema_run_goes_on(run, spot->place) &&
           schema_run_fail(run, spot->place, "const: must be %s", rule->want);
}

static bool check_enum(struct schema_run *run, const struct schema_rule *rule,
                       const struct schema_spot *spot)
{
    for (size_t i = 0; i < json_array_size(rule->value); i++)
        if (schema_value_equal(spot->value, json_array_get(rule->value, i), &run->work))
            return true;
    return schema_run_goes_on(run, spot->place) &&
           schema_run_fail(run, spot->place, "enum: must be one of %s", rule->want);
}

/* --- numbers --- */

static bool number_fail(struct schema_run *run, const struct schema_rule *rule,
                        const struct schema_spot *spot, const char *want)
{
    char number[40] = "?";
    size_t size = json_dumpb(rule->value, number, sizeof(number) - 1, JSON_ENCODE_ANY);
    if (size < sizeof(number))
        number[size] = '\0';
    return schema_run_fail(run, spot->place, "%s: must be %s %s", rule->name, want, number);
}

static bool check_minimum(struct schema_run *run, const struct schema_rule *rule,
                          const struct schema_spot *spot)
{
    return !json_is_number(spot->value) || schema_number_compare(spot->value, rule->value) >= 0 ||
           number_fail(run, rule, spot, "at least");
}

static bool check_exclusive_minimum(struct schema_run *run, const struct schema_rule *rule,
                                    const struct schema_spot *spot)
{
    return !json_is_number(spot->value) || schema_number_compare(spot->value, rule->value) > 0 ||
           number_fail(run, rule, spot, "more than");
}

static bool check_maximum(struct schema_run *run, const struct schema_rule *rule,
                          const struct schema_spot *spot)
{
    return !json_is_number(spot->value) || schema_number_compare(spot->value, rule->value) <= 0 ||
           number_fail(run, rule, spot, "at most");
}

static bool check_exclusive_maximum(struct schema_run *run, const struct schema_rule *rule,
                                    const struct schema_spot *spot)
{
    return !json_is_number(spot->value) || schema_number_compare(spot->value, rule->value) < 0 ||
           number_fail(run, rule, spot, "less than");
}

static bool check_multiple_of(struct schema_run *run, const struct schema_rule *rule,
                              const struct schema_spot *spot)
{
    if (!json_is_number(spot->value))
        return true;
    bool decimal = json_is_real(spot->value) || json_is_real(rule->value); /* costs more */
    if (decimal && !schema_run_charge(run, spot->place, 8))
        return false;
    return schema_number_is_multiple(spot->value, rule->value) ||
           number_fail(run, rule, spot, "a multiple of");
}

/* --- strings --- */

/* Counts code points, not bytes. */
static bool text_length(struct schema_run *run, const struct schema_spot *spot, size_t *length)
{
    const char *text = json_string_value(spot->value);
    size_t len = json_string_length(spot->value);
    *length = 0;
    for (size_t i = 0; i < len; i++)
        *length += ((unsigned char)text[i] & 0xc0) != 0x80;
    return schema_run_charge(run, spot->place, len / 64);
}

static bool check_min_length(struct schema_run *run, const struct schema_rule *rule,
                             const struct schema_spot *spot)
{
    size_t length;
    if (!json_is_string(spot->value))
        return true;
    if (!text_length(run, spot, &length))
        return false;
    return length >= rule->limit ||
           schema_run_fail(run, spot->place, "minLength: must have at least %zu characters",
                           rule->limit);
}

static bool check_max_length(struct schema_run *run, const struct schema_rule *rule,
                             const struct schema_spot *spot)
{
    size_t length;
    if (!json_is_string(spot->value))
        return true;
    if (!text_length(run, spot, &length))
        return false;
    return length <= rule->limit ||
           schema_run_fail(run, spot->place, "maxLength: must have at most %zu characters",
                           rule->limit);
}

static bool check_pattern(struct schema_run *run, const struct schema_rule *rule,
                          const struct schema_spot *spot)
{
    if (!json_is_string(spot->value) ||
        schema_run_matches(run, rule->pattern, json_string_value(spot->value),
                           json_string_length(spot->value), spot->place))
        return true;
    return schema_run_fail(
        run, spot->place, "pattern: must match %.*s",
        schema_text_fit(json_string_value(rule->value), json_string_length(rule->value), 200),
        json_string_value(rule->value));
}

/* --- arrays --- */

static bool check_min_items(struct schema_run *run, const struct schema_rule *rule,
                            const struct schema_spot *spot)
{
    return !json_is_array(spot->value) || json_array_size(spot->value) >= rule->limit ||
           schema_run_fail(run, spot->place, "minItems: must have at least %zu items", rule->limit);
}

static bool check_max_items(struct schema_run *run, const struct schema_rule *rule,
                            const struct schema_spot *spot)
{
    return !json_is_array(spot->value) || json_array_size(spot->value) <= rule->limit ||
           schema_run_fail(run, spot->place, "maxItems: must have at most %zu items", rule->limit);
}

static bool check_unique_items(struct schema_run *run, const struct schema_rule *rule,
                               const struct schema_spot *spot)
{
    size_t first = 0, second = 0;
    if (!json_is_array(spot->value) || !json_is_true(rule->value))
        return true;
    enum schema_unique unique = schema_items_unique(spot->value, &run->work, &first, &second);
    if (unique == SCHEMA_UNIQUE_NO_MEMORY)
        return schema_run_stop(run, spot->place, ERROR_MEMORY, "no memory to validate");
    if (!schema_run_goes_on(run, spot->place))
        return false;
    return unique == SCHEMA_UNIQUE ||
           schema_run_fail(run, spot->place, "uniqueItems: items %zu and %zu are equal", first,
                           second);
}

/* --- objects --- */

static bool check_min_properties(struct schema_run *run, const struct schema_rule *rule,
                                 const struct schema_spot *spot)
{
    return !json_is_object(spot->value) || json_object_size(spot->value) >= rule->limit ||
           schema_run_fail(run, spot->place, "minProperties: must have at least %zu members",
                           rule->limit);
}

static bool check_max_properties(struct schema_run *run, const struct schema_rule *rule,
                                 const struct schema_spot *spot)
{
    return !json_is_object(spot->value) || json_object_size(spot->value) <= rule->limit ||
           schema_run_fail(run, spot->place, "maxProperties: must have at most %zu members",
                           rule->limit);
}

static bool names_present(struct schema_run *run, const char *keyword, const json_t *names,
                          const struct schema_spot *spot)
{
    if (!schema_run_charge(run, spot->place, json_array_size(names)))
        return false;
    for (size_t i = 0; i < json_array_size(names); i++) {
        const json_t *name = json_array_get(names, i);
        const char *text = json_string_value(name);
        size_t len = json_string_length(name);
        if (!json_object_getn(spot->value, text, len))
            return schema_run_fail(run, spot->place, "%s: \"%.*s\" is missing", keyword,
                                   schema_text_fit(text, len, 200), text);
    }
    return true;
}

static bool check_required(struct schema_run *run, const struct schema_rule *rule,
                           const struct schema_spot *spot)
{
    return !json_is_object(spot->value) || names_present(run, rule->name, rule->value, spot);
}

static bool check_dependent_required(struct schema_run *run, const struct schema_rule *rule,
                                     const struct schema_spot *spot)
{
    const char *name;
    size_t len;
    json_t *names;
    if (!json_is_object(spot->value))
        return true;
    json_object_keylen_foreach((json_t *)rule->value, name, len, names)
    {
        if (!schema_run_charge(run, spot->place, 1))
            return false;
        if (json_object_getn(spot->value, name, len) &&
            !names_present(run, rule->name, names, spot))
            return false;
    }
    return true;
}

static const schema_rule_check assertions[KEYWORD_RULES] = {
    [KEYWORD_TYPE] = check_type,
    [KEYWORD_CONST] = check_const,
    [KEYWORD_ENUM] = check_enum,
    [KEYWORD_MINIMUM] = check_minimum,
    [KEYWORD_EXCLUSIVE_MINIMUM] = check_exclusive_minimum,
    [KEYWORD_MAXIMUM] = check_maximum,
    [KEYWORD_EXCLUSIVE_MAXIMUM] = check_exclusive_maximum,
    [KEYWORD_MULTIPLE_OF] = check_multiple_of,
    [KEYWORD_MIN_LENGTH] = check_min_length,
    [KEYWORD_MAX_LENGTH] = check_max_length,
    [KEYWORD_PATTERN] = check_pattern,
    [KEYWORD_MIN_ITEMS] = check_min_items,
    [KEYWORD_MAX_ITEMS] = check_max_items,
    [KEYWORD_UNIQUE_ITEMS] = check_unique_items,
    [KEYWORD_MIN_PROPERTIES] = check_min_properties,
    [KEYWORD_MAX_PROPERTIES] = check_max_properties,
    [KEYWORD_REQUIRED] = check_required,
    [KEYWORD_DEPENDENT_REQUIRED] = check_dependent_required,
};

schema_rule_check schema_assertion(enum schema_keyword keyword)
{
    return assertions[keyword];
}
