/* Form-encoded bodies and query strings, decoded; and the two text forms that control needs. */
#ifndef SANDBOX_FORM_H
#define SANDBOX_FORM_H

#include "common/base/buf.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FORM_PAIRS_MAX 256

struct form_pair {
    char *name; /* into the form's text */
    char *value;
};

struct form {
    char *text;
    struct form_pair pairs[FORM_PAIRS_MAX]; /* what goes past the maximum is left out */
    size_t count;
};

/* `whole` is false for text that was cut off: its last pair, which may be incomplete, is left out.
 */
void form_parse(struct form *form, const char *text, size_t len, bool whole);
void form_free(struct form *form);
/* The value of the first pair of that name, or NULL. */
const char *form_get(const struct form *form, const char *name);
/* A hash of the pairs whatever their order. */
void form_hash(const struct form *form, uint8_t out[32]);

/* Appends the decoded bytes; false when the text is not base64. */
bool base64_decode(const char *text, struct buf *out);
/* A JSON string of any bytes: byte N becomes code point N, so that nothing is lost. */
json_t *json_bytes(const char *bytes, size_t len);

#endif
