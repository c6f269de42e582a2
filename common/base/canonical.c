/* RFC 8785, the JSON canonicalisation scheme: one value has one text. */
#include "common/base/json.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Values that we build around parsed ones may nest a little deeper than the wire allows. */
#define CANONICAL_DEPTH_MAX (2 * JSON_DEPTH_MAX)
#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

/* How many bytes of p..p+left form one valid UTF-8 character; 0 when they do not. */
static size_t utf8_length(const unsigned char *p, size_t left)
{
    if (p[0] < 0x80)
        return 1;
    size_t need = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    if (p[0] < 0xc2 || p[0] > 0xf4 || left < need)
        return 0;
    /* The second byte alone tells overlong forms, surrogates and what lies past U+10FFFF. */
    unsigned char low = p[0] == 0xe0 ? 0xa0 : p[0] == 0xf0 ? 0x90 : 0x80;
    unsigned char high = p[0] == 0xed ? 0x9f : p[0] == 0xf4 ? 0x8f : 0xbf;
    if (p[1] < low || p[1] > high)
        return 0;
    for (size_t i = 2; i < need; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    return need;
}

static bool plain_character(const unsigned char *p)
{
    return *p >= 0x20 && *p != '"' && *p != '\\';
}

static void escape_put(struct buf *out, unsigned char c)
{
    static const char letters[] = "\"\\\b\f\n\r\t";
    static const char names[] = "\"\\bfnrt";
    const char *at = c ? strchr(letters, c) : NULL;
    if (at)
        buf_printf(out, "\\%c", names[at - letters]);
    else if (c)
        buf_printf(out, "\\u%04x", c);
    else
        buf_puts(out, REPLACEMENT);
}

bool json_put_string(struct buf *out, const char *text, size_t len)
{
    const unsigned char *p = (const unsigned char *)text;
    const unsigned char *end = p + len;
    buf_put(out, "\"", 1);
    while (p < end) {
        const unsigned char *run = p;
        size_t step = 0;
        while (p < end && plain_character(p) && (step = utf8_length(p, (size_t)(end - p))) > 0)
            p += step;
        buf_put(out, run, (size_t)(p - run));
        if (p == end)
            break;
        if (plain_character(p))
            buf_puts(out, REPLACEMENT);
        else
            escape_put(out, *p);
        p++;
    }
    return buf_put(out, "\"", 1);
}

/* The shortest decimal that reads back as value, and of those the closest (ECMAScript's rule). */
struct decimal {
    char digits[32]; /* no trailing zeros */
    int count;
    int point; /* the value is 0.DIGITS times ten to this */
};

static bool decimal_reads_back(const struct decimal *d, double value)
{
    char text[64];
    snprintf(text, sizeof(text), "0.%se%d", d->digits, d->point);
    return strtod(text, NULL) == value;
}

/* Adds one to the last digit. */
static void decimal_increment(struct decimal *d)
{
    int i = d->count - 1;
    while (i >= 0 && d->digits[i] == '9')
        d->digits[i--] = '0';
    if (i >= 0) {
        d->digits[i]++;
    } else {
        d->digits[0] = '1';
        d->point++;
    }
}

/* Rounds to `count` digits. At a power of two the gap above is twice the gap below, so that the
 * nearest decimal may not read back while the next one up does. */
static bool decimal_try(struct decimal *d, double value, int count)
{
    char text[48];
    snprintf(text, sizeof(text), "%.*e", count - 1, value);
    char *exponent = strchr(text, 'e');
    d->point = (int)strtol(exponent + 1, NULL, 10) + 1;
    d->count = 0;
    for (const char *p = text; p < exponent; p++)
        if (*p != '.')
            d->digits[d->count++] = *p;
    d->digits[d->count] = '\0';
    if (decimal_reads_back(d, value))
        return true;
    decimal_increment(d);
    return decimal_reads_back(d, value);
}

/* A decimal of up to DBL_DIG digits survives the way into a normal double and back, so one that
 * reads back is found at DBL_DIG digits, with zeros behind it. Subnormals hold fewer digits. */
static void decimal_from(struct decimal *d, double value)
{
    int count = value >= DBL_MIN ? DBL_DIG : 1;
    while (!decimal_try(d, value, count) && count < 17)
        count++;
    while (d->count > 1 && d->digits[d->count - 1] == '0')
        d->digits[--d->count] = '\0';
}

static void zeros_put(struct buf *out, int count)
{
    while (count-- > 0)
        buf_put(out, "0", 1);
}

/* Writes a finite double as ECMAScript's Number::toString does. */
static void real_put(struct buf *out, double value)
{
    struct decimal d;
    if (value == 0) { /* also -0 */
        buf_puts(out, "0");
        return;
    }
    if (value < 0)
        buf_puts(out, "-");
    decimal_from(&d, fabs(value));
    if (d.point > 21 || d.point < -5) {
        buf_printf(out, "%c%s%se%+d", d.digits[0], d.count > 1 ? "." : "", d.digits + 1,
                   d.point - 1);
    } else if (d.point <= 0) {
        buf_puts(out, "0.");
        zeros_put(out, -d.point);
        buf_puts(out, d.digits);
    } else if (d.count <= d.point) {
        buf_puts(out, d.digits);
        zeros_put(out, d.point - d.count);
    } else {
        buf_printf(out, "%.*s.%s", d.point, d.digits, d.digits + d.point);
    }
}

struct member {
    const char *name;
    size_t name_len;
    const json_t *value;
};

/* Orders UTF-8 as its UTF-16 code units order: the same as bytes, but that characters past U+FFFF
 * (lead byte F0 up) are surrogates there and come before U+E000 to U+FFFF (lead bytes EE and EF).
 */
static int unit_rank(unsigned char c)
{
    return c >= 0xf0 ? 0xed * 2 + 1 : c * 2;
}

static int member_compare(const void *a, const void *b)
{
    const struct member *x = a;
    const struct member *y = b;
    size_t common = x->name_len < y->name_len ? x->name_len : y->name_len;
    for (size_t i = 0; i < common; i++) {
        unsigned char c = (unsigned char)x->name[i];
        unsigned char d = (unsigned char)y->name[i];
        if (c != d) {
            int order = unit_rank(c) - unit_rank(d);
            return order ? order : (int)c - (int)d;
        }
    }
    return x->name_len < y->name_len ? -1 : x->name_len > y->name_len;
}

static bool value_put(struct buf *out, const json_t *value, int depth);

static bool object_put(struct buf *out, const json_t *object, int depth)
{
    size_t count = json_object_size(object);
    struct member *members = calloc(count ? count : 1, sizeof(*members));
    if (!members)
        return false;
    size_t filled = 0;
    json_t *walk = (json_t *)object; /* jansson's iterators take no const */
    for (void *it = json_object_iter(walk); it; it = json_object_iter_next(walk, it))
        members[filled++] = (struct member){json_object_iter_key(it), json_object_iter_key_len(it),
                                            json_object_iter_value(it)};
    qsort(members, filled, sizeof(*members), member_compare);

    bool ok = buf_puts(out, "{");
    for (size_t i = 0; ok && i < filled; i++) {
        if (i > 0)
            buf_puts(out, ",");
        json_put_string(out, members[i].name, members[i].name_len);
        buf_puts(out, ":");
        ok = value_put(out, members[i].value, depth);
    }
    free(members);
    return ok && buf_puts(out, "}");
}

static bool array_put(struct buf *out, const json_t *array, int depth)
{
    size_t count = json_array_size(array);
    bool ok = buf_puts(out, "[");
    for (size_t i = 0; ok && i < count; i++) {
        if (i > 0)
            buf_puts(out, ",");
        ok = value_put(out, json_array_get(array, i), depth);
    }
    return ok && buf_puts(out, "]");
}

static bool value_put(struct buf *out, const json_t *value, int depth)
{
    must(depth < CANONICAL_DEPTH_MAX);
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return object_put(out, value, depth + 1);
    case JSON_ARRAY:
        return array_put(out, value, depth + 1);
    case JSON_STRING:
        return json_put_string(out, json_string_value(value), json_string_length(value));
    case JSON_INTEGER:
        return buf_printf(out, "%" PRId64, (int64_t)json_integer_value(value));
    case JSON_REAL:
        real_put(out, json_real_value(value));
        return !out->failed;
    case JSON_TRUE:
        return buf_puts(out, "true");
    case JSON_FALSE:
        return buf_puts(out, "false");
    case JSON_NULL:
        return buf_puts(out, "null");
    }
    return false;
}

bool json_canonical(const json_t *value, struct buf *out)
{
    return value_put(out, value, 0) && !out->failed;
}
