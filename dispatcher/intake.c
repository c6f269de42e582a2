/* Takes references from the effects topic and sorts them by destination. A message counts as read
 * once its effect is decided in Postgres or dropped back (left ready); an unreadable one goes to
 * the dead letters. */
#include "common/base/metrics.h"
#include "common/base/service.h"
#include "dispatcher/dispatch.h"

enum { POLL_BATCH = 256, POLL_MS = 200 };

static void message_take(struct dispatcher *d, struct bus_message *message)
{
    struct waiting waiting = {.delivered = message};
    struct error err = {0};
    if (!effect_message_decode(message->payload, message->len, &waiting.message, &err)) {
        consumer_unreadable(d->consumer, message, &err); /* takes the message */
        return;
    }
    if (!destinations_put(d->destinations, &waiting)) {
        metric_add(
            metric_counter(
                "holdfast_dropped_back_total", "",
                "Messages whose effect was left ready: its destination had too many waiting."),
            1);
        consumer_done(d->consumer, &message->token);
        bus_message_free(message);
    }
}

void *intake_thread(void *opaque)
{
    struct dispatcher *d = opaque;
    struct bus_message *messages[POLL_BATCH];
    while (!service_stopping()) {
        size_t count = consumer_poll(d->consumer, messages, POLL_BATCH, POLL_MS);
        for (size_t i = 0; i < count; i++)
            message_take(d, messages[i]);
    }
    return NULL;
}
