/* The dispatcher: takes references, claims effects, sends each write at most once, settles what
 * came back. */
#include "common/base/admin_http.h"
#include "common/base/config.h"
#include "common/base/log.h"
#include "common/base/metrics.h"
#include "common/base/service.h"
#include "common/http/easy.h"
#include "common/store/probe.h"
#include "common/vault.h"
#include "dispatcher/dispatch.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

enum { CLAIM_THREADS_MAX = 16, CLOSE_MS = 5000, ACTIONS_MAX = 10000 };

static struct dispatcher the_dispatcher;

static bool failed(void)
{
    return producer_fatal(the_dispatcher.producer) || consumer_fatal(the_dispatcher.consumer);
}

static void send_ended(struct send *send, void *opaque)
{
    (void)opaque;
    must(queue_try_put(the_dispatcher.ended, send->owner)); /* has room for every slot */
}

static double in_flight_now(void *opaque)
{
    return (double)destinations_in_flight(opaque);
}

static double waiting_now(void *opaque)
{
    return (double)destinations_waiting(opaque);
}

static bool dispatcher_start(struct dispatcher *d, struct error *err)
{
    static struct bus_config bus; /* outlives the clients */
    struct destinations_config slots = {
        .slots = (size_t)config_int("HOLDFAST_SEND_SLOTS"),
        .destination_slots = (size_t)config_int("HOLDFAST_DESTINATION_SLOTS"),
        .waiting_max = (size_t)config_int("HOLDFAST_DESTINATION_WAITING")};
    struct sender_config sending = {.threads = (unsigned)config_int("HOLDFAST_SEND_THREADS"),
                                    .slots = slots.slots,
                                    .connect_timeout_ms = config_int("HOLDFAST_CONNECT_TIMEOUT_MS"),
                                    .answer_max = (size_t)config_int("HOLDFAST_ANSWER_MAX_BYTES"),
                                    .ca_file = easy_ca_file(),
                                    .on_done = send_ended};
    d->lease_ms = config_int("HOLDFAST_SEND_LEASE_MS");
    d->provider_timeout_ms = config_int("HOLDFAST_PROVIDER_TIMEOUT_MS");
    d->claim_batch = (size_t)config_int("HOLDFAST_CLAIM_BATCH");
    d->settle_batch = (size_t)config_int("HOLDFAST_SETTLE_BATCH");
    d->settle_linger_ms = (int)config_int("HOLDFAST_SETTLE_LINGER_MS");
    d->destinations = destinations_new(&slots);
    d->actions = action_cache_new(ACTIONS_MAX);
    d->ended = queue_new("ended", slots.slots + 1);
    d->journal = journal_open(config_text("HOLDFAST_JOURNAL_DIR"), service_name(),
                              service_incarnation(), slots.slots * 2, err);
    if (d->journal == NULL)
        return false;
    bus_config_load(&bus, service_name());
    d->producer = producer_new(&bus, err);
    d->sender = d->producer != NULL ? sender_start(&sending, err) : NULL;
    d->consumer = d->sender != NULL ? consumer_new(&bus, BUS_EFFECTS, d->producer, err) : NULL;
    metric_callback("holdfast_sends_in_flight", "", "Send slots that are taken.", in_flight_now,
                    d->destinations);
    metric_callback("holdfast_effects_waiting", "", "Effects that wait for a send slot.",
                    waiting_now, d->destinations);
    return d->consumer != NULL;
}

/* Takes nothing more, lets what was claimed end, settles it, says goodbye to the group. */
static bool dispatcher_drain(struct dispatcher *d, pthread_t intake, const pthread_t *claims,
                             int claim_count, pthread_t settler)
{
    destinations_close(d->destinations);
    pthread_join(intake, NULL);
    for (int i = 0; i < claim_count; i++)
        pthread_join(claims[i], NULL);
    sender_stop(d->sender, config_int("HOLDFAST_DRAIN_MS"));
    queue_close(d->ended);
    pthread_join(settler, NULL);
    bool clean = consumer_close(d->consumer, CLOSE_MS);
    return producer_close(d->producer, CLOSE_MS) && clean;
}

int main(void)
{
    struct error err = {0};
    struct dispatcher *d = &the_dispatcher;
    pthread_t intake, settler, recover, claims[CLAIM_THREADS_MAX];
    if (!service_boot("dispatcher", &err) || !vault_start("holdfast-dispatcher start", &err))
        service_refuse(&err);
    if (!store_probe_start(&err))
        service_refuse(&err);
    if (!dispatcher_start(d, &err))
        service_refuse(&err);
    admin_http_ready_check("kafka", consumer_ready, d->consumer);
    int claim_count = (int)config_int("HOLDFAST_CLAIM_THREADS");
    claim_count = claim_count < CLAIM_THREADS_MAX ? claim_count : CLAIM_THREADS_MAX;
    must(pthread_create(&settler, NULL, settler_thread, d) == 0);
    for (int i = 0; i < claim_count; i++)
        must(pthread_create(&claims[i], NULL, claim_thread, d) == 0);
    must(pthread_create(&recover, NULL, recover_thread, d) == 0);
    must(pthread_create(&intake, NULL, intake_thread, d) == 0);

    int status = service_run(failed);
    bool clean = dispatcher_drain(d, intake, claims, claim_count, settler);
    pthread_join(recover, NULL);
    store_probe_stop();
    journal_close(d->journal, journal_used(d->journal) == 0);
    if (!clean) { /* librdkafka did not end: its threads still use what we would free */
        log_event(LOG_WARN, "kafka_left_behind", "reason=%s", "the brokers did not answer in time");
        _exit(status);
    }
    destinations_free(d->destinations);
    action_cache_free(d->actions);
    queue_free(d->ended);
    service_end();
    return status;
}
