/* Strict JSON in, canonical JSON out. Values are jansson's. */
#ifndef HOLDFAST_JSON_H
#define HOLDFAST_JSON_H

#include "common/base/buf.h"
#include "common/base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define JSON_DEPTH_MAX 64
#define JSON_EXACT_MAX 9007199254740991LL /* 2^53-1: what every JSON reader holds exactly */

/* Parses text as one JSON value under the rules of the wire: valid UTF-8, no NUL (raw or \u0000),
 * no lone surrogate, no duplicate member names (compared after unescaping), nesting at most 64,
 * integers and reals within +-(2^53-1), no number that a double turns into zero though it is not.
 * Nothing but white space may follow. Returns a new reference, or NULL with err (ERROR_INVALID;
 * place = "line L column C"). */
json_t *json_parse_strict(const char *text, size_t len, struct error *err);

/* The same but the value must be an object. */
json_t *json_parse_object(const char *text, size_t len, struct error *err);

/* RFC 8785 (JCS): members sorted by UTF-16 code units, ES6 number form, minimal escapes. `value`
 * must come from json_parse_strict or be built by us from such values. False: out of memory or past
 * out->max. */
bool json_canonical(const json_t *value, struct buf *out);

/* Appends text as a JSON string with quotes. Invalid UTF-8 becomes U+FFFD; NUL becomes U+FFFD. */
bool json_put_string(struct buf *out, const char *text, size_t len);

/* The value at an RFC 6901 pointer or NULL; borrowed. */
json_t *json_at_pointer(json_t *root, const char *pointer);

/* Reads an integer amount in minor units: a JSON integer (never 100.0, 1e2, "100"), least..most,
 * else ERROR_INVALID at `place`. */
bool json_amount(const json_t *value, const char *place, int64_t least, int64_t most, int64_t *out,
                 struct error *err);

/* Field readers of an object for routes. A wrong type is ERROR_INVALID with place "/name"; absent
 * (or null) leaves *out as it is and is true when !required. Strings are borrowed from the object;
 * their byte length must be least..most. */
bool json_field_text(const json_t *object, const char *name, bool required, size_t least,
                     size_t most, const char **out, struct error *err);
bool json_field_bool(const json_t *object, const char *name, bool required, bool *out,
                     struct error *err);
bool json_field_int(const json_t *object, const char *name, bool required, int64_t least,
                    int64_t most, int64_t *out, struct error *err);
/* Puts the named members (NULL-terminated list) of `changes` into an object: null removes one, what
 * is absent stays. False: out of memory. */
bool json_merge_members(json_t *object, const json_t *changes, const char *const *names);
/* Sets a member that is absent; takes `value` over. False: out of memory. */
bool json_set_default(json_t *object, const char *name, json_t *value);
/* Refuses members that are not in the NULL-terminated list, naming the first. */
bool json_only_members(const json_t *object, const char *const *names, struct error *err);

#endif
