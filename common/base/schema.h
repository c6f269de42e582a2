/* JSON Schema, draft 2020-12, validation vocabulary: compiled when an action is created, used on
 * every invoke. A keyword we do not implement is refused at compile time, never ignored. */
#ifndef HOLDFAST_SCHEMA_H
#define HOLDFAST_SCHEMA_H

#include "common/base/error.h"

#include <jansson.h>
#include <stdbool.h>

struct schema; /* immutable once compiled: many threads may validate with one */

/* Compiles a schema (object or boolean). Keeps its own copy of what it needs. `$ref` may only point
 * inside the document. Patterns compile through PCRE2 (UTF, with match and depth limits). NULL with
 * err: place is the JSON pointer of the offending keyword in the schema. */
struct schema *schema_compile(const json_t *document, struct error *err);

/* True when `value` satisfies it. Else err: place is the JSON pointer into the value ("" is the
 * root), text says which keyword and what it wanted, never the value itself. A match-limit hit is a
 * failure. */
bool schema_validate(const struct schema *schema, const json_t *value, struct error *err);

void schema_free(struct schema *schema);

#endif
