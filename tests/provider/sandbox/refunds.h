/* Refunds and the payment intents they belong to. */
#ifndef SANDBOX_REFUNDS_H
#define SANDBOX_REFUNDS_H

#include "common/base/buf.h"
#include "tests/provider/sandbox/table.h"

#include <stdbool.h>
#include <stdint.h>

struct intent {
    struct table_entry entry; /* its name is the id: pi_..., or ch_... of a bare charge */
    char currency[4];         /* "" while nothing said it */
    int64_t amount;           /* -1: unknown, so that anything may be refunded */
    bool magic_used;
    struct refund *oldest;
    struct refund *newest;
};

struct refund {
    struct table_entry entry; /* its name is the id */
    struct intent *intent;    /* NULL once that was let go */
    struct refund *older;     /* of the same intent */
    struct refund *newer;
    char *payment_intent; /* may be NULL, as the next one */
    char *charge;
    int64_t amount;
    char currency[4];
    char *status; /* NULL: null */
    char *reason;
    char *failure_reason;
    char *metadata; /* JSON text */
    char *effect;   /* metadata.holdfast_effect, or NULL */
    int64_t created;
    int64_t hidden_reads; /* how many reads still do not see it */
};

/* What a new refund is to say. All borrowed. */
struct refund_draft {
    const char *payment_intent;
    const char *charge;
    int64_t amount;
    const char *currency;
    const char *status;
    const char *reason;
    const char *metadata;
    const char *effect;
    int64_t hidden_reads;
};

void refunds_init(size_t keep);
void refunds_reset(void); /* ids go on: none is given twice */
struct intent *intent_find(const char *id);
struct intent *intent_touch(const char *id); /* made where it is new */
/* What may still be refunded; -1 when the intent's amount is unknown. */
int64_t intent_remaining(const struct intent *intent);
struct refund *refund_new(const struct refund_draft *draft);
struct refund *refund_find(const char *id);
/* The newest of an intent (NULL: of all), and the next older one of the same list. */
struct refund *refund_newest(const char *intent);
struct refund *refund_next(const struct refund *refund, bool of_intent);
/* True when a read sees it; a hidden one is hidden for one read less. */
bool refund_read(struct refund *refund);
void refund_put(const struct refund *refund, struct buf *out);

#endif
