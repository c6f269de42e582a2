/* Identifiers: a ULID (48 bits of milliseconds, 80 random bits), kept as 16 bytes (a uuid in
 * Postgres), shown as PREFIX_ and 26 Crockford base32 characters. `inv_X` and `eff_X` of one call
 * share X. */
#ifndef HOLDFAST_ULID_H
#define HOLDFAST_ULID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ulid {
    uint8_t bytes[16];
};

#define ULID_TEXT_SIZE 27     /* 26 characters and NUL */
#define ULID_PREFIXED_SIZE 40 /* "prefix_" of at most 12, ULID, NUL */
#define UUID_TEXT_SIZE 37     /* 8-4-4-4-12 and NUL */

/* New identifier. Within a process they ascend: within a millisecond, and while the clock steps
 * back by less than a minute, the random part is incremented. */
void ulid_new(struct ulid *out, int64_t wall_ms);
char *ulid_format(const struct ulid *id, char out[ULID_TEXT_SIZE]);
/* "eff" -> "eff_01J..." */
char *ulid_format_prefixed(const char *prefix, const struct ulid *id, char out[ULID_PREFIXED_SIZE]);
/* Exactly 26 characters, the first 0 to 7, in either case. */
bool ulid_parse(const char *text, size_t len, struct ulid *out);
/* "eff_01J..." with that prefix and nothing after it. */
bool ulid_parse_prefixed(const char *prefix, const char *text, struct ulid *out);
char *ulid_uuid_format(const struct ulid *id, char out[UUID_TEXT_SIZE]);
bool ulid_uuid_parse(const char *text, struct ulid *out);
int ulid_compare(const struct ulid *a, const struct ulid *b);
bool ulid_is_zero(const struct ulid *id);

#endif
