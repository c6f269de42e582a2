/* The reconciler: reads providers back, and settles what only they can tell. It never sends a
 * write. */
#include "common/base/admin_http.h"
#include "common/base/config.h"
#include "common/base/log.h"
#include "common/base/service.h"
#include "common/http/easy.h"
#include "common/store/probe.h"
#include "common/vault.h"
#include "reconciler/read_back.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

enum { CLOSE_MS = 5000, ACTIONS_MAX = 10000, ASKED_MAX = 1024, FETCH_THREADS = 1 };

static struct reconciler the_reconciler;

static bool failed(void)
{
    return producer_fatal(the_reconciler.producer) || consumer_fatal(the_reconciler.consumer);
}

static bool reconciler_start(struct reconciler *r, struct error *err)
{
    static struct bus_config bus; /* outlives the clients */
    size_t slots = (size_t)config_int("HOLDFAST_READ_SLOTS");
    struct fetcher_config reading = {.threads = FETCH_THREADS,
                                     .slots = slots,
                                     .connect_timeout_ms =
                                         config_int("HOLDFAST_CONNECT_TIMEOUT_MS"),
                                     .answer_max = (size_t)config_int("HOLDFAST_ANSWER_MAX_BYTES"),
                                     .ca_file = easy_ca_file()};
    r->rungs = config_durations("HOLDFAST_READBACK_SCHEDULE", r->schedule_ms, READ_SCHEDULE_MAX);
    r->read_timeout_ms = config_int("HOLDFAST_READ_TIMEOUT_MS");
    r->actions = action_cache_new(ACTIONS_MAX);
    r->asked = queue_new("reads_asked", ASKED_MAX);
    r->urgent = queue_new("reads_urgent", ASKED_MAX);
    /* Every job holds a slot of the fetcher or is one of a batch that is being started. */
    r->going = queue_new("reads_going", 4 * slots + ASKED_MAX);
    r->ended = queue_new("reads_ended", 4 * slots + ASKED_MAX);
    bus_config_load(&bus, service_name());
    r->producer = producer_new(&bus, err);
    r->fetcher = r->producer != NULL ? fetcher_start(&reading, err) : NULL;
    r->consumer = r->fetcher != NULL ? consumer_new(&bus, BUS_RECONCILE, r->producer, err) : NULL;
    return r->consumer != NULL;
}

/* What waits is dropped undecided and delivered again; what is being read is read and written. */
static bool reconciler_drain(struct reconciler *r, pthread_t intake, pthread_t start, pthread_t end)
{
    void *left;
    pthread_join(intake, NULL);
    pthread_join(start, NULL);
    fetcher_stop(r->fetcher, config_int("HOLDFAST_DRAIN_MS"));
    queue_close(r->ended);
    pthread_join(end, NULL);
    while (queue_take(r->asked, &left, 1, 0, 0) == 1 || queue_take(r->urgent, &left, 1, 0, 0) == 1)
        bus_message_free(left);
    while (queue_take(r->going, &left, 1, 0, 0) == 1)
        read_job_free(left);
    bool clean = consumer_close(r->consumer, CLOSE_MS);
    return producer_close(r->producer, CLOSE_MS) && clean;
}

int main(void)
{
    struct error err = {0};
    struct reconciler *r = &the_reconciler;
    pthread_t intake, start, end;
    if (!service_boot("reconciler", &err) || !vault_start("holdfast-reconciler start", &err))
        service_refuse(&err);
    if (!store_probe_start(&err))
        service_refuse(&err);
    if (!reconciler_start(r, &err))
        service_refuse(&err);
    admin_http_ready_check("kafka", consumer_ready, r->consumer);
    must(pthread_create(&end, NULL, reconciler_end_thread, r) == 0);
    must(pthread_create(&start, NULL, reconciler_start_thread, r) == 0);
    must(pthread_create(&intake, NULL, reconciler_intake_thread, r) == 0);

    int status = service_run(failed);
    bool clean = reconciler_drain(r, intake, start, end);
    store_probe_stop();
    if (!clean) { /* librdkafka did not end: its threads still use what we would free */
        log_event(LOG_WARN, "kafka_left_behind", "reason=%s", "the brokers did not answer in time");
        _exit(status);
    }
    action_cache_free(r->actions);
    queue_free(r->asked);
    queue_free(r->urgent);
    queue_free(r->going);
    queue_free(r->ended);
    service_end();
    return status;
}
