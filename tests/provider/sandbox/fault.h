/* Rules of misbehaviour: which requests they meet, and what is done to them. */
#ifndef SANDBOX_FAULT_H
#define SANDBOX_FAULT_H

#include "common/base/buf.h"
#include "common/base/error.h"
#include "tests/provider/sandbox/facts.h"
#include "tests/provider/sandbox/request.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum fault_kind {
    FAULT_STATUS,
    FAULT_DROP,
    FAULT_RESET,
    FAULT_RESET_EARLY,
    FAULT_HANG,
    FAULT_DELAY,
    FAULT_DRIP,
    FAULT_GARBAGE,
    FAULT_TRUNCATE_HEAD,
    FAULT_TRUNCATE_BODY,
    FAULT_TRUNCATE_CHUNK,
    FAULT_EARLY_200,
    FAULT_RAW,
    FAULT_BODY_RAW,
    FAULT_HTML,
    FAULT_STALE_KEEPALIVE,
    FAULT_DOUBLE,
    FAULT_STATUS_FIELD,
    FAULT_LAG,
    FAULT_EMPTY_LIST,
    FAULT_WRONG_AMOUNT,
    FAULT_WRONG_CURRENCY,
    FAULT_KINDS
};

/* What is kept under the idempotency key of a write that met the rule. */
enum fault_record {
    RECORD_NONE,
    RECORD_SENT,   /* the answer that the rule gave: it is replayed */
    RECORD_APPLIED /* the true answer, which the rule kept from the client */
};

enum stale_mode {
    STALE_WHOLE,  /* the next request is read whole, and the connection closed on it */
    STALE_UNREAD, /* closed the moment that the next request comes */
    STALE_IDLE    /* closed while nothing is asked, `ms` after the answer */
};

struct fault {
    int64_t id;
    enum fault_kind kind;
    /* match; NULL matches all */
    char *method;
    char *path_prefix;
    char *intent;
    char *key;
    char *effect;
    int write;     /* 1: writes only, 0: reads only, -1: both */
    int64_t times; /* how often it still applies; -1: for ever */
    int64_t skip;  /* how many matches pass first */
    int64_t used;
    /* what it does; which of these count depends on the kind */
    bool apply;
    int status;
    json_t *headers; /* object of strings, or NULL */
    struct buf body; /* raw bytes, the answer's body */
    bool has_body;
    int64_t body_repeat;
    int64_t bytes; /* how many are sent before a cut; -1: half */
    int64_t ms;
    int64_t delay_ms;
    bool close; /* close after the answer */
    bool rst;   /* a close is a reset */
    enum stale_mode mode;
    bool last_chunk_only; /* truncate_chunk: only the chunk that ends the body is missing */
    enum fault_record record;
    char *value; /* status_field: the status, NULL for null; wrong_currency: the currency */
    int64_t amount;
    int64_t reads; /* lag */
    json_t *source;
    struct fault *next;
};

#define FAULTS_MAX 1000

const char *fault_kind_name(enum fault_kind kind);
/* Whether it is decided before the body is read. */
bool fault_is_early(const struct fault *fault);

/* Adds a rule; its id, or 0 with err. */
int64_t fault_add(const json_t *rule, struct error *err);
/* The first rule of that phase which the request meets; it counts as used. NULL: none. Borrowed
 * until rules change. */
const struct fault *fault_take(const struct request *r, const struct facts *facts, bool early);
json_t *fault_list(void);
bool fault_remove(int64_t id);
void fault_clear(void);
/* What the name of the payment intent asks for by itself, or NULL. `first` says whether this is the
 * intent's first write. */
const struct fault *fault_magic(const char *intent, bool first);

#endif
