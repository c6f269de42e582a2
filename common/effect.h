/* The data model: what an effect is, the states it moves through, and who may move it. One
 * invocation and its effect are one row; `inv_X` and `eff_X` share X. The tables are in
 * common/store/migrations/0001_first_light.sql; the words are those of the wire. */
#ifndef HOLDFAST_EFFECT_H
#define HOLDFAST_EFFECT_H

#include "common/base/ulid.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where an effect is on its way. The first four are open (a row in open_effects says so); the last
 * two are final (a row in settlements says so). Never compared by number: the database has the
 * words. */
enum stage {
    STAGE_AWAITING_APPROVAL,
    STAGE_READY,       /* accepted; no dispatcher has claimed it */
    STAGE_DISPATCHING, /* claimed: a write may leave until send_by and may be answered until
                          answer_by */
    STAGE_RECONCILING, /* a write may have happened; only evidence or a person settles it */
    STAGE_SETTLED,     /* succeeded or failed. Never moves */
    STAGE_REJECTED,    /* never sent: refused, denied, expired, cancelled. Never moves */
    STAGE_COUNT
};

/* What is known about the write. */
enum outcome {
    OUTCOME_PENDING, /* nothing is known yet, or the provider itself says "not final" */
    OUTCOME_UNKNOWN,
    OUTCOME_SUCCEEDED,
    OUTCOME_FAILED,
    OUTCOME_NOT_DISPATCHED,
    OUTCOME_COUNT
};

/* Why an effect ended as it did: the reason of a settlement. */
enum settle_reason {
    REASON_NONE,
    REASON_PROVIDER_2XX,    /* succeeded: a whole 2xx */
    REASON_PROVIDER_4XX,    /* failed: a whole 4xx other than 408 and 409 */
    REASON_NEVER_LEFT,      /* failed: the gate was never passed */
    REASON_PROVIDER_RECORD, /* succeeded or failed: read from the provider's own record */
    REASON_MANUAL,          /* succeeded or failed: a person said so */
    REASON_WORKER_REPORT,   /* succeeded or failed: the worker that performed it itself said so */
    REASON_REFUSED,         /* not_dispatched: by a limit or another check of the claim */
    REASON_EXPIRED,         /* not_dispatched: dispatch_before passed */
    REASON_CANCELLED,
    REASON_DENIED,
    REASON_COUNT
};

enum mover {
    MOVER_INGEST,
    MOVER_DISPATCHER,
    MOVER_SWEEP,
    MOVER_RECONCILER,
    MOVER_PERSON,
    MOVER_COUNT
};

const char *stage_name(enum stage stage);
const char *outcome_name(enum outcome outcome);
const char *settle_reason_name(enum settle_reason reason);
bool stage_parse(const char *name, enum stage *out);
bool outcome_parse(const char *name, enum outcome *out);
bool settle_reason_parse(const char *name, enum settle_reason *out);

/* How much one effect changes, in minor units or a count; what limits hold. */
struct impact {
    bool declared;
    bool has_amount; /* false: the declaration gave no quantity, any limit that applies refuses */
    char dimension[33]; /* money, resource_mutations, emails, ... */
    char unit[33];      /* currency in lower case for money, else the dimension */
    char bound[12];     /* exact or upper_bound */
    int64_t amount;     /* >= 0; meaningful when has_amount */
    char resource[256]; /* what limits with a resourcePrefix compare; adapters say its form */
};

#endif
