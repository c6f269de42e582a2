/* Makes the topics: what `holdfast topics` does before a fleet starts for the first time. */
#ifndef HOLDFAST_BUS_TOPICS_H
#define HOLDFAST_BUS_TOPICS_H

#include "common/bus/bus.h"

/* Creates the topics that are missing: `partitions` each for effects, reconcile and ledger,
 * `outcome_partitions` (one for each ingest) for outcomes, one for the dead letters. Existing ones
 * are left as they are. Returns when all of them can be used; blocks for at most timeout_ms. */
bool topics_create(const struct bus_config *config, int partitions, int outcome_partitions,
                   int timeout_ms, struct error *err);

/* How many partitions a topic has; 0 when it does not exist, -1 with err when nobody answered. */
int topics_partition_count(const struct bus_config *config, enum bus_topic topic, int timeout_ms,
                           struct error *err);

#endif
