/* What the policies would say of a request that is described, not made: for evaluate and for the
 * fixture cases of policy files. Reads the action's definition, and nothing else. */
#ifndef HOLDFAST_POLICY_EVALUATE_H
#define HOLDFAST_POLICY_EVALUATE_H

#include "ingest/call.h"
#include "ingest/policy/policy.h"

/* The members of a described request: kind, actionName, agentId, userId, tags, payload, amount. */
extern const char *const evaluation_members[];

/* `policies` in the order in which they are asked; `request` is an object with none but the members
 * above. Gives an object that says what would happen and by which policy; NULL with err, whose
 * place is in the request. */
json_t *evaluation_run(struct store *store, const struct principal *principal,
                       struct policy *const *policies, size_t count, json_t *request,
                       struct error *err);

#endif
