/* The escapes: percent, form, JSON, and the refusals where no escape exists. */
#include "common/http/escape.h"

#include "common/base/json.h"

#include <string.h>

static bool is_alnum(unsigned char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

/* How long the sequence that starts with `first` is, and the least code point it may hold. 0: none.
 */
static size_t utf8_length(unsigned char first, unsigned *code, unsigned *least)
{
    if (first < 0x80) {
        *code = first;
        *least = 1; /* NUL is refused */
        return 1;
    }
    if ((first & 0xe0) == 0xc0) {
        *code = first & 0x1f;
        *least = 0x80;
        return 2;
    }
    if ((first & 0xf0) == 0xe0) {
        *code = first & 0x0f;
        *least = 0x800;
        return 3;
    }
    if ((first & 0xf8) == 0xf0) {
        *code = first & 0x07;
        *least = 0x10000;
        return 4;
    }
    return 0;
}

bool text_is_utf8(const char *text, size_t len)
{
    for (size_t at = 0; at < len;) {
        unsigned code = 0, least = 0;
        size_t length = utf8_length((unsigned char)text[at], &code, &least);
        if (length == 0 || length > len - at)
            return false;
        for (size_t i = 1; i < length; i++) {
            unsigned char next = (unsigned char)text[at + i];
            if ((next & 0xc0) != 0x80)
                return false;
            code = code << 6 | (next & 0x3f);
        }
        if (code < least || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
            return false;
        at += length;
    }
    return true;
}

bool text_has_control(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < 0x20 || c == 0x7f)
            return true;
    }
    return false;
}

static void put_percent(struct buf *out, unsigned char c)
{
    static const char hex[] = "0123456789ABCDEF";
    char escaped[3] = {'%', hex[c >> 4], hex[c & 15]};
    buf_put(out, escaped, sizeof(escaped));
}

/* RFC 3986: everything but the unreserved characters. */
static void put_url(struct buf *out, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if (is_alnum(c) || strchr("-._~", c))
            buf_put(out, &text[i], 1);
        else
            put_percent(out, c);
    }
}

/* application/x-www-form-urlencoded. */
static void put_form(struct buf *out, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == ' ')
            buf_puts(out, "+");
        else if (is_alnum(c) || strchr("-._*", c))
            buf_put(out, &text[i], 1);
        else
            put_percent(out, c);
    }
}

/* The inside of a JSON string: its quotes are part of the literals around it. */
static void put_json(struct buf *out, const char *text, size_t len)
{
    struct buf quoted;
    buf_init(&quoted, len * 6 + 2);
    if (json_put_string(&quoted, text, len))
        buf_put(out, quoted.data + 1, quoted.len - 2);
    else
        out->failed = true;
    buf_wipe(&quoted);
}

bool escape_put(struct buf *out, enum place place, enum body_format format, const char *text,
                size_t len)
{
    if (!text_is_utf8(text, len))
        return false;
    switch (place) {
    case PLACE_URL:
        put_url(out, text, len);
        break;
    case PLACE_HEADER:
        if (text_has_control(text, len))
            return false;
        buf_put(out, text, len);
        break;
    case PLACE_BODY:
        if (format == BODY_JSON)
            put_json(out, text, len);
        else if (format == BODY_FORM)
            put_form(out, text, len);
        else
            buf_put(out, text, len);
        break;
    }
    return !out->failed;
}
