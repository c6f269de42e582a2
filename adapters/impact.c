/* Reading and evaluating impact declarations. */
#include "adapters/impact.h"

#include "adapters/path.h"
#include "adapters/shared.h"
#include "common/base/json.h"
#include "common/base/money.h"

#include <stdio.h>
#include <string.h>

/* An amount expression: (a fixed amount, or what an input holds or counts) * factor. */
struct amount {
    enum { AMOUNT_FIXED, AMOUNT_INPUT, AMOUNT_COUNT } kind;
    int64_t fixed;
    const char *path;
    size_t path_len;
    int64_t factor;
};

static void blanks_skip(const char **at)
{
    *at += strspn(*at, " ");
}

/* Digits without sign or leading zero, at most MONEY_MAX. */
static bool integer_read(const char **at, int64_t *out)
{
    size_t digits = strspn(*at, "0123456789");
    if (digits == 0 || (digits > 1 && **at == '0'))
        return false;
    int64_t number = 0;
    for (size_t i = 0; i < digits; i++)
        if (!money_multiply(number, 10, &number) || !money_add(number, (*at)[i] - '0', &number))
            return false;
    *at += digits;
    *out = number;
    return true;
}

/* "input.PATH", up to a blank, a star, a parenthesis or the end. */
static bool input_read(const char **at, struct amount *out)
{
    if (strncmp(*at, "input.", 6) != 0)
        return false;
    out->path = *at + 6;
    out->path_len = strcspn(out->path, " *()");
    *at = out->path + out->path_len;
    return path_valid(out->path, out->path_len, false);
}

static bool term_read(const char **at, struct amount *out)
{
    if (integer_read(at, &out->fixed)) {
        out->kind = AMOUNT_FIXED;
        return true;
    }
    if (strncmp(*at, "count(", 6) != 0) {
        out->kind = AMOUNT_INPUT;
        return input_read(at, out);
    }
    out->kind = AMOUNT_COUNT;
    *at += 6;
    blanks_skip(at);
    if (!input_read(at, out))
        return false;
    blanks_skip(at);
    return *(*at)++ == ')';
}

static bool expression_read(const char *text, struct amount *out)
{
    out->factor = 1;
    blanks_skip(&text);
    if (!term_read(&text, out))
        return false;
    blanks_skip(&text);
    if (*text == '*') {
        text++;
        blanks_skip(&text);
        if (!integer_read(&text, &out->factor))
            return false;
        blanks_skip(&text);
    }
    return *text == '\0';
}

/* The expression, which may also be written as a bare JSON integer. */
static bool amount_read(const json_t *value, struct amount *out)
{
    *out = (struct amount){.factor = 1};
    if (json_is_string(value))
        return expression_read(json_string_value(value), out);
    out->fixed = json_integer_value(value);
    return json_is_integer(value) && out->fixed >= 0 && out->fixed <= MONEY_MAX;
}

/* ---- checking ---- */

static bool dimension_valid(const char *name)
{
    size_t len = name ? strlen(name) : 0;
    return len > 0 && len <= 32 && name[0] >= 'a' && name[0] <= 'z' &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == len;
}

static bool unit_check(const char *dimension, const json_t *unit, struct error *err)
{
    const char *text = json_string_value(unit);
    if (strcmp(dimension, "money") == 0)
        return (text && money_currency_valid(text)) ||
               error_set_at(err, ERROR_INVALID, "/impact/unit",
                            "money needs its currency as three lower-case letters, such as usd");
    return !unit || json_is_null(unit) || (text && strcmp(text, dimension) == 0) ||
           error_set_at(err, ERROR_INVALID, "/impact/unit",
                        "the unit of %s is %s itself; leave it out", dimension, dimension);
}

static bool amount_check(const json_t *value, struct error *err)
{
    struct amount amount;
    int64_t product;
    if (!amount_read(value, &amount))
        return error_set_at(err, ERROR_INVALID, "/impact/amount",
                            "must be an integer, input.PATH or count(input.PATH), with one optional"
                            " * INTEGER");
    if (amount.kind == AMOUNT_FIXED && !money_multiply(amount.fixed, amount.factor, &product))
        return error_set_at(err, ERROR_INVALID, "/impact/amount", "the amount is past 2^53-1");
    return true;
}

bool impact_check(const json_t *declaration, struct error *err)
{
    static const char *const members[] = {"dimension", "unit", "amount", "bound", NULL};
    if (!json_is_object(declaration))
        return error_set_at(err, ERROR_INVALID, "/impact", "must be an object");
    if (!json_only_members(declaration, members, err))
        return error_put_under(err, "/impact");
    const char *dimension = json_string_value(json_object_get(declaration, "dimension"));
    if (!dimension_valid(dimension))
        return error_set_at(err, ERROR_INVALID, "/impact/dimension",
                            "must be money, resource_mutations or a name of a-z, 0-9 and _, at most"
                            " 32 long, that starts with a letter");
    const char *bound = json_string_value(json_object_get(declaration, "bound"));
    if (!bound || (strcmp(bound, "exact") != 0 && strcmp(bound, "upper_bound") != 0))
        return error_set_at(err, ERROR_INVALID, "/impact/bound", "must be exact or upper_bound");
    return unit_check(dimension, json_object_get(declaration, "unit"), err) &&
           amount_check(json_object_get(declaration, "amount"), err);
}

/* ---- evaluating ---- */

/* The term's number. *known is false when the input was left out. */
static bool term_evaluate(const struct amount *amount, const json_t *input, const char *place,
                          int64_t *number, bool *known, struct error *err)
{
    *known = true;
    *number = amount->fixed;
    if (amount->kind == AMOUNT_FIXED)
        return true;
    const json_t *value = path_find(input, amount->path, amount->path_len);
    *known = value != NULL;
    if (!value)
        return true;
    if (amount->kind == AMOUNT_INPUT)
        return json_amount(value, place, 0, MONEY_MAX, number, err);
    *number = (int64_t)json_array_size(value);
    return json_is_array(value) ||
           error_set_at(err, ERROR_INVALID, place, "must be a list, as its items are counted");
}

bool impact_evaluate(const json_t *declaration, const json_t *input, struct impact *out,
                     struct error *err)
{
    struct amount amount;
    char place[sizeof(err->place)] = "/input";
    const char *dimension = json_string_value(json_object_get(declaration, "dimension"));
    const char *unit = json_string_value(json_object_get(declaration, "unit"));
    const char *bound = json_string_value(json_object_get(declaration, "bound"));
    *out = (struct impact){.declared = true};
    if (!dimension || !bound || !amount_read(json_object_get(declaration, "amount"), &amount))
        return error_set_at(err, ERROR_INTERNAL, "/impact", "the stored declaration is not sound");
    snprintf(out->dimension, sizeof(out->dimension), "%s", dimension);
    snprintf(out->unit, sizeof(out->unit), "%s", unit ? unit : dimension);
    snprintf(out->bound, sizeof(out->bound), "%s", bound);
    int64_t number;
    if (amount.path)
        path_pointer("/input", amount.path, amount.path_len, place, sizeof(place));
    if (!term_evaluate(&amount, input, place, &number, &out->has_amount, err))
        return false;
    if (out->has_amount && !money_multiply(number, amount.factor, &out->amount))
        return error_set_at(err, ERROR_INVALID, place, "gives an amount past 2^53-1");
    return true;
}
