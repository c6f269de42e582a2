/* The consumer's intake: polling, back-pressure, and its beginning and end. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/bus/consumer_internal.h"

#include <stdio.h>
#include <stdlib.h>

#define PAUSE_AFTER_MS 500 /* pausing throws fetched messages away: not for a short stop */
#define ERROR_LOG_EVERY_MS 10000

static void on_tick(struct bus_client *client)
{
    struct consumer *c = (struct consumer *)client;
    metric_set(c->lag_gauge, consumer_lag(c));
    metric_set(c->in_flight_gauge, (int64_t)consumer_in_flight(c));
}

static void metrics_make(struct consumer *c)
{
    char labels[BUS_NAME_SIZE + 16];
    snprintf(labels, sizeof(labels), "topic=\"%s\"", c->topic);
    c->received = metric_counter("holdfast_bus_received_total", labels,
                                 "Messages taken from Kafka, redelivered ones included.");
    c->dead = metric_counter("holdfast_bus_dead_letters_total", labels,
                             "Unreadable messages that are in the dead-letter topic.");
    c->lag_gauge = metric_gauge("holdfast_bus_lag", labels,
                                "Messages of this member's partitions that are not decided yet.");
    c->in_flight_gauge = metric_gauge("holdfast_bus_in_flight", labels,
                                      "Messages taken from Kafka that are not stored as read yet.");
}

static rd_kafka_conf_t *consumer_conf(const struct bus_config *config, struct consumer *c,
                                      struct error *err)
{
    rd_kafka_conf_t *conf = bus_client_conf(config, &c->client, err);
    if (!conf)
        return NULL;
    /* Frequent heartbeats, because a rebalance is heard of in their answers. queued.min.messages
     * stays at its 100,000: past it librdkafka fetches no more and looks again only a second later.
     */
    int heartbeat_ms = config->session_timeout_ms / 4 < 500 ? config->session_timeout_ms / 4 : 500;
    bool ok = bus_client_set(conf, "group.id", c->topic, err) &&
              bus_client_set_int(conf, "session.timeout.ms", config->session_timeout_ms, err) &&
              bus_client_set_int(conf, "heartbeat.interval.ms", heartbeat_ms, err) &&
              bus_client_set(conf, "partition.assignment.strategy", "cooperative-sticky", err) &&
              bus_client_set(conf, "auto.offset.reset", "earliest", err) &&
              bus_client_set(conf, "enable.auto.offset.store", "false", err) &&
              bus_client_set(conf, "enable.auto.commit", "true", err) &&
              bus_client_set(conf, "auto.commit.interval.ms", "1000", err) &&
              bus_client_set(conf, "queued.max.messages.kbytes", "16384", err);
    if (!ok) {
        rd_kafka_conf_destroy(conf);
        return NULL;
    }
    rd_kafka_conf_set_rebalance_cb(conf, assignment_rebalance);
    return conf;
}

static bool subscribe(struct consumer *c, struct error *err)
{
    rd_kafka_poll_set_consumer(c->rk);
    rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(topics, c->topic, RD_KAFKA_PARTITION_UA);
    rd_kafka_resp_err_t code = rd_kafka_subscribe(c->rk, topics);
    rd_kafka_topic_partition_list_destroy(topics);
    if (code != RD_KAFKA_RESP_ERR_NO_ERROR)
        return error_set(err, ERROR_INTERNAL, "subscribing to %s: %s", c->topic,
                         rd_kafka_err2str(code));
    return true;
}

struct consumer *consumer_new(const struct bus_config *config, enum bus_topic topic,
                              struct producer *dead_letters, struct error *err)
{
    struct consumer *c = calloc(1, sizeof(*c));
    must(c && config->in_flight_max > 0);
    c->client = (struct bus_client){.kind = "consumer", .tick = on_tick};
    c->producer = dead_letters;
    c->in_flight_max = (size_t)config->in_flight_max;
    c->payload_max = config->payload_max;
    c->references = 1;
    bus_topic_name(config, topic, c->topic);
    must(pthread_mutex_init(&c->lock, NULL) == 0);
    bus_cond_init(&c->room);
    metrics_make(c);
    rd_kafka_conf_t *conf = consumer_conf(config, c, err);
    if (conf)
        c->rk = bus_client_new(RD_KAFKA_CONSUMER, conf, err);
    if (c->rk && subscribe(c, err))
        return c;
    if (c->rk)
        rd_kafka_destroy(c->rk);
    consumer_unref(c);
    return NULL;
}

/* How many may be given out now. While paused only once half is free, so that one message does not
 * end the pause. Lock held. */
static size_t intake_room(const struct consumer *c)
{
    size_t limit = c->paused ? (c->in_flight_max + 1) / 2 : c->in_flight_max;
    if (c->pause_wanted || c->letter_count >= DEAD_LETTERS_MAX || c->in_flight >= limit)
        return 0;
    return c->in_flight_max - c->in_flight;
}

/* Waits until something may be given out, for at most timeout_ms. */
static size_t intake_wait(struct consumer *c, int timeout_ms)
{
    struct timespec deadline = bus_deadline(timeout_ms);
    int rc = 0;
    pthread_mutex_lock(&c->lock);
    while (intake_room(c) == 0 && rc == 0)
        rc = pthread_cond_timedwait(&c->room, &c->lock, &deadline);
    size_t room = intake_room(c);
    pthread_mutex_unlock(&c->lock);
    return room;
}

static void error_log(struct consumer *c, const rd_kafka_message_t *message)
{
    int64_t now_ms = clock_boot_ms();
    if (now_ms - c->error_logged_ms < ERROR_LOG_EVERY_MS && c->error_logged_ms > 0)
        return;
    c->error_logged_ms = now_ms;
    log_event(LOG_WARN, "bus_poll_error", "topic=%s text=%s", c->topic,
              rd_kafka_message_errstr(message));
}

/* NULL: an error event, or a message of a partition that is not ours any more. */
static struct bus_message *intake_message(struct consumer *c, const rd_kafka_message_t *from)
{
    if (from->err) {
        error_log(c, from);
        return NULL;
    }
    struct bus_message *message = bus_message_copy(from, c->payload_max);
    must(message);
    if (!assignment_track(c, message)) {
        bus_message_free(message);
        return NULL;
    }
    metric_add(c->received, 1);
    return message;
}

static size_t intake_take(struct consumer *c, struct bus_message **out, size_t max, int timeout_ms)
{
    size_t count = 0;
    while (count < max) {
        rd_kafka_message_t *from = rd_kafka_consumer_poll(c->rk, count == 0 ? timeout_ms : 0);
        if (!from)
            break;
        struct bus_message *message = intake_message(c, from);
        rd_kafka_message_destroy(from);
        if (!message)
            break;
        out[count++] = message;
    }
    return count;
}

/* Nothing may be given out. After a short while librdkafka is paused, from when on it may be polled
 * without messages coming out, so that rebalances and the poll interval are served. A message that
 * comes all the same is ours already and is given out. */
static size_t intake_blocked(struct consumer *c, struct bus_message **out, int64_t now_ms)
{
    if (c->blocked_at_ms == 0)
        c->blocked_at_ms = now_ms;
    if (!c->paused && now_ms - c->blocked_at_ms >= PAUSE_AFTER_MS)
        assignment_pause(c, true);
    return c->paused ? intake_take(c, out, 1, 0) : 0;
}

size_t consumer_poll(struct consumer *c, struct bus_message **out, size_t max, int timeout_ms)
{
    must(max > 0);
    int64_t start_ms = clock_boot_ms();
    dead_letters_send(c, start_ms);
    size_t room = intake_wait(c, timeout_ms);
    int64_t now_ms = clock_boot_ms();
    if (room == 0)
        return intake_blocked(c, out, now_ms);
    c->blocked_at_ms = 0;
    if (c->paused)
        assignment_pause(c, false);
    int64_t left_ms = timeout_ms - (now_ms - start_ms);
    return intake_take(c, out, room < max ? room : max, left_ms > 0 ? (int)left_ms : 0);
}

void consumer_done_many(struct consumer *c, const struct bus_token *tokens, size_t count)
{
    pthread_mutex_lock(&c->lock);
    assignment_done(c, tokens, count);
    pthread_mutex_unlock(&c->lock);
}

void consumer_done(struct consumer *c, const struct bus_token *token)
{
    consumer_done_many(c, token, 1);
}

static void pause_want(struct consumer *c, bool wanted)
{
    pthread_mutex_lock(&c->lock);
    c->pause_wanted = wanted;
    pthread_cond_signal(&c->room);
    pthread_mutex_unlock(&c->lock);
}

void consumer_pause_all(struct consumer *c)
{
    pause_want(c, true);
}

void consumer_resume_all(struct consumer *c)
{
    pause_want(c, false);
}

/* The high watermark comes with each fetch; asking for it here costs no request. Lock held. */
static int64_t track_lag(struct consumer *c, int32_t partition)
{
    const struct track *track = &c->tracks[partition];
    int64_t low, high;
    if (!track->assigned || track->position < 0 ||
        rd_kafka_get_watermark_offsets(c->rk, c->topic, partition, &low, &high) !=
            RD_KAFKA_RESP_ERR_NO_ERROR)
        return 0;
    return high > track->position ? high - track->position : 0;
}

int64_t consumer_lag(struct consumer *c)
{
    int64_t lag = 0;
    pthread_mutex_lock(&c->lock);
    for (size_t i = 0; i < c->track_count; i++)
        lag += track_lag(c, (int32_t)i);
    pthread_mutex_unlock(&c->lock);
    return lag;
}

size_t consumer_in_flight(struct consumer *c)
{
    pthread_mutex_lock(&c->lock);
    size_t in_flight = c->in_flight;
    pthread_mutex_unlock(&c->lock);
    return in_flight;
}

size_t consumer_partition_count(struct consumer *c)
{
    size_t count = 0;
    pthread_mutex_lock(&c->lock);
    for (size_t i = 0; i < c->track_count; i++)
        count += c->tracks[i].assigned;
    pthread_mutex_unlock(&c->lock);
    return count;
}

bool consumer_connected(struct consumer *c)
{
    return atomic_load(&c->client.connected);
}

bool consumer_fatal(struct consumer *c)
{
    return atomic_load(&c->client.fatal);
}

bool consumer_ready(void *opaque, char *reason, size_t size)
{
    struct consumer *c = opaque;
    if (!bus_client_ready(&c->client, reason, size))
        return false;
    pthread_mutex_lock(&c->lock);
    bool joined = c->generation > 0;
    pthread_mutex_unlock(&c->lock);
    if (!joined)
        snprintf(reason, size, "kafka has not told this consumer of %s which partitions it has",
                 c->topic);
    return joined;
}

void consumer_unref(struct consumer *c)
{
    pthread_mutex_lock(&c->lock);
    bool last = --c->references == 0;
    pthread_mutex_unlock(&c->lock);
    if (!last)
        return;
    dead_letters_close(c);
    assignment_drop_all(c);
    free(c->tracks);
    pthread_cond_destroy(&c->room);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

static void consumer_leave(void *arg)
{
    struct consumer *c = arg;
    rd_kafka_destroy(c->rk); /* closes the consumer first */
    consumer_unref(c);
}

bool consumer_close(struct consumer *c, int timeout_ms)
{
    if (!c)
        return true;
    dead_letters_close(c);
    metric_set(c->lag_gauge, 0);
    metric_set(c->in_flight_gauge, 0);
    pthread_mutex_lock(&c->lock);
    assignment_drop_all(c); /* the report of a dead letter stores no offset from here on */
    pthread_mutex_unlock(&c->lock);
    bool left = bus_run_bounded(consumer_leave, c, timeout_ms);
    if (!left)
        log_event(LOG_WARN, "consumer_abandoned", "timeout_ms=%d", timeout_ms);
    return left;
}
