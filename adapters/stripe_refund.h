/* What stripe_refund.c (the write) and stripe_refund_read.c (the read-back) share. */
#ifndef HOLDFAST_STRIPE_REFUND_H
#define HOLDFAST_STRIPE_REFUND_H

#include "adapters/adapter.h"

/* The metadata member that holds the effect id. */
#define STRIPE_TAG "holdfast_effect"

/* A refund as it was asked for: configuration and input, checked. Borrowed from both. */
struct refund {
    const char *base; /* of the API, without "/v1" */
    const char *account;
    const char *currency;
    const char *secret;      /* the name of the credential */
    const char *target_name; /* payment_intent or charge */
    const char *target;
    bool has_amount;        /* false: all that is left */
    int64_t amount;         /* minor units */
    const char *reason;     /* or NULL */
    const json_t *metadata; /* or NULL */
    bool fault_drill;
};
/* False with err: ERROR_INVALID at "/input/...". */
bool refund_read(const json_t *definition, const json_t *input, struct refund *out,
                 struct error *err);

/* Begins a request to ".../v1/refunds" that carries the credential. NULL with err. */
struct request *stripe_request_begin(const struct refund *refund, const char *method,
                                     enum body_format format, struct error *err);

/* 1 to 255 letters, digits, _ and -. NULL is not one. */
bool stripe_id_valid(const char *id);

enum refund_standing { REFUND_NOT_FINAL, REFUND_FINAL, REFUND_FAILED };

/* A refund as Stripe shows it. Borrowed from the answer. */
struct refund_record {
    const json_t *object;
    const char *id;
    const char *status; /* "without a status" when Stripe says null, "of an unknown status" for a
                           new word */
    enum refund_standing standing;
    const char *tag; /* the effect id it carries, or NULL */
};
/* False when it is not a refund: no object, or without an id. */
bool refund_record_read(const json_t *value, struct refund_record *out);

void stripe_read_back_start(const struct read_back_facts *facts, struct read_back *read);
void stripe_read_back_answer(const struct read_back_facts *facts, const struct answer *answer,
                             const char *transport, struct read_back *read);

#endif
