/* One claimed effect on its way through a dispatcher: made by claim.c, sent by sender.c, ended by
 * settler.c. */
#ifndef HOLDFAST_DISPATCH_H
#define HOLDFAST_DISPATCH_H

#include "common/action_cache.h"
#include "common/base/queue.h"
#include "common/bus/consumer.h"
#include "common/bus/producer.h"
#include "common/effect.h"
#include "common/journal/journal.h"
#include "dispatcher/destinations.h"
#include "dispatcher/sender.h"

#include <jansson.h>

/* What the threads of a dispatcher share; made by main.c, constant afterwards. */
struct dispatcher {
    struct consumer *consumer;
    struct producer *producer;
    struct destinations *destinations;
    struct sender *sender;
    struct journal *journal;
    struct action_cache *actions;
    struct queue *ended; /* struct dispatch, on their way to the settler */
    int64_t lease_ms, provider_timeout_ms;
    size_t claim_batch, settle_batch;
    int settle_linger_ms;
};

struct dispatch {
    struct ulid effect;
    int environment;
    int seq;
    int reply; /* partition of the outcomes topic, or MESSAGE_NO_REPLY */
    struct ulid action;
    char *action_name;
    int action_version;
    char *input;                     /* canonical JSON */
    struct destination *destination; /* whose slot it holds */
    struct journal *journal;
    size_t journal_entry;  /* JOURNAL_NONE: its gate has not opened */
    struct filled *filled; /* NULL: it could not be filled, and never left */
    struct send send;      /* owner is this dispatch */
};

void dispatch_free(struct dispatch *dispatch);

/* Tells the ingest that waits, if one does. A lost message costs it a look at the database. */
void outcome_publish(struct producer *producer, const struct ulid *effect, int environment,
                     int reply, enum outcome_what what);

/* Threads; each ends by itself when its input is closed. */
void *intake_thread(void *dispatcher);
void *recover_thread(void *dispatcher);
void *claim_thread(void *dispatcher);
void *settler_thread(void *dispatcher);

#endif
