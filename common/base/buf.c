/* The growing byte buffer: doubles up to its maximum, and remembers the first write that failed. */
#include "common/base/buf.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUF_FIRST_CAP 64

void buf_init(struct buf *b, size_t max)
{
    /* The terminator needs a byte of its own, so the very largest size_t is not a usable maximum.
     */
    *b = (struct buf){.max = max < SIZE_MAX ? max : SIZE_MAX - 1};
}

static bool buf_fail(struct buf *b)
{
    b->failed = true;
    return false;
}

/* Makes room for `more` bytes and the terminator. A buffer may hold a secret, so the old block is
 * overwritten before it is freed; realloc would leave a copy behind. */
static bool buf_reserve(struct buf *b, size_t more)
{
    if (b->failed || more > b->max - b->len)
        return buf_fail(b);
    size_t need = b->len + more + 1;
    if (need <= b->cap)
        return true;
    size_t cap = b->cap ? b->cap : BUF_FIRST_CAP;
    while (cap < need)
        cap = cap <= SIZE_MAX / 2 ? cap * 2 : need;
    if (cap > b->max + 1)
        cap = b->max + 1;
    char *data = malloc(cap);
    if (!data)
        return buf_fail(b);
    if (b->data) {
        memcpy(data, b->data, b->len);
        explicit_bzero(b->data, b->cap);
        free(b->data);
    }
    b->data = data;
    b->cap = cap;
    return true;
}

bool buf_put(struct buf *b, const void *bytes, size_t len)
{
    if (!buf_reserve(b, len))
        return false;
    if (len)
        memcpy(b->data + b->len, bytes, len);
    b->len += len;
    b->data[b->len] = '\0';
    return true;
}

bool buf_puts(struct buf *b, const char *text)
{
    return buf_put(b, text, strlen(text));
}

bool buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int len = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (len < 0)
        return buf_fail(b);
    if (!buf_reserve(b, (size_t)len))
        return false;
    va_start(args, fmt);
    vsnprintf(b->data + b->len, (size_t)len + 1, fmt, args);
    va_end(args);
    b->len += (size_t)len;
    return true;
}

void buf_reset(struct buf *b)
{
    b->len = 0;
    b->failed = false;
    if (b->data)
        b->data[0] = '\0';
}

void buf_free(struct buf *b)
{
    free(b->data);
    b->data = NULL;
    b->len = 0;
    b->cap = 0;
}

char *buf_take(struct buf *b, size_t *len)
{
    if (len)
        *len = 0;
    if (!buf_put(b, "", 0)) {
        buf_free(b);
        return NULL;
    }
    char *data = b->data;
    if (len)
        *len = b->len;
    b->data = NULL; /* the caller's now */
    buf_free(b);
    return data;
}

void buf_wipe(struct buf *b)
{
    if (b->data)
        explicit_bzero(b->data, b->cap);
    buf_free(b);
}
