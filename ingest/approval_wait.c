/* The table of waits for decisions, and the thread that answers them.
 *
 * A call is looked at as soon as it is parked, so a decision between its first look and its parking
 * is not missed. After a broken connection everything is looked at again. */
#include "ingest/approval_wait.h"

#include "common/base/clock.h"
#include "common/base/config.h"
#include "common/base/metrics.h"
#include "common/store/array.h"

#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { WAITS_MAX = 10000, BUCKETS = 4096, LOOK_BATCH = 512, LOOK_EVERY_MS = 1000, TICK_MS = 50 };

struct decision_wait {
    struct decision_wait *next; /* in the bucket */
    struct ulid approval;
    struct call *call;
    bool due; /* to be looked at: just parked, or a decision was heard of */
    int64_t deadline_ms;
};

static struct {
    pthread_mutex_t lock;
    pthread_t thread;
    int wake_fd; /* an eventfd: something is due, or the end is near */
    struct decision_wait *buckets[BUCKETS];
    size_t count;
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

static struct decision_wait **bucket_of(const struct ulid *approval)
{
    uint32_t hash;
    memcpy(&hash, approval->bytes + 12, sizeof hash);
    return &table.buckets[hash & (BUCKETS - 1)];
}

static void thread_wake(void)
{
    uint64_t one = 1;
    must(write(table.wake_fd, &one, sizeof one) == sizeof one);
}

/* ---- any thread ---- */

bool approval_wait_add(const struct ulid *approval, struct call *call, int64_t deadline_ms)
{
    struct decision_wait *wait = malloc(sizeof *wait);
    must(wait != NULL);
    pthread_mutex_lock(&table.lock);
    bool room = table.count < WAITS_MAX && !table.stopping;
    if (room) {
        struct decision_wait **bucket = bucket_of(approval);
        *wait = (struct decision_wait){.next = *bucket,
                                       .approval = *approval,
                                       .call = call,
                                       .due = true,
                                       .deadline_ms = deadline_ms};
        *bucket = wait;
        table.count++;
    }
    pthread_mutex_unlock(&table.lock);
    if (room)
        thread_wake();
    else
        free(wait);
    return room;
}

/* ---- the thread ---- */

static void approval_heard(const char *text)
{
    struct ulid approval;
    if (!ulid_uuid_parse(text, &approval))
        return;
    pthread_mutex_lock(&table.lock);
    for (struct decision_wait *w = *bucket_of(&approval); w != NULL; w = w->next)
        if (ulid_compare(&w->approval, &approval) == 0)
            w->due = true;
    pthread_mutex_unlock(&table.lock);
}

/* About LOOK_BATCH approvals to look at, from a bucket on; where to go on. `all`: not the due ones
 * only. One that many wait for may come more than once, but not twice in a row. */
static size_t due_take(size_t bucket, struct ulid *out, size_t *count, int64_t now_ms, bool all)
{
    pthread_mutex_lock(&table.lock);
    for (*count = 0; bucket < BUCKETS && *count < LOOK_BATCH; bucket++) {
        for (struct decision_wait *w = table.buckets[bucket]; w != NULL; w = w->next) {
            if (!all && !w->due && now_ms < w->deadline_ms)
                continue;
            if (*count == LOOK_BATCH * 2)
                break; /* it stays due */
            w->due = false;
            if (*count == 0 || ulid_compare(&out[*count - 1], &w->approval) != 0)
                out[(*count)++] = w->approval;
        }
    }
    pthread_mutex_unlock(&table.lock);
    return bucket;
}

/* Takes those who are to be answered: all when it is decided, else those whose time is over. */
static struct decision_wait *waits_detach(const struct ulid *approval, bool decided, int64_t now_ms)
{
    struct decision_wait *taken = NULL;
    pthread_mutex_lock(&table.lock);
    struct decision_wait **link = bucket_of(approval);
    while (*link != NULL) {
        struct decision_wait *w = *link;
        if (ulid_compare(&w->approval, approval) != 0 || (!decided && now_ms < w->deadline_ms)) {
            link = &w->next;
            continue;
        }
        *link = w->next;
        w->next = taken;
        taken = w;
        table.count--;
    }
    pthread_mutex_unlock(&table.lock);
    return taken;
}

/* With a document, or with the reason why there is none. */
static void waits_answer(struct decision_wait *waits, const char *doc, const struct error *err)
{
    while (waits != NULL) {
        struct decision_wait *next = waits->next;
        if (doc != NULL)
            call_data(waits->call, 200, doc);
        else
            call_error_value(waits->call, err);
        call_finish(waits->call);
        free(waits);
        waits = next;
    }
}

static PGresult *approvals_read(struct store *store, const struct ulid *ids, size_t count,
                                struct error *err)
{
    static const char sql[] = "select u.id, p.id is null or p.status <> 'pending', "
                              "case when p.id is not null then approval_json(p)::text end "
                              "from unnest($1) u(id) left join approvals p on p.id = u.id";
    return array_query_ids(store, sql, ids, count, err);
}

/* One query for a batch. While the database is away, those whose time is over are told so. */
static void batch_look(struct store *store, const struct ulid *ids, size_t count, int64_t now_ms)
{
    struct error err = {0};
    PGresult *r = approvals_read(store, ids, count, &err);
    if (r == NULL) {
        for (size_t i = 0; i < count; i++)
            waits_answer(waits_detach(&ids[i], false, now_ms), NULL, &err);
        return;
    }
    error_set(&err, ERROR_INTERNAL, "an approval that is waited for is not in the database");
    for (int row = 0; row < PQntuples(r); row++) {
        struct ulid id;
        row_uuid(r, row, 0, &id);
        waits_answer(waits_detach(&id, row_bool(r, row, 1), now_ms), row_text(r, row, 2), &err);
    }
    PQclear(r);
}

static void table_look(struct store *store, int64_t now_ms, bool all)
{
    struct ulid ids[LOOK_BATCH * 2];
    size_t count;
    for (size_t bucket = waits_gauge(NULL) > 0 ? 0 : BUCKETS; bucket < BUCKETS;) {
        bucket = due_take(bucket, ids, &count, now_ms, all);
        if (count > 0)
            batch_look(store, ids, count, now_ms);
    }
}

static void wake_read(void)
{
    uint64_t wakes;
    if (read(table.wake_fd, &wakes, sizeof wakes) < 0)
        return; /* nobody woke us */
}

/* Until somebody is parked, a decision is heard of, or a tick is over. False: the connection to
 * listen on is gone. */
static bool table_wait(PGconn *conn)
{
    struct pollfd fds[] = {{.fd = table.wake_fd, .events = POLLIN},
                           {.fd = conn != NULL ? PQsocket(conn) : -1, .events = POLLIN}};
    poll(fds, 2, TICK_MS);
    if (fds[0].revents != 0)
        wake_read();
    if (conn == NULL || (fds[1].revents != 0 && !PQconsumeInput(conn)))
        return false;
    PGnotify *notify;
    while ((notify = PQnotifies(conn)) != NULL) {
        approval_heard(notify->extra);
        PQfreemem(notify);
    }
    return true;
}

static bool table_stopping(void)
{
    pthread_mutex_lock(&table.lock);
    bool stopping = table.stopping;
    pthread_mutex_unlock(&table.lock);
    return stopping;
}

/* Listening again costs nothing, and a connection that was replaced unseen listens again. */
static bool listen_again(struct store *store)
{
    struct error err = {0};
    PGresult *r = store_query(store, "listen holdfast_approvals", NULL, 0, true, &err);
    PQclear(r);
    return r != NULL;
}

/* Whoever still waits is answered with what there is, or told to ask again. */
static void table_end(struct store *store)
{
    for (int i = 0; i < BUCKETS; i++)
        for (struct decision_wait *w = table.buckets[i]; w != NULL; w = w->next)
            w->deadline_ms = 0;
    table_look(store, clock_boot_ms(), true);
    must(waits_gauge(NULL) <= 0);
}

static void *wait_thread(void *opaque)
{
    struct store_options options = {.url = config_text("HOLDFAST_DATABASE_URL"),
                                    .name = "holdfast-ingest approvals"};
    struct store *store = store_new(&options);
    int64_t look_ms = 0;
    (void)opaque;
    while (!table_stopping()) {
        int64_t now_ms = clock_boot_ms();
        bool all = now_ms >= look_ms;
        bool listening = true;
        if (all) {
            look_ms = now_ms + LOOK_EVERY_MS;
            listening = listen_again(store);
        }
        table_look(store, now_ms, all);
        if (!table_wait(listening ? store_connection(store) : NULL) && !all)
            look_ms = 0;
    }
    table_end(store);
    store_free(store);
    return NULL;
}

/* ---- start and end ---- */

void approval_wait_start(void)
{
    memset(&table, 0, sizeof table);
    table.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    must(table.wake_fd >= 0);
    pthread_mutex_init(&table.lock, NULL);
    metric_callback("holdfast_waiting_decisions", "", "Calls that wait for an approval's decision.",
                    waits_gauge, NULL);
    must(pthread_create(&table.thread, NULL, wait_thread, NULL) == 0);
}

void approval_wait_stop(void)
{
    pthread_mutex_lock(&table.lock);
    table.stopping = true;
    pthread_mutex_unlock(&table.lock);
    thread_wake();
    pthread_join(table.thread, NULL);
    close(table.wake_fd);
}
