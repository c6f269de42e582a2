/* The route threads: a bounded queue of whole requests, and threads with a database connection
 * each. */
#ifndef HOLDFAST_ROUTES_H
#define HOLDFAST_ROUTES_H

#include "ingest/call.h"

void routes_start(void);
/* Hands a call over; false: the queue is full or closed and the call is still yours. */
bool routes_submit(struct call *call);
/* Takes no more, handles what is queued and ends the threads. */
void routes_stop(void);
/* After the last routes_submit. */
void routes_free(void);

#endif
