/* Accepting calls: what an invoke has prepared waits here for a batch, the batch becomes one
 * transaction, and the calls go on to whoever answers them. Nothing is accepted before COMMIT. */
#ifndef HOLDFAST_ACCEPT_H
#define HOLDFAST_ACCEPT_H

#include "common/base/crypto.h"
#include "common/bus/message.h"
#include "common/bus/producer.h"
#include "ingest/actions_cache.h"
#include "ingest/call.h"

#define PROVIDER_KEY_SIZE 64

enum verdict {
    VERDICT_NONE, /* not decided; `failure` says why */
    VERDICT_KEPT, /* Redis had the settled reply: `kept` */
    VERDICT_ACCEPTED,
    VERDICT_KEY_SAME,
    VERDICT_KEY_REUSE,
    VERDICT_OPERATION_SAME,
    VERDICT_OPERATION_REUSE,
    VERDICT_HALTED,
    VERDICT_PART_HALTED, /* `detail`: action NAME, or destination NAME */
    VERDICT_OVER_BUDGET, /* `detail`: PERIOD SECONDS LIMIT */
    VERDICT_RETRY_REFUSED,
    VERDICT_COMPENSATES_REFUSED
};

/* What stands between a call and its dispatch. */
enum gate {
    GATE_OPEN,
    GATE_APPROVAL, /* it waits for a person */
    GATE_DENIED    /* a policy denies it for good */
};

/* One call on its way in. What is borrowed from the call lives until the call is finished. */
struct accept_call {
    struct call *call;
    struct ulid id; /* the effect's, when it is accepted */
    uint8_t key_hash[SHA256_SIZE];
    uint8_t body_hash[SHA256_SIZE];
    char *operation; /* or NULL: names no operation */
    uint8_t operation_hash[SHA256_SIZE];
    uint8_t input_hash[SHA256_SIZE];
    struct ulid retry_of;    /* zero: no retry */
    struct ulid compensates; /* zero: undoes nothing */
    struct action *action;   /* a reference */
    char destination[MESSAGE_DESTINATION_SIZE];
    struct buf input;   /* canonical */
    struct buf request; /* encoded, slotted */
    uint8_t request_hash[SHA256_SIZE];
    char *secrets; /* names in order, joined by commas */
    char provider_key[PROVIDER_KEY_SIZE];
    struct impact impact;
    bool has_read_back;
    bool fault_drill;
    enum gate gate;
    char *gate_text;         /* what accept_batch is told of it, or NULL */
    struct claim_ask *claim; /* a worker outside asks to perform it (grants.h), or NULL */
    char *run_id;            /* or NULL */
    char *parent_span_id;    /* or NULL */
    int dispatch_before_s;
    int wait_ms; /* from the call's arrival */

    /* ---- the accept thread's ---- */
    struct accept_call *same; /* calls with the same key and body: they share the verdict */
    enum verdict verdict;
    struct ulid effect;   /* the one that the verdict is about */
    char detail[256];     /* of the verdict */
    struct error failure; /* with VERDICT_NONE */
    char *kept;           /* with VERDICT_KEPT: the invocation as JSON */
};

void accept_call_free(struct accept_call *a); /* not the call; NULL is fine */

/* `reply` is the partition of the outcomes topic that this process reads. */
void accept_start(struct producer *producer, int32_t reply);
/* Gives a call away; false: the queue is full or closed, both stay the caller's. */
bool accept_submit(struct accept_call *a);
/* Takes no more, decides what is queued and ends the threads. */
void accept_stop(void);
size_t accept_waiting(void);

/* ---- between the files of accept ---- */

/* accept_rows.c: one try of one transaction; fills verdict, effect and detail of each. The calls
 * are sorted by environment and key; no two share a key, an operation or an original. */
bool accept_rows_run(struct store *store, struct accept_call **calls, size_t count,
                     struct error *err);
/* accept_answer.c: the one way out. Takes the call and everything with the same key and body. */
void accept_deliver(struct accept_call *a, struct producer *producer, int32_t reply);

#endif
