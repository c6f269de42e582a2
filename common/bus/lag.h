/* How far a whole group is behind, seen from outside of it: the scheduler republishes only what is
 * older than that. */
#ifndef HOLDFAST_BUS_LAG_H
#define HOLDFAST_BUS_LAG_H

#include "common/bus/bus.h"

struct lag_watch; /* for one thread */

struct lag {
    int64_t messages; /* sent and not stored as read, over all partitions */
    int64_t age_ms; /* how long ago the oldest of them was sent, by the wall clock; 0 without any */
};

/* Of the topic and the group of the same name, which is not joined. NULL with err for bad settings.
 */
struct lag_watch *lag_watch_new(const struct bus_config *config, enum bus_topic topic,
                                struct error *err);
/* Asks the brokers; blocks for up to about timeout_ms. False with err (UNAVAILABLE): not known. */
bool lag_watch_read(struct lag_watch *watch, int timeout_ms, struct lag *out, struct error *err);
void lag_watch_close(struct lag_watch *watch, int timeout_ms);

#endif
