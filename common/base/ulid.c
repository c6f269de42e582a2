/* Identifiers: made in ascending order, read strictly, so that one identifier has one text form
 * (but for the case of its letters). */
#include "common/base/ulid.h"

#include "common/base/crypto.h"
#include "common/base/error.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define TIME_SIZE 6
#define RANDOM_SIZE 10
#define TIME_MAX ((INT64_C(1) << 48) - 1)
/* A clock that steps back by less goes on from the last time; by more, the earlier time was wrong.
 */
#define STEP_BACK_MAX_MS 60000

static const char base32[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/* The last identifier given out, under the lock. */
static pthread_mutex_t last_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ulid last;
static int64_t last_ms = -1;

static void last_set(int64_t ms)
{
    last_ms = ms;
    for (int i = TIME_SIZE - 1; i >= 0; i--, ms >>= 8)
        last.bytes[i] = (uint8_t)(ms & 0xff);
    crypto_random(last.bytes + TIME_SIZE, RANDOM_SIZE);
}

/* False when the random part was all ones and is now all zeros. */
static bool last_increment(void)
{
    for (int i = (int)sizeof(last.bytes) - 1; i >= TIME_SIZE; i--)
        if (++last.bytes[i] != 0)
            return true;
    return false;
}

void ulid_new(struct ulid *out, int64_t wall_ms)
{
    must(wall_ms >= 0 && wall_ms < TIME_MAX);
    pthread_mutex_lock(&last_lock);
    if (wall_ms > last_ms || wall_ms < last_ms - STEP_BACK_MAX_MS)
        last_set(wall_ms);
    else if (!last_increment())
        last_set(last_ms + 1);
    *out = last;
    pthread_mutex_unlock(&last_lock);
}

/* Bit 0 is the highest of the 130 bits that 26 characters hold; the first two are always 0. */
static int ulid_bit(const struct ulid *id, int position)
{
    int bit = position - 2;
    return bit < 0 ? 0 : (id->bytes[bit / 8] >> (7 - bit % 8)) & 1;
}

char *ulid_format(const struct ulid *id, char out[ULID_TEXT_SIZE])
{
    for (int i = 0; i < ULID_TEXT_SIZE - 1; i++) {
        int digit = 0;
        for (int k = 0; k < 5; k++)
            digit = digit << 1 | ulid_bit(id, i * 5 + k);
        out[i] = base32[digit];
    }
    out[ULID_TEXT_SIZE - 1] = '\0';
    return out;
}

char *ulid_format_prefixed(const char *prefix, const struct ulid *id, char out[ULID_PREFIXED_SIZE])
{
    char text[ULID_TEXT_SIZE];
    must(strlen(prefix) + 1 + ULID_TEXT_SIZE <= ULID_PREFIXED_SIZE);
    snprintf(out, ULID_PREFIXED_SIZE, "%s_%s", prefix, ulid_format(id, text));
    return out;
}

static int base32_digit(char c)
{
    if (c >= 'a' && c <= 'z')
        c = (char)(c - 'a' + 'A');
    const char *at = c ? strchr(base32, c) : NULL;
    return at ? (int)(at - base32) : -1;
}

bool ulid_parse(const char *text, size_t len, struct ulid *out)
{
    struct ulid id = {{0}};
    if (len != ULID_TEXT_SIZE - 1 || text[0] < '0' || text[0] > '7')
        return false;
    for (int i = 0; i < ULID_TEXT_SIZE - 1; i++) {
        int digit = base32_digit(text[i]);
        if (digit < 0)
            return false;
        for (int k = 0; k < 5; k++) {
            int bit = i * 5 + k - 2;
            if (bit >= 0 && digit >> (4 - k) & 1)
                id.bytes[bit / 8] |= (uint8_t)(0x80 >> bit % 8);
        }
    }
    *out = id;
    return true;
}

bool ulid_parse_prefixed(const char *prefix, const char *text, struct ulid *out)
{
    size_t prefix_len = strlen(prefix);
    if (strncmp(text, prefix, prefix_len) != 0 || text[prefix_len] != '_')
        return false;
    const char *rest = text + prefix_len + 1;
    return ulid_parse(rest, strnlen(rest, ULID_TEXT_SIZE), out);
}

static bool uuid_dash_before(int byte)
{
    return byte == 4 || byte == 6 || byte == 8 || byte == 10;
}

char *ulid_uuid_format(const struct ulid *id, char out[UUID_TEXT_SIZE])
{
    char *p = out;
    for (int i = 0; i < (int)sizeof(id->bytes); i++) {
        if (uuid_dash_before(i))
            *p++ = '-';
        crypto_hex(&id->bytes[i], 1, p);
        p += 2;
    }
    return out;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

bool ulid_uuid_parse(const char *text, struct ulid *out)
{
    struct ulid id;
    for (int i = 0; i < (int)sizeof(id.bytes); i++) {
        if (uuid_dash_before(i) && *text++ != '-')
            return false;
        int high = hex_digit(text[0]);
        int low = high < 0 ? -1 : hex_digit(text[1]);
        if (low < 0)
            return false;
        id.bytes[i] = (uint8_t)(high << 4 | low);
        text += 2;
    }
    if (*text)
        return false;
    *out = id;
    return true;
}

int ulid_compare(const struct ulid *a, const struct ulid *b)
{
    return memcmp(a->bytes, b->bytes, sizeof(a->bytes));
}

bool ulid_is_zero(const struct ulid *id)
{
    static const struct ulid zero;
    return ulid_compare(id, &zero) == 0;
}
