/* Who waits for what: calls parked until something is known about an effect or their time is over.
 * The table only says where to look; what is answered comes from the database (answers.c). */
#ifndef HOLDFAST_WAITERS_H
#define HOLDFAST_WAITERS_H

#include "ingest/call.h"

enum wait_kind {
    WAIT_FIRST,     /* the call that was accepted: 202 when its time is over */
    WAIT_DUPLICATE, /* the same key again: 409 then */
    WAIT_OPERATION  /* another key of the same operation: 202 then */
};

struct wait {
    struct wait *next;
    struct call *call;
    enum wait_kind kind;
    int64_t deadline_ms; /* clock_boot_ms */
};

void waiters_start(void);
void waiters_stop(void); /* nobody may be waiting any more */

/* Parks a call. `look`: something may be known already, so the effect is looked at right away. */
void waiters_add(const struct ulid *effect, struct call *call, enum wait_kind kind,
                 int64_t deadline_ms, bool look);
/* Something happened to an effect: it is looked at if somebody waits for it. */
void waiters_poke(const struct ulid *effect);
/* Marks the effects of which somebody's time is over, as of now. */
void waiters_expire(int64_t now_ms);
/* The ids of all effects that are waited for: malloc'd, or NULL when there are none. */
struct ulid *waiters_all(size_t *count);

/* Effects to look at now: waits up to timeout_ms for the first. */
size_t waiters_take_due(struct ulid *out, size_t max, int timeout_ms);
/* Takes those who wait for an effect: all, or only those whose time is over. The list is the
 * caller's: each call is to be answered and each wait freed. */
struct wait *waiters_detach(const struct ulid *effect, bool all, int64_t now_ms);

size_t waiters_count(void);
/* No wait lasts longer than until then, those to come included. */
void waiters_limit(int64_t deadline_ms);

#endif
