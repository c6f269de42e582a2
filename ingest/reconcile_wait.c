/* A short list of waits and the thread that looks after them: at once when a message says that a
 * read has ended, else once a second. */
#include "ingest/reconcile_wait.h"

#include "common/base/clock.h"
#include "common/base/config.h"
#include "common/base/log.h"
#include "common/base/metrics.h"
#include "common/bus/publish.h"
#include "common/store/array.h"
#include "ingest/routes/effect.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WAITS_MAX = 10000, LOOK_BATCH = 256, LOOK_EVERY_MS = 1000, TICK_MS = 50 };

struct read_wait {
    struct read_wait *next;
    struct ulid effect;
    struct call *call;
    bool lead;
    bool poked;
    int64_t deadline_ms; /* clock_boot_ms */
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t something_poked;
    pthread_t thread;
    struct producer *producer;
    int32_t reply;
    struct read_wait *waits;
    size_t count;
    bool any_poked;
    bool stopping;
} table;

static double waits_gauge(void *opaque)
{
    (void)opaque;
    pthread_mutex_lock(&table.lock);
    double count = (double)table.count;
    pthread_mutex_unlock(&table.lock);
    return count;
}

/* ---- any thread ---- */

bool reconcile_wait_add(const struct ulid *effect, struct call *call, bool lead,
                        int64_t deadline_ms)
{
    struct read_wait *wait = malloc(sizeof *wait);
    must(wait != NULL);
    pthread_mutex_lock(&table.lock);
    bool room = table.count < WAITS_MAX;
    if (room) {
        *wait = (struct read_wait){.next = table.waits,
                                   .effect = *effect,
                                   .call = call,
                                   .lead = lead,
                                   .deadline_ms = deadline_ms};
        table.waits = wait;
        table.count++;
    }
    pthread_mutex_unlock(&table.lock);
    if (!room)
        free(wait);
    return room;
}

void reconcile_wait_poke(const struct ulid *effect)
{
    pthread_mutex_lock(&table.lock);
    for (struct read_wait *wait = table.waits; wait != NULL; wait = wait->next) {
        if (ulid_compare(&wait->effect, effect) != 0)
            continue;
        wait->poked = true;
        table.any_poked = true;
        pthread_cond_signal(&table.something_poked);
    }
    pthread_mutex_unlock(&table.lock);
}

void reconcile_wait_publish(const struct ulid *effect, int environment)
{
    struct reconcile_message message = {.effect = *effect,
                                        .environment = environment,
                                        .purpose = READ_DEMAND,
                                        .reply = table.reply};
    char key[ULID_TEXT_SIZE];
    struct error err = {0};
    ulid_format(effect, key);
    if (!reconcile_publish(table.producer, &message, key, &err))
        log_event(LOG_WARN, "reconcile_publish_failed", "effect=%s reason=%s", key, err.text);
}

/* ---- looking ---- */

/* The effects to look at: those that were poked, whose wait is over, or all. Marks them as looked
 * at. */
static size_t effects_take(struct ulid *out, int64_t now_ms, bool all)
{
    size_t count = 0;
    pthread_mutex_lock(&table.lock);
    table.any_poked = false;
    for (struct read_wait *wait = table.waits; wait != NULL; wait = wait->next) {
        bool wanted = all || wait->poked || wait->deadline_ms <= now_ms;
        if (wanted && count == LOOK_BATCH) {
            table.any_poked = true; /* the rest at once afterwards */
            break;
        }
        if (!wanted)
            continue;
        wait->poked = false;
        out[count++] = wait->effect;
    }
    pthread_mutex_unlock(&table.lock);
    return count;
}

/* What is known of one effect: texts are borrowed from the result. */
struct read_state {
    struct ulid effect;
    bool settled;
    bool by_read;    /* settled by what a read of the provider found */
    bool ended;      /* no read is under way */
    const char *doc; /* NULL: it is gone */
};

/* Takes the waits that can be answered now out of the table. */
static struct read_wait *waits_detach(const struct read_state *state, int64_t now_ms)
{
    struct read_wait *taken = NULL;
    pthread_mutex_lock(&table.lock);
    struct read_wait **link = &table.waits;
    while (*link != NULL) {
        struct read_wait *wait = *link;
        bool over = wait->deadline_ms <= now_ms || table.stopping;
        if (ulid_compare(&wait->effect, &state->effect) != 0 ||
            !(over || state->settled || state->ended)) {
            link = &wait->next;
            continue;
        }
        *link = wait->next;
        wait->next = taken;
        taken = wait;
        table.count--;
    }
    pthread_mutex_unlock(&table.lock);
    return taken;
}

static void waits_answer(struct read_wait *waits, const struct read_state *state)
{
    while (waits != NULL) {
        struct read_wait *next = waits->next;
        if (state->doc == NULL)
            document_missing(waits->call, "effect", waits->call->segments[0]);
        else if (state->settled && !(waits->lead && state->by_read))
            effect_settled_refuse(waits->call);
        else
            call_data(waits->call, 200, state->doc);
        call_finish(waits->call);
        free(waits);
        waits = next;
    }
}

static PGresult *states_read(struct store *store, const struct ulid *ids, size_t count,
                             struct error *err)
{
    static const char sql[] =
        "select w.id, s.effect_id is not null, coalesce(s.reason = 'provider_record', false), "
        "coalesce(r.running_until <= hf_now(), true), j.doc "
        "from unnest($1) w(id) left join lateral effect_json(array[w.id]) j on true "
        "left join settlements s on s.effect_id = w.id left join reads_due r on r.effect_id = w.id";
    return array_query_ids(store, sql, ids, count, err);
}

static void state_read(const PGresult *r, int row, struct read_state *out)
{
    row_uuid(r, row, 0, &out->effect);
    out->settled = row_bool(r, row, 1);
    out->by_read = row_bool(r, row, 2);
    out->ended = row_bool(r, row, 3);
    out->doc = row_text(r, row, 4);
}

/* The database can't be asked: whose time is over is told so. Asking again is safe. */
static void waits_fail(const struct ulid *ids, size_t count, int64_t now_ms,
                       const struct error *err)
{
    for (size_t i = 0; i < count; i++) {
        struct read_state nothing = {.effect = ids[i]};
        struct read_wait *waits = waits_detach(&nothing, now_ms);
        while (waits != NULL) {
            struct read_wait *next = waits->next;
            call_error_value(waits->call, err);
            call_finish(waits->call);
            free(waits);
            waits = next;
        }
    }
}

static void table_look(struct store *store, int64_t now_ms, bool all)
{
    struct ulid ids[LOOK_BATCH];
    struct error err = {0};
    size_t count = effects_take(ids, now_ms, all);
    if (count == 0)
        return;
    PGresult *r = states_read(store, ids, count, &err);
    if (r == NULL) {
        waits_fail(ids, count, now_ms, &err);
        return;
    }
    for (int row = 0; row < PQntuples(r); row++) {
        struct read_state state;
        state_read(r, row, &state);
        waits_answer(waits_detach(&state, now_ms), &state);
    }
    PQclear(r);
}

/* Sleeps until something was poked, a tick is over (so that deadlines are kept), or the end is
 * near. */
static bool table_wait(void)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += TICK_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_mutex_lock(&table.lock);
    if (!table.any_poked && !table.stopping)
        pthread_cond_timedwait(&table.something_poked, &table.lock, &until);
    bool go_on = !table.stopping;
    pthread_mutex_unlock(&table.lock);
    return go_on;
}

static void *look_thread(void *opaque)
{
    struct store_options options = {.url = config_text("HOLDFAST_DATABASE_URL"),
                                    .name = "holdfast-ingest reads"};
    struct store *store = store_new(&options);
    int64_t look_ms = clock_boot_ms() + LOOK_EVERY_MS;
    (void)opaque;
    while (table_wait()) {
        int64_t now_ms = clock_boot_ms();
        bool all = now_ms >= look_ms;
        if (all)
            look_ms = now_ms + LOOK_EVERY_MS;
        table_look(store, now_ms, all);
    }
    while (waits_gauge(NULL) > 0)
        table_look(store, clock_boot_ms(), true);
    store_free(store);
    return NULL;
}

/* ---- start and end ---- */

void reconcile_wait_start(struct producer *producer, int32_t reply)
{
    pthread_condattr_t attr;
    memset(&table, 0, sizeof table);
    table.producer = producer;
    table.reply = reply;
    pthread_mutex_init(&table.lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&table.something_poked, &attr);
    pthread_condattr_destroy(&attr);
    metric_callback("holdfast_waiting_reads", "", "Calls that wait for a read of the provider.",
                    waits_gauge, NULL);
    must(pthread_create(&table.thread, NULL, look_thread, NULL) == 0);
}

void reconcile_wait_stop(void)
{
    pthread_mutex_lock(&table.lock);
    table.stopping = true;
    pthread_cond_signal(&table.something_poked);
    pthread_mutex_unlock(&table.lock);
    pthread_join(table.thread, NULL);
}
