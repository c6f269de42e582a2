/* Approval policies: what one says, whether it means a request, and which of several decides. Pure:
 * no database, no clock. Compiled once, then shared by threads. */
#ifndef HOLDFAST_POLICY_H
#define HOLDFAST_POLICY_H

#include "common/base/schema.h"
#include "common/base/ulid.h"
#include "common/effect.h"

#define POLICY_NAME_MAX 200
#define POLICIES_MAX 200 /* of one environment */
#define POLICY_APPROVALS_MAX 10
#define POLICY_TAGS_MAX 20
#define POLICY_TAG_MAX 100

enum policy_kind { POLICY_ANY, POLICY_ACTION, POLICY_CUSTOM };

enum policy_effect {
    POLICY_NONE, /* no policy matches */
    POLICY_REQUIRE_APPROVAL,
    POLICY_AUTO_APPROVE,
    POLICY_AUTO_DENY
};
/* "require_approval"; POLICY_NONE is "none". Static. */
const char *policy_effect_name(enum policy_effect effect);
bool policy_effect_parse(const char *name, enum policy_effect *out);

struct policy {
    struct ulid id;
    int version;        /* 0: not stored yet, and `id` only gives it its place */
    json_t *definition; /* owned; the texts below point into it */
    const char *name;
    enum policy_kind kind;
    enum policy_effect effect;
    const char *action, *agent, *user; /* NULL: any */
    const json_t *tags;                /* NULL: any; else all of them are wanted */
    int64_t min_amount;                /* minor units; -1: any */
    struct schema *conditions;         /* NULL: none */
    int required;
    int64_t priority;
    bool enabled;
};

/* ---- definitions ---- */

/* The members of a definition, NULL-terminated. */
extern const char *const policy_members[];

/* Normalises a body into a whole definition, or `stored` with the members of the body put in (null
 * clears). NULL with err, which names the place. */
json_t *policy_definition_make(const json_t *stored, const json_t *body, struct error *err);

/* Compiles a definition that policy_definition_make gave; takes a reference of its own. NULL with
 * err. */
struct policy *policy_compile(const json_t *definition, const struct ulid *id, int version,
                              struct error *err);
void policy_free(struct policy *policy); /* NULL is fine */

/* ---- deciding ---- */

/* What is asked about. Borrowed. */
struct policy_request {
    bool custom;                 /* an approval asked for by itself, not an action's invocation */
    const char *action;          /* NULL when custom */
    json_t *input;               /* the action's input, or the payload; an object */
    const char *agent;           /* never NULL */
    const char *user;            /* or NULL */
    char *const *tags;           /* NULL-terminated, or NULL: none */
    const struct impact *impact; /* or NULL: none declared */
};

struct policy_decision {
    const struct policy *policy; /* borrowed from the list, NULL: none matches */
    enum policy_effect effect;
    int required;   /* with POLICY_REQUIRE_APPROVAL */
    bool undecided; /* the conditions could not be checked, so a person has to look */
};

/* Orders as they are asked: highest priority first, then the older id. */
int policy_compare(const void *left, const void *right); /* of struct policy * */

/* The first that matches decides; `policies` are in that order.
 *
 * What can't be told is decided on the safe side: an impact without a quantity is as large as any
 * minAmount, except for auto_approve, and conditions that are too much work to check count as met,
 * auto_approve then turning into require_approval. */
void policy_decide(struct policy *const *policies, size_t count,
                   const struct policy_request *request, struct policy_decision *out);

#endif
