/* The table of waits: effects in a fixed number of buckets, each with the calls that wait for it,
 * and a list of those to look at. Everything under one lock that is never held across anything
 * slow. */
#include "ingest/waiters.h"

#include "common/base/clock.h"
#include "common/base/metrics.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BUCKETS 16384 /* a power of two */

struct waited {
    struct ulid effect;
    struct waited *next;           /* in the bucket */
    struct waited *before, *after; /* in the list of all */
    struct waited *due_next;
    bool due;
    struct wait *waits;
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t something_due;
    struct waited *buckets[BUCKETS];
    struct waited all;       /* the head of a ring */
    struct waited *due_head; /* first in, first out */
    struct waited *due_tail;
    size_t effects;
    size_t waits;
    int64_t limit_ms; /* of every deadline */
} table;

static double waits_gauge(void *opaque)
{
    (void)opaque;
    return (double)waiters_count();
}

void waiters_start(void)
{
    pthread_condattr_t attr;
    memset(&table, 0, sizeof table);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&table.something_due, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&table.lock, NULL);
    table.all.before = table.all.after = &table.all;
    table.limit_ms = INT64_MAX;
    metric_callback("holdfast_waiting_calls", "", "Calls that wait for an outcome.", waits_gauge,
                    NULL);
}

void waiters_stop(void)
{
    must(table.effects == 0);
    pthread_cond_destroy(&table.something_due);
    pthread_mutex_destroy(&table.lock);
}

/* ---- with the lock held ---- */

static struct waited **bucket_of(const struct ulid *effect)
{
    uint32_t hash;
    memcpy(&hash, effect->bytes + 12, sizeof hash); /* of the random part */
    return &table.buckets[hash & (BUCKETS - 1)];
}

static struct waited *waited_find(const struct ulid *effect)
{
    struct waited *w = *bucket_of(effect);
    while (w != NULL && ulid_compare(&w->effect, effect) != 0)
        w = w->next;
    return w;
}

static struct waited *waited_make(const struct ulid *effect)
{
    struct waited **bucket = bucket_of(effect);
    struct waited *w = calloc(1, sizeof *w);
    must(w != NULL);
    w->effect = *effect;
    w->next = *bucket;
    *bucket = w;
    w->after = table.all.after;
    w->before = &table.all;
    w->after->before = w;
    table.all.after = w;
    table.effects++;
    return w;
}

static void due_remove(struct waited *w)
{
    struct waited **link = &table.due_head, *before = NULL;
    if (!w->due)
        return;
    while (*link != w) {
        before = *link;
        link = &before->due_next;
    }
    *link = w->due_next;
    if (table.due_tail == w)
        table.due_tail = before;
    w->due = false;
}

static void waited_free(struct waited *w)
{
    struct waited **link = bucket_of(&w->effect);
    due_remove(w);
    while (*link != w)
        link = &(*link)->next;
    *link = w->next;
    w->before->after = w->after;
    w->after->before = w->before;
    table.effects--;
    free(w);
}

static void due_put(struct waited *w)
{
    if (w->due)
        return;
    w->due = true;
    w->due_next = NULL;
    if (table.due_tail != NULL)
        table.due_tail->due_next = w;
    else
        table.due_head = w;
    table.due_tail = w;
    pthread_cond_signal(&table.something_due);
}

static bool wait_over(const struct wait *wait, int64_t now_ms)
{
    return now_ms >= wait->deadline_ms || now_ms >= table.limit_ms;
}

/* ---- any thread ---- */

void waiters_add(const struct ulid *effect, struct call *call, enum wait_kind kind,
                 int64_t deadline_ms, bool look)
{
    struct wait *wait = malloc(sizeof *wait);
    must(wait != NULL);
    pthread_mutex_lock(&table.lock);
    struct waited *w = waited_find(effect);
    if (w == NULL)
        w = waited_make(effect);
    *wait = (struct wait){.next = w->waits, .call = call, .kind = kind, .deadline_ms = deadline_ms};
    w->waits = wait;
    table.waits++;
    if (look)
        due_put(w);
    pthread_mutex_unlock(&table.lock);
}

void waiters_poke(const struct ulid *effect)
{
    pthread_mutex_lock(&table.lock);
    struct waited *w = waited_find(effect);
    if (w != NULL)
        due_put(w);
    pthread_mutex_unlock(&table.lock);
}

void waiters_expire(int64_t now_ms)
{
    pthread_mutex_lock(&table.lock);
    for (struct waited *w = table.all.after; w != &table.all; w = w->after) {
        bool over = false;
        for (struct wait *wait = w->waits; wait != NULL && !over; wait = wait->next)
            over = wait_over(wait, now_ms);
        if (over)
            due_put(w);
    }
    pthread_mutex_unlock(&table.lock);
}

struct ulid *waiters_all(size_t *count)
{
    pthread_mutex_lock(&table.lock);
    struct ulid *ids = table.effects > 0 ? malloc(table.effects * sizeof *ids) : NULL;
    size_t n = 0;
    for (struct waited *w = table.all.after; ids != NULL && w != &table.all; w = w->after)
        ids[n++] = w->effect;
    pthread_mutex_unlock(&table.lock);
    *count = n;
    return ids;
}

size_t waiters_take_due(struct ulid *out, size_t max, int timeout_ms)
{
    struct timespec deadline;
    clock_gettime(CLOCK_MONOTONIC, &deadline);
    deadline.tv_nsec += timeout_ms % 1000 * 1000000L;
    deadline.tv_sec += timeout_ms / 1000 + deadline.tv_nsec / 1000000000;
    deadline.tv_nsec %= 1000000000;
    size_t count = 0;
    int rc = 0;
    pthread_mutex_lock(&table.lock);
    while (table.due_head == NULL && rc == 0)
        rc = pthread_cond_timedwait(&table.something_due, &table.lock, &deadline);
    while (count < max && table.due_head != NULL) {
        struct waited *w = table.due_head;
        table.due_head = w->due_next;
        if (table.due_head == NULL)
            table.due_tail = NULL;
        w->due = false;
        out[count++] = w->effect;
    }
    pthread_mutex_unlock(&table.lock);
    return count;
}

struct wait *waiters_detach(const struct ulid *effect, bool all, int64_t now_ms)
{
    struct wait *taken = NULL;
    pthread_mutex_lock(&table.lock);
    struct waited *w = waited_find(effect);
    struct wait **link = w != NULL ? &w->waits : NULL;
    while (link != NULL && *link != NULL) {
        struct wait *wait = *link;
        if (!all && !wait_over(wait, now_ms)) {
            link = &wait->next;
            continue;
        }
        *link = wait->next;
        wait->next = taken;
        taken = wait;
        table.waits--;
    }
    if (w != NULL && w->waits == NULL)
        waited_free(w);
    pthread_mutex_unlock(&table.lock);
    return taken;
}

size_t waiters_count(void)
{
    pthread_mutex_lock(&table.lock);
    size_t count = table.waits;
    pthread_mutex_unlock(&table.lock);
    return count;
}

void waiters_limit(int64_t deadline_ms)
{
    pthread_mutex_lock(&table.lock);
    table.limit_ms = deadline_ms;
    pthread_mutex_unlock(&table.lock);
}
