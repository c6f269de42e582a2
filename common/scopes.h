/* What a key may do: the names of the wire, their bits, and the sets that keys are usually given.
 */
#ifndef HOLDFAST_SCOPES_H
#define HOLDFAST_SCOPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum scope { /* bit 1u << SCOPE_...; in the order of the names in scopes.c */
             SCOPE_ACTIONS_READ,
             SCOPE_ACTIONS_INVOKE,
             SCOPE_ACTIONS_WRITE,
             SCOPE_ACTIONS_GOVERN,
             SCOPE_ACTIONS_RESOLVE,
             SCOPE_APPROVALS_REQUEST,
             SCOPE_APPROVALS_READ,
             SCOPE_APPROVALS_DECIDE,
             SCOPE_POLICIES_READ,
             SCOPE_POLICIES_WRITE,
             SCOPE_LIMITS_READ,
             SCOPE_LIMITS_WRITE,
             SCOPE_SECRETS_READ,
             SCOPE_SECRETS_WRITE,
             SCOPE_ENVIRONMENTS_HALT,
             SCOPE_EVENTS_READ,
             SCOPE_DLQ_READ,
             SCOPE_DLQ_WRITE,
             SCOPE_COUNT
};

#define SCOPE_BIT(scope) (UINT32_C(1) << (scope))

/* "actions:invoke". Static. */
const char *scope_name(enum scope scope);
bool scope_parse(const char *name, size_t len, enum scope *out);

/* The bits of a named set: agent, operator (all but resolve and decide), resolver (these two and
 * the reads). False for another name. */
bool scope_preset(const char *name, uint32_t *out);

#endif
