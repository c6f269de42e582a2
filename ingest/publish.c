/* The producer of this process, for routes. */
#include "ingest/publish.h"

#include "common/base/log.h"
#include "common/bus/publish.h"

static struct producer *producer;
static int32_t reply_partition;

void publish_start(struct producer *effects, int32_t reply)
{
    producer = effects;
    reply_partition = reply;
}

void publish_effect(const struct effect_message *message)
{
    struct effect_message ours = *message;
    struct error err = {0};
    ours.reply = reply_partition;
    if (!effect_publish(producer, &ours, NULL, &err))
        log_event(LOG_DEBUG, "publish_failed", "reason=%s", err.text);
}
