/* The reader of one partition: assigned by hand at its end, nothing committed. */
#include "common/bus/reader.h"

#include "common/base/log.h"
#include "common/base/metrics.h"
#include "common/bus/client.h"

#include <stdio.h>
#include <stdlib.h>

struct reader {
    struct bus_client client; /* first: see bus_client */
    char topic[BUS_NAME_SIZE];
    rd_kafka_t *rk;
    size_t payload_max;
    atomic_bool started;
    struct metric *received;
};

static rd_kafka_conf_t *reader_conf(const struct bus_config *config, struct reader *r,
                                    struct error *err)
{
    rd_kafka_conf_t *conf = bus_client_conf(config, &r->client, err);
    if (!conf)
        return NULL;
    /* librdkafka wants a group name even where the group is never joined. The end of the partition
     * is reported, so that it is known when the reading has begun. */
    bool ok = bus_client_set(conf, "group.id", r->topic, err) &&
              bus_client_set(conf, "enable.auto.commit", "false", err) &&
              bus_client_set(conf, "enable.auto.offset.store", "false", err) &&
              bus_client_set(conf, "auto.offset.reset", "latest", err) &&
              bus_client_set(conf, "enable.partition.eof", "true", err) &&
              bus_client_set(conf, "fetch.error.backoff.ms", "100", err) &&
              bus_client_set(conf, "queued.max.messages.kbytes", "16384", err);
    if (!ok) {
        rd_kafka_conf_destroy(conf);
        return NULL;
    }
    return conf;
}

static bool reader_assign(struct reader *r, int32_t partition, struct error *err)
{
    rd_kafka_poll_set_consumer(r->rk);
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(list, r->topic, partition)->offset = RD_KAFKA_OFFSET_END;
    rd_kafka_resp_err_t code = rd_kafka_assign(r->rk, list);
    rd_kafka_topic_partition_list_destroy(list);
    if (code != RD_KAFKA_RESP_ERR_NO_ERROR)
        return error_set(err, ERROR_INTERNAL, "reading %s: %s", r->topic, rd_kafka_err2str(code));
    return true;
}

struct reader *reader_new(const struct bus_config *config, enum bus_topic topic, int32_t partition,
                          struct error *err)
{
    char labels[BUS_NAME_SIZE + 16];
    must(partition >= 0);
    struct reader *r = calloc(1, sizeof(*r));
    must(r);
    r->client.kind = "reader";
    r->payload_max = config->payload_max;
    bus_topic_name(config, topic, r->topic);
    snprintf(labels, sizeof(labels), "topic=\"%s\"", r->topic);
    r->received = metric_counter("holdfast_bus_received_total", labels,
                                 "Messages taken from Kafka, redelivered ones included.");
    rd_kafka_conf_t *conf = reader_conf(config, r, err);
    if (conf)
        r->rk = bus_client_new(RD_KAFKA_CONSUMER, conf, err);
    if (r->rk && reader_assign(r, partition, err))
        return r;
    if (r->rk)
        rd_kafka_destroy(r->rk);
    free(r);
    return NULL;
}

size_t reader_poll(struct reader *r, struct bus_message **out, size_t max, int timeout_ms)
{
    size_t count = 0;
    must(max > 0);
    while (count < max) {
        rd_kafka_message_t *from = rd_kafka_consumer_poll(r->rk, count == 0 ? timeout_ms : 0);
        if (!from)
            break;
        bool event = from->err != RD_KAFKA_RESP_ERR_NO_ERROR;
        if (!event || from->err == RD_KAFKA_RESP_ERR__PARTITION_EOF)
            atomic_store(&r->started, true);
        if (!event) {
            out[count] = bus_message_copy(from, r->payload_max);
            must(out[count]);
            count++;
        }
        rd_kafka_message_destroy(from);
        if (event)
            break;
    }
    metric_add(r->received, (int64_t)count);
    return count;
}

bool reader_started(struct reader *r)
{
    return atomic_load(&r->started);
}

bool reader_ready(void *opaque, char *reason, size_t size)
{
    struct reader *r = opaque;
    return bus_client_ready(&r->client, reason, size);
}

static void reader_leave(void *arg)
{
    struct reader *r = arg;
    rd_kafka_destroy(r->rk);
    free(r);
}

bool reader_close(struct reader *r, int timeout_ms)
{
    if (!r)
        return true;
    bool left = bus_run_bounded(reader_leave, r, timeout_ms);
    if (!left)
        log_event(LOG_WARN, "reader_abandoned", "timeout_ms=%d", timeout_ms);
    return left;
}
