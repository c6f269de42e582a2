/* The accept threads: make batches, let the database decide, hand the calls on.
 *
 * A batch that fails because of its content is halved until the offender stands alone. A batch
 * whose COMMIT answer is lost is run again as it is: accept_batch finds our own ids under the keys
 * if it was committed. While that can't be learnt the callers are told to send the same again,
 * which is safe. */
#include "ingest/accept.h"

#include "common/base/clock.h"
#include "common/base/config.h"
#include "common/base/log.h"
#include "common/base/metrics.h"
#include "common/base/queue.h"
#include "ingest/answers.h"
#include "ingest/replies.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    ACCEPT_THREADS = 2, /* one collects while the other's transaction runs */
    TAKE_WAIT_MS = 500,
    TRIES_MAX = 4,       /* of a transaction that lost a race */
    DOUBT_MAX_MS = 3000, /* how long a lost COMMIT answer is asked about */
    DOUBT_PAUSE_MS = 50,
    CALL_AGE_MAX_MS = 25000 /* an older one has given up: it would be accepted for nobody */
};
#define BATCH_MAX_BYTES ((size_t)16 << 20)

/* What a batch holds already, by the first bytes of hashes. Two that look the same by chance only
 * make a call wait for the next batch. */
struct mark {
    uint64_t print; /* 0: empty */
    struct accept_call *call;
};

struct accept_worker {
    pthread_t thread;
    struct store *store;
    struct replies *replies;
    size_t batch_max;
    struct accept_call **taken;
    struct accept_call **batch;
    struct accept_call **held; /* for the next batch */
    size_t held_count;
    struct mark *marks;
    size_t mark_count; /* a power of two */
};

static struct queue *waiting; /* of struct accept_call */
static struct accept_worker workers[ACCEPT_THREADS];
static struct producer *producer;
static int32_t reply_partition;
static struct metric *batch_sizes;
static struct metric *batch_seconds;

void accept_call_free(struct accept_call *a)
{
    if (a == NULL)
        return;
    action_release(a->action);
    buf_free(&a->input);
    buf_free(&a->request);
    free(a->operation);
    free(a->secrets);
    free(a->gate_text);
    free(a->claim);
    free(a->run_id);
    free(a->parent_span_id);
    free(a->kept);
    free(a);
}

/* ---- making a batch ---- */

static uint64_t print_of(const void *bytes, uint64_t kind)
{
    uint64_t print;
    memcpy(&print, bytes, sizeof print);
    print ^= kind * UINT64_C(0x9e3779b97f4a7c15);
    return print != 0 ? print : 1;
}

/* The mark of a print: its own, or the empty one where it would stand. */
static struct mark *mark_find(struct accept_worker *w, uint64_t print)
{
    size_t at = print & (w->mark_count - 1);
    while (w->marks[at].print != 0 && w->marks[at].print != print)
        at = (at + 1) & (w->mark_count - 1);
    return &w->marks[at];
}

static bool same_request(const struct accept_call *a, const struct accept_call *b)
{
    return a->call->principal->environment == b->call->principal->environment &&
           memcmp(a->key_hash, b->key_hash, SHA256_SIZE) == 0 &&
           memcmp(a->body_hash, b->body_hash, SHA256_SIZE) == 0;
}

static size_t call_bytes(const struct accept_call *a)
{
    return a->input.len + a->request.len + 2048;
}

/* Puts a call into the batch, or behind one of it that is the same request. False: it has to wait,
 * since the batch holds another request with its key, its operation or its original. */
static bool batch_add(struct accept_worker *w, struct accept_call *a, size_t *count)
{
    uint64_t prints[] = {print_of(a->key_hash, 1), print_of(a->operation_hash, 2),
                         print_of(a->retry_of.bytes + 8, 3)};
    bool used[] = {true, a->operation != NULL, !ulid_is_zero(&a->retry_of)};
    struct mark *key = mark_find(w, prints[0]);
    if (key->print != 0 && same_request(key->call, a)) {
        a->same = key->call->same;
        key->call->same = a;
        return true;
    }
    for (int i = 0; i < 3; i++)
        if (used[i] && mark_find(w, prints[i])->print != 0)
            return false;
    for (int i = 0; i < 3; i++)
        if (used[i])
            *mark_find(w, prints[i]) = (struct mark){prints[i], a};
    w->batch[(*count)++] = a;
    return true;
}

/* Splits what was taken into a batch and what is held for the next one. */
static size_t batch_make(struct accept_worker *w, size_t taken)
{
    size_t count = 0, bytes = 0;
    w->held_count = 0;
    memset(w->marks, 0, w->mark_count * sizeof *w->marks);
    for (size_t i = 0; i < taken; i++) {
        struct accept_call *a = w->taken[i];
        bool fits = count == 0 || bytes + call_bytes(a) <= BATCH_MAX_BYTES;
        if (fits && batch_add(w, a, &count))
            bytes += call_bytes(a);
        else
            w->held[w->held_count++] = a;
    }
    return count;
}

static int call_compare(const void *left, const void *right)
{
    const struct accept_call *a = *(struct accept_call *const *)left;
    const struct accept_call *b = *(struct accept_call *const *)right;
    int by_environment = a->call->principal->environment - b->call->principal->environment;
    return by_environment != 0 ? by_environment : memcmp(a->key_hash, b->key_hash, SHA256_SIZE);
}

/* ---- deciding ---- */

static void pause_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

/* Runs the rows until the database has decided or it is certain that it has not. */
static bool batch_decide(struct accept_worker *w, struct accept_call **calls, size_t count,
                         struct error *err)
{
    int64_t doubt_until_ms = 0; /* 0: no COMMIT answer was lost so far */
    for (int tries = 1;; tries++) {
        int64_t now_ms = clock_boot_ms();
        if (accept_rows_run(w->store, calls, count, err))
            return true;
        if (err->code == ERROR_DOUBTFUL && doubt_until_ms == 0) {
            log_error(LOG_WARN, "accept_doubtful", err);
            doubt_until_ms = now_ms + DOUBT_MAX_MS;
        }
        if (err->code != ERROR_DOUBTFUL && err->code != ERROR_UNAVAILABLE)
            return false;
        if (doubt_until_ms != 0 ? now_ms >= doubt_until_ms
                                : tries >= TRIES_MAX || !store_healthy(w->store))
            return false;
        if (doubt_until_ms != 0)
            pause_ms(DOUBT_PAUSE_MS);
    }
}

static void batch_run(struct accept_worker *w, struct accept_call **calls, size_t count)
{
    struct error err = {0};
    if (batch_decide(w, calls, count, &err))
        return;
    bool content = err.code != ERROR_UNAVAILABLE && err.code != ERROR_DOUBTFUL;
    if (content && count > 1) {
        batch_run(w, calls, count / 2);
        batch_run(w, calls + count / 2, count - count / 2);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        calls[i]->verdict = VERDICT_NONE;
        calls[i]->failure = err;
    }
}

/* ---- the thread ---- */

/* Answers what Redis has settled replies for; returns how many calls are left of the batch. */
static size_t batch_ask_replies(struct accept_worker *w, size_t count)
{
    size_t left = 0;
    replies_ask(w->replies, w->batch, count);
    for (size_t i = 0; i < count; i++) {
        if (w->batch[i]->verdict == VERDICT_NONE)
            w->batch[left++] = w->batch[i];
        else
            accept_deliver(w->batch[i], producer, reply_partition);
    }
    return left;
}

/* An original that is retried shows it from now on. */
static void original_refresh(const struct accept_call *a)
{
    if (a->verdict == VERDICT_ACCEPTED && !ulid_is_zero(&a->retry_of))
        answers_refresh(&a->retry_of);
}

static void batch_handle(struct accept_worker *w, size_t taken)
{
    size_t count = batch_ask_replies(w, batch_make(w, taken));
    if (count == 0)
        return;
    int64_t began_us = clock_boot_us();
    qsort(w->batch, count, sizeof *w->batch, call_compare);
    batch_run(w, w->batch, count);
    metric_observe_us(batch_seconds, clock_boot_us() - began_us);
    metric_add(batch_sizes, (int64_t)count);
    for (size_t i = 0; i < count; i++) {
        original_refresh(w->batch[i]);
        accept_deliver(w->batch[i], producer, reply_partition);
    }
}

/* Calls that nobody waits for any more are sent away undecided. */
static size_t taken_drop_old(struct accept_worker *w, size_t taken)
{
    int64_t now_ms = clock_boot_ms();
    size_t left = 0;
    for (size_t i = 0; i < taken; i++) {
        struct accept_call *a = w->taken[i];
        if (now_ms - a->call->arrived_ms < CALL_AGE_MAX_MS) {
            w->taken[left++] = a;
            continue;
        }
        error_set(&a->failure, ERROR_UNAVAILABLE, "the call waited too long to be accepted");
        accept_deliver(a, producer, reply_partition);
    }
    return left;
}

static void *accept_thread(void *opaque)
{
    struct accept_worker *w = opaque;
    int linger_ms = (int)config_int("HOLDFAST_ACCEPT_LINGER_MS");
    bool crowded = false; /* the last batch was more than one: others are worth a wait */
    while (!queue_closed(waiting) || queue_length(waiting) > 0 || w->held_count > 0) {
        size_t taken = w->held_count;
        memcpy(w->taken, w->held, taken * sizeof *w->taken);
        if (taken < w->batch_max)
            taken +=
                queue_take(waiting, (void **)w->taken + taken, w->batch_max - taken,
                           taken > 0 ? 0 : TAKE_WAIT_MS, taken == 0 && crowded ? linger_ms : 0);
        crowded = taken > 1;
        w->held_count = 0;
        taken = taken_drop_old(w, taken);
        if (taken > 0)
            batch_handle(w, taken);
    }
    return NULL;
}

/* ---- start and stop ---- */

static void worker_start(struct accept_worker *w, size_t batch_max)
{
    struct store_options options = {.url = config_text("HOLDFAST_DATABASE_URL"),
                                    .name = "holdfast-ingest accept"};
    w->store = store_new(&options);
    w->replies = replies_new(NULL);
    w->batch_max = batch_max;
    w->taken = calloc(batch_max, sizeof(void *));
    w->batch = calloc(batch_max, sizeof(void *));
    w->held = calloc(batch_max, sizeof(void *));
    w->held_count = 0;
    for (w->mark_count = 64; w->mark_count < batch_max * 6;)
        w->mark_count *= 2;
    w->marks = calloc(w->mark_count, sizeof *w->marks);
    must(w->replies != NULL && w->taken != NULL && w->batch != NULL && w->held != NULL &&
         w->marks != NULL);
    must(pthread_create(&w->thread, NULL, accept_thread, w) == 0);
}

void accept_start(struct producer *effects, int32_t reply)
{
    producer = effects;
    reply_partition = reply;
    batch_sizes = metric_counter("holdfast_accept_rows_total", "", "Calls put to the database.");
    batch_seconds = metric_histogram("holdfast_accept_seconds", "", "One accept batch.");
    waiting = queue_new("accept", (size_t)config_int("HOLDFAST_ACCEPT_QUEUE"));
    must(waiting != NULL);
    for (int i = 0; i < ACCEPT_THREADS; i++)
        worker_start(&workers[i], (size_t)config_int("HOLDFAST_ACCEPT_BATCH"));
}

bool accept_submit(struct accept_call *a)
{
    return queue_try_put(waiting, a);
}

size_t accept_waiting(void)
{
    return queue_length(waiting);
}

void accept_stop(void)
{
    queue_close(waiting);
    for (int i = 0; i < ACCEPT_THREADS; i++) {
        struct accept_worker *w = &workers[i];
        pthread_join(w->thread, NULL);
        store_free(w->store);
        replies_free(w->replies);
        free(w->taken);
        free(w->batch);
        free(w->held);
        free(w->marks);
    }
    queue_free(waiting);
    waiting = NULL;
}
