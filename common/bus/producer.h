/* Sends to Kafka: one producer for each process, idempotent, acks=all. Sending never blocks;
 * whether a message arrived is told later. A broker that is away costs a bounded queue and nothing
 * else. */
#ifndef HOLDFAST_BUS_PRODUCER_H
#define HOLDFAST_BUS_PRODUCER_H

#include "common/bus/bus.h"

struct producer;

/* How a message ended. Runs on the producer's own thread, once for each message that was queued,
 * also during producer_close; it must be quick. Not delivered means "not known to be there": the
 * broker may have it all the same. */
typedef void (*producer_report)(void *opaque, bool delivered);

/* Connects in the background: brokers that are away are no error. NULL with err for bad settings.
 */
struct producer *producer_new(const struct bus_config *config, struct error *err);

/* Queues one message and returns at once; true when it is queued. Key and payload are copied.
 * `report` may be NULL. Keys (NUL-terminated, or NULL) choose the partition when it is
 * BUS_ANY_PARTITION. False with err: the queue is full (UNAVAILABLE), the message is too large, or
 * the producer failed for good; there is no report then. Thread-safe. */
bool producer_send(struct producer *p, enum bus_topic topic, int32_t partition, const char *key,
                   const void *payload, size_t len, producer_report report, void *opaque,
                   struct error *err);

/* The same with an answer that one thread waits for: begin, do something else, wait. */
struct producer_ticket;
enum producer_answer {
    PRODUCER_DELIVERED, /* acknowledged by all in-sync replicas */
    PRODUCER_FAILED,    /* not known to be there */
    PRODUCER_LATE       /* no answer within the time: not known yet */
};
struct producer_ticket *producer_send_begin(struct producer *p, enum bus_topic topic,
                                            int32_t partition, const char *key, const void *payload,
                                            size_t len, struct error *err);
/* Gives the ticket up, whatever the answer; waits at most timeout_ms (0: only looks). */
enum producer_answer producer_ticket_wait(struct producer_ticket *ticket, int timeout_ms);

/* Begin and wait. False with err unless it was delivered. */
bool producer_send_wait(struct producer *p, enum bus_topic topic, int32_t partition,
                        const char *key, const void *payload, size_t len, int timeout_ms,
                        struct error *err);

/* Messages that are not answered yet. */
size_t producer_queue_length(struct producer *p);
bool producer_connected(struct producer *p);
/* True once the producer can't go on: drain and end the process. */
bool producer_fatal(struct producer *p);
/* A ready_check for admin_http; opaque is the producer. */
bool producer_ready(void *opaque, char *reason, size_t size);

/* Waits up to timeout_ms for what is queued, reports the rest as not delivered, and ends. Nobody
 * may be sending any more. Takes at most about a second longer than timeout_ms, whatever the
 * brokers do; false when librdkafka did not end in that time (its threads and memory are left
 * behind then). */
bool producer_close(struct producer *p, int timeout_ms);

#endif
