/* Policy files: the policies of an environment as a text that people review. A file is planned
 * against what there is, and exactly that plan is applied or refused.
 *
 * `{"version": 1, "policies": [...]}` in YAML or JSON, each with the members of a policy; the name
 * says which one it is. A policy that a file brought and that the file lacks now is deleted; one
 * that was made through the API is left alone unless the file names it. */
#ifndef HOLDFAST_POLICY_FILE_H
#define HOLDFAST_POLICY_FILE_H

#include "common/base/crypto.h"
#include "ingest/policy/store.h"

#define POLICY_SOURCE_MAX (256 * 1024)

enum planned_what { PLANNED_CREATE, PLANNED_UPDATE, PLANNED_DELETE, PLANNED_UNCHANGED };

struct planned {
    enum planned_what what;
    struct ulid id; /* of the policy that is there; else zero */
    int version;    /* that it has; 0: none */
    json_t *before; /* its definition, or NULL; owned */
    json_t *after;  /* what it is to be, or NULL; owned */
};

struct policy_plan {
    struct planned *items; /* the file's in its order, then the deletions */
    size_t count;
    struct planned *kept; /* what there is and the file does not touch */
    size_t kept_count;
    json_t *errors; /* [{"place", "message"}]: with any, nothing can be applied */
    char digest[2 * SHA256_SIZE + 1];
};

/* YAML, or JSON when it begins with a brace or bracket. NULL with err. */
json_t *policy_text_parse(const char *text, size_t len, struct error *err);

/* Plans `source` against the environment as `store` sees it. False with err only when the database
 * can't be read; what is wrong with the file stands in plan->errors. */
bool policy_plan_make(struct store *store, int environment, const char *source,
                      struct policy_plan *plan, struct error *err);
void policy_plan_free(struct policy_plan *plan);

/* {"digest", "valid", "changes", "errors", "summary"}. */
json_t *policy_plan_show(const struct policy_plan *plan);
/* Makes the changes, in the caller's transaction and under policies_lock. */
bool policy_plan_apply(struct store *store, const struct policy_plan *plan,
                       const struct policy_change *change, struct error *err);
/* The policies as they will be, compiled, in the order in which they are asked: `out` has room for
 * plan->count + plan->kept_count. Each is the caller's. */
size_t policy_plan_result(const struct policy_plan *plan, struct policy **out);

#endif
