/* ingest: takes calls over HTTP, accepts them in Postgres, publishes references, and answers with
 * what became of them. It holds no state but who waits for what. */
#include "common/base/admin_http.h"
#include "common/base/clock.h"
#include "common/base/config.h"
#include "common/base/log.h"
#include "common/base/metrics.h"
#include "common/base/service.h"
#include "common/bus/producer.h"
#include "common/bus/reader.h"
#include "common/vault.h"
#include "ingest/accept.h"
#include "ingest/access.h"
#include "ingest/actions_cache.h"
#include "ingest/answers.h"
#include "ingest/approval_wait.h"
#include "ingest/config_watch.h"
#include "ingest/grants.h"
#include "ingest/http.h"
#include "ingest/policy/set.h"
#include "ingest/publish.h"
#include "ingest/reconcile_wait.h"
#include "ingest/replies.h"
#include "ingest/routes.h"
#include "ingest/waiters.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum {
    DRAIN_WAIT_MS = 2000, /* how long parked calls may still wait for their outcome */
    CLOSE_MS = 5000,
    FILES_OWN = 512 /* open files besides client connections */
};

static struct producer *producer;
static struct reader *outcomes;

/* Our partition of the outcomes: by the number at the end of the name ("ingest-2"), else by the
 * name. Two that share one only hear more than they need. */
static int32_t outcome_partition(void)
{
    const char *name = service_name();
    int64_t partitions = config_int("HOLDFAST_OUTCOME_PARTITIONS");
    const char *digits = name + strlen(name);
    uint32_t hash = 2166136261u;
    while (digits > name && digits[-1] >= '0' && digits[-1] <= '9')
        digits--;
    if (*digits != '\0')
        return (int32_t)(strtoull(digits, NULL, 10) % (uint64_t)partitions);
    for (const char *c = name; *c != '\0'; c++)
        hash = (hash ^ (unsigned char)*c) * 16777619u;
    return (int32_t)(hash % (uint64_t)partitions);
}

static bool producer_failed(void)
{
    return producer_fatal(producer);
}

static double kafka_gauge(void *opaque)
{
    (void)opaque;
    return producer_connected(producer) ? 1 : 0;
}

/* Checks what must not be started against; a database that is away is waited for. */
static bool database_check(struct error *err)
{
    struct store_options options = {.url = config_text("HOLDFAST_DATABASE_URL"),
                                    .name = "holdfast-ingest start"};
    struct store *store = store_new(&options);
    bool ok = store_ready(store, err) || err->code == ERROR_UNAVAILABLE;
    store_free(store);
    return ok;
}

/* Redis may be away at any time, but what it is called must be readable. */
static bool redis_check(struct error *err)
{
    struct replies *replies = replies_new(err);
    replies_free(replies);
    return replies != NULL;
}

/* Each client connection is a file; the usual soft limit is far below what we promise to hold open.
 */
static void files_allow(void)
{
    struct rlimit limit;
    rlim_t wanted = (rlim_t)config_int("HOLDFAST_HTTP_CONNECTIONS") + FILES_OWN;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted)
        return;
    limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur < wanted)
        log_event(LOG_WARN, "files_limited",
                  "connections=%lld effect=fewer client connections than configured fit the limit "
                  "of open files",
                  (long long)config_int("HOLDFAST_HTTP_CONNECTIONS"));
}

static bool bus_start(int32_t partition, struct error *err)
{
    static struct bus_config bus; /* the clients keep pointing into it */
    bus_config_load(&bus, service_name());
    producer = producer_new(&bus, err);
    outcomes = producer != NULL ? reader_new(&bus, BUS_OUTCOMES, partition, err) : NULL;
    /* Not a condition of readiness: what is accepted meanwhile is published by the scheduler. */
    metric_callback("holdfast_kafka_connected", "", "1 while a broker is connected.", kafka_gauge,
                    NULL);
    return outcomes != NULL;
}

static void parts_start(int32_t partition)
{
    config_watch_start();
    access_start();
    actions_start();
    policies_start();
    waiters_start();
    reconcile_wait_start(producer, partition);
    publish_start(producer, partition);
    approval_wait_start();
    answers_start(outcomes);
    grants_start();
    accept_start(producer, partition);
    routes_start();
    admin_http_ready_check("postgres", config_watch_ready, NULL);
}

/* Whatever hangs, the process ends. */
static void *drain_watch(void *opaque)
{
    int64_t ms = config_int("HOLDFAST_DRAIN_MS") + 1000;
    (void)opaque;
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
    log_event(LOG_ERROR, "drain_overdue", "ms=%lld", (long long)ms);
    _exit(1);
}

/* In the order in which calls travel, so that each part finishes what the one before gave it. */
static void parts_drain(struct http *http, int status)
{
    int drain_ms = (int)config_int("HOLDFAST_DRAIN_MS");
    int64_t began_ms = clock_boot_ms();
    pthread_t watchdog;
    must(pthread_create(&watchdog, NULL, drain_watch, NULL) == 0);
    pthread_detach(watchdog);
    http_drain(http);
    waiters_limit(began_ms + (drain_ms / 2 < DRAIN_WAIT_MS ? drain_ms / 2 : DRAIN_WAIT_MS));
    routes_stop();
    accept_stop();
    grants_stop();
    reconcile_wait_stop();
    approval_wait_stop();
    if (!http_wait_idle(http, drain_ms - (int)(clock_boot_ms() - began_ms))) {
        log_event(LOG_WARN, "drain_incomplete", "waiting=%zu", waiters_count());
        _exit(status);
    }
    answers_stop();
    http_stop(http);
    routes_free();
}

static void parts_stop(int status)
{
    bool closed = reader_close(outcomes, CLOSE_MS);
    closed = producer_close(producer, CLOSE_MS) && closed;
    if (!closed)
        _exit(status); /* librdkafka is left behind as it is */
    waiters_stop();
    policies_stop();
    actions_stop();
    access_stop();
    config_watch_stop();
}

int main(void)
{
    struct error err = {0};
    if (!service_boot("ingest", &err) || !vault_start("holdfast-ingest start", &err) ||
        !database_check(&err) || !redis_check(&err))
        service_refuse(&err);
    files_allow();
    int32_t partition = outcome_partition();
    if (!bus_start(partition, &err))
        service_refuse(&err);
    parts_start(partition);
    struct http *http = http_start(&err);
    if (http == NULL)
        service_refuse(&err);
    log_event(LOG_INFO, "listening", "port=%d outcome_partition=%d", http_port(http), partition);

    int status = service_run(producer_failed);
    parts_drain(http, status);
    parts_stop(status);
    service_end();
    return status;
}
