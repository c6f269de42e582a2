/* Topics by the admin API, with the settings that each is for. */
#include "common/bus/topics.h"

#include "common/base/clock.h"
#include "common/bus/client.h"

#include <stdio.h>
#include <unistd.h>

#define RECHECK_US (50 * 1000)

/* References are republished from the database, outcomes are asked for there: short lives do. The
 * ledger must reach back past the oldest backup that may be restored. */
static const char *const RETENTION_MS[BUS_TOPIC_COUNT] = {
    [BUS_EFFECTS] = "86400000",        /* 1 day */
    [BUS_RECONCILE] = "86400000",      /* 1 day */
    [BUS_OUTCOMES] = "3600000",        /* 1 hour */
    [BUS_LEDGER] = "7776000000",       /* 90 days */
    [BUS_DEAD_LETTERS] = "2592000000", /* 30 days */
};

struct admin {
    struct bus_client client; /* first: see bus_client */
    const struct bus_config *config;
    rd_kafka_t *rk;
    int64_t deadline_ms; /* boot time */
};

static int time_left_ms(const struct admin *admin)
{
    int64_t left_ms = admin->deadline_ms - clock_boot_ms();
    return left_ms > 1 ? (int)left_ms : 1;
}

static bool admin_open(struct admin *admin, const struct bus_config *config, int timeout_ms,
                       struct error *err)
{
    *admin = (struct admin){
        .client = {.kind = "admin"}, .config = config, .deadline_ms = clock_boot_ms() + timeout_ms};
    rd_kafka_conf_t *conf = bus_client_conf(config, &admin->client, err);
    if (conf)
        admin->rk = bus_client_new(RD_KAFKA_PRODUCER, conf, err);
    return admin->rk != NULL;
}

/* The number of partitions in a metadata answer, 0 when it says that there is no such topic. */
static int metadata_partitions(const struct rd_kafka_metadata *metadata)
{
    if (metadata->topic_cnt != 1 || metadata->topics[0].err != RD_KAFKA_RESP_ERR_NO_ERROR)
        return 0;
    const struct rd_kafka_metadata_topic *topic = &metadata->topics[0];
    for (int i = 0; i < topic->partition_cnt; i++)
        if (topic->partitions[i].leader < 0)
            return 0; /* not usable yet */
    return topic->partition_cnt;
}

static int partition_count(struct admin *admin, enum bus_topic topic, struct error *err)
{
    char name[BUS_NAME_SIZE];
    const struct rd_kafka_metadata *metadata;
    rd_kafka_topic_t *handle =
        rd_kafka_topic_new(admin->rk, bus_topic_name(admin->config, topic, name), NULL);
    rd_kafka_resp_err_t code =
        rd_kafka_metadata(admin->rk, 0, handle, &metadata, time_left_ms(admin));
    rd_kafka_topic_destroy(handle);
    if (code != RD_KAFKA_RESP_ERR_NO_ERROR) {
        error_set(err, ERROR_UNAVAILABLE, "asking Kafka for %s: %s", name, rd_kafka_err2str(code));
        return -1;
    }
    int count = metadata_partitions(metadata);
    rd_kafka_metadata_destroy(metadata);
    return count;
}

/* One answer of the admin API: created, there already, or the reason. */
static bool created_check(rd_kafka_event_t *event, const char *name, struct error *err)
{
    size_t count = 0;
    rd_kafka_resp_err_t code = rd_kafka_event_error(event);
    const char *text = rd_kafka_event_error_string(event);
    if (code == RD_KAFKA_RESP_ERR_NO_ERROR) {
        const rd_kafka_topic_result_t **results =
            rd_kafka_CreateTopics_result_topics(rd_kafka_event_CreateTopics_result(event), &count);
        must(count == 1);
        code = rd_kafka_topic_result_error(results[0]);
        text = rd_kafka_topic_result_error_string(results[0]);
    }
    if (code == RD_KAFKA_RESP_ERR_NO_ERROR || code == RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS)
        return true;
    return error_set(err, ERROR_UNAVAILABLE, "creating topic %s: %s", name,
                     text ? text : rd_kafka_err2str(code));
}

static bool create_request(struct admin *admin, rd_kafka_NewTopic_t *wanted, const char *name,
                           struct error *err)
{
    rd_kafka_queue_t *answers = rd_kafka_queue_new(admin->rk);
    rd_kafka_AdminOptions_t *options =
        rd_kafka_AdminOptions_new(admin->rk, RD_KAFKA_ADMIN_OP_CREATETOPICS);
    rd_kafka_AdminOptions_set_request_timeout(options, time_left_ms(admin), NULL, 0);
    rd_kafka_CreateTopics(admin->rk, &wanted, 1, options, answers);
    rd_kafka_event_t *event = rd_kafka_queue_poll(answers, time_left_ms(admin) + 1000);
    bool ok = event ? created_check(event, name, err)
                    : error_set(err, ERROR_UNAVAILABLE, "creating topic %s: no answer", name);
    if (event)
        rd_kafka_event_destroy(event);
    rd_kafka_AdminOptions_destroy(options);
    rd_kafka_queue_destroy(answers);
    return ok;
}

static bool topic_create(struct admin *admin, enum bus_topic topic, int partitions,
                         struct error *err)
{
    char name[BUS_NAME_SIZE];
    char text[256];
    /* Replication: what the broker has as its default. */
    rd_kafka_NewTopic_t *wanted = rd_kafka_NewTopic_new(bus_topic_name(admin->config, topic, name),
                                                        partitions, -1, text, sizeof(text));
    if (!wanted)
        return error_set(err, ERROR_INVALID, "topic %s: %s", name, text);
    rd_kafka_NewTopic_set_config(wanted, "retention.ms", RETENTION_MS[topic]);
    bool ok = create_request(admin, wanted, name, err);
    rd_kafka_NewTopic_destroy(wanted);
    return ok;
}

/* A created topic is known to the brokers a moment later. */
static bool topic_await(struct admin *admin, enum bus_topic topic, struct error *err)
{
    char name[BUS_NAME_SIZE];
    int count = partition_count(admin, topic, err);
    while (count == 0 && clock_boot_ms() < admin->deadline_ms) {
        usleep(RECHECK_US);
        count = partition_count(admin, topic, err);
    }
    if (count == 0)
        return error_set(err, ERROR_UNAVAILABLE, "topic %s was created but is not there yet",
                         bus_topic_name(admin->config, topic, name));
    return count > 0;
}

bool topics_create(const struct bus_config *config, int partitions, int outcome_partitions,
                   int timeout_ms, struct error *err)
{
    const int wanted[BUS_TOPIC_COUNT] = {
        [BUS_EFFECTS] = partitions,
        [BUS_RECONCILE] = partitions,
        [BUS_OUTCOMES] = outcome_partitions,
        [BUS_LEDGER] = partitions,
        [BUS_DEAD_LETTERS] = 1,
    };
    struct admin admin;
    if (!admin_open(&admin, config, timeout_ms, err))
        return false;
    bool ok = true;
    for (int i = 0; ok && i < BUS_TOPIC_COUNT; i++) {
        int count = partition_count(&admin, i, err);
        ok = count > 0 ||
             (count == 0 && topic_create(&admin, i, wanted[i], err) && topic_await(&admin, i, err));
    }
    rd_kafka_destroy(admin.rk);
    return ok;
}

int topics_partition_count(const struct bus_config *config, enum bus_topic topic, int timeout_ms,
                           struct error *err)
{
    struct admin admin;
    if (!admin_open(&admin, config, timeout_ms, err))
        return -1;
    int count = partition_count(&admin, topic, err);
    rd_kafka_destroy(admin.rk);
    return count;
}
