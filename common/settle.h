/* The only settler. Takes what is known about effects and lets the database decide, in batches; a
 * batch that fails for good is halved until the offender stands alone, and that one becomes
 * unknown, with an alarm. */
#ifndef HOLDFAST_SETTLE_H
#define HOLDFAST_SETTLE_H

#include "common/effect.h"
#include "common/store/store.h"

enum settle_kind {
    SETTLE_DISPATCH,  /* the end of a write attempt */
    SETTLE_RECONCILE, /* a read of the provider */
    SETTLE_MANUAL,    /* a person */
    SETTLE_WORKER     /* one outside the fleet, of what it performed itself */
};

/* What is known. Texts and bytes are borrowed until the call returns. */
struct settle_item {
    struct ulid effect;
    enum settle_kind kind;
    int seq;                   /* of the write attempt; 0: none */
    enum outcome outcome;      /* succeeded, failed, unknown, pending */
    enum settle_reason reason; /* for succeeded and failed */
    int response_status;  /* 0: none. Of the write; a read's status is no response of the write */
    const void *response; /* the answer's body as it arrived, or NULL */
    size_t response_len;
    bool response_truncated; /* it was longer than we keep */
    const char *object_id;
    const char *error;    /* for a person: why it failed */
    const char *evidence; /* one sentence; never NULL */
    int64_t sent_at_us;   /* Unix; 0: never or not known */
    int64_t finished_at_us;
    int64_t consumed; /* -1: what was held */
    const char *external_reference;
    const char *partial_effect;
    const char *by; /* process name or key id */

    /* ---- filled by settle_batch_run ---- */
    enum settle_result {
        SETTLE_SETTLED,
        SETTLE_UNKNOWN,
        SETTLE_PENDING,
        SETTLE_EVIDENCE,
        SETTLE_LATE,
        SETTLE_CONFLICT,
        SETTLE_WRONG_STAGE,
        SETTLE_IN_FLIGHT,
        SETTLE_LEASE_ENDED,
        SETTLE_MISSING,
        SETTLE_NOT_DECIDED /* the database was away; ask again */
    } result;
    int environment; /* 0 when missing */
};

/* Settles items (at most 256; distinct effects; sorted here by id). True: every item has its
 * result. False: err is ERROR_UNAVAILABLE or ERROR_DOUBTFUL, nothing is known of those with
 * SETTLE_NOT_DECIDED, and the same call may be made again: settling twice changes nothing, the
 * second time finds it settled (late). */
bool settle_batch_run(struct store *store, struct settle_item *items, size_t count,
                      struct error *err);

/* The same inside the caller's open transaction (resolve: settle, audit and reply are one). One
 * try, no halving. */
bool settle_in_transaction(struct store *store, struct settle_item *item, struct error *err);

const char *settle_result_name(enum settle_result result);

#endif
