/* Writes other than invoke: one transaction holds what the handler did and the reply that it gave,
 * so that the same key and request get the recorded reply for 24 hours, whatever was lost in
 * between. */
#ifndef HOLDFAST_IDEMPOTENT_H
#define HOLDFAST_IDEMPOTENT_H

#include "ingest/call.h"

/* Runs call->route->handle inside a transaction and answers the call. */
void idempotent_run(struct route_worker *worker, struct call *call);

#endif
