/* Names and defaults of the bus, and the copies of messages that its consumers hand out. */
#include "common/bus/bus.h"

#include "common/base/config.h"
#include "common/bus/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const TOPIC_WORDS[BUS_TOPIC_COUNT] = {
    [BUS_EFFECTS] = "effects", [BUS_RECONCILE] = "reconcile", [BUS_OUTCOMES] = "outcomes",
    [BUS_LEDGER] = "ledger",   [BUS_DEAD_LETTERS] = "dlq",
};

void bus_config_init(struct bus_config *config, const char *brokers, const char *client_id)
{
    *config = (struct bus_config){
        .brokers = brokers,
        .client_id = client_id,
        .prefix = "holdfast",
        .session_timeout_ms = 10000,
        .linger_ms = 1,
        .message_timeout_ms = 10000,
        .queue_max_messages = 20000,
        .queue_max_kbytes = 32 * 1024,
        .in_flight_max = 4096,
        .payload_max = 64 * 1024,
    };
}

void bus_config_load(struct bus_config *config, const char *client_id)
{
    bus_config_init(config, config_text("HOLDFAST_KAFKA_BROKERS"), client_id);
    config->prefix = config_text("HOLDFAST_KAFKA_PREFIX");
    config->options = config_text("HOLDFAST_KAFKA_OPTIONS");
    config->session_timeout_ms = (int)config_int("HOLDFAST_KAFKA_SESSION_TIMEOUT_MS");
}

char *bus_topic_name(const struct bus_config *config, enum bus_topic topic, char out[BUS_NAME_SIZE])
{
    must(topic < BUS_TOPIC_COUNT);
    int len = snprintf(out, BUS_NAME_SIZE, "%s.%s", config->prefix, TOPIC_WORDS[topic]);
    must(len > 0 && len < BUS_NAME_SIZE);
    return out;
}

/* Copies len bytes and a NUL to *at and moves it on. NULL stays NULL. */
static const char *put_bytes(char **at, const void *bytes, size_t len)
{
    if (!bytes)
        return NULL;
    char *start = *at;
    memcpy(start, bytes, len);
    start[len] = '\0';
    *at += len + 1;
    return start;
}

struct bus_message *bus_message_copy(const rd_kafka_message_t *from, size_t payload_max)
{
    /* A key has no use but to be shown; ours are 30 bytes. */
    size_t key_len = from->key_len < 1024 ? from->key_len : 1024;
    size_t len = from->len < payload_max ? from->len : payload_max;
    struct bus_message *message = malloc(sizeof(*message) + key_len + len + 2);
    if (!message)
        return NULL;
    char *at = message->bytes;
    *message = (struct bus_message){
        .partition = from->partition,
        .offset = from->offset,
        .full_len = from->len,
        .key_len = key_len,
        .len = len,
    };
    message->key = put_bytes(&at, from->key, key_len);
    message->payload = put_bytes(&at, from->payload, len);
    return message;
}

void bus_message_free(struct bus_message *message)
{
    free(message);
}
