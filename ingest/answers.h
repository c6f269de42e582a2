/* Answering those who wait: hears of outcomes on this process' own partition, reads what is known
 * from the database, a batch of effects in one query, and answers the calls. Messages are hints:
 * whoever waits is looked after once a second without them. */
#ifndef HOLDFAST_ANSWERS_H
#define HOLDFAST_ANSWERS_H

#include "common/bus/reader.h"
#include "ingest/call.h"

/* `outcomes` reads our partition; it stays the caller's, and is used until answers_stop. */
void answers_start(struct reader *outcomes);
void answers_stop(void);

/* What is shown of a settled invocation has changed (it was confirmed, retried, found in conflict):
 * its kept reply is replaced. May be forgotten under load; the reply's time to live ends it then.
 */
void answers_refresh(const struct ulid *effect);

#endif
