/* The group's lag: what it committed, where each partition ends, and when the first message between
 * the two was sent. */
#include "common/bus/lag.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/bus/client.h"

#include <stdlib.h>

struct lag_watch {
    struct bus_client client; /* first: see bus_client */
    char topic[BUS_NAME_SIZE];
    rd_kafka_t *rk;
    rd_kafka_topic_t *handle;
};

/* One reading in progress. */
struct reading {
    struct lag_watch *watch;
    int64_t deadline_ms;                        /* boot time */
    rd_kafka_topic_partition_list_t *committed; /* offset: the first not read */
    rd_kafka_topic_partition_list_t *ends;
    rd_kafka_topic_partition_list_t
        *behind; /* those with something to read, at its first message */
};

struct lag_watch *lag_watch_new(const struct bus_config *config, enum bus_topic topic,
                                struct error *err)
{
    struct lag_watch *watch = calloc(1, sizeof(*watch));
    must(watch);
    watch->client.kind = "lag watch";
    bus_topic_name(config, topic, watch->topic);
    rd_kafka_conf_t *conf = bus_client_conf(config, &watch->client, err);
    if (conf && !(bus_client_set(conf, "group.id", watch->topic, err) &&
                  bus_client_set(conf, "enable.auto.commit", "false", err) &&
                  bus_client_set(conf, "enable.auto.offset.store", "false", err) &&
                  bus_client_set(conf, "auto.offset.reset", "earliest", err) &&
                  bus_client_set(conf, "fetch.message.max.bytes", "4096", err))) {
        rd_kafka_conf_destroy(conf);
        conf = NULL;
    }
    if (conf)
        watch->rk = bus_client_new(RD_KAFKA_CONSUMER, conf, err);
    if (!watch->rk) {
        free(watch);
        return NULL;
    }
    rd_kafka_poll_set_consumer(watch->rk);
    watch->handle = rd_kafka_topic_new(watch->rk, watch->topic, NULL);
    must(watch->handle);
    return watch;
}

static int time_left_ms(const struct reading *reading)
{
    int64_t left_ms = reading->deadline_ms - clock_boot_ms();
    return left_ms > 1 ? (int)left_ms : 1;
}

static bool unavailable(const struct reading *reading, rd_kafka_resp_err_t code, struct error *err)
{
    return error_set(err, ERROR_UNAVAILABLE, "the lag of %s: %s", reading->watch->topic,
                     rd_kafka_err2str(code));
}

static bool partitions_list(struct reading *reading, struct error *err)
{
    const struct rd_kafka_metadata *metadata;
    struct lag_watch *watch = reading->watch;
    rd_kafka_resp_err_t code =
        rd_kafka_metadata(watch->rk, 0, watch->handle, &metadata, time_left_ms(reading));
    if (code != RD_KAFKA_RESP_ERR_NO_ERROR)
        return unavailable(reading, code, err);
    if (metadata->topic_cnt != 1 || metadata->topics[0].err != RD_KAFKA_RESP_ERR_NO_ERROR) {
        rd_kafka_metadata_destroy(metadata);
        return unavailable(reading, RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART, err);
    }
    for (int32_t i = 0; i < metadata->topics[0].partition_cnt; i++)
        rd_kafka_topic_partition_list_add(reading->committed, watch->topic, i);
    rd_kafka_metadata_destroy(metadata);
    return true;
}

/* Fills each partition's offset: the end, or the beginning. */
static bool ends_read(struct reading *reading, rd_kafka_topic_partition_list_t *list, int64_t which,
                      struct error *err)
{
    for (int i = 0; i < list->cnt; i++)
        list->elems[i].offset = which;
    rd_kafka_resp_err_t code =
        rd_kafka_offsets_for_times(reading->watch->rk, list, time_left_ms(reading));
    for (int i = 0; code == RD_KAFKA_RESP_ERR_NO_ERROR && i < list->cnt; i++)
        code = list->elems[i].err;
    return code == RD_KAFKA_RESP_ERR_NO_ERROR || unavailable(reading, code, err);
}

/* A group that has committed nothing begins with the oldest message. */
static bool committed_read(struct reading *reading, struct error *err)
{
    rd_kafka_topic_partition_list_t *committed = reading->committed;
    rd_kafka_resp_err_t code =
        rd_kafka_committed(reading->watch->rk, committed, time_left_ms(reading));
    for (int i = 0; code == RD_KAFKA_RESP_ERR_NO_ERROR && i < committed->cnt; i++)
        code = committed->elems[i].err;
    if (code != RD_KAFKA_RESP_ERR_NO_ERROR)
        return unavailable(reading, code, err);
    rd_kafka_topic_partition_list_t *starts = rd_kafka_topic_partition_list_copy(committed);
    bool ok = ends_read(reading, starts, RD_KAFKA_OFFSET_BEGINNING, err);
    for (int i = 0; ok && i < committed->cnt; i++)
        if (committed->elems[i].offset < starts->elems[i].offset)
            committed->elems[i].offset = starts->elems[i].offset;
    rd_kafka_topic_partition_list_destroy(starts);
    return ok;
}

static int64_t behind_list(struct reading *reading)
{
    int64_t messages = 0;
    for (int i = 0; i < reading->committed->cnt; i++) {
        const rd_kafka_topic_partition_t *at = &reading->committed->elems[i];
        int64_t behind = reading->ends->elems[i].offset - at->offset;
        if (behind <= 0)
            continue;
        messages += behind;
        rd_kafka_topic_partition_list_add(reading->behind, at->topic, at->partition)->offset =
            at->offset;
    }
    return messages;
}

/* Takes the first message of each partition that is behind, for its time stamp. */
static bool oldest_read(struct reading *reading, int64_t *oldest_ms, struct error *err)
{
    rd_kafka_t *rk = reading->watch->rk;
    rd_kafka_topic_partition_list_t *behind = reading->behind;
    rd_kafka_resp_err_t code = rd_kafka_assign(rk, behind);
    int missing = behind->cnt;
    while (code == RD_KAFKA_RESP_ERR_NO_ERROR && missing > 0) {
        if (clock_boot_ms() >= reading->deadline_ms) {
            code = RD_KAFKA_RESP_ERR__TIMED_OUT;
            break;
        }
        rd_kafka_message_t *message = rd_kafka_consumer_poll(rk, time_left_ms(reading));
        rd_kafka_topic_partition_t *first = NULL;
        if (message && !message->err)
            first = rd_kafka_topic_partition_list_find(behind, reading->watch->topic,
                                                       message->partition);
        if (first && first->offset >= 0) {
            int64_t sent_ms = rd_kafka_message_timestamp(message, NULL);
            *oldest_ms = sent_ms < *oldest_ms ? sent_ms : *oldest_ms;
            first->offset = -1; /* seen */
            missing--;
        }
        if (message)
            rd_kafka_message_destroy(message);
    }
    rd_kafka_assign(rk, NULL);
    return code == RD_KAFKA_RESP_ERR_NO_ERROR || unavailable(reading, code, err);
}

static bool reading_run(struct reading *reading, struct lag *out, struct error *err)
{
    if (!partitions_list(reading, err) || !committed_read(reading, err))
        return false;
    reading->ends = rd_kafka_topic_partition_list_copy(reading->committed);
    if (!ends_read(reading, reading->ends, RD_KAFKA_OFFSET_END, err))
        return false;
    *out = (struct lag){.messages = behind_list(reading)};
    if (out->messages == 0)
        return true;
    int64_t now_ms = clock_wall_ms();
    int64_t oldest_ms = now_ms;
    if (!oldest_read(reading, &oldest_ms, err))
        return false;
    out->age_ms = now_ms - oldest_ms;
    return true;
}

/* Errors and statistics wait there for whoever polls. */
static void events_serve(struct lag_watch *watch)
{
    rd_kafka_message_t *message;
    while ((message = rd_kafka_consumer_poll(watch->rk, 0)))
        rd_kafka_message_destroy(message);
}

bool lag_watch_read(struct lag_watch *watch, int timeout_ms, struct lag *out, struct error *err)
{
    struct reading reading = {.watch = watch, .deadline_ms = clock_boot_ms() + timeout_ms};
    reading.committed = rd_kafka_topic_partition_list_new(8);
    reading.behind = rd_kafka_topic_partition_list_new(8);
    events_serve(watch);
    bool ok = reading_run(&reading, out, err);
    rd_kafka_topic_partition_list_destroy(reading.committed);
    rd_kafka_topic_partition_list_destroy(reading.behind);
    if (reading.ends)
        rd_kafka_topic_partition_list_destroy(reading.ends);
    return ok;
}

static void lag_watch_leave(void *arg)
{
    struct lag_watch *watch = arg;
    rd_kafka_topic_destroy(watch->handle);
    rd_kafka_destroy(watch->rk);
    free(watch);
}

void lag_watch_close(struct lag_watch *watch, int timeout_ms)
{
    if (watch && !bus_run_bounded(lag_watch_leave, watch, timeout_ms))
        log_event(LOG_WARN, "lag_watch_abandoned", "timeout_ms=%d", timeout_ms);
}
