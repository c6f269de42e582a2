/* Definitions of actions as they are stored: made from the body of a create, or of a PATCH and what
 * is stored. Pure: no database, no call. */
#ifndef HOLDFAST_ACTION_DEFINITION_H
#define HOLDFAST_ACTION_DEFINITION_H

#include "common/base/error.h"

#include <jansson.h>
#include <stdbool.h>

#define ACTION_NAME_MAX 100

/* The members that a body may have, NULL-terminated. */
extern const char *const action_members[];

/* The checked definition with its defaults and without null members; a new reference. NULL with
 * err: ERROR_INVALID at the place in the body. The body may hold action_members only. */
json_t *action_definition_create(const json_t *body, struct error *err);

/* The same from a PATCH: what the body leaves out stays, null removes, governed:false removes every
 * declaration. `stored` is left as it is. */
json_t *action_definition_patch(const json_t *stored, const json_t *body, struct error *err);

/* Whether the step from one definition to the other changes or takes away what the first one
 * declares, or what forms its requests where it is guarded, so that it needs actions:govern. Adding
 * a declaration does not. */
bool action_definition_needs_govern(const json_t *before, const json_t *after);

/* Whether calls of it are held to something: governed, or only with an approval. */
bool action_definition_guarded(const json_t *definition);

/* Letters, digits, '_', '-' and '.', beginning with a letter or digit; no word of our paths and
 * nothing that reads as an id. */
bool action_name_check(const char *name, struct error *err);

#endif
