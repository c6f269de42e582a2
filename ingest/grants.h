/* Claims: giving a worker outside the fleet the right to perform an effect itself, once. A claim is
 * accepted like an invoke (accept.h), and what was accepted, or found under its key or operation,
 * is put here to the database (grant_batch), which decides under the open row's lock who has the
 * right. */
#ifndef HOLDFAST_GRANTS_H
#define HOLDFAST_GRANTS_H

#include "ingest/accept.h"

enum { CLAIM_HOLDER_MAX = 200 };

/* What a worker asks for besides the call itself. */
struct claim_ask {
    char holder[CLAIM_HOLDER_MAX +
                1]; /* what the asking process calls itself; "": it does not say */
    int lease_ms;   /* how long it may take */
};

void grants_start(void);
/* After accept_stop: decides what is queued and ends. */
void grants_stop(void);

/* Takes a->call, which gets its answer; `a` stays the caller's. */
void grants_ask(struct accept_call *a);

#endif
