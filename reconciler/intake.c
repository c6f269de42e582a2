/* Takes references from the reconcile topic; those that somebody waits for go in front. */
#include "common/base/service.h"
#include "reconciler/read_back.h"

enum { POLL_BATCH = 64, POLL_MS = 200, PUT_MS = 100 };

/* The message waits in a queue until it can be started; while there is no room nothing more is
 * polled, so Kafka keeps the rest. */
static void message_take(struct reconciler *r, struct bus_message *message)
{
    struct reconcile_message decoded;
    struct error err = {0};
    if (!reconcile_message_decode(message->payload, message->len, &decoded, &err)) {
        consumer_unreadable(r->consumer, message, &err); /* takes the message */
        return;
    }
    struct queue *queue = decoded.purpose == READ_DEMAND ? r->urgent : r->asked;
    while (!queue_put(queue, message, PUT_MS)) {
        if (service_stopping()) { /* not decided: it is delivered again */
            bus_message_free(message);
            return;
        }
    }
}

void *reconciler_intake_thread(void *opaque)
{
    struct reconciler *r = opaque;
    struct bus_message *messages[POLL_BATCH];
    while (!service_stopping()) {
        size_t count = consumer_poll(r->consumer, messages, POLL_BATCH, POLL_MS);
        for (size_t i = 0; i < count; i++)
            message_take(r, messages[i]);
    }
    return NULL;
}
