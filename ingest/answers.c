/* Three threads: one hears of outcomes, one watches the time, one reads the database and answers.
 */
#include "ingest/answers.h"

#include "common/base/clock.h"
#include "common/base/config.h"
#include "common/base/log.h"
#include "common/base/metrics.h"
#include "common/bus/message.h"
#include "common/effect.h"
#include "common/store/array.h"
#include "ingest/reconcile_wait.h"
#include "ingest/replies.h"
#include "ingest/waiters.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    ANSWER_BATCH = 256,
    HEAR_BATCH = 1000,
    HEAR_WAIT_MS = 200,
    DUE_WAIT_MS = 200,
    TICK_MS = 50, /* how exactly the end of a wait is kept */
    LOOK_EVERY_MS = 1000,
    LOOK_BATCH = 1000,
    REFRESH_MAX = 1024
};

static struct {
    pthread_t hear, watch, answer;
    struct reader *outcomes;
    atomic_bool stopping;
    struct metric *looked_after;
} threads;

/* ---- replies to refresh: a small ring, the newest are dropped when it is full ---- */

static struct {
    pthread_mutex_t lock;
    struct ulid effects[REFRESH_MAX];
    size_t count;
} refresh = {.lock = PTHREAD_MUTEX_INITIALIZER};

void answers_refresh(const struct ulid *effect)
{
    pthread_mutex_lock(&refresh.lock);
    if (refresh.count < REFRESH_MAX)
        refresh.effects[refresh.count++] = *effect;
    pthread_mutex_unlock(&refresh.lock);
}

static size_t refresh_take(struct ulid *out, size_t max)
{
    size_t count = 0;
    pthread_mutex_lock(&refresh.lock);
    while (count < max && refresh.count > 0)
        out[count++] = refresh.effects[--refresh.count];
    pthread_mutex_unlock(&refresh.lock);
    return count;
}

/* ---- hearing of outcomes ---- */

static void outcome_take(const struct bus_message *message)
{
    struct outcome_message outcome;
    struct error err = {0};
    if (!outcome_message_decode(message->payload, message->len, &outcome, &err)) {
        log_event(LOG_WARN, "outcome_unreadable", "offset=%lld reason=%s",
                  (long long)message->offset, err.text);
        return;
    }
    waiters_poke(&outcome.effect);
    reconcile_wait_poke(&outcome.effect);
    if (outcome.what == WHAT_CONFIRMED || outcome.what == WHAT_CONFLICT)
        answers_refresh(&outcome.effect);
}

static void *hear_thread(void *opaque)
{
    struct bus_message *messages[HEAR_BATCH];
    (void)opaque;
    while (!atomic_load(&threads.stopping)) {
        size_t count = reader_poll(threads.outcomes, messages, HEAR_BATCH, HEAR_WAIT_MS);
        for (size_t i = 0; i < count; i++) {
            outcome_take(messages[i]);
            bus_message_free(messages[i]);
        }
    }
    return NULL;
}

/* ---- watching the time ---- */

/* Pokes those of the effects that have got somewhere. */
static bool effects_look(struct store *store, const struct ulid *ids, size_t count,
                         struct error *err)
{
    static const char sql[] =
        "select w.id from unnest($1) w(id) left join open_effects o on o.id = w.id "
        "where o.id is null or o.stage in ('reconciling', 'awaiting_approval')";
    PGresult *r = array_query_ids(store, sql, ids, count, err);
    for (int row = 0; r != NULL && row < PQntuples(r); row++) {
        struct ulid id;
        row_uuid(r, row, 0, &id);
        waiters_poke(&id);
        metric_add(threads.looked_after, 1);
    }
    PQclear(r);
    return r != NULL;
}

/* Looks after those whose message was lost. */
static void waiters_look(struct store *store)
{
    struct error err = {0};
    size_t count;
    struct ulid *ids = waiters_all(&count);
    for (size_t at = 0; at < count; at += LOOK_BATCH) {
        size_t n = count - at < LOOK_BATCH ? count - at : LOOK_BATCH;
        if (!effects_look(store, ids + at, n, &err)) {
            log_error(LOG_DEBUG, "look_failed", &err);
            break;
        }
    }
    free(ids);
}

static void *watch_thread(void *opaque)
{
    struct store_options options = {.url = config_text("HOLDFAST_DATABASE_URL"),
                                    .name = "holdfast-ingest look"};
    struct store *store = store_new(&options);
    int64_t look_ms = clock_boot_ms() + LOOK_EVERY_MS;
    (void)opaque;
    while (!atomic_load(&threads.stopping)) {
        int64_t now_ms = clock_boot_ms();
        waiters_expire(now_ms);
        if (now_ms >= look_ms) {
            waiters_look(store);
            look_ms = now_ms + LOOK_EVERY_MS;
        }
        nanosleep(&(struct timespec){.tv_nsec = TICK_MS * 1000000L}, NULL);
    }
    store_free(store);
    return NULL;
}

/* ---- answering ---- */

/* What the database shows of one effect. Texts are borrowed from the result. */
struct shown {
    struct ulid effect;
    int environment;
    int revision; /* 0: it may still change in every way */
    bool known;   /* settled, unknown, pending at the provider, or parked for approval */
    bool succeeded;
    const char *doc;
    size_t doc_len;
    const uint8_t *key_hash; /* of the effect's own key; NULL when the row is gone */
    const uint8_t *request_hash;
};

static PGresult *effects_read(struct store *store, const struct ulid *ids, size_t count,
                              struct error *err)
{
    static const char sql[] = "select id, environment_id, revision, status, doc, stage::text, "
                              "key_hash, request_hash from invocation_json($1)";
    return array_query_ids(store, sql, ids, count, err);
}

static void shown_read(const PGresult *r, int row, struct shown *out)
{
    const char *status = row_text(r, row, 3);
    enum stage stage;
    must(stage_parse(row_text(r, row, 5), &stage));
    row_uuid(r, row, 0, &out->effect);
    out->environment = (int)row_int(r, row, 1);
    out->revision = (int)row_int(r, row, 2);
    out->succeeded = status != NULL && strcmp(status, "succeeded") == 0;
    out->doc = row_bytes(r, row, 4, &out->doc_len);
    out->known = stage != STAGE_READY && stage != STAGE_DISPATCHING;
    out->key_hash = row_bytes(r, row, 6, NULL);
    out->request_hash = row_bytes(r, row, 7, NULL);
}

/* A call whose time is over while its effect is on the way. */
static void still_running_tell(const struct wait *wait, const struct shown *shown)
{
    char inv[ULID_PREFIXED_SIZE], details[96];
    if (wait->kind != WAIT_DUPLICATE) {
        call_data(wait->call, 202, shown->doc);
        return;
    }
    ulid_format_prefixed("inv", &shown->effect, inv);
    snprintf(details, sizeof details, "{\"invocationId\":\"%s\"}", inv);
    call_error(wait->call, 409, "idempotency_request_in_progress", details,
               "The first request with this Idempotency-Key is still running. Do not send it under "
               "another key; read invocation %s, or send the same request with the same key again "
               "later.",
               inv);
}

static void waits_answer(struct wait *waits, const struct shown *shown)
{
    while (waits != NULL) {
        struct wait *next = waits->next;
        if (shown->known)
            call_data(waits->call, 200, shown->doc);
        else
            still_running_tell(waits, shown);
        call_finish(waits->call);
        free(waits);
        waits = next;
    }
}

static void waits_fail(struct wait *waits, const struct error *err)
{
    while (waits != NULL) {
        struct wait *next = waits->next;
        call_error_value(waits->call, err);
        call_finish(waits->call);
        free(waits);
        waits = next;
    }
}

_Static_assert(ANSWER_BATCH * 2 <= REPLIES_KEEP_MAX, "what is read together is kept together");

static void replies_update(struct replies *replies, const struct shown *shown, size_t count)
{
    struct reply list[REPLIES_KEEP_MAX];
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        const struct shown *s = &shown[i];
        if (s->revision == 0 || s->key_hash == NULL)
            continue;
        list[n++] = (struct reply){.environment = s->environment,
                                   .key_hash = s->key_hash,
                                   .request_hash = s->request_hash,
                                   .revision = s->revision,
                                   .may_be_confirmed = s->succeeded && s->revision == 1,
                                   .doc = s->doc,
                                   .doc_len = s->doc_len};
    }
    replies_keep(replies, list, n);
}

/* Effects that the database does not show: nobody may wait for them for ever. */
static void effects_missing(const struct ulid *ids, size_t count, const struct shown *shown,
                            size_t rows, int64_t now_ms)
{
    struct error err = {0};
    error_set(&err, ERROR_INTERNAL, "an effect that is waited for is not in the database");
    for (size_t i = 0; i < count; i++) {
        bool found = false;
        for (size_t row = 0; row < rows && !found; row++)
            found = ulid_compare(&shown[row].effect, &ids[i]) == 0;
        if (!found)
            waits_fail(waiters_detach(&ids[i], true, now_ms), &err);
    }
}

/* When the database can't be asked, those whose time is over are told to send the same again. */
static void effects_answer(struct store *store, struct replies *replies, const struct ulid *ids,
                           size_t count)
{
    struct shown shown[ANSWER_BATCH * 2];
    struct error err = {0};
    int64_t now_ms = clock_boot_ms();
    PGresult *r = effects_read(store, ids, count, &err);
    if (r == NULL) {
        for (size_t i = 0; i < count; i++)
            waits_fail(waiters_detach(&ids[i], false, now_ms), &err);
        return;
    }
    size_t rows = (size_t)PQntuples(r);
    must(rows <= ANSWER_BATCH * 2);
    for (size_t i = 0; i < rows; i++) {
        shown_read(r, (int)i, &shown[i]);
        waits_answer(waiters_detach(&shown[i].effect, shown[i].known, now_ms), &shown[i]);
    }
    if (rows != count)
        effects_missing(ids, count, shown, rows, now_ms);
    replies_update(replies, shown, rows);
    PQclear(r);
}

static void *answer_thread(void *opaque)
{
    struct store_options options = {.url = config_text("HOLDFAST_DATABASE_URL"),
                                    .name = "holdfast-ingest answer"};
    struct store *store = store_new(&options);
    struct replies *replies = replies_new(NULL);
    must(replies != NULL);
    struct ulid ids[ANSWER_BATCH * 2];
    (void)opaque;
    while (!atomic_load(&threads.stopping)) {
        size_t count = waiters_take_due(ids, ANSWER_BATCH, DUE_WAIT_MS);
        count += refresh_take(ids + count, ANSWER_BATCH);
        if (count > 0)
            effects_answer(store, replies, ids, count);
    }
    replies_free(replies);
    store_free(store);
    return NULL;
}

void answers_start(struct reader *outcomes)
{
    threads.outcomes = outcomes;
    atomic_store(&threads.stopping, false);
    threads.looked_after = metric_counter("holdfast_waits_looked_after_total", "",
                                          "Waited-for effects found without their message.");
    must(pthread_create(&threads.hear, NULL, hear_thread, NULL) == 0);
    must(pthread_create(&threads.watch, NULL, watch_thread, NULL) == 0);
    must(pthread_create(&threads.answer, NULL, answer_thread, NULL) == 0);
}

void answers_stop(void)
{
    atomic_store(&threads.stopping, true);
    pthread_join(threads.hear, NULL);
    pthread_join(threads.watch, NULL);
    pthread_join(threads.answer, NULL);
}
