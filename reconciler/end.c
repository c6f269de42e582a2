/* Ends read-backs in the database: a match or the provider's own "failed" settles, "not final"
 * waits on, anything else is evidence and the next read's time. Nothing found never fails an
 * effect.
 *
 * If this process dies before the COMMIT the read is made again; after it, the message is delivered
 * again and finds nothing that wants a read. Two readers of one effect settle it once: the second
 * finds it settled. */
#include "common/base/config.h"
#include "common/base/log.h"
#include "common/base/metrics.h"
#include "common/base/service.h"
#include "common/settle.h"
#include "common/store/array.h"
#include "reconciler/read_back.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BATCH_MOST = 64, TAKE_MS = 200, RETRY_MS = 100, TEXTS_MAX = 1 << 20 };
enum { UNUSABLE_FIRST_MS = 1000, UNUSABLE_MOST_MS = 60000, RETRY_AFTER_MOST_MS = 3600000 };

struct ender {
    struct reconciler *r;
    struct store *store;
    struct read_job *batch[BATCH_MOST];
    size_t count;
    enum outcome_what told[BATCH_MOST]; /* what those who wait are told of each */
};

/* ---- when to look again ---- */

static int64_t doubled_ms(int64_t first_ms, int times, int64_t most_ms)
{
    int64_t ms = first_ms;
    for (int i = 0; i < times && ms < most_ms; i++)
        ms *= 2;
    return ms < most_ms ? ms : most_ms;
}

int64_t read_next_ms(const struct read_job *job, const int64_t *schedule_ms, size_t rungs)
{
    if (job->conflict || job->read.what == READ_CONFLICT)
        return -1;
    if (job->read.what == READ_UNUSABLE) {
        int64_t back_off_ms = doubled_ms(UNUSABLE_FIRST_MS, job->tries, UNUSABLE_MOST_MS);
        int64_t asked_ms = job->read.retry_after_ms < RETRY_AFTER_MOST_MS ? job->read.retry_after_ms
                                                                          : RETRY_AFTER_MOST_MS;
        return asked_ms > back_off_ms ? asked_ms : back_off_ms;
    }
    if (job->confirming)
        return doubled_ms(config_int("HOLDFAST_CONFIRM_DELAY_MS"), job->reads + 1,
                          UNUSABLE_MOST_MS);
    size_t next = (size_t)job->step + 1;
    return schedule_ms[next < rungs ? next : rungs - 1];
}

/* ---- what settles ---- */

static bool job_settles(const struct read_job *job)
{
    switch (job->read.what) {
    case READ_MATCH:
        return !job->confirming;
    case READ_PROVIDER_FAILED:
        return true;
    case READ_NOT_FINAL:
        return job->open;
    default:
        return false;
    }
}

static void item_take(const struct read_job *job, struct settle_item *item)
{
    *item = (struct settle_item){.effect = job->message.effect,
                                 .kind = SETTLE_RECONCILE,
                                 .object_id = job->read.object_id,
                                 .evidence = job->read.text,
                                 .consumed = -1,
                                 .by = service_name(),
                                 .reason = REASON_PROVIDER_RECORD};
    item->outcome = job->read.what == READ_MATCH             ? OUTCOME_SUCCEEDED
                    : job->read.what == READ_PROVIDER_FAILED ? OUTCOME_FAILED
                                                             : OUTCOME_PENDING;
    if (item->outcome == OUTCOME_FAILED)
        item->error = job->read.text;
}

static size_t job_find(const struct ender *e, const struct ulid *effect)
{
    for (size_t i = 0; i < e->count; i++)
        if (ulid_compare(&e->batch[i]->message.effect, effect) == 0)
            return i;
    must(!"a settled item is in the batch");
    return 0;
}

static bool batch_settle(struct ender *e, struct error *err)
{
    struct settle_item items[BATCH_MOST];
    size_t count = 0;
    for (size_t i = 0; i < e->count; i++)
        if (job_settles(e->batch[i]))
            item_take(e->batch[i], &items[count++]);
    if (count == 0)
        return true;
    if (!settle_batch_run(e->store, items, count, err))
        return false;
    for (size_t i = 0; i < count; i++)
        e->told[job_find(e, &items[i].effect)] = items[i].result == SETTLE_SETTLED ? WHAT_SETTLED
                                                 : items[i].result == SETTLE_CONFLICT
                                                     ? WHAT_CONFLICT
                                                     : WHAT_READ;
    return true;
}

/* ---- what is only written down ---- */

static const char *ended_kind(const struct read_job *job)
{
    return job->read.what == READ_UNUSABLE     ? "unusable"
           : job->read.what == READ_IMPOSSIBLE ? "impossible"
           : job->read.what == READ_NOT_FINAL  ? "not_final"
                                               : "not_found";
}

static bool job_is_ended(const struct read_job *job)
{
    return job->read.what == READ_NOT_FOUND || job->read.what == READ_UNUSABLE ||
           job->read.what == READ_IMPOSSIBLE || job->read.what == READ_NOT_FINAL;
}

static void put_ended(const struct ender *e, const struct read_job *job, struct array *a)
{
    int64_t next_ms = read_next_ms(job, e->r->schedule_ms, e->r->rungs);
    array_put_uuid(&a[0], &job->message.effect);
    array_put_text(&a[1], ended_kind(job));
    array_put_text(&a[2], job->read.text);
    job->status > 0 ? array_put_int(&a[3], job->status) : array_put_null(&a[3]);
    next_ms >= 0 ? array_put_int(&a[4], next_ms) : array_put_null(&a[4]);
    array_put_text(&a[5], service_name());
}

static bool batch_write_ended(struct ender *e, struct error *err)
{
    static const int elements[6] = {ARRAY_UUID, ARRAY_TEXT, ARRAY_TEXT,
                                    ARRAY_INT4, ARRAY_INT8, ARRAY_TEXT};
    struct array a[6];
    struct store_param params[6];
    PGresult *r = NULL;
    for (int i = 0; i < 6; i++)
        array_init(&a[i], elements[i], TEXTS_MAX);
    for (size_t i = 0; i < e->count; i++)
        if (job_is_ended(e->batch[i]))
            put_ended(e, e->batch[i], a);
    for (int i = 0; i < 6; i++)
        must(array_param(&a[i], &params[i]));
    struct store_statement statement = {
        "select * from read_ended($1::uuid[], $2::text[], $3::text[], "
        "$4::int[], $5::bigint[], $6::text[])",
        params, 6, true};
    bool ok = a[0].count == 0 || store_transact(e->store, &statement, 1, &r, err);
    PQclear(r);
    for (int i = 0; i < 6; i++)
        array_free(&a[i]);
    return ok;
}

static bool job_confirm(struct ender *e, size_t at, struct error *err)
{
    const struct read_job *job = e->batch[at];
    struct store_param params[] = {store_uuid(&job->message.effect), store_text(job->read.text),
                                   store_text(job->read.object_id[0] ? job->read.object_id : NULL),
                                   store_text(service_name())};
    PGresult *r = NULL;
    struct store_statement statement = {"select * from confirm_batch(array[$1::uuid], "
                                        "array[$2::text], array[$3::text], array[$4::text])",
                                        params, 4, true};
    bool ok = store_transact(e->store, &statement, 1, &r, err);
    PQclear(r);
    e->told[at] = WHAT_CONFIRMED;
    return ok;
}

static bool job_conflict(struct ender *e, size_t at, struct error *err)
{
    const struct read_job *job = e->batch[at];
    char id[ULID_PREFIXED_SIZE];
    struct store_param params[] = {store_uuid(&job->message.effect), store_text(job->read.text),
                                   store_text(service_name())};
    PGresult *r = NULL;
    struct store_statement statement = {"select conflict_mark($1::uuid, $2, $3)", params, 3, true};
    bool ok = store_transact(e->store, &statement, 1, &r, err);
    if (ok && row_bool(r, 0, 0)) {
        log_event(LOG_ERROR, "effect_conflict", "effect=%s reason=%s",
                  ulid_format_prefixed("eff", &job->message.effect, id), job->read.text);
        metric_add(metric_counter("holdfast_conflicts_total", "",
                                  "Effects that were marked as in conflict."),
                   1);
    }
    PQclear(r);
    e->told[at] = WHAT_CONFLICT;
    return ok;
}

static bool batch_write(struct ender *e, struct error *err)
{
    if (!batch_settle(e, err) || !batch_write_ended(e, err))
        return false;
    for (size_t i = 0; i < e->count; i++) {
        const struct read_job *job = e->batch[i];
        if (job->read.what == READ_CONFLICT && !job_conflict(e, i, err))
            return false;
        if (job->read.what == READ_MATCH && job->confirming && !job_confirm(e, i, err))
            return false;
    }
    return true;
}

/* ---- the batch ---- */

static void outcome_tell(struct ender *e, size_t at)
{
    const struct read_job *job = e->batch[at];
    struct outcome_message message = {.effect = job->message.effect,
                                      .environment = job->message.environment,
                                      .what = e->told[at]};
    struct error err = {0};
    struct buf payload;
    char key[ULID_PREFIXED_SIZE];
    if (job->message.reply == MESSAGE_NO_REPLY)
        return;
    buf_init(&payload, MESSAGE_MAX);
    if (outcome_message_encode(&message, &payload) &&
        !producer_send(e->r->producer, BUS_OUTCOMES, job->message.reply,
                       ulid_format_prefixed("eff", &message.effect, key), payload.data, payload.len,
                       NULL, NULL, &err))
        log_error(LOG_WARN, "outcome_not_published", &err);
    buf_free(&payload);
}

/* Writes until the database has it, or the process must end (then the reads are made again). */
static void batch_end(struct ender *e)
{
    struct error err = {0};
    bool written = true;
    for (size_t i = 0; i < e->count; i++)
        e->told[i] = WHAT_READ;
    while (!batch_write(e, &err)) {
        log_error(LOG_WARN, "read_not_written", &err);
        written = !service_stopping();
        if (!written || (err.code != ERROR_UNAVAILABLE && err.code != ERROR_DOUBTFUL))
            break;
        usleep(RETRY_MS * 1000);
    }
    for (size_t i = 0; i < e->count; i++) {
        outcome_tell(e, i);
        if (written)
            consumer_done(e->r->consumer, &e->batch[i]->token);
        read_job_free(e->batch[i]);
    }
    e->count = 0;
}

/* Effects of one batch are distinct: another read of one that is in it waits for the next. */
static bool batch_has(const struct ender *e, const struct read_job *job)
{
    for (size_t i = 0; i < e->count; i++)
        if (ulid_compare(&e->batch[i]->message.effect, &job->message.effect) == 0)
            return true;
    return false;
}

void *reconciler_end_thread(void *opaque)
{
    struct ender *e = calloc(1, sizeof *e);
    must(e != NULL);
    struct store_options options = {.url = config_text("HOLDFAST_DATABASE_URL"),
                                    .name = service_name()};
    struct read_job *taken[BATCH_MOST];
    e->r = opaque;
    e->store = store_new(&options);
    for (;;) {
        size_t count = queue_take(e->r->ended, (void **)taken, BATCH_MOST, TAKE_MS, 1);
        if (count == 0 && queue_closed(e->r->ended))
            break;
        for (size_t i = 0; i < count; i++) {
            if (batch_has(e, taken[i]))
                batch_end(e);
            e->batch[e->count++] = taken[i];
        }
        if (e->count > 0)
            batch_end(e);
    }
    store_free(e->store);
    free(e);
    return NULL;
}
