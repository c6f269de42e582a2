/* From a message to the producer's queue. */
#include "common/bus/publish.h"

static bool payload_send(struct producer *producer, enum bus_topic topic, const char *key,
                         const struct buf *payload, struct error *err)
{
    if (payload->failed)
        return error_set(err, ERROR_TOO_LARGE, "the message is longer than %d bytes", MESSAGE_MAX);
    return producer_send(producer, topic, BUS_ANY_PARTITION, key, payload->data, payload->len, NULL,
                         NULL, err);
}

bool effect_publish(struct producer *producer, const struct effect_message *message,
                    const char *key, struct error *err)
{
    struct buf payload;
    buf_init(&payload, MESSAGE_MAX);
    effect_message_encode(message, &payload);
    bool ok = payload_send(producer, BUS_EFFECTS, key, &payload, err);
    buf_free(&payload);
    return ok;
}

bool reconcile_publish(struct producer *producer, const struct reconcile_message *message,
                       const char *key, struct error *err)
{
    struct buf payload;
    buf_init(&payload, MESSAGE_MAX);
    reconcile_message_encode(message, &payload);
    bool ok = payload_send(producer, BUS_RECONCILE, key, &payload, err);
    buf_free(&payload);
    return ok;
}
