/* The only settler: builds the batch, lets the database decide, halves a batch that fails for good.
 */
#include "common/settle.h"

#include "common/base/buf.h"
#include "common/base/config.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/metrics.h"
#include "common/store/array.h"
#include "common/transition.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SETTLE_BATCH_MOST = 256, RESPONSE_VIEW_BYTES = 65536, SETTLE_TRIES = 3 };
#define SETTLE_ARRAY_BYTES ((size_t)512 << 20)

static const char *const kind_names[] = {"dispatch", "reconcile", "manual", "worker"};
static const char *const result_names[] = {"settled",     "unknown",  "pending",     "evidence",
                                           "late",        "conflict", "wrong_stage", "in_flight",
                                           "lease_ended", "missing",  "not_decided"};

static const char settle_sql[] =
    "select * from settle_batch($1::uuid[], $2::text[], $3::int[], $4::text[]::effect_outcome[], "
    "$5::text[]::settle_reason[], $6::text[]::verification[], $7::int[], $8::bytea[], $9::text[], "
    "$10::bool[], $11::text[], $12::text[], $13::text[], $14::timestamptz[], $15::timestamptz[], "
    "$16::bigint[], $17::text[], $18::text[], $19::text[], $20::int, $21::int)";
enum { SETTLE_ARRAYS = 19 };
static const int array_elements[SETTLE_ARRAYS] = {
    ARRAY_UUID, ARRAY_TEXT, ARRAY_INT4,  ARRAY_TEXT,        ARRAY_TEXT,
    ARRAY_TEXT, ARRAY_INT4, ARRAY_BYTEA, ARRAY_TEXT,        ARRAY_BOOL,
    ARRAY_TEXT, ARRAY_TEXT, ARRAY_TEXT,  ARRAY_TIMESTAMPTZ, ARRAY_TIMESTAMPTZ,
    ARRAY_INT8, ARRAY_TEXT, ARRAY_TEXT,  ARRAY_TEXT};

const char *settle_result_name(enum settle_result result)
{
    return result_names[result];
}

static const char *verification_of(const struct settle_item *item)
{
    if (item->outcome != OUTCOME_SUCCEEDED && item->outcome != OUTCOME_FAILED)
        return "unverified";
    return item->kind == SETTLE_MANUAL      ? "manual"
           : item->kind == SETTLE_RECONCILE ? "provider"
                                            : "unverified";
}

/* Whether the bytes can be shown as they are: what Postgres' json type will take. Numbers of any
 * size pass. */
static bool response_is_json(const void *bytes, size_t len)
{
    json_t *value = json_loadb(bytes, len, JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL, NULL);
    json_decref(value);
    return value != NULL;
}

/* The JSON text to show for bytes that are no JSON: a string, cut at 64 KiB. */
static void put_view(struct array *a, const struct settle_item *item, bool *cut)
{
    *cut = item->response_truncated;
    if (item->response_len == 0 || response_is_json(item->response, item->response_len)) {
        array_put_null(a);
        return;
    }
    struct buf view;
    size_t shown = item->response_len;
    if (shown > RESPONSE_VIEW_BYTES) {
        shown = RESPONSE_VIEW_BYTES;
        *cut = true;
    }
    buf_init(&view, 8 * (size_t)RESPONSE_VIEW_BYTES);
    json_put_string(&view, item->response, shown);
    if (view.failed)
        a->buf.failed = true;
    else
        array_put_text(a, view.data);
    buf_free(&view);
}

/* One element in each array; the order is settle_batch's. */
static void put_item(struct array *a, const struct settle_item *item)
{
    bool final = item->outcome == OUTCOME_SUCCEEDED || item->outcome == OUTCOME_FAILED;
    bool cut;
    must(item->evidence != NULL && item->by != NULL);
    array_put_uuid(&a[0], &item->effect);
    array_put_text(&a[1], kind_names[item->kind]);
    item->seq > 0 ? array_put_int(&a[2], item->seq) : array_put_null(&a[2]);
    array_put_text(&a[3], outcome_name(item->outcome));
    array_put_text(&a[4], final ? settle_reason_name(item->reason) : NULL);
    array_put_text(&a[5], verification_of(item));
    item->response_status > 0 ? array_put_int(&a[6], item->response_status) : array_put_null(&a[6]);
    array_put_bytes(&a[7], item->response_len > 0 ? item->response : NULL, item->response_len);
    put_view(&a[8], item, &cut);
    array_put_bool(&a[9], cut);
    array_put_text(&a[10], item->object_id != NULL && item->object_id[0] ? item->object_id : NULL);
    array_put_text(&a[11], item->error);
    array_put_text(&a[12], item->evidence);
    array_put_time(&a[13], item->sent_at_us);
    array_put_time(&a[14], item->finished_at_us);
    item->consumed >= 0 ? array_put_int(&a[15], item->consumed) : array_put_null(&a[15]);
    array_put_text(&a[16], item->external_reference);
    array_put_text(&a[17], item->partial_effect);
    array_put_text(&a[18], item->by);
}

struct settle_query {
    struct array arrays[SETTLE_ARRAYS];
    struct store_param params[SETTLE_ARRAYS + 2];
    char numbers[2][24];
};

/* From the configuration, once. */
static pthread_once_t configured = PTHREAD_ONCE_INIT;
static int64_t first_read_ms, confirm_ms;

static void settle_configure(void)
{
    int64_t schedule[32];
    config_durations("HOLDFAST_READBACK_SCHEDULE", schedule, 32);
    first_read_ms = schedule[0];
    confirm_ms = config_int("HOLDFAST_CONFIRM_DELAY_MS");
}

static bool query_build(struct settle_query *q, const struct settle_item *items, size_t count,
                        struct error *err)
{
    bool ok = true;
    pthread_once(&configured, settle_configure);
    for (int i = 0; i < SETTLE_ARRAYS; i++)
        array_init(&q->arrays[i], array_elements[i], SETTLE_ARRAY_BYTES);
    for (size_t i = 0; i < count; i++)
        put_item(q->arrays, &items[i]);
    for (int i = 0; i < SETTLE_ARRAYS; i++)
        ok = array_param(&q->arrays[i], &q->params[i]) && ok;
    q->params[SETTLE_ARRAYS] = store_int(first_read_ms, q->numbers[0]);
    q->params[SETTLE_ARRAYS + 1] = store_int(confirm_ms, q->numbers[1]);
    return ok || error_set(err, ERROR_MEMORY, "a batch of %zu settlements does not fit", count);
}

static void query_free(struct settle_query *q)
{
    for (int i = 0; i < SETTLE_ARRAYS; i++)
        array_free(&q->arrays[i]);
}

/* ---- what the database decided ---- */

static enum settle_result result_parse(const char *name)
{
    for (int i = 0; i < SETTLE_NOT_DECIDED; i++)
        if (strcmp(result_names[i], name) == 0)
            return (enum settle_result)i;
    must(!"settle_batch answers with a known word");
    return SETTLE_NOT_DECIDED;
}

static void item_tell(const struct settle_item *item, const char *was_stage)
{
    enum stage from = STAGE_READY;
    char id[ULID_PREFIXED_SIZE];
    if (item->result == SETTLE_CONFLICT) {
        metric_add(metric_counter("holdfast_conflicts_total", "",
                                  "Effects that were marked as in conflict."),
                   1);
        log_event(LOG_ERROR, "effect_conflict", "effect=%s by=%s",
                  ulid_format_prefixed("eff", &item->effect, id), item->by);
    }
    if (was_stage == NULL || !stage_parse(was_stage, &from))
        return;
    if (item->result == SETTLE_SETTLED)
        transition_made(&item->effect, from, STAGE_SETTLED, item->outcome, item->reason, item->by);
    else if ((item->result == SETTLE_UNKNOWN || item->result == SETTLE_PENDING) &&
             from == STAGE_DISPATCHING)
        transition_made(&item->effect, from, STAGE_RECONCILING,
                        item->result == SETTLE_UNKNOWN ? OUTCOME_UNKNOWN : OUTCOME_PENDING,
                        REASON_NONE, item->by);
}

/* Results come in id order, as the items stand. */
static void results_take(struct settle_item *items, size_t count, const PGresult *r)
{
    must((size_t)PQntuples(r) == count);
    for (size_t i = 0; i < count; i++) {
        struct ulid id;
        row_uuid(r, (int)i, 0, &id);
        must(ulid_compare(&id, &items[i].effect) == 0);
        items[i].result = result_parse(row_text(r, (int)i, 1));
        items[i].environment = (int)row_int(r, (int)i, 2);
        item_tell(&items[i], row_text(r, (int)i, 3));
    }
}

bool settle_in_transaction(struct store *store, struct settle_item *item, struct error *err)
{
    struct settle_query q;
    item->result = SETTLE_NOT_DECIDED;
    bool ok = query_build(&q, item, 1, err);
    PGresult *r =
        ok ? store_query(store, settle_sql, q.params, SETTLE_ARRAYS + 2, true, err) : NULL;
    if (r != NULL)
        results_take(item, 1, r);
    PQclear(r);
    query_free(&q);
    return r != NULL;
}

/* One try of one batch in one flush. */
static bool settle_once(struct store *store, struct settle_item *items, size_t count,
                        struct error *err)
{
    struct settle_query q;
    PGresult *r = NULL;
    bool ok = query_build(&q, items, count, err);
    if (ok) {
        struct store_statement statement = {settle_sql, q.params, SETTLE_ARRAYS + 2, true};
        ok = store_transact(store, &statement, 1, &r, err);
    }
    if (ok)
        results_take(items, count, r);
    PQclear(r);
    query_free(&q);
    return ok;
}

static bool passing(const struct error *err)
{
    return err->code == ERROR_UNAVAILABLE || err->code == ERROR_DOUBTFUL;
}

/* The one item that the database refuses: what it said is dropped, and it becomes unknown, with an
 * alarm. Where even that is refused the row stays as it is and the sweep makes it unknown past
 * answer_by. */
static bool settle_offender(struct store *store, struct settle_item *item, struct error *err)
{
    static char note[] = "The provider's answer could not be stored.";
    char id[ULID_PREFIXED_SIZE];
    struct settle_item bare = {.effect = item->effect,
                               .kind = item->kind,
                               .seq = item->seq,
                               .outcome = OUTCOME_UNKNOWN,
                               .evidence = note,
                               .consumed = -1,
                               .response_status = item->response_status,
                               .sent_at_us = item->sent_at_us,
                               .finished_at_us = item->finished_at_us,
                               .by = item->by};
    log_event(LOG_ERROR, "settle_refused", "effect=%s outcome=%s sqlstate=%s reason=%s",
              ulid_format_prefixed("eff", &item->effect, id), outcome_name(item->outcome),
              err->place, err->text);
    metric_add(metric_counter("holdfast_settle_refused_total", "",
                              "Settlements that the database refused."),
               1);
    if (settle_once(store, &bare, 1, err)) {
        item->result = bare.result;
        item->environment = bare.environment;
        return true;
    }
    if (passing(err))
        return false;
    log_error(LOG_ERROR, "settle_refused_bare", err);
    return true;
}

static bool settle_range(struct store *store, struct settle_item *items, size_t count,
                         struct error *err)
{
    for (int tries = 0; tries < SETTLE_TRIES; tries++) {
        if (settle_once(store, items, count, err))
            return true;
        if (err->code == ERROR_DOUBTFUL || !passing(err))
            break;
    }
    if (passing(err))
        return false;
    if (count == 1)
        return settle_offender(store, items, err);
    size_t half = count / 2;
    return settle_range(store, items, half, err) &&
           settle_range(store, items + half, count - half, err);
}

static int item_compare(const void *a, const void *b)
{
    return ulid_compare(&((const struct settle_item *)a)->effect,
                        &((const struct settle_item *)b)->effect);
}

bool settle_batch_run(struct store *store, struct settle_item *items, size_t count,
                      struct error *err)
{
    must(count >= 1 && count <= SETTLE_BATCH_MOST);
    qsort(items, count, sizeof *items, item_compare);
    for (size_t i = 0; i < count; i++) {
        items[i].result = SETTLE_NOT_DECIDED;
        must(i == 0 || ulid_compare(&items[i - 1].effect, &items[i].effect) != 0);
    }
    return settle_range(store, items, count, err);
}
