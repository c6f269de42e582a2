/* What routes tell the dispatchers once their transaction is committed. */
#ifndef HOLDFAST_INGEST_PUBLISH_H
#define HOLDFAST_INGEST_PUBLISH_H

#include "common/bus/message.h"
#include "common/bus/producer.h"

/* `reply` is the partition of the outcomes topic that this process reads. Before any route runs. */
void publish_start(struct producer *producer, int32_t reply);

/* An effect is ready, or a replay was asked for; this process hears how it ends. When it can't be
 * queued the scheduler publishes it later. Any thread. */
void publish_effect(const struct effect_message *message);

#endif
