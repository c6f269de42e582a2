/* Text made safe for where it stands in a request. */
#ifndef HOLDFAST_ESCAPE_H
#define HOLDFAST_ESCAPE_H

#include "common/base/buf.h"
#include "common/http/request.h"

#include <stdbool.h>
#include <stddef.h>

/* Valid UTF-8 (no overlong form, no surrogate, at most U+10FFFF) without NUL. */
bool text_is_utf8(const char *text, size_t len);
/* A byte below 0x20, or 0x7f. */
bool text_has_control(const char *text, size_t len);

/* Appends text as it must stand at `place`: URL percent-encoded down to the unreserved characters,
 * header unchanged, body as the inside of a JSON string, as a form value, or unchanged. False when
 * it can't stand there (a control character in a header, no UTF-8) or the buffer is full. */
bool escape_put(struct buf *out, enum place place, enum body_format format, const char *text,
                size_t len);

#endif
