/* What every librdkafka handle gets from us: its settings, its log lines as ours, whether a broker
 * is there, whether it has failed for good, and an end within bounds. */
#include "common/bus/client.h"

#include "common/base/log.h"

#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool bus_client_set(rd_kafka_conf_t *conf, const char *name, const char *value, struct error *err)
{
    char text[256];
    if (rd_kafka_conf_set(conf, name, value, text, sizeof(text)) != RD_KAFKA_CONF_OK)
        return error_set_at(err, ERROR_INVALID, name, "Kafka setting: %s", text);
    return true;
}

bool bus_client_set_int(rd_kafka_conf_t *conf, const char *name, int64_t value, struct error *err)
{
    char text[24];
    snprintf(text, sizeof(text), "%lld", (long long)value);
    return bus_client_set(conf, name, text, err);
}

/* librdkafka speaks in syslog levels. A broker that is away is no error of ours: a warning. */
static enum log_level log_level_of(int syslog_level)
{
    if (syslog_level <= 2)
        return LOG_ERROR;
    if (syslog_level <= 4)
        return LOG_WARN;
    return syslog_level <= 6 ? LOG_INFO : LOG_DEBUG;
}

/* On any of librdkafka's threads. */
static void on_log(const rd_kafka_t *rk, int level, const char *facility, const char *text)
{
    const struct bus_client *client = rd_kafka_opaque(rk);
    log_event(log_level_of(level), "kafka", "client=%s facility=%s text=%s", client->kind, facility,
              text);
}

/* On the polling thread, which is the only one that writes fatal_text. */
static void client_fatal(struct bus_client *client, rd_kafka_t *rk)
{
    if (atomic_load(&client->fatal))
        return;
    rd_kafka_fatal_error(rk, client->fatal_text, sizeof(client->fatal_text));
    atomic_store(&client->fatal, true);
    log_event(LOG_ERROR, "kafka_fatal", "client=%s text=%s", client->kind, client->fatal_text);
}

static void on_error(rd_kafka_t *rk, int code, const char *reason, void *opaque)
{
    (void)reason; /* librdkafka logs it too */
    struct bus_client *client = opaque;
    if (code == RD_KAFKA_RESP_ERR__FATAL)
        client_fatal(client, rk);
    else if (code == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN)
        atomic_store(&client->connected, false);
}

static bool any_broker_up(const json_t *stats)
{
    const char *name;
    json_t *broker;
    json_object_foreach(json_object_get(stats, "brokers"), name, broker)
    {
        const char *state = json_string_value(json_object_get(broker, "state"));
        if (state != NULL && strcmp(state, "UP") == 0)
            return true;
    }
    return false;
}

/* There is no callback for "connected"; the statistics say it, once a second. */
static int on_stats(rd_kafka_t *rk, char *text, size_t len, void *opaque)
{
    (void)rk;
    struct bus_client *client = opaque;
    json_t *stats = json_loadb(text, len, 0, NULL);
    atomic_store(&client->connected, any_broker_up(stats));
    json_decref(stats);
    if (client->tick)
        client->tick(client);
    return 0; /* librdkafka frees the text */
}

/* Sets "name=value;name=value". */
static bool set_options(rd_kafka_conf_t *conf, const char *options, struct error *err)
{
    char *copy = strdup(options);
    if (!copy)
        return error_set(err, ERROR_MEMORY, "no memory for the Kafka settings");
    bool ok = true;
    char *rest = copy;
    for (char *pair = strsep(&rest, ";"); ok && pair; pair = strsep(&rest, ";")) {
        char *value = strchr(pair, '=');
        if (!value) {
            ok = *pair == '\0' ||
                 error_set(err, ERROR_INVALID, "Kafka settings are name=value;name=value");
            continue;
        }
        *value++ = '\0';
        ok = bus_client_set(conf, pair, value, err);
    }
    free(copy);
    return ok;
}

rd_kafka_conf_t *bus_client_conf(const struct bus_config *config, struct bus_client *client,
                                 struct error *err)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    /* The defaults take up to 10 s to try a broker again and 60 s to notice a silent one. */
    bool ok = bus_client_set(conf, "bootstrap.servers", config->brokers, err) &&
              bus_client_set(conf, "client.id", config->client_id, err) &&
              bus_client_set(conf, "reconnect.backoff.max.ms", "1000", err) &&
              bus_client_set(conf, "socket.timeout.ms", "10000", err) &&
              bus_client_set(conf, "topic.metadata.refresh.interval.ms", "30000", err) &&
              bus_client_set(conf, "log.connection.close", "false", err) &&
              bus_client_set(conf, "statistics.interval.ms", "1000", err) &&
              (!config->options || set_options(conf, config->options, err));
    if (!ok) {
        rd_kafka_conf_destroy(conf);
        return NULL;
    }
    rd_kafka_conf_set_opaque(conf, client);
    rd_kafka_conf_set_log_cb(conf, on_log);
    rd_kafka_conf_set_error_cb(conf, on_error);
    rd_kafka_conf_set_stats_cb(conf, on_stats);
    return conf;
}

rd_kafka_t *bus_client_new(rd_kafka_type_t type, rd_kafka_conf_t *conf, struct error *err)
{
    char text[256];
    rd_kafka_t *rk = rd_kafka_new(type, conf, text, sizeof(text));
    if (!rk) {
        rd_kafka_conf_destroy(conf);
        error_set(err, ERROR_INVALID, "Kafka client: %s", text);
    }
    return rk;
}

bool bus_client_ready(struct bus_client *client, char *reason, size_t size)
{
    if (atomic_load(&client->fatal)) {
        snprintf(reason, size, "kafka %s failed for good: %s", client->kind, client->fatal_text);
        return false;
    }
    if (!atomic_load(&client->connected)) {
        snprintf(reason, size, "kafka %s has no connection to a broker", client->kind);
        return false;
    }
    return true;
}

void bus_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    must(pthread_condattr_init(&attr) == 0);
    must(pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) == 0);
    must(pthread_cond_init(cond, &attr) == 0);
    pthread_condattr_destroy(&attr);
}

struct timespec bus_deadline(int timeout_ms)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    int64_t ns = at.tv_nsec + (int64_t)timeout_ms * 1000000;
    at.tv_sec += ns / 1000000000;
    at.tv_nsec = ns % 1000000000;
    return at;
}

/* Shared by the waiter and the worker; the last of the two frees it. */
struct bounded {
    void (*work)(void *arg);
    void *arg;
    pthread_mutex_t lock;
    pthread_cond_t done_cond;
    bool done;
    bool abandoned;
};

static void bounded_free(struct bounded *bounded)
{
    pthread_mutex_destroy(&bounded->lock);
    pthread_cond_destroy(&bounded->done_cond);
    free(bounded);
}

static void *bounded_main(void *arg)
{
    struct bounded *bounded = arg;
    bounded->work(bounded->arg);
    pthread_mutex_lock(&bounded->lock);
    bounded->done = true;
    bool last = bounded->abandoned;
    pthread_cond_signal(&bounded->done_cond);
    pthread_mutex_unlock(&bounded->lock);
    if (last)
        bounded_free(bounded);
    return NULL;
}

bool bus_run_bounded(void (*work)(void *arg), void *arg, int timeout_ms)
{
    struct bounded *bounded = calloc(1, sizeof(*bounded));
    pthread_t thread;
    if (!bounded)
        return false;
    bounded->work = work;
    bounded->arg = arg;
    pthread_mutex_init(&bounded->lock, NULL);
    bus_cond_init(&bounded->done_cond);
    if (pthread_create(&thread, NULL, bounded_main, bounded) != 0) {
        bounded_free(bounded);
        return false;
    }
    pthread_detach(thread);
    struct timespec deadline = bus_deadline(timeout_ms);
    pthread_mutex_lock(&bounded->lock);
    int rc = 0;
    while (!bounded->done && rc == 0)
        rc = pthread_cond_timedwait(&bounded->done_cond, &bounded->lock, &deadline);
    bool done = bounded->done;
    bounded->abandoned = !done;
    pthread_mutex_unlock(&bounded->lock);
    if (done)
        bounded_free(bounded);
    return done;
}
