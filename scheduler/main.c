/* The scheduler: publishes what may have been forgotten, sweeps what was not reported, expires what
 * waited too long. Several may run; the one that holds the advisory lock works, the others wait to
 * take over. It holds no state: what it does next stands in the rows. */
#include "common/base/admin_http.h"
#include "common/base/clock.h"
#include "common/base/config.h"
#include "common/base/log.h"
#include "common/base/metrics.h"
#include "common/base/service.h"
#include "common/store/probe.h"
#include "scheduler/jobs.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static struct job {
    const char *name;
    job_run run;
    const char *interval_setting; /* NULL: every_ms */
    int64_t every_ms;
    int64_t next_ms; /* clock_boot_ms */
} jobs[] = {
    {"batches", job_batches, "HOLDFAST_SWEEP_INTERVAL_MS", 0, 0},
    {"expire", job_expire, NULL, 1000, 0},
    {"expire_approvals", job_expire_approvals, NULL, 1000, 0},
    {"forget_replies", job_forget_replies, NULL, 60000, 0},
    {"make_partitions", job_make_partitions, NULL, 3600000, 0},
    {"measure", job_measure, NULL, 2000, 0},
    {"publish_reads", job_publish_reads, "HOLDFAST_TICK_MS", 0, 0},
    {"replays", job_replays, "HOLDFAST_SWEEP_INTERVAL_MS", 0, 0},
    {"republish", job_republish, "HOLDFAST_SWEEP_INTERVAL_MS", 0, 0},
    {"sweep", job_sweep, "HOLDFAST_SWEEP_INTERVAL_MS", 0, 0},
};
enum { JOB_COUNT = sizeof jobs / sizeof *jobs, PIECES_MOST = 20, CLOSE_MS = 5000 };

/* The session's lock: held by the connection, so it is lost with it, and with the process. */
static bool leadership_take(struct store *store, struct error *err)
{
    PGresult *r = store_query(store, "select pg_try_advisory_lock(2, 0)", NULL, 0, true, err);
    bool leads = r != NULL && row_bool(r, 0, 0);
    PQclear(r);
    return leads;
}

static bool job_run_due(struct job *job, struct job_context *context, int64_t now_ms)
{
    struct error err = {0};
    if (now_ms < job->next_ms)
        return true;
    int64_t every_ms =
        job->interval_setting != NULL ? config_int(job->interval_setting) : job->every_ms;
    int count = JOB_PIECE;
    for (int piece = 0; piece < PIECES_MOST && count == JOB_PIECE && !service_stopping(); piece++)
        count = job->run(context, &err);
    job->next_ms = now_ms + every_ms;
    if (count >= 0)
        return true;
    log_event(LOG_WARN, "job_failed", "job=%s reason=%s", job->name, err.text);
    return false;
}

static void *scheduler_thread(void *opaque)
{
    struct job_context *context = opaque;
    struct metric *leading =
        metric_gauge("holdfast_scheduler_leading", "", "1 while this scheduler works.");
    PGconn *leads_on = NULL; /* the connection that has the lock */
    while (!service_stopping()) {
        struct error err = {0};
        bool connected = store_ready(context->store, &err);
        if (connected && leads_on != store_connection(context->store)) {
            leads_on =
                leadership_take(context->store, &err) ? store_connection(context->store) : NULL;
            metric_set(leading, leads_on != NULL);
            if (leads_on != NULL)
                log_event(LOG_INFO, "leading", "name=%s", service_name());
        }
        for (int i = 0; i < JOB_COUNT && leads_on != NULL; i++)
            if (!job_run_due(&jobs[i], context, clock_boot_ms()) || !store_healthy(context->store))
                leads_on = NULL;
        usleep((useconds_t)config_int("HOLDFAST_TICK_MS") * 1000);
    }
    return NULL;
}

static struct producer *the_producer; /* for failed() alone */

static bool failed(void)
{
    return producer_fatal(the_producer);
}

int main(void)
{
    struct error err = {0};
    struct job_context context;
    struct bus_config bus;
    pthread_t thread;
    if (!service_boot("scheduler", &err))
        service_refuse(&err);
    struct store_options options = {.url = config_text("HOLDFAST_DATABASE_URL"),
                                    .name = service_name()};
    context.store = store_new(&options);
    if (!store_probe_start(&err))
        service_refuse(&err);
    bus_config_init(&bus, config_text("HOLDFAST_KAFKA_BROKERS"), service_name());
    context.producer = the_producer = producer_new(&bus, &err);
    context.lag = context.producer != NULL ? lag_watch_new(&bus, BUS_EFFECTS, &err) : NULL;
    if (context.lag == NULL)
        service_refuse(&err);
    admin_http_ready_check("kafka", producer_ready, context.producer);
    must(pthread_create(&thread, NULL, scheduler_thread, &context) == 0);

    int status = service_run(failed);
    pthread_join(thread, NULL);
    store_probe_stop();
    lag_watch_close(context.lag, CLOSE_MS);
    if (!producer_close(context.producer, CLOSE_MS))
        _exit(status);
    store_free(context.store);
    service_end();
    return status;
}
