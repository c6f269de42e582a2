/* Who waits for the decision on an approval: calls parked until it is made or their time is over.
 * One thread looks after all of them, whatever their number: it hears of decisions made anywhere
 * through Postgres (LISTEN holdfast_approvals), reads a batch of approvals in one query, and once a
 * second looks at all that are waited for, so that a lost notification costs a second and nothing
 * more. */
#ifndef HOLDFAST_APPROVAL_WAIT_H
#define HOLDFAST_APPROVAL_WAIT_H

#include "ingest/call.h"

void approval_wait_start(void);
/* Answers those that still wait with the approval as it is, and ends. Nobody may be added any more.
 */
void approval_wait_stop(void);

/* Parks a call until the approval is decided, at the latest until the deadline. False: too many
 * wait, the call is still yours. */
bool approval_wait_add(const struct ulid *approval, struct call *call, int64_t deadline_ms);

#endif
