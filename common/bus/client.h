/* Inside of common/bus: what the producer, the consumer, the reader and the admin calls need from
 * librdkafka in the same way. Nothing outside this folder includes it. */
#ifndef HOLDFAST_BUS_CLIENT_H
#define HOLDFAST_BUS_CLIENT_H

#include "common/bus/bus.h"

#include <librdkafka/rdkafka.h>
#include <pthread.h>
#include <stdatomic.h>

/* The state of one librdkafka handle. It is the handle's opaque, so it stands first in its owner.
 */
struct bus_client {
    const char *kind; /* "producer", "consumer": for log lines and reasons */
    atomic_bool connected;
    atomic_bool fatal;
    char fatal_text[256];                    /* written once, before fatal is set */
    void (*tick)(struct bus_client *client); /* once a second on the polling thread, or NULL */
};

/* A configuration with what all handles share (brokers, logs, errors, statistics, back-off). Gives
 * it away: to bus_client_new, or the caller destroys it. NULL with err. */
rd_kafka_conf_t *bus_client_conf(const struct bus_config *config, struct bus_client *client,
                                 struct error *err);

/* Sets one property; false with err. */
bool bus_client_set(rd_kafka_conf_t *conf, const char *name, const char *value, struct error *err);
bool bus_client_set_int(rd_kafka_conf_t *conf, const char *name, int64_t value, struct error *err);

/* Takes conf in every case. */
rd_kafka_t *bus_client_new(rd_kafka_type_t type, rd_kafka_conf_t *conf, struct error *err);

/* For readiness: false with a reason while no broker is connected or after a fatal error. */
bool bus_client_ready(struct bus_client *client, char *reason, size_t size);

/* NULL when out of memory. Copies at most payload_max bytes of the payload. */
struct bus_message *bus_message_copy(const rd_kafka_message_t *from, size_t payload_max);

/* Runs work(arg) on a thread of its own and waits at most timeout_ms. False: it was not done by
 * then and goes on by itself, so arg must stay valid for ever. */
bool bus_run_bounded(void (*work)(void *arg), void *arg, int timeout_ms);

/* A condition on CLOCK_MONOTONIC, and a deadline for waiting on it. */
void bus_cond_init(pthread_cond_t *cond);
struct timespec bus_deadline(int timeout_ms);

#endif
