/* Publishing references: a message is written and queued in one step. */
#ifndef HOLDFAST_BUS_PUBLISH_H
#define HOLDFAST_BUS_PUBLISH_H

#include "common/bus/message.h"
#include "common/bus/producer.h"

/* `key` (or NULL) chooses the partition. False with err, as producer_send: it is not queued, and
 * whoever owns the row publishes it again. Thread-safe. */
bool effect_publish(struct producer *producer, const struct effect_message *message,
                    const char *key, struct error *err);
bool reconcile_publish(struct producer *producer, const struct reconcile_message *message,
                       const char *key, struct error *err);

#endif
