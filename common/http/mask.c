/* Looking for secrets in an answer, whatever it spells them with. */
#include "common/http/mask.h"

#include "common/base/crypto.h"
#include "common/http/fill.h"

#include <ctype.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { LINE_LEAST = 16, LINES_MAX = 256, DECODED_MAX = 65536, NEEDLES_FIRST = 16 };

enum needle_kind { NEEDLE_TEXT, NEEDLE_BASE64, NEEDLE_HEX };

/* One text to look for. Of base64 the characters that its neighbours have no part in. */
struct needle {
    enum needle_kind kind;
    char *text; /* owned, as the name */
    size_t len;
    char *name;
};

struct mask {
    struct needle *needles;
    size_t count, room;
    bool first[256]; /* what a spelling of any needle can begin with */
};

struct mask *mask_new(void)
{
    return calloc(1, sizeof(struct mask));
}

void mask_free(struct mask *mask)
{
    if (!mask)
        return;
    for (size_t i = 0; i < mask->count; i++) {
        crypto_wipe(mask->needles[i].text, mask->needles[i].len);
        free(mask->needles[i].text);
        free(mask->needles[i].name);
    }
    free(mask->needles);
    free(mask);
}

/* ---- what to look for ---- */

static bool needle_known(const struct mask *mask, enum needle_kind kind, const char *text,
                         size_t len)
{
    for (size_t i = 0; i < mask->count; i++)
        if (mask->needles[i].kind == kind && mask->needles[i].len == len &&
            memcmp(mask->needles[i].text, text, len) == 0)
            return true;
    return false;
}

static bool needles_grow(struct mask *mask)
{
    size_t room = mask->room ? mask->room * 2 : NEEDLES_FIRST;
    struct needle *needles = realloc(mask->needles, room * sizeof *needles);
    if (!needles)
        return false;
    mask->needles = needles;
    mask->room = room;
    return true;
}

static void first_note(struct mask *mask, unsigned char c)
{
    mask->first[c] = true;
    mask->first[(unsigned char)tolower(c)] = mask->first[(unsigned char)toupper(c)] = true;
    mask->first['\\'] = mask->first['%'] = mask->first['&'] = mask->first['+'] = true;
    if (c == '+' || c == '/')
        mask->first['-'] = mask->first['_'] = true; /* the other alphabet of base64 */
}

static bool needle_add(struct mask *mask, const char *name, enum needle_kind kind, const char *text,
                       size_t len)
{
    if (len < MASK_LEAST || needle_known(mask, kind, text, len))
        return true;
    if (mask->count == mask->room && !needles_grow(mask))
        return false;
    struct needle needle = {.kind = kind, .len = len, .text = malloc(len), .name = strdup(name)};
    if (!needle.text || !needle.name) {
        free(needle.text);
        free(needle.name);
        return false;
    }
    memcpy(needle.text, text, len);
    mask->needles[mask->count++] = needle;
    first_note(mask, (unsigned char)text[0]);
    return true;
}

static bool hex_add(struct mask *mask, const char *name, const char *value, size_t len)
{
    char *text = malloc(len * 2 + 1);
    if (!text)
        return false;
    crypto_hex((const uint8_t *)value, len, text);
    bool ok = needle_add(mask, name, NEEDLE_HEX, text, len * 2);
    crypto_wipe(text, len * 2);
    free(text);
    return ok;
}

/* Base64 spells three bytes with four characters, so a value is spelled in three ways, by where it
 * stands. Its first and last character may belong to a neighbour too and are left out. */
static bool base64_add(struct mask *mask, const char *name, const char *value, size_t len)
{
    bool ok = true;
    unsigned char *shifted = calloc(1, len + 2);
    char *text = malloc((len + 4) / 3 * 4 + 8);
    for (size_t before = 0; ok && before < 3; before++) {
        ok = shifted && text;
        if (!ok)
            break;
        memset(shifted, 0, before);
        memcpy(shifted + before, value, len);
        EVP_EncodeBlock((unsigned char *)text, shifted, (int)(len + before));
        size_t from = (before * 8 + 5) / 6, to = (before + len) * 8 / 6;
        ok = to <= from || needle_add(mask, name, NEEDLE_BASE64, text + from, to - from);
    }
    if (shifted)
        crypto_wipe(shifted, len + 2);
    if (text)
        crypto_wipe(text, (len + 4) / 3 * 4 + 8);
    free(shifted);
    free(text);
    return ok;
}

static bool forms_add(struct mask *mask, const char *name, const char *value, size_t len)
{
    return len < MASK_LEAST ||
           (needle_add(mask, name, NEEDLE_TEXT, value, len) && hex_add(mask, name, value, len) &&
            base64_add(mask, name, value, len));
}

static bool has_blank(const char *value, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (isspace((unsigned char)value[i]))
            return true;
    return false;
}

/* "user:password" is as secret in halves. A JSON document or a URL is no such pair. */
static bool halves_add(struct mask *mask, const char *name, const char *value, size_t len)
{
    const char *colon = memchr(value, ':', len);
    if (!colon || has_blank(value, len) || memchr(value, '"', len) ||
        (len - (size_t)(colon - value) > 2 && colon[1] == '/' && colon[2] == '/'))
        return true;
    size_t first = (size_t)(colon - value);
    return forms_add(mask, name, value, first) && forms_add(mask, name, colon + 1, len - first - 1);
}

/* A value that is itself the base64 of "user:password", as Basic credentials are kept. */
static bool decoded_add(struct mask *mask, const char *name, const char *value, size_t len)
{
    if (len % 4 != 0 || len < 8 || len > DECODED_MAX)
        return true;
    unsigned char *plain = malloc(len / 4 * 3 + 1);
    if (!plain)
        return false;
    int decoded = EVP_DecodeBlock(plain, (const unsigned char *)value, (int)len);
    size_t plain_len = decoded > 0 ? (size_t)decoded : 0;
    for (size_t i = len; plain_len > 0 && i-- > len - 2 && value[i] == '=';)
        plain_len--;
    bool printable = plain_len > 0;
    for (size_t i = 0; i < plain_len; i++)
        printable = printable && plain[i] >= 0x20 && plain[i] != 0x7f;
    bool ok = !printable || !memchr(plain, ':', plain_len) ||
              (forms_add(mask, name, (char *)plain, plain_len) &&
               halves_add(mask, name, (char *)plain, plain_len));
    crypto_wipe(plain, len / 4 * 3 + 1);
    free(plain);
    return ok;
}

static bool lines_add(struct mask *mask, const char *name, const char *value, size_t len)
{
    const char *end = value + len;
    size_t lines = 0;
    for (const char *line = value; memchr(value, '\n', len) && line < end && lines++ < LINES_MAX;) {
        const char *next = memchr(line, '\n', (size_t)(end - line));
        size_t line_len = (size_t)((next ? next : end) - line);
        if (line_len >= LINE_LEAST && !needle_add(mask, name, NEEDLE_TEXT, line, line_len))
            return false;
        line = next ? next + 1 : end;
    }
    return true;
}

bool mask_add(struct mask *mask, const char *name, const char *value, size_t len)
{
    static const char *const schemes[] = {"Basic ", "Bearer ", "Token "};
    for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++) {
        size_t word = strlen(schemes[i]);
        if (len > word && strncasecmp(value, schemes[i], word) == 0 &&
            !mask_add(mask, name, value + word, len - word))
            return false;
    }
    return forms_add(mask, name, value, len) && halves_add(mask, name, value, len) &&
           decoded_add(mask, name, value, len) && lines_add(mask, name, value, len);
}

/* ---- how a character may be spelled ---- */

static int digit_value(char c, int base)
{
    int value = isdigit((unsigned char)c)    ? c - '0'
                : isxdigit((unsigned char)c) ? tolower((unsigned char)c) - 'a' + 10
                                             : 99;
    return value < base ? value : -1;
}

/* Reads at most `most` digits; the number of those read, 0: none. */
static size_t number_read(const char *text, size_t len, int base, size_t most, unsigned *out)
{
    size_t n = 0;
    *out = 0;
    while (n < len && n < most && digit_value(text[n], base) >= 0)
        *out = *out * (unsigned)base + (unsigned)digit_value(text[n++], base);
    return n;
}

static size_t utf8_put(unsigned point, unsigned char out[4])
{
    if (point < 0x80) {
        out[0] = (unsigned char)point;
        return 1;
    }
    size_t more = point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
    static const unsigned char lead[] = {0, 0xc0, 0xe0, 0xf0};
    for (size_t i = more; i > 0; i--, point >>= 6)
        out[i] = (unsigned char)(0x80 | (point & 0x3f));
    out[0] = (unsigned char)(lead[more] | point);
    return more + 1;
}

/* The bytes that one escape stands for: *used of the text, the return value into out; 0: none. */
static size_t unicode_read(const char *text, size_t len, unsigned char out[4], size_t *used)
{
    unsigned point, low;
    if (len < 5 || text[0] != 'u' || number_read(text + 1, len - 1, 16, 4, &point) != 4)
        return 0;
    *used = 5;
    if (point >= 0xd800 && point < 0xdc00) {
        size_t at = 5 + strspn(len > 5 && text[5] == '\\' ? text + 5 : "", "\\");
        if (at == 5 || len < at + 5 || text[at] != 'u' ||
            number_read(text + at + 1, len - at - 1, 16, 4, &low) != 4 || low < 0xdc00)
            return 0;
        point = 0x10000 + ((point - 0xd800) << 10) + (low & 0x3ff);
        *used = at + 5;
    }
    return utf8_put(point, out);
}

static size_t json_read(const char *text, size_t len, unsigned char out[4], size_t *used)
{
    static const char letters[] = "\"/bfnrt'", meant[] = "\"/\b\f\n\r\t'";
    size_t slashes = 0;
    while (slashes < len && text[slashes] == '\\')
        slashes++; /* more than one when JSON stands in a JSON string */
    if (slashes == 0 || slashes == len)
        return 0;
    size_t n = unicode_read(text + slashes, len - slashes, out, used);
    const char *letter = n == 0 ? strchr(letters, text[slashes]) : NULL;
    if (letter && *letter) {
        out[0] = (unsigned char)meant[letter - letters];
        *used = 1;
        n = 1;
    }
    *used += slashes;
    return n;
}

static size_t html_read(const char *text, size_t len, unsigned char out[4], size_t *used)
{
    static const struct {
        const char *word;
        unsigned char meant;
    } names[] = {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        *used = strlen(names[i].word);
        if (len >= *used && strncasecmp(text, names[i].word, *used) == 0) {
            out[0] = names[i].meant;
            return 1;
        }
    }
    unsigned point;
    bool hex = len > 3 && tolower((unsigned char)text[2]) == 'x';
    size_t from = hex ? 3 : 2;
    if (len <= from || text[1] != '#')
        return 0;
    size_t digits = number_read(text + from, len - from, hex ? 16 : 10, 7, &point);
    if (digits == 0 || point > 0x10ffff || len <= from + digits || text[from + digits] != ';')
        return 0;
    *used = from + digits + 1;
    return utf8_put(point, out);
}

static size_t percent_read(const char *text, size_t len, unsigned char out[4], size_t *used)
{
    unsigned byte;
    if (len < 3 || number_read(text + 1, len - 1, 16, 2, &byte) != 2)
        return 0;
    *used = 3;
    out[0] = (unsigned char)byte;
    return 1;
}

static size_t escape_read(const char *text, size_t len, unsigned char out[4], size_t *used)
{
    *used = 0;
    switch (text[0]) {
    case '\\':
        return json_read(text, len, out, used);
    case '%':
        return percent_read(text, len, out, used);
    case '&':
        return html_read(text, len, out, used);
    default:
        return 0;
    }
}

static bool same_character(const struct needle *needle, char wanted, char found)
{
    if (wanted == found)
        return true;
    if (needle->kind == NEEDLE_BASE64)
        return (wanted == '+' && found == '-') || (wanted == '/' && found == '_');
    return needle->kind == NEEDLE_HEX && tolower((unsigned char)found) == wanted;
}

static size_t slashes_at(const char *text, size_t len)
{
    size_t n = 0;
    while (n < len && text[n] == '\\')
        n++;
    return n;
}

/* One step of a match: how much of the needle and of the text agree here. False: they don't. */
static bool step_match(const struct needle *needle, size_t at, const char *text, size_t len,
                       size_t *needle_step, size_t *text_step)
{
    const char *wanted = needle->text + at;
    size_t left = needle->len - at, run = slashes_at(wanted, left);
    unsigned char bytes[4];
    size_t n = escape_read(text, len, bytes, text_step);
    *needle_step = n;
    if (n == 1 && same_character(needle, wanted[0], (char)bytes[0]))
        return true;
    if (n > 1 && n <= left && memcmp(bytes, wanted, n) == 0)
        return true;
    if (run > 0 && slashes_at(text, len) >= run) {
        *needle_step = run; /* backslashes, each perhaps written twice or four times */
        *text_step = slashes_at(text, len);
        return true;
    }
    *needle_step = *text_step = 1;
    return same_character(needle, wanted[0], text[0]) || (wanted[0] == ' ' && text[0] == '+');
}

/* How much of the text spells the needle; 0: it does not stand here. *partly: the text ended while
 * they agreed, after at least MASK_LEAST bytes. */
static size_t needle_match(const struct needle *needle, const char *text, size_t len, bool *partly)
{
    size_t at = 0, used = 0;
    if (len >= needle->len && memcmp(text, needle->text, needle->len) == 0)
        return needle->len; /* as it is, even where that reads as an escape */
    while (at < needle->len) {
        size_t needle_step, text_step;
        if (used == len) {
            *partly = at >= MASK_LEAST;
            return 0;
        }
        if (!step_match(needle, at, text + used, len - used, &needle_step, &text_step))
            return 0;
        at += needle_step;
        used += text_step;
    }
    return used;
}

/* ---- blotting out ---- */

static bool base64_character(char c)
{
    return isalnum((unsigned char)c) || (c != '\0' && strchr("+/-_=", c) != NULL);
}

/* A found place, longest first. */
struct found {
    const struct needle *needle; /* NULL: nothing stands here */
    size_t len;
};

static struct found find_at(const struct mask *mask, const char *text, size_t len, bool cut)
{
    struct found found = {0};
    if (!mask->first[(unsigned char)text[0]])
        return found;
    for (size_t i = 0; i < mask->count; i++) {
        bool partly = false;
        size_t n = needle_match(&mask->needles[i], text, len, &partly);
        if (cut && partly)
            n = len;
        if (n > found.len)
            found = (struct found){&mask->needles[i], n};
    }
    return found;
}

/* In base64 the neighbours are part of the same credentials ("user:"): the whole word goes. */
static void word_widen(const struct found *found, const char *text, size_t len, size_t kept_from,
                       size_t *from, size_t *to)
{
    if (found->needle->kind != NEEDLE_BASE64)
        return;
    while (*from > kept_from && base64_character(text[*from - 1]))
        (*from)--;
    while (*to < len && base64_character(text[*to]))
        (*to)++;
}

static size_t mask_into(const struct mask *mask, const char *text, size_t len, bool cut,
                        struct buf *out)
{
    size_t places = 0, kept = 0;
    for (size_t at = 0; at < len;) {
        struct found found = find_at(mask, text + at, len - at, cut);
        if (!found.needle) {
            at++;
            continue;
        }
        size_t from = at, to = at + found.len;
        word_widen(&found, text, len, kept, &from, &to);
        buf_put(out, text + kept, from - kept);
        buf_printf(out, "[masked %s]", found.needle->name);
        places++;
        at = kept = to;
    }
    if (places > 0)
        buf_put(out, text + kept, len - kept);
    return places;
}

size_t mask_buf(const struct mask *mask, struct buf *text, bool cut)
{
    struct buf out;
    if (!mask || mask->count == 0 || text->len == 0)
        return 0;
    buf_init(&out, text->max + (SECRET_NAME_MAX + 16) * (text->max / MASK_LEAST + 1));
    size_t places = mask_into(mask, text->data, text->len, cut, &out);
    if (places == 0) {
        buf_free(&out);
        return 0;
    }
    bool failed = out.failed;
    size_t max = text->max;
    buf_wipe(text);
    if (failed) {
        buf_wipe(&out);
        buf_init(text, max);
        return places;
    }
    *text = out;
    return places;
}

size_t mask_text(const struct mask *mask, char *text, size_t size)
{
    struct buf out;
    if (!mask || mask->count == 0 || text[0] == '\0')
        return 0;
    buf_init(&out, size * (SECRET_NAME_MAX + 16));
    size_t places = mask_into(mask, text, strlen(text), false, &out);
    if (places > 0) {
        crypto_wipe(text, size);
        snprintf(text, size, "%s", out.failed || !out.data ? "[masked]" : out.data);
    }
    buf_wipe(&out);
    return places;
}
