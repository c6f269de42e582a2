/* Regular expressions of schemas: translates the dialect that JSON Schema names (ECMA-262, unicode
 * mode) to PCRE2's, refuses what only one of the two knows, and matches with every step counted. */
#include "common/base/schema_internal.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* White space as ECMA-262 has it (WhiteSpace and LineTerminator), and everything else. */
#define SPACES                                                                                     \
    "\\x09-\\x0d\\x20\\xa0\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{"    \
    "3000}\\x{feff}"
#define NOT_SPACES                                                                                 \
    "\\x00-\\x08\\x0e-\\x1f\\x21-\\x9f\\xa1-\\x{167f}\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}"       \
    "\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{fefe}"                 \
    "\\x{ff00}-\\x{10ffff}"
#define NOT_LINE_END "[^\\n\\r\\x{2028}\\x{2029}]"

struct translation {
    const char *at; /* the next byte of the pattern */
    const char *end;
    struct buf out;
    unsigned least_repeat; /* the largest n of any {n} */
    char *why;
    size_t why_size;
};

static bool refuse(struct translation *t, const char *why)
{
    snprintf(t->why, t->why_size, "%s", why);
    return false;
}

static bool next_is(const struct translation *t, char c)
{
    return t->at < t->end && *t->at == c;
}

/* Reads up to `most` hexadecimal digits; returns how many there were. */
static int read_hex(struct translation *t, int most, unsigned *value)
{
    int count = 0;
    for (*value = 0; count < most && t->at < t->end && isxdigit((unsigned char)*t->at); count++) {
        int c = tolower((unsigned char)*t->at++);
        *value = *value * 16 + (unsigned)(isdigit(c) ? c - '0' : c - 'a' + 10);
    }
    return count;
}

static bool put_code_point(struct translation *t, unsigned value)
{
    if (value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff))
        return refuse(t, "an escape names no Unicode character");
    return buf_printf(&t->out, "\\x{%x}", value);
}

/* After \u: {H...}, or HHHH where two may be the halves of one character. */
static bool translate_unicode(struct translation *t)
{
    unsigned value;
    if (next_is(t, '{')) {
        t->at++;
        if (read_hex(t, 6, &value) == 0 || !next_is(t, '}'))
            return refuse(t, "\\u{ needs 1 to 6 hexadecimal digits and }");
        t->at++;
        return put_code_point(t, value);
    }
    if (read_hex(t, 4, &value) != 4)
        return refuse(t, "\\u needs 4 hexadecimal digits");
    bool low_follows = t->end - t->at >= 6 && t->at[0] == '\\' && t->at[1] == 'u';
    if (value >= 0xd800 && value <= 0xdbff && low_follows) {
        unsigned low;
        t->at += 2;
        if (read_hex(t, 4, &low) != 4 || low < 0xdc00 || low > 0xdfff)
            return refuse(t, "an escape names half of a character");
        value = 0x10000 + ((value - 0xd800) << 10) + (low - 0xdc00);
    }
    return put_code_point(t, value);
}

/* PCRE2 knows general categories by their short names only. */
static const char *category_short(const char *name)
{
    static const char *const names[][2] = {
        {"Cased_Letter", "L&"},
        {"LC", "L&"},
        {"Close_Punctuation", "Pe"},
        {"Combining_Mark", "M"},
        {"Connector_Punctuation", "Pc"},
        {"Control", "Cc"},
        {"Currency_Symbol", "Sc"},
        {"Dash_Punctuation", "Pd"},
        {"Decimal_Number", "Nd"},
        {"Enclosing_Mark", "Me"},
        {"Final_Punctuation", "Pf"},
        {"Format", "Cf"},
        {"Initial_Punctuation", "Pi"},
        {"Letter", "L"},
        {"Letter_Number", "Nl"},
        {"Line_Separator", "Zl"},
        {"Lowercase_Letter", "Ll"},
        {"Mark", "M"},
        {"Math_Symbol", "Sm"},
        {"Modifier_Letter", "Lm"},
        {"Modifier_Symbol", "Sk"},
        {"Nonspacing_Mark", "Mn"},
        {"Number", "N"},
        {"Open_Punctuation", "Ps"},
        {"Other", "C"},
        {"Other_Letter", "Lo"},
        {"Other_Number", "No"},
        {"Other_Punctuation", "Po"},
        {"Other_Symbol", "So"},
        {"Paragraph_Separator", "Zp"},
        {"Private_Use", "Co"},
        {"Punctuation", "P"},
        {"Separator", "Z"},
        {"Space_Separator", "Zs"},
        {"Spacing_Mark", "Mc"},
        {"Surrogate", "Cs"},
        {"Symbol", "S"},
        {"Titlecase_Letter", "Lt"},
        {"Unassigned", "Cn"},
        {"Uppercase_Letter", "Lu"},
        {"cntrl", "Cc"},
        {"digit", "Nd"},
        {"punct", "P"},
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(names[i][0], name) == 0)
            return names[i][1];
    return name;
}

/* After \p or \P: {Name} or {Kind=Name}. */
static bool translate_property(struct translation *t, char letter)
{
    static const char *const kinds[][2] = {
        {"General_Category=", ""},      {"gc=", ""},      {"Script=", "sc:"}, {"sc=", "sc:"},
        {"Script_Extensions=", "scx:"}, {"scx=", "scx:"},
    };
    char text[64];
    const char *close = memchr(t->at, '}', (size_t)(t->end - t->at));
    if (!next_is(t, '{') || !close || (size_t)(close - t->at) > sizeof(text))
        return refuse(t, "\\p needs a property name in braces");
    size_t len = (size_t)(close - t->at) - 1;
    memcpy(text, t->at + 1, len);
    text[len] = '\0';
    t->at = close + 1;

    const char *name = text;
    const char *kind = "";
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]) && name == text; i++) {
        size_t prefix = strlen(kinds[i][0]);
        if (strncmp(text, kinds[i][0], prefix) == 0) {
            name = text + prefix;
            kind = kinds[i][1];
        }
    }
    if (!*name ||
        name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789")])
        return refuse(t, "\\p needs a property name in braces");
    return buf_printf(&t->out, "\\%c{%s%s}", letter, kind, *kind ? name : category_short(name));
}

static bool translate_back_reference(struct translation *t)
{
    unsigned number = 0;
    while (t->at < t->end && isdigit((unsigned char)*t->at) && number < 1000)
        number = number * 10 + (unsigned)(*t->at++ - '0');
    return buf_printf(&t->out, "\\g{%u}", number);
}

static bool translate_name(struct translation *t)
{
    const char *from = t->at++; /* stands on '<' */
    while (t->at < t->end && (isalnum((unsigned char)*t->at) || *t->at == '_'))
        t->at++;
    if (!next_is(t, '>'))
        return refuse(t, "a group name may only hold letters, digits and _");
    t->at++;
    return buf_put(&t->out, from, (size_t)(t->at - from));
}

static bool translate_control(struct translation *t)
{
    if (t->at == t->end || !isalpha((unsigned char)*t->at))
        return refuse(t, "\\c needs a letter");
    return buf_printf(&t->out, "\\x%02x", (unsigned)*t->at++ & 0x1f);
}

/* Escapes that mean the same character inside a class and outside. */
static bool translate_character_escape(struct translation *t, char c)
{
    unsigned value;
    switch (c) {
    case 't':
    case 'n':
    case 'r':
    case 'f':
        return buf_printf(&t->out, "\\%c", c);
    case 'v':
        return buf_puts(&t->out, "\\x0b");
    case 'c':
        return translate_control(t);
    case '0':
        if (t->at < t->end && isdigit((unsigned char)*t->at))
            return refuse(t, "octal escapes are not part of ECMA-262");
        return buf_puts(&t->out, "\\x00");
    case 'x':
        if (read_hex(t, 2, &value) != 2)
            return refuse(t, "\\x needs 2 hexadecimal digits");
        return put_code_point(t, value);
    case 'u':
        return translate_unicode(t);
    default:
        if (!ispunct((unsigned char)c) && c != ' ')
            return refuse(t, "an escape is not part of ECMA-262");
        return buf_printf(&t->out, "\\%c", c);
    }
}

static bool translate_escape(struct translation *t, bool in_class)
{
    if (t->at == t->end)
        return refuse(t, "\\ at the end");
    char c = *t->at++;
    switch (c) {
    case 'd':
    case 'D':
    case 'w':
    case 'W':
        return buf_printf(&t->out, "\\%c", c);
    case 's':
        return buf_puts(&t->out, in_class ? SPACES : "[" SPACES "]");
    case 'S':
        return buf_puts(&t->out, in_class ? NOT_SPACES : "[^" SPACES "]");
    case 'p':
    case 'P':
        return translate_property(t, c);
    case 'b':
        return buf_puts(&t->out, in_class ? "\\x08" : "\\b");
    case 'B':
        return in_class ? refuse(t, "\\B inside a class") : buf_puts(&t->out, "\\B");
    case 'k':
        if (in_class || !next_is(t, '<'))
            return refuse(t, "\\k needs a group name");
        return buf_puts(&t->out, "\\k") && translate_name(t);
    default:
        if (c >= '1' && c <= '9' && !in_class) {
            t->at--;
            return translate_back_reference(t);
        }
        return translate_character_escape(t, c);
    }
}

/* After '['. */
static bool translate_class(struct translation *t)
{
    buf_puts(&t->out, "[");
    if (next_is(t, '^'))
        buf_put(&t->out, t->at++, 1);
    while (t->at < t->end && *t->at != ']') {
        char c = *t->at++;
        if (c == '\\') {
            if (!translate_escape(t, true))
                return false;
        } else if (c == '[') {
            buf_puts(&t->out, "\\["); /* would begin a POSIX class */
        } else {
            buf_put(&t->out, &c, 1);
        }
    }
    if (t->at == t->end)
        return refuse(t, "a class is not closed");
    t->at++;
    return buf_puts(&t->out, "]");
}

/* After '('. */
static bool translate_group(struct translation *t)
{
    buf_puts(&t->out, "(");
    if (next_is(t, '*'))
        return refuse(t, "nothing to repeat");
    if (!next_is(t, '?'))
        return true;
    buf_put(&t->out, t->at++, 1);
    char kind = '\0';
    if (t->at < t->end)
        kind = *t->at;
    bool behind = kind == '<' && t->end - t->at >= 2 && (t->at[1] == '=' || t->at[1] == '!');
    if (kind == '<' && !behind)
        return translate_name(t);
    if (!behind && kind != ':' && kind != '=' && kind != '!')
        return refuse(t, "a kind of group is not part of ECMA-262");
    size_t len = behind ? 2 : 1;
    buf_put(&t->out, t->at, len);
    t->at += len;
    return true;
}

/* The length of {n}, {n,} or {n,m} at `at`, 0 when a brace there is a plain character. */
static size_t braces_length(const char *at, const char *end)
{
    const char *from = at;
    if (at == end || *at++ != '{' || at == end || !isdigit((unsigned char)*at))
        return 0;
    while (at < end && isdigit((unsigned char)*at))
        at++;
    if (at < end && *at == ',')
        at++;
    while (at < end && isdigit((unsigned char)*at))
        at++;
    return at < end && *at == '}' ? (size_t)(at + 1 - from) : 0;
}

/* A quantifier of `len` bytes at t->at, and the '?' that makes it lazy. A second quantifier would
 * make it possessive in PCRE2 and is an error in ECMA-262. */
static bool translate_quantifier(struct translation *t, size_t len)
{
    unsigned least = 0;
    for (size_t i = 1; i < len && isdigit((unsigned char)t->at[i]) && least < 100000; i++)
        least = least * 10 + (unsigned)(t->at[i] - '0');
    t->least_repeat = least > t->least_repeat ? least : t->least_repeat;
    buf_put(&t->out, t->at, len);
    t->at += len;
    if (next_is(t, '?'))
        buf_put(&t->out, t->at++, 1);
    if (next_is(t, '*') || next_is(t, '+') || next_is(t, '?') || braces_length(t->at, t->end))
        return refuse(t, "nothing to repeat");
    return true;
}

static bool translate_one(struct translation *t)
{
    size_t braces = braces_length(t->at, t->end);
    if (braces)
        return translate_quantifier(t, braces);
    switch (*t->at) {
    case '*':
    case '+':
    case '?':
        return translate_quantifier(t, 1);
    case '\\':
        t->at++;
        return translate_escape(t, false);
    case '[':
        t->at++;
        return translate_class(t);
    case '(':
        t->at++;
        return translate_group(t);
    case '.':
        t->at++;
        return buf_puts(&t->out, NOT_LINE_END);
    case '{':
    case '}':
    case ']':
        return buf_printf(&t->out, "\\%c", *t->at++);
    default:
        return buf_put(&t->out, t->at++, 1);
    }
}

static bool translate(struct translation *t)
{
    /* Whether `.*X` matches somewhere is whether X does, and X alone is tried once per position. */
    if (t->end - t->at >= 2 && memcmp(t->at, ".*", 2) == 0) {
        t->at += 2;
        if (next_is(t, '?'))
            t->at++;
        if (next_is(t, '*') || next_is(t, '+') || next_is(t, '?') || braces_length(t->at, t->end))
            return refuse(t, "nothing to repeat");
    }
    while (t->at < t->end)
        if (!translate_one(t))
            return false;
    return buf_put(&t->out, "", 0);
}

static struct schema_pattern *translation_compile(struct translation *t)
{
    struct schema_pattern *pattern = calloc(1, sizeof(*pattern));
    if (!pattern)
        return NULL;
    int problem;
    PCRE2_SIZE offset;
    /* No PCRE2_UCP: \d, \w and \b are ASCII in ECMA-262. Automatic callouts make every step of a
     * match countable. */
    pattern->code =
        pcre2_compile((PCRE2_SPTR)t->out.data, t->out.len,
                      PCRE2_UTF | PCRE2_DOLLAR_ENDONLY | PCRE2_ALLOW_EMPTY_CLASS |
                          PCRE2_MATCH_UNSET_BACKREF | PCRE2_NEVER_BACKSLASH_C | PCRE2_AUTO_CALLOUT,
                      &problem, &offset, NULL);
    if (!pattern->code) {
        if (problem != PCRE2_ERROR_HEAP_FAILED)
            pcre2_get_error_message(problem, (PCRE2_UCHAR *)t->why, t->why_size);
        free(pattern);
        return NULL;
    }
    uint32_t back_references = 0;
    pcre2_pattern_info(pattern->code, PCRE2_INFO_BACKREFMAX, &back_references);
    pcre2_pattern_info(pattern->code, PCRE2_INFO_SIZE, &pattern->size);
    pattern->back_references = back_references > 0;
    pattern->least_repeat = t->least_repeat;
    return pattern;
}

struct schema_pattern *schema_pattern_compile(const char *text, size_t len, char *why, size_t size)
{
    struct translation t = {.at = text, .end = text + len, .why = why, .why_size = size};
    *why = '\0';
    if (len > SCHEMA_PATTERN_MAX) {
        snprintf(why, size, "longer than %d bytes", SCHEMA_PATTERN_MAX);
        return NULL;
    }
    buf_init(&t.out, SCHEMA_PATTERN_MAX * 100); /* more than any escape grows */
    struct schema_pattern *pattern = translate(&t) ? translation_compile(&t) : NULL;
    buf_free(&t.out);
    return pattern;
}

void schema_pattern_free(struct schema_pattern *pattern)
{
    if (!pattern)
        return;
    pcre2_code_free(pattern->code);
    free(pattern);
}

/* Called by PCRE2 before each item of a pattern that it tries. A single item may run over much of
 * the subject, which shows in how far the position moved; step_cost stands for what does not show.
 */
static int match_step(pcre2_callout_block *block, void *opaque)
{
    struct schema_matcher *matcher = opaque;
    size_t from = matcher->position;
    size_t to = block->current_position;
    matcher->position = to;
    *matcher->work -= matcher->step_cost + (int64_t)((to > from ? to - from : from - to) / 16);
    return *matcher->work < 0 ? PCRE2_ERROR_CALLOUT : 0;
}

static bool matcher_ready(struct schema_matcher *matcher)
{
    if (!matcher->data)
        matcher->data = pcre2_match_data_create(1, NULL);
    if (matcher->context || !matcher->data)
        return matcher->context && matcher->data;
    matcher->context = pcre2_match_context_create(NULL);
    if (!matcher->context)
        return false;
    pcre2_set_match_limit(matcher->context, SCHEMA_MATCH_STEPS);
    pcre2_set_depth_limit(matcher->context, SCHEMA_MATCH_DEPTH);
    pcre2_set_heap_limit(matcher->context, SCHEMA_MATCH_HEAP_KIB);
    pcre2_set_callout(matcher->context, match_step, matcher);
    return true;
}

enum schema_match schema_pattern_match(struct schema_matcher *matcher,
                                       const struct schema_pattern *pattern, const char *text,
                                       size_t len)
{
    if (!matcher_ready(matcher))
        return SCHEMA_NO_MEMORY;
    /* Items that fail after a long look without having moved: x{9999} and a back reference. */
    matcher->step_cost = 1 + pattern->least_repeat / 16;
    if (pattern->back_references)
        matcher->step_cost += (int64_t)(len / 16);
    matcher->position = 0;
    *matcher->work -= 1 + (int64_t)(len / 64);
    if (*matcher->work < 0)
        return SCHEMA_GAVE_UP;
    int result =
        pcre2_match(pattern->code, (PCRE2_SPTR)text, len, 0, 0, matcher->data, matcher->context);
    if (result >= 0)
        return SCHEMA_MATCH;
    if (result == PCRE2_ERROR_NOMATCH)
        return SCHEMA_MISS;
    return result == PCRE2_ERROR_NOMEMORY ? SCHEMA_NO_MEMORY : SCHEMA_GAVE_UP;
}

void schema_matcher_free(struct schema_matcher *matcher)
{
    pcre2_match_data_free(matcher->data);
    pcre2_match_context_free(matcher->context);
    matcher->data = NULL;
    matcher->context = NULL;
}
