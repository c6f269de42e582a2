/* Writing policies: each change is one row in approval_policies, one version that is never changed
 * again, and one row in the audit table, in the caller's transaction. */
#ifndef HOLDFAST_POLICY_STORE_H
#define HOLDFAST_POLICY_STORE_H

#include "ingest/call.h"
#include "ingest/policy/policy.h"

/* Changes of an environment's policies take turns until the transaction ends, so that what was
 * read of them stays true. */
bool policies_lock(struct store *store, int environment, struct error *err);

/* How a change came about. Borrowed. */
struct policy_change {
    const struct call *call;
    const char *note; /* or NULL */
    bool from_file;
};

/* A new policy, version 1; *id is set. ERROR_CONFLICT with place "23505": the name is taken. */
bool policy_create(struct store *store, const struct policy_change *change,
                   const json_t *definition, struct ulid *id, struct error *err);
/* Appends version + 1. */
bool policy_edit(struct store *store, const struct policy_change *change, const struct ulid *id,
                 int version, const json_t *definition, struct error *err);
/* Appends a tombstone: version + 1, with the definition that it had. */
bool policy_delete(struct store *store, const struct policy_change *change, const struct ulid *id,
                   int version, const json_t *definition, struct error *err);

#endif
