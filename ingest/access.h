/* Who calls and what they may: an API key, found by its hash. */
#ifndef HOLDFAST_ACCESS_H
#define HOLDFAST_ACCESS_H

#include "ingest/call.h"

void access_start(void);
void access_stop(void);

/* Checks the call's key against its route and sets call->principal, a reference that access_release
 * gives back. False: the call is answered (401, 403, or 503 while the database is away). */
bool access_check(struct store *store, struct call *call);
void access_release(const struct principal *principal); /* NULL is fine */

#endif
