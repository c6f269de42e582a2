/* Who waits for which provider: a bounded list of effects per destination, and the send slots. A
 * dispatcher claims only what it has a free slot for, so that a slow provider does not hold up the
 * others. Thread-safe. */
#ifndef HOLDFAST_DESTINATIONS_H
#define HOLDFAST_DESTINATIONS_H

#include "common/bus/consumer.h"
#include "common/bus/message.h"

#include <stdbool.h>
#include <stddef.h>

/* One effect that waits to be claimed: what its message says, and the message, owned by whoever has
 * the struct. */
struct waiting {
    struct effect_message message;
    struct bus_message *delivered;
};

struct destination;
struct destinations;

struct destinations_config {
    size_t slots;             /* sends in flight, over all destinations (HOLDFAST_SEND_SLOTS) */
    size_t destination_slots; /* and for one of them (HOLDFAST_DESTINATION_SLOTS) */
    size_t waiting_max;       /* waiting for one (HOLDFAST_DESTINATION_WAITING) */
};

struct destinations *destinations_new(const struct destinations_config *config);
void destinations_free(struct destinations *d);

/* Takes what is delivered. False, with nothing taken: that destination's list is full, or there are
 * too many destinations; drop the message back (the row stays ready and is published again). */
bool destinations_put(struct destinations *d, const struct waiting *waiting);

/* Takes up to max effects of one destination that has both a waiting effect and a free slot, and
 * reserves a slot for each; destinations take turns. Waits up to timeout_ms, and then up to
 * linger_ms for the batch to fill. 0: nothing. Nobody else gets any of that destination until
 * destinations_claimed, which follows every batch: what arrives meanwhile is the next one, so that
 * batches grow with the load. */
size_t destinations_take(struct destinations *d, struct waiting *out, size_t max, int timeout_ms,
                         int linger_ms, struct destination **from);
void destinations_claimed(struct destinations *d, struct destination *from);
/* Gives slots back: the sends have ended, or were not claimed. */
void destinations_release(struct destinations *d, struct destination *from, size_t count);
/* Whether it has a free slot at all: intake pauses otherwise once enough waits. */
size_t destinations_waiting(struct destinations *d);
size_t destinations_in_flight(struct destinations *d);
/* Wakes takers; from now on take gives 0. */
void destinations_close(struct destinations *d);

#endif
