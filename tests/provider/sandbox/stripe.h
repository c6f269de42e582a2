/* Stripe's refund calls. */
#ifndef SANDBOX_STRIPE_H
#define SANDBOX_STRIPE_H

#include "tests/provider/sandbox/answer.h"
#include "tests/provider/sandbox/facts.h"
#include "tests/provider/sandbox/fault.h"
#include "tests/provider/sandbox/request.h"

#include <stdbool.h>

/* `fault` may be NULL; the kinds that change what is made or seen are heeded here. */
void stripe_handle(const struct request *r, const struct facts *facts, const struct fault *fault,
                   struct answer *answer);
/* Whether it is the call that makes a refund (and so has an idempotency key). */
bool stripe_is_create(const struct request *r);
/* What the name of the intent of a new write asks for, or NULL. Counts as used. */
const struct fault *stripe_magic(const struct request *r, const struct facts *facts);
/* Fills in what a read by id does not say itself. */
void stripe_facts_complete(const struct request *r, struct facts *facts);

#endif
