/* The producer: librdkafka's queue with our limits, and one thread that hands out the reports. */
#include "common/bus/producer.h"

#include "common/base/log.h"
#include "common/base/metrics.h"
#include "common/bus/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DESTROY_TIMEOUT_MS 1000

struct producer {
    struct bus_client client; /* first: see bus_client */
    rd_kafka_t *rk;
    pthread_t thread; /* polls: the only one that runs callbacks */
    atomic_bool stop;
    char topics[BUS_TOPIC_COUNT][BUS_NAME_SIZE];
    struct metric *sent[BUS_TOPIC_COUNT];
    struct metric *failed[BUS_TOPIC_COUNT];
    struct metric *queue_gauge;
};

/* Travels with a message; freed by its report. */
struct receipt {
    struct producer *producer;
    enum bus_topic topic;
    producer_report report;
    void *opaque;
};

static void on_delivery(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque)
{
    (void)rk;
    (void)opaque;
    struct receipt *receipt = message->_private;
    struct producer *p = receipt->producer;
    bool delivered = message->err == RD_KAFKA_RESP_ERR_NO_ERROR;
    metric_add(delivered ? p->sent[receipt->topic] : p->failed[receipt->topic], 1);
    if (receipt->report)
        receipt->report(receipt->opaque, delivered);
    free(receipt);
}

static void *producer_main(void *arg)
{
    struct producer *p = arg;
    while (!atomic_load(&p->stop)) {
        rd_kafka_poll(p->rk, 100);
        metric_set(p->queue_gauge, rd_kafka_outq_len(p->rk));
    }
    return NULL;
}

static void metrics_make(struct producer *p)
{
    char labels[BUS_NAME_SIZE + 32];
    for (int i = 0; i < BUS_TOPIC_COUNT; i++) {
        snprintf(labels, sizeof(labels), "topic=\"%s\",result=\"delivered\"", p->topics[i]);
        p->sent[i] = metric_counter("holdfast_bus_sent_total", labels,
                                    "Messages to Kafka by how their delivery ended.");
        snprintf(labels, sizeof(labels), "topic=\"%s\",result=\"failed\"", p->topics[i]);
        p->failed[i] = metric_counter("holdfast_bus_sent_total", labels,
                                      "Messages to Kafka by how their delivery ended.");
    }
    p->queue_gauge = metric_gauge("holdfast_bus_producer_queue", "",
                                  "Messages to Kafka that are not answered yet.");
}

static rd_kafka_conf_t *producer_conf(const struct bus_config *config, struct bus_client *client,
                                      struct error *err)
{
    rd_kafka_conf_t *conf = bus_client_conf(config, client, err);
    if (!conf)
        return NULL;
    bool ok =
        bus_client_set(conf, "enable.idempotence", "true", err) &&
        bus_client_set(conf, "acks", "all", err) &&
        bus_client_set_int(conf, "linger.ms", config->linger_ms, err) &&
        bus_client_set_int(conf, "message.timeout.ms", config->message_timeout_ms, err) &&
        bus_client_set_int(conf, "queue.buffering.max.messages", config->queue_max_messages, err) &&
        bus_client_set_int(conf, "queue.buffering.max.kbytes", config->queue_max_kbytes, err);
    if (!ok) {
        rd_kafka_conf_destroy(conf);
        return NULL;
    }
    rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    return conf;
}

struct producer *producer_new(const struct bus_config *config, struct error *err)
{
    struct producer *p = calloc(1, sizeof(*p));
    must(p);
    p->client.kind = "producer";
    for (int i = 0; i < BUS_TOPIC_COUNT; i++)
        bus_topic_name(config, i, p->topics[i]);
    metrics_make(p);
    rd_kafka_conf_t *conf = producer_conf(config, &p->client, err);
    if (conf)
        p->rk = bus_client_new(RD_KAFKA_PRODUCER, conf, err);
    if (!p->rk) {
        free(p);
        return NULL;
    }
    must(pthread_create(&p->thread, NULL, producer_main, p) == 0);
    return p;
}

static bool send_failed(struct producer *p, enum bus_topic topic, rd_kafka_resp_err_t code,
                        struct error *err)
{
    const char *name = p->topics[topic];
    metric_add(p->failed[topic], 1);
    switch (code) {
    case RD_KAFKA_RESP_ERR__QUEUE_FULL:
        return error_set(err, ERROR_UNAVAILABLE, "the queue to Kafka (%s) is full", name);
    case RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE:
        return error_set(err, ERROR_TOO_LARGE, "a message to %s is too large for Kafka", name);
    case RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION:
    case RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC:
    case RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART:
        return error_set(err, ERROR_NOT_FOUND, "%s has no such partition", name);
    default:
        return error_set(err, ERROR_UNAVAILABLE, "sending to %s: %s", name, rd_kafka_err2str(code));
    }
}

bool producer_send(struct producer *p, enum bus_topic topic, int32_t partition, const char *key,
                   const void *payload, size_t len, producer_report report, void *opaque,
                   struct error *err)
{
    must(topic < BUS_TOPIC_COUNT);
    struct receipt *receipt = malloc(sizeof(*receipt));
    if (!receipt)
        return error_set(err, ERROR_MEMORY, "no memory for a message to %s", p->topics[topic]);
    *receipt = (struct receipt){p, topic, report, opaque};
    /* RD_KAFKA_V_VALUE wants a pointer without const; with F_COPY it is only read. */
    rd_kafka_resp_err_t code = rd_kafka_producev(
        p->rk, RD_KAFKA_V_TOPIC(p->topics[topic]), RD_KAFKA_V_PARTITION(partition),
        RD_KAFKA_V_KEY(key, key ? strlen(key) : 0), RD_KAFKA_V_VALUE((void *)payload, len),
        RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_OPAQUE(receipt), RD_KAFKA_V_END);
    if (code != RD_KAFKA_RESP_ERR_NO_ERROR) {
        free(receipt);
        return send_failed(p, topic, code, err);
    }
    return true;
}

/* Owned by the waiter and by the report; the last of the two frees it. */
struct producer_ticket {
    pthread_mutex_t lock;
    pthread_cond_t answered;
    enum producer_answer answer; /* LATE until the report came */
    bool shared;                 /* both still hold it */
};

static struct producer_ticket *ticket_new(void)
{
    struct producer_ticket *ticket = calloc(1, sizeof(*ticket));
    if (!ticket)
        return NULL;
    ticket->answer = PRODUCER_LATE;
    ticket->shared = true;
    must(pthread_mutex_init(&ticket->lock, NULL) == 0);
    bus_cond_init(&ticket->answered);
    return ticket;
}

static void ticket_free(struct producer_ticket *ticket)
{
    pthread_cond_destroy(&ticket->answered);
    pthread_mutex_destroy(&ticket->lock);
    free(ticket);
}

/* Called with the lock held by one of the two holders, who must not touch the ticket afterwards. */
static void ticket_let_go(struct producer_ticket *ticket)
{
    bool last = !ticket->shared;
    ticket->shared = false;
    pthread_mutex_unlock(&ticket->lock);
    if (last)
        ticket_free(ticket);
}

static void ticket_report(void *opaque, bool delivered)
{
    struct producer_ticket *ticket = opaque;
    pthread_mutex_lock(&ticket->lock);
    ticket->answer = delivered ? PRODUCER_DELIVERED : PRODUCER_FAILED;
    pthread_cond_signal(&ticket->answered);
    ticket_let_go(ticket);
}

struct producer_ticket *producer_send_begin(struct producer *p, enum bus_topic topic,
                                            int32_t partition, const char *key, const void *payload,
                                            size_t len, struct error *err)
{
    struct producer_ticket *ticket = ticket_new();
    if (!ticket) {
        error_set(err, ERROR_MEMORY, "no memory for a message to %s", p->topics[topic]);
        return NULL;
    }
    if (!producer_send(p, topic, partition, key, payload, len, ticket_report, ticket, err)) {
        ticket_free(ticket);
        return NULL;
    }
    return ticket;
}

enum producer_answer producer_ticket_wait(struct producer_ticket *ticket, int timeout_ms)
{
    struct timespec deadline = bus_deadline(timeout_ms);
    int rc = 0;
    pthread_mutex_lock(&ticket->lock);
    while (ticket->answer == PRODUCER_LATE && rc == 0)
        rc = pthread_cond_timedwait(&ticket->answered, &ticket->lock, &deadline);
    enum producer_answer answer = ticket->answer;
    ticket_let_go(ticket);
    return answer;
}

bool producer_send_wait(struct producer *p, enum bus_topic topic, int32_t partition,
                        const char *key, const void *payload, size_t len, int timeout_ms,
                        struct error *err)
{
    struct producer_ticket *ticket =
        producer_send_begin(p, topic, partition, key, payload, len, err);
    if (!ticket)
        return false;
    switch (producer_ticket_wait(ticket, timeout_ms)) {
    case PRODUCER_DELIVERED:
        return true;
    case PRODUCER_FAILED:
        return error_set(err, ERROR_UNAVAILABLE, "%s did not take the message", p->topics[topic]);
    default:
        return error_set(err, ERROR_UNAVAILABLE, "%s did not answer within %d ms", p->topics[topic],
                         timeout_ms);
    }
}

size_t producer_queue_length(struct producer *p)
{
    return (size_t)rd_kafka_outq_len(p->rk);
}

bool producer_connected(struct producer *p)
{
    return atomic_load(&p->client.connected);
}

bool producer_fatal(struct producer *p)
{
    return atomic_load(&p->client.fatal);
}

bool producer_ready(void *opaque, char *reason, size_t size)
{
    struct producer *p = opaque;
    return bus_client_ready(&p->client, reason, size);
}

static void producer_destroy(void *arg)
{
    struct producer *p = arg;
    rd_kafka_destroy(p->rk);
    free(p);
}

bool producer_close(struct producer *p, int timeout_ms)
{
    if (!p)
        return true;
    /* Flushing serves the reports on this thread, so the other one must have ended. */
    atomic_store(&p->stop, true);
    pthread_join(p->thread, NULL);
    rd_kafka_flush(p->rk, timeout_ms);
    rd_kafka_purge(p->rk, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
    rd_kafka_flush(p->rk, DESTROY_TIMEOUT_MS / 2);
    metric_set(p->queue_gauge, 0);
    bool ended = bus_run_bounded(producer_destroy, p, DESTROY_TIMEOUT_MS / 2);
    if (!ended)
        log_event(LOG_WARN, "producer_abandoned", "timeout_ms=%d", timeout_ms);
    return ended;
}
