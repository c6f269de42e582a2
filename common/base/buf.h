/* A growing byte buffer with a hard maximum given at init. Once a write does not fit (or memory is
 * out) the buffer is `failed` and stays so: callers may write on and check once at the end. */
#ifndef HOLDFAST_BUF_H
#define HOLDFAST_BUF_H

#include <stdbool.h>
#include <stddef.h>

struct buf {
    char *data; /* NUL-terminated after every write; NULL while nothing was written */
    size_t len; /* bytes, without the terminator */
    size_t cap;
    size_t max; /* bytes; a write past it fails */
    bool failed;
};

void buf_init(struct buf *b, size_t max);
bool buf_put(struct buf *b, const void *bytes, size_t len);
bool buf_puts(struct buf *b, const char *text);
bool buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_reset(struct buf *b); /* empty again, memory kept, failed cleared */
void buf_free(struct buf *b);  /* safe on a zeroed struct and twice */
/* Gives the bytes away (the caller frees with free()); the buffer is empty afterwards. Never NULL
 * unless failed. */
char *buf_take(struct buf *b, size_t *len);
/* Overwrites the content, then frees it: for secrets. */
void buf_wipe(struct buf *b);

#endif
