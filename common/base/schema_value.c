/* Equality, order and divisibility of JSON values as JSON Schema means them: 1 and 1.0 are one
 * number, the order of members does not matter, and 19.99 is a multiple of 0.01. */
#include "common/base/schema_internal.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Every int64 and every double must fit in exactly, so that comparing them is not rounding them. */
_Static_assert(LDBL_MANT_DIG >= 64, "long double holds an int64 exactly");

__extension__ typedef unsigned __int128 wide;

static long double number_value(const json_t *number)
{
    return json_is_integer(number) ? (long double)json_integer_value(number)
                                   : (long double)json_real_value(number);
}

int schema_number_compare(const json_t *a, const json_t *b)
{
    long double x = number_value(a);
    long double y = number_value(b);
    return x < y ? -1 : x > y;
}

bool schema_number_is_integer(const json_t *number)
{
    if (json_is_integer(number))
        return true;
    double value = json_real_value(number);
    return isfinite(value) && floor(value) == value;
}

/* digits * 10^exponent, the shortest decimal that reads back as the number: what its author wrote.
 */
struct decimal {
    uint64_t digits;
    int exponent;
};

static struct decimal decimal_of_real(double value)
{
    char text[40];
    int places = 14;
    do
        snprintf(text, sizeof(text), "%.*e", places, value);
    while (strtod(text, NULL) != value && ++places < 17);

    struct decimal d = {0, 0};
    bool fraction = false;
    const char *at = text;
    for (; *at && *at != 'e'; at++) {
        if (*at >= '0' && *at <= '9') {
            d.digits = d.digits * 10 + (uint64_t)(*at - '0');
            d.exponent -= fraction;
        } else {
            fraction = true; /* the decimal point, whatever the locale's is */
        }
    }
    d.exponent += *at ? atoi(at + 1) : 0;
    return d;
}

static struct decimal decimal_of(const json_t *number)
{
    struct decimal d = {0, 0};
    if (json_is_real(number)) {
        d = decimal_of_real(fabs(json_real_value(number)));
    } else {
        json_int_t value = json_integer_value(number);
        d.digits = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    }
    while (d.digits && d.digits % 10 == 0) {
        d.digits /= 10;
        d.exponent++;
    }
    return d;
}

bool schema_number_is_multiple(const json_t *number, const json_t *divisor)
{
    if (json_is_integer(number) && json_is_integer(divisor) && json_integer_value(divisor) > 0)
        return json_integer_value(number) % json_integer_value(divisor) == 0;
    struct decimal n = decimal_of(number);
    struct decimal d = decimal_of(divisor);
    if (n.digits == 0 || d.digits == 0)
        return d.digits != 0;
    int shift = n.exponent - d.exponent;
    if (shift < 0) {
        wide unit = d.digits;
        for (; shift < 0 && unit <= n.digits; shift++)
            unit *= 10;
        return shift == 0 && n.digits % unit == 0;
    }
    wide rest = n.digits % d.digits;
    for (; shift > 0 && rest; shift--)
        rest = rest * 10 % d.digits;
    return rest == 0;
}

static bool array_equal(const json_t *a, const json_t *b, int64_t *work)
{
    if (json_array_size(a) != json_array_size(b))
        return false;
    for (size_t i = 0; i < json_array_size(a); i++)
        if (!schema_value_equal(json_array_get(a, i), json_array_get(b, i), work))
            return false;
    return true;
}

static bool object_equal(const json_t *a, const json_t *b, int64_t *work)
{
    if (json_object_size(a) != json_object_size(b))
        return false;
    const char *name;
    size_t len;
    json_t *value;
    json_object_keylen_foreach((json_t *)a, name, len, value)
    {
        const json_t *other = json_object_getn(b, name, len);
        if (!other || !schema_value_equal(value, other, work))
            return false;
    }
    return true;
}

bool schema_value_equal(const json_t *a, const json_t *b, int64_t *work)
{
    if (--*work < 0)
        return false;
    if (json_is_number(a) && json_is_number(b))
        return schema_number_compare(a, b) == 0;
    if (json_typeof(a) != json_typeof(b))
        return false;
    switch (json_typeof(a)) {
    case JSON_STRING:
        *work -= (int64_t)(json_string_length(a) / 64);
        return json_string_length(a) == json_string_length(b) &&
               memcmp(json_string_value(a), json_string_value(b), json_string_length(a)) == 0;
    case JSON_ARRAY:
        return array_equal(a, b, work);
    case JSON_OBJECT:
        return object_equal(a, b, work);
    default:
        return true; /* null, true, false: the type says all */
    }
}

static uint64_t hash_mix(uint64_t h)
{
    h = (h ^ (h >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    h = (h ^ (h >> 27)) * UINT64_C(0x94d049bb133111eb);
    return h ^ (h >> 31);
}

static uint64_t hash_bytes(const void *data, size_t len)
{
    const unsigned char *bytes = data;
    uint64_t h = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (size_t i = 0; i < len; i++)
        h = (h ^ bytes[i]) * UINT64_C(0x100000001b3);
    return hash_mix(h);
}

static uint64_t hash_number(const json_t *number)
{
    double value = (double)number_value(number) + 0.0; /* -0.0 becomes 0.0 */
    return hash_bytes(&value, sizeof(value));
}

/* Equal values have equal hashes. That unequal ones can be made to collide costs an attacker's call
 * its own budget of work and no more. */
static uint64_t value_hash(const json_t *value, int64_t *work)
{
    if (--*work < 0)
        return 0;
    uint64_t h = hash_mix(json_is_number(value) ? JSON_REAL : (uint64_t)json_typeof(value));
    if (json_is_number(value))
        return h ^ hash_number(value);
    if (json_is_string(value)) {
        *work -= (int64_t)(json_string_length(value) / 16);
        return h ^ hash_bytes(json_string_value(value), json_string_length(value));
    }
    for (size_t i = 0; i < json_array_size(value); i++)
        h = hash_mix(h ^ value_hash(json_array_get(value, i), work));
    if (!json_is_object(value))
        return h;
    const char *name;
    size_t len;
    json_t *member;
    json_object_keylen_foreach((json_t *)value, name, len, member)
    {
        *work -= (int64_t)(len / 16);
        h += hash_mix(hash_bytes(name, len) * 3 + value_hash(member, work)); /* in any order */
    }
    return h;
}

struct hashed {
    uint64_t hash;
    size_t index;
};

static int hashed_compare(const void *left, const void *right)
{
    const struct hashed *a = left;
    const struct hashed *b = right;
    if (a->hash != b->hash)
        return a->hash < b->hash ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

enum schema_unique schema_items_unique(const json_t *array, int64_t *work, size_t *first,
                                       size_t *second)
{
    size_t count = json_array_size(array);
    if (count < 2)
        return SCHEMA_UNIQUE;
    struct hashed *items = malloc(count * sizeof(*items));
    if (!items)
        return SCHEMA_UNIQUE_NO_MEMORY;
    for (size_t i = 0; i < count; i++)
        items[i] = (struct hashed){value_hash(json_array_get(array, i), work), i};
    qsort(items, count, sizeof(*items), hashed_compare);

    enum schema_unique result = SCHEMA_UNIQUE;
    for (size_t i = 0; i < count && result == SCHEMA_UNIQUE && *work >= 0; i++) {
        for (size_t j = i + 1; j < count && items[j].hash == items[i].hash && *work >= 0; j++) {
            if (!schema_value_equal(json_array_get(array, items[i].index),
                                    json_array_get(array, items[j].index), work))
                continue;
            *first = items[i].index;
            *second = items[j].index;
            result = SCHEMA_TWICE;
            break;
        }
    }
    free(items);
    return result;
}
