/* One HTTP request on its way through ingest: read by http.c on a server thread, handled on a route thread,
 * perhaps parked (accept, waiters), answered exactly once from whatever thread holds it then. */
#ifndef HOLDFAST_CALL_H
#define HOLDFAST_CALL_H

#include "common/base/buf.h"
#include "common/base/error.h"
#include "common/base/ulid.h"
#include "common/store/store.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Who calls: a snapshot of the key's row, checked in access.c. Reference counted by the key cache. */
struct principal {
    struct ulid key_id;
    int environment;
    char environment_name[64];
    char agent_id[201];
    uint32_t scopes;       /* bits of enum scope */
    char **actions;        /* names the key is held to, NULL-terminated; NULL: every action */
    int64_t expires_at_us; /* 0: never */
};

enum scope { /* in the order of scope_names[] in access.c; bit 1u << SCOPE_... */
    SCOPE_ACTIONS_READ, SCOPE_ACTIONS_INVOKE, SCOPE_ACTIONS_WRITE, SCOPE_ACTIONS_GOVERN,
    SCOPE_ACTIONS_RESOLVE, SCOPE_APPROVALS_REQUEST, SCOPE_APPROVALS_READ, SCOPE_APPROVALS_DECIDE,
    SCOPE_POLICIES_READ, SCOPE_POLICIES_WRITE, SCOPE_LIMITS_READ, SCOPE_LIMITS_WRITE,
    SCOPE_SECRETS_READ, SCOPE_SECRETS_WRITE, SCOPE_ENVIRONMENTS_HALT, SCOPE_EVENTS_READ,
    SCOPE_DLQ_READ, SCOPE_DLQ_WRITE, SCOPE_COUNT
};

struct call {
    /* ---- the request; owned by the call, immutable once it reaches a route ---- */
    char method[8];
    char *path;                 /* decoded; begins with / */
    const char *segments[8];    /* into a copy of path: what the route's {x} matched, in order */
    char request_id[ULID_PREFIXED_SIZE]; /* req_... */
    char *idempotency_key;      /* header, or NULL; already checked: 1..255 visible ASCII */
    int wait_ms;                /* Prefer: wait=N, else -1 */
    struct buf body;
    int64_t arrived_ms;         /* clock_boot_ms */
    const struct principal *principal; /* set by access before the handler runs (NULL for open routes) */

    /* ---- the answer ---- */
    int status;
    struct buf reply;
    const char *replay_header;  /* value of X-Idempotent-Replay, static, or NULL */
    int retry_after_s;          /* -1: none */

    struct http_exchange *exchange; /* http.c's side: connection, query string, resume */
};

/* A query parameter, decoded, or NULL. Borrowed for the life of the call. */
const char *call_query(const struct call *call, const char *name);
/* A header by name (any case), or NULL. Borrowed. */
const char *call_header(const struct call *call, const char *name);

/* Sets the answer (does not send it). `data` is JSON text. They return nothing so that a handler ends with
 * `call_data(...); return ROUTE_ANSWERED;`. */
void call_data(struct call *call, int status, const char *data_json);
void call_list(struct call *call, const char *items_json, int64_t limit, int64_t offset, int64_t total); /* total -1: null */
void call_error(struct call *call, int status, const char *code, const char *details_json, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* From an error value: INVALID 400 VALIDATION_ERROR (details.place), NOT_FOUND 404, CONFLICT 409 CONFLICT,
 * DENIED 403, TOO_LARGE 413, UNAVAILABLE and DOUBTFUL 503 with Retry-After (re-sending is safe by the key), else 500. */
void call_error_value(struct call *call, const struct error *err);

/* Sends the answer and gives the call back to http.c; the pointer is dead afterwards. Any thread, once. */
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

struct route {
    const char *method;
    const char *pattern;   /* "/api/v2/actions/{ref}/versions"; literal segments win over {x} */
    int scope;             /* enum scope, or -1: any valid key; -2: no key */
    bool recorded;         /* a write other than invoke: Idempotency-Key replays its recorded reply (idempotent.c) */
    route_handler handle;
};

/* Tables of the route files, each ended by a zero entry; http.c joins them. */
extern const struct route routes_actions[];
extern const struct route routes_invoke[];
extern const struct route routes_invocations[];
extern const struct route routes_effects[];
extern const struct route routes_secrets[];
extern const struct route routes_limits[];
extern const struct route routes_environment[];
extern const struct route routes_identity[];

#endif
