/* Strict JSON in: one scan for what jansson lets pass (numbers that no double holds, nesting), then
 * jansson for the grammar, UTF-8 and duplicates. Sentences never quote the input. */
#include "common/base/json.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char nul_sentence[] = "the JSON holds a NUL character";
static const char exact_sentence[] = "a number is outside the range that can be held exactly";

/* A position in the text, for messages. Columns count characters, as jansson's do. */
struct scanner {
    const char *text;
    size_t len;
    size_t at;
    size_t line_start;
    int line;
    int depth;
};

static bool scan_fail(const struct scanner *s, struct error *err, const char *sentence)
{
    char place[64];
    int column = 1;
    for (size_t i = s->line_start; i < s->at; i++)
        column += ((unsigned char)s->text[i] & 0xc0) != 0x80;
    snprintf(place, sizeof(place), "line %d column %d", s->line, column);
    return error_set_at(err, ERROR_INVALID, place, "%s", sentence);
}

/* Steps over a string; the closing quote may be missing, which the parser will say. */
static bool scan_string(struct scanner *s, struct error *err)
{
    for (s->at++; s->at < s->len && s->text[s->at] != '"'; s->at++) {
        if (s->text[s->at] == '\0')
            return scan_fail(s, err, nul_sentence);
        if (s->text[s->at] == '\\')
            s->at++;
    }
    s->at++;
    return true;
}

/* The magnitude of an integer literal is compared digit by digit: it may be longer than any
 * integer. */
static bool integer_is_exact(const char *digits, size_t len)
{
    int64_t magnitude = 0;
    for (size_t i = 0; i < len; i++) {
        magnitude = magnitude * 10 + (digits[i] - '0');
        if (magnitude > JSON_EXACT_MAX)
            return false;
    }
    return true;
}

/* A real may be any double but one that stands for an integer past 2^53-1 (every double that large
 * is one), an infinity, or a zero that was not written as one. */
static bool real_is_exact(const char *literal, size_t len)
{
    double value = strtod(literal, NULL);
    if (!isfinite(value) || fabs(value) > (double)JSON_EXACT_MAX)
        return false;
    if (value != 0)
        return true;
    size_t mantissa = 0;
    while (mantissa < len && literal[mantissa] != 'e' && literal[mantissa] != 'E')
        mantissa++;
    return strcspn(literal, "123456789") >= mantissa;
}

/* Checks the number literal at s->at and steps over it. Its grammar is the parser's business. */
static bool scan_number(struct scanner *s, struct error *err)
{
    char fixed[64];
    const char *start = s->text + s->at;
    size_t len = 0;
    while (s->at + len < s->len && start[len] && strchr("+-.0123456789eE", start[len]))
        len++;
    size_t sign = *start == '-';
    bool real = memchr(start, '.', len) || memchr(start, 'e', len) || memchr(start, 'E', len);
    bool exact;
    if (!real) {
        size_t digits = 0;
        while (sign + digits < len && start[sign + digits] >= '0' && start[sign + digits] <= '9')
            digits++;
        exact = integer_is_exact(start + sign, digits);
    } else {
        /* strtod wants a terminator, and the text need not have one behind the number. */
        char *literal = len < sizeof(fixed) ? fixed : malloc(len + 1);
        if (!literal)
            return error_set(err, ERROR_MEMORY, "out of memory while reading JSON");
        memcpy(literal, start, len);
        literal[len] = '\0';
        exact = real_is_exact(literal, len);
        if (literal != fixed)
            free(literal);
    }
    if (!exact)
        return scan_fail(s, err, exact_sentence);
    s->at += len;
    return true;
}

static bool scan_text(struct scanner *s, struct error *err)
{
    while (s->at < s->len) {
        char c = s->text[s->at];
        if (c == '"') {
            if (!scan_string(s, err))
                return false;
            continue;
        }
        if (c == '-' || (c >= '0' && c <= '9')) {
            if (!scan_number(s, err))
                return false;
            continue;
        }
        if ((c == '[' || c == '{') && ++s->depth > JSON_DEPTH_MAX)
            return scan_fail(s, err, "the JSON is nested more than 64 levels deep");
        if (c == ']' || c == '}')
            s->depth--;
        if (c == '\0')
            return scan_fail(s, err, nul_sentence);
        s->at++;
        if (c == '\n') {
            s->line++;
            s->line_start = s->at;
        }
    }
    return true;
}

static const char *parse_error_sentence(enum json_error_code code)
{
    switch (code) {
    case json_error_invalid_utf8:
        return "the JSON is not valid UTF-8";
    case json_error_premature_end_of_input:
        return "the JSON ends too early";
    case json_error_end_of_input_expected:
        return "something follows the JSON value";
    case json_error_null_character:
    case json_error_null_byte_in_key:
        return nul_sentence;
    case json_error_duplicate_key:
        return "an object has two members of the same name";
    case json_error_numeric_overflow:
        return exact_sentence;
    default:
        return "the text is not valid JSON";
    }
}

json_t *json_parse_strict(const char *text, size_t len, struct error *err)
{
    struct scanner s = {.text = text, .len = len, .line = 1};
    json_error_t failure;
    if (!scan_text(&s, err))
        return NULL;
    json_t *value = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &failure);
    if (value)
        return value;
    enum json_error_code code = json_error_code(&failure);
    if (code == json_error_out_of_memory) {
        error_set(err, ERROR_MEMORY, "out of memory while reading JSON");
        return NULL;
    }
    char place[64];
    snprintf(place, sizeof(place), "line %d column %d", failure.line, failure.column);
    error_set_at(err, ERROR_INVALID, place, "%s", parse_error_sentence(code));
    return NULL;
}

json_t *json_parse_object(const char *text, size_t len, struct error *err)
{
    json_t *value = json_parse_strict(text, len, err);
    if (!value || json_is_object(value))
        return value;
    json_decref(value);
    error_set_at(err, ERROR_INVALID, "line 1 column 1", "the JSON value must be an object");
    return NULL;
}
