/* What everything that talks to Kafka shares: where the brokers are, what the topics are called,
 * how long things may take, and a message as the consumers hand it out. */
#ifndef HOLDFAST_BUS_H
#define HOLDFAST_BUS_H

#include "common/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum bus_topic {
    BUS_EFFECTS,      /* references to effects that are ready; keyed by effect */
    BUS_RECONCILE,    /* references to effects whose provider should be read */
    BUS_OUTCOMES,     /* what became of an effect; a partition for each ingest */
    BUS_LEDGER,       /* one record for each claim batch; only the restore guard reads it */
    BUS_DEAD_LETTERS, /* what could not be read, with its coordinates */
    BUS_TOPIC_COUNT
};

#define BUS_NAME_SIZE 128
#define BUS_ANY_PARTITION (-1)

/* Read while a client is made, not kept. */
struct bus_config {
    const char *brokers;    /* host:port,host:port */
    const char *client_id;  /* the process name */
    const char *prefix;     /* of every topic and group name; "holdfast" outside of tests */
    int session_timeout_ms; /* a consumer that is silent for so long loses its partitions */
    int linger_ms;          /* how long a producer waits for a batch to fill */
    int message_timeout_ms; /* a message that is not acknowledged by then has failed */
    int queue_max_messages; /* of a producer, not yet acknowledged */
    int queue_max_kbytes;
    int in_flight_max;   /* messages of a consumer that nobody has decided yet */
    size_t payload_max;  /* bytes of a payload that a consumer copies; the rest is left out */
    const char *options; /* more librdkafka settings, "name=value;name=value", or NULL: TLS, SASL */
};

/* Everything but brokers and client_id has a sensible value after this. */
void bus_config_init(struct bus_config *config, const char *brokers, const char *client_id);
/* The same from the settings HOLDFAST_KAFKA_*, for a service. */
void bus_config_load(struct bus_config *config, const char *client_id);

/* "holdfast.effects". The consumer group that reads a topic has the topic's name. Returns out. */
char *bus_topic_name(const struct bus_config *config, enum bus_topic topic,
                     char out[BUS_NAME_SIZE]);

/* Which delivery of which message: what consumer_done takes. Plain data, copied freely. */
struct bus_token {
    int32_t partition;
    uint32_t generation; /* of the assignment it came with; an older one is ignored */
    uint64_t seq;
};

/* One message, copied out of librdkafka's buffers into one block. */
struct bus_message {
    int32_t partition;
    int64_t offset;
    struct bus_token token;
    size_t full_len; /* bytes of the payload on the wire; more than len when it was cut */
    size_t key_len;  /* 0 also when there is no key */
    size_t len;
    const char *key;     /* NULL when there is none; NUL-terminated, may hold NULs */
    const char *payload; /* NULL when there is none; NUL-terminated, may hold NULs */
    char bytes[];        /* what key and payload point into */
};

void bus_message_free(struct bus_message *message); /* NULL is fine */

#endif
