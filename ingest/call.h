/* One HTTP request on its way through ingest: read by http.c on a server thread, handled on a route
 * thread, perhaps parked (accept, waiters), answered exactly once from whatever thread holds it
 * then. */
#ifndef HOLDFAST_CALL_H
#define HOLDFAST_CALL_H

#include "common/base/buf.h"
#include "common/base/error.h"
#include "common/base/ulid.h"
#include "common/scopes.h"
#include "common/store/store.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Who calls: a snapshot of the key's row, checked in access.c. Reference counted by the key cache.
 */
struct principal {
    struct ulid key_id;
    int environment;
    char environment_name[64];
    char agent_id[201];
    char user_id[201];     /* "": none */
    char **tags;           /* NULL-terminated; never NULL */
    uint32_t scopes;       /* bits SCOPE_BIT(SCOPE_...) */
    char **actions;        /* names the key is held to, NULL-terminated; NULL: every action */
    int64_t expires_at_us; /* Unix, by the database's clock; 0: never */
};

/* Whether the key's list of actions lets it use the action of that name. */
bool principal_may_use(const struct principal *principal, const char *action_name);
/* Those names with commas between (no name holds one), to filter what the key may see: malloc'd, or
 * NULL for every action. */
char *principal_actions_list(const struct principal *principal);

#define CALL_SEGMENTS_MAX 8

struct route;

struct call {
    /* ---- the request; owned by the call, immutable once it reaches a route ---- */
    char method[8];
    const struct route *route;
    char *path;                              /* decoded; begins with / */
    const char *segments[CALL_SEGMENTS_MAX]; /* what the route's {x} matched, in order, decoded */
    char request_id[ULID_PREFIXED_SIZE];     /* req_... */
    char *idempotency_key;                   /* header, or NULL; checked: 1..255 visible ASCII */
    int wait_ms;                             /* Prefer: wait=N, else -1 */
    struct buf body;
    int64_t arrived_ms;                /* clock_boot_ms */
    const struct principal *principal; /* set by access before the handler runs; NULL: open route */

    /* ---- the answer ---- */
    int status;
    struct buf reply;
    const char *replay_header; /* value of X-Idempotent-Replay, static, or NULL */
    const char *allow_header;  /* value of Allow (405), or NULL */
    int retry_after_s;         /* -1: none */

    /* ---- what a recorded handler wants done once its transaction is committed; never when it was
     * undone. A process that ends in between does not do it. ---- */
    void (*committed)(void *what); /* or NULL */
    void *committed_what;          /* malloc'd, the call's */

    struct http_exchange *exchange; /* http.c's side: connection, query string, resume */
};

/* A query parameter, decoded, or NULL. Borrowed for the life of the call. */
const char *call_query(const struct call *call, const char *name);
/* A header by name (any case), or NULL. Borrowed. */
const char *call_header(const struct call *call, const char *name);

/* Sets the answer (does not send it). `data` is JSON text. They return nothing so that a handler
 * ends with `call_data(...); return ROUTE_ANSWERED;`. The last one that is called counts. */
void call_data(struct call *call, int status, const char *data_json);
/* total -1: null. `items_json` is a JSON array. */
void call_list(struct call *call, const char *items_json, int64_t limit, int64_t offset,
               int64_t total);
/* `details_json` may be NULL. */
void call_error(struct call *call, int status, const char *code, const char *details_json,
                const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* A whole reply as it was recorded. */
void call_recorded(struct call *call, int status, const char *reply);
/* From an error value: INVALID 400 VALIDATION_ERROR (details.place), NOT_FOUND 404, CONFLICT 409
 * CONFLICT, DENIED 403, TOO_LARGE 413, UNAVAILABLE and DOUBTFUL 503 with Retry-After (re-sending is
 * safe by the key), else 500, which is logged and whose text is not shown. */
void call_error_value(struct call *call, const struct error *err);

/* Sends the answer and gives the call back to http.c; the pointer is dead afterwards. Any thread,
 * once. */
void call_finish(struct call *call);

/* ---- routes ---- */

/* What a route thread owns: one database connection. */
struct route_worker {
    struct store *store;
};

enum route_result {
    ROUTE_ANSWERED, /* the answer is set; the route thread finishes the call */
    ROUTE_PARKED    /* somebody else has the call now and will finish it */
};

typedef enum route_result (*route_handler)(struct route_worker *worker, struct call *call);

enum { ROUTE_ANY_KEY = -1, ROUTE_NO_KEY = -2 }; /* instead of a scope */

/* A `recorded` handler always runs inside a transaction that idempotent.c has begun on
 * worker->store: it uses store_query and settle_in_transaction, never begin, commit, rollback or
 * transact, and it never parks. An answer below 400 commits what it did; any other answer undoes
 * it, so it may return right after a failed query. A lost COMMIT answer is looked up by
 * idempotent.c. */
struct route {
    const char *method;
    const char *pattern; /* "/api/v2/actions/{ref}/versions"; literal segments win over {x} */
    int scope;           /* enum scope, or ROUTE_ANY_KEY, ROUTE_NO_KEY */
    bool recorded;       /* a write other than invoke: an Idempotency-Key replays its reply */
    route_handler handle;
};

/* Tables of the route files, each ended by a zero entry; route_table.c joins them. */
extern const struct route routes_actions[];
extern const struct route routes_invoke[];
extern const struct route routes_claims[];
extern const struct route routes_invocations[];
extern const struct route routes_effects[];
extern const struct route routes_effect_batches[];
extern const struct route routes_secrets[];
extern const struct route routes_limits[];
extern const struct route routes_environment[];
extern const struct route routes_identity[];
extern const struct route routes_approvals[];
extern const struct route routes_policies[];
extern const struct route routes_policy_files[];

#endif
