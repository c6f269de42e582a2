/* Who waits for a read of the provider: calls parked until the read of their effect has ended or
 * their time is over. Any ingest may have asked for the read; what is answered comes from the
 * database. */
#ifndef HOLDFAST_RECONCILE_WAIT_H
#define HOLDFAST_RECONCILE_WAIT_H

#include "common/bus/producer.h"
#include "ingest/call.h"

/* `reply` is the partition of the outcomes topic that this process reads. */
void reconcile_wait_start(struct producer *producer, int32_t reply);
/* Answers those that still wait with what is known now, and ends. Nobody may be added any more. */
void reconcile_wait_stop(void);

/* Asks the reconcilers to read the provider now. When that can't be published, whoever waits is
 * answered when the read's time is over. */
void reconcile_wait_publish(const struct ulid *effect, int environment);

/* Parks a call until the read that is under way has ended. `lead`: it is this call that asked for
 * it, so it is told 200 when the read settles the effect; all others are told 409 then. False: too
 * many wait, the call is still yours. */
bool reconcile_wait_add(const struct ulid *effect, struct call *call, bool lead,
                        int64_t deadline_ms);

/* Something was said about an effect: it is looked at if somebody waits here for it. Any thread. */
void reconcile_wait_poke(const struct ulid *effect);

#endif
