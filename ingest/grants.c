/* The grants thread: a batch of claims is one transaction, and each is answered with what came of
 * it.
 *
 * After a lost COMMIT answer the same try is put again with the same claim id: grant_batch waits
 * for the doubtful backend and knows the attempts of that try. While that can't be learnt the
 * worker is told to ask again, which is safe: with the holder that it named it learns of its own
 * grant, without one of nothing. */
#include "ingest/grants.h"

#include "common/base/clock.h"
#include "common/base/config.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/queue.h"
#include "common/store/array.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    GRANTS_QUEUE = 4096,
    GRANTS_BATCH = 64,
    TAKE_WAIT_MS = 500,
    DOUBT_MAX_MS = 3000,
    PAUSE_MS = 50
};
#define ARRAY_MAX_BYTES ((size_t)1 << 20)
#define WORKER_NAME "claims"

/* One claim that waits for its grant. */
struct grant {
    struct call *call;
    struct ulid effect;
    bool operation; /* found under its operation, not under its key */
    struct claim_ask ask;
};

static struct queue *waiting; /* of struct grant */
static pthread_t thread;
static struct store *store;
static struct ulid incarnation;

/* ---- the answer ---- */

static void refuse(struct call *call, int status, const char *code, const char *doc,
                   const char *text)
{
    call_error(call, status, code, doc, "%s", text);
}

/* Somebody else's, or this one's from an earlier asking. `doc` is claim_json. */
static void running_tell(const struct grant *g, const char *holder, bool leased, const char *doc)
{
    bool ours = g->ask.holder[0] != '\0' && holder != NULL && strcmp(holder, g->ask.holder) == 0;
    if (ours && leased && !g->operation) {
        call_data(g->call, 200, doc);
        g->call->replay_header = "current-state";
        return;
    }
    refuse(g->call, 409, "DUPLICATE_EFFECT", doc,
           "A worker has been given the right to perform this effect and has not reported yet. Do "
           "not perform "
           "it; read the claim to learn how it ends.");
}

static void settled_tell(const struct grant *g, const char *status, const char *outcome,
                         const char *error, const char *doc)
{
    if (strcmp(status, "denied") == 0)
        refuse(g->call, 403, "EFFECT_DENIED", doc,
               "The effect was denied. Do not perform it, and do not ask again in another form.");
    else if (strcmp(status, "expired") == 0)
        refuse(g->call, 409, "EFFECT_EXPIRED", doc,
               "The claim expired or was cancelled before it was granted; nothing may be performed "
               "under it. Ask "
               "anew with a new Idempotency-Key.");
    else if (strcmp(outcome, "not_dispatched") == 0)
        refuse(g->call, 409, "EFFECT_REFUSED", doc,
               error != NULL ? error : "The claim was refused. Do not perform the effect.");
    else if (strcmp(outcome, "failed") == 0)
        refuse(g->call, 409, "DUPLICATE_EFFECT", doc,
               "This effect was performed before and failed. Do not perform it under this claim; "
               "fix the cause and "
               "ask anew with retryOf.");
    else
        refuse(g->call, 409, "DUPLICATE_EFFECT", doc,
               "This effect has been performed already. Do not perform it again.");
}

static void grant_tell(const struct grant *g, const PGresult *r, int row)
{
    const char *status = row_text(r, row, 5), *outcome = row_text(r, row, 6),
               *doc = row_text(r, row, 8);
    if (!row_bool(r, row, 2))
        refuse(g->call, 409, "DUPLICATE_EFFECT", doc,
               "The operation was invoked, so Holdfast itself performs the effect. Do not perform "
               "it.");
    else if (row_bool(r, row, 1))
        call_data(g->call, 201, doc);
    else if (strcmp(status, "granted") == 0)
        running_tell(g, row_text(r, row, 3), row_bool(r, row, 4), doc);
    else if (strcmp(status, "unknown") == 0 || strcmp(status, "running") == 0)
        refuse(g->call, 409, "AMBIGUOUS_EFFECT", doc,
               "A worker was given the right to perform this effect and did not say how it ended: "
               "it may have "
               "happened. Do not perform it; it has to be settled by what the provider shows, or "
               "by a person.");
    else if (strcmp(status, "pending_approval") == 0 || strcmp(status, "waiting") == 0)
        call_data(g->call, 202, doc);
    else
        settled_tell(g, status, outcome, row_text(r, row, 7), doc);
}

/* ---- a batch ---- */

static PGresult *batch_put(struct grant **batch, size_t count, const struct ulid *claim_id,
                           struct error *err)
{
    static const int elements[] = {ARRAY_UUID, ARRAY_TEXT, ARRAY_UUID, ARRAY_TEXT};
    enum { ARRAYS = sizeof elements / sizeof *elements };
    struct array arrays[ARRAYS];
    struct store_param params[ARRAYS + 4];
    char lease[24];
    PGresult *r = NULL;
    bool ok = true;
    for (int i = 0; i < ARRAYS; i++)
        array_init(&arrays[i], elements[i], ARRAY_MAX_BYTES);
    for (size_t i = 0; i < count; i++) {
        const struct grant *g = batch[i];
        array_put_uuid(&arrays[0], &g->effect);
        array_put_text(&arrays[1], g->ask.holder[0] != '\0' ? g->ask.holder : NULL);
        array_put_uuid(&arrays[2], &g->call->principal->key_id);
        array_put_text(&arrays[3], g->call->principal->agent_id);
    }
    for (int i = 0; i < ARRAYS && ok; i++)
        ok = array_param(&arrays[i], &params[i]) ||
             error_set(err, ERROR_MEMORY, "a batch of claims outgrew its memory");
    params[ARRAYS] = store_int(batch[0]->ask.lease_ms, lease);
    params[ARRAYS + 1] = store_uuid(claim_id);
    params[ARRAYS + 2] = store_text(WORKER_NAME);
    params[ARRAYS + 3] = store_uuid(&incarnation);
    struct store_statement statement = {
        .sql = "select * from grant_batch($1, $2, $3, $4, $5::int, $6, $7, $8)",
        .params = params,
        .count = ARRAYS + 4,
        .binary_result = true};
    if (ok)
        store_transact(store, &statement, 1, &r, err);
    for (int i = 0; i < ARRAYS; i++)
        array_free(&arrays[i]);
    return r;
}

/* Until the database has decided, or the time for it is over. */
static PGresult *batch_decide(struct grant **batch, size_t count, struct error *err)
{
    struct ulid claim_id;
    int64_t until_ms = clock_boot_ms() + DOUBT_MAX_MS;
    ulid_new(&claim_id, clock_wall_ms());
    for (;;) {
        PGresult *r = batch_put(batch, count, &claim_id, err);
        bool again = err->code == ERROR_DOUBTFUL || err->code == ERROR_UNAVAILABLE;
        if (r != NULL || !again || clock_boot_ms() >= until_ms)
            return r;
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_MS * 1000000L}, NULL);
    }
}

static void batch_run(struct grant **batch, size_t count)
{
    struct error err = {0};
    PGresult *r = batch_decide(batch, count, &err);
    if (r == NULL && count > 1 && err.code != ERROR_UNAVAILABLE && err.code != ERROR_DOUBTFUL) {
        batch_run(batch, count / 2);
        batch_run(batch + count / 2, count - count / 2);
        return;
    }
    must(r == NULL || (size_t)PQntuples(r) == count);
    for (size_t i = 0; i < count; i++) {
        if (r != NULL)
            grant_tell(batch[i], r, (int)i);
        else
            call_error_value(batch[i]->call, &err);
        call_finish(batch[i]->call);
        free(batch[i]);
    }
    PQclear(r);
}

/* Those with the first one's lease go to the front. How many they are. */
static size_t same_lease(struct grant **taken, size_t count)
{
    size_t same = 0;
    for (size_t i = 0; i < count; i++) {
        if (taken[i]->ask.lease_ms != taken[0]->ask.lease_ms)
            continue;
        struct grant *g = taken[i];
        taken[i] = taken[same];
        taken[same++] = g;
    }
    return same;
}

static void *grants_thread(void *unused)
{
    struct grant *taken[GRANTS_BATCH];
    (void)unused;
    while (!queue_closed(waiting) || queue_length(waiting) > 0) {
        size_t count = queue_take(waiting, (void **)taken, GRANTS_BATCH, TAKE_WAIT_MS, 0);
        for (size_t done = 0; done < count;) {
            size_t same = same_lease(taken + done, count - done);
            batch_run(taken + done, same);
            done += same;
        }
    }
    return NULL;
}

void grants_ask(struct accept_call *a)
{
    struct grant *g = calloc(1, sizeof *g);
    must(g != NULL);
    g->call = a->call;
    g->effect = a->effect;
    g->operation = a->verdict == VERDICT_OPERATION_SAME;
    g->ask = *a->claim;
    if (queue_try_put(waiting, g))
        return;
    call_error(g->call, 503, "SERVICE_UNAVAILABLE", NULL,
               "Holdfast has too many claims waiting; ask again with the same Idempotency-Key");
    g->call->retry_after_s = 1;
    call_finish(g->call);
    free(g);
}

void grants_start(void)
{
    struct store_options options = {.url = config_text("HOLDFAST_DATABASE_URL"),
                                    .name = "holdfast-ingest grants"};
    store = store_new(&options);
    waiting = queue_new("grants", GRANTS_QUEUE);
    ulid_new(&incarnation, clock_wall_ms());
    must(store != NULL && waiting != NULL &&
         pthread_create(&thread, NULL, grants_thread, NULL) == 0);
}

void grants_stop(void)
{
    queue_close(waiting);
    pthread_join(thread, NULL);
    store_free(store);
    queue_free(waiting);
    store = NULL;
    waiting = NULL;
}
