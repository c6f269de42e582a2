/* The bounded queue: a ring of pointers under one lock. */
#include "common/base/queue.h"

#include "common/base/error.h"
#include "common/base/metrics.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct queue {
    void **ring;
    size_t max;
    size_t head; /* index of the oldest item */
    size_t count;
    bool closed;
    int lingering;     /* takers that have an item in sight and wait for more */
    size_t batch_mark; /* the count at which the last of them wants to be woken */
    pthread_mutex_t lock;
    pthread_cond_t not_empty;
    pthread_cond_t not_full;
    pthread_cond_t batch_ready;
    struct metric *length_gauge;
};

static void cond_init_monotonic(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    must(pthread_condattr_init(&attr) == 0);
    must(pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) == 0);
    must(pthread_cond_init(cond, &attr) == 0);
    pthread_condattr_destroy(&attr);
}

struct queue *queue_new(const char *name, size_t max)
{
    must(max > 0);
    struct queue *q = calloc(1, sizeof(*q));
    must(q);
    q->ring = calloc(max, sizeof(*q->ring));
    must(q->ring);
    q->max = max;
    must(pthread_mutex_init(&q->lock, NULL) == 0);
    cond_init_monotonic(&q->not_empty);
    cond_init_monotonic(&q->not_full);
    cond_init_monotonic(&q->batch_ready);

    char labels[96];
    snprintf(labels, sizeof(labels), "queue=\"%s\"", name);
    q->length_gauge = metric_gauge("holdfast_queue_length", labels, "Items waiting in a queue.");
    metric_set(metric_gauge("holdfast_queue_max", labels, "The most items a queue may hold."),
               (int64_t)max);
    return q;
}

static struct timespec deadline_in(int timeout_ms)
{
    struct timespec at;
    must(clock_gettime(CLOCK_MONOTONIC, &at) == 0);
    if (timeout_ms > 0) {
        at.tv_sec += timeout_ms / 1000;
        at.tv_nsec += (long)(timeout_ms % 1000) * 1000000L;
        if (at.tv_nsec >= 1000000000L) {
            at.tv_sec++;
            at.tv_nsec -= 1000000000L;
        }
    }
    return at;
}

/* Called with the lock held and room for the item. While somebody lingers, the items below his mark
 * are his: waking another taker for them would only split the batch. */
static void ring_put(struct queue *q, void *item)
{
    q->ring[(q->head + q->count) % q->max] = item;
    q->count++;
    metric_set(q->length_gauge, (int64_t)q->count);
    if (q->lingering > 0 && q->count >= q->batch_mark)
        pthread_cond_broadcast(&q->batch_ready);
    if (q->lingering == 0 || q->count > q->batch_mark)
        pthread_cond_signal(&q->not_empty);
}

bool queue_try_put(struct queue *q, void *item)
{
    pthread_mutex_lock(&q->lock);
    bool ok = !q->closed && q->count < q->max;
    if (ok)
        ring_put(q, item);
    pthread_mutex_unlock(&q->lock);
    return ok;
}

bool queue_put(struct queue *q, void *item, int timeout_ms)
{
    struct timespec deadline = deadline_in(timeout_ms);
    pthread_mutex_lock(&q->lock);
    int rc = 0;
    while (!q->closed && q->count == q->max && rc == 0)
        rc = pthread_cond_timedwait(&q->not_full, &q->lock, &deadline);
    bool ok = !q->closed && q->count < q->max;
    if (ok)
        ring_put(q, item);
    pthread_mutex_unlock(&q->lock);
    return ok;
}

/* Waits, with the lock held, until `want` items are there, the time is over or the queue is closed.
 */
static void ring_linger(struct queue *q, size_t want, int linger_ms)
{
    struct timespec deadline = deadline_in(linger_ms);
    int rc = 0;
    if (want > q->max)
        want = q->max;
    q->lingering++;
    q->batch_mark = want;
    while (!q->closed && q->count < want && rc == 0)
        rc = pthread_cond_timedwait(&q->batch_ready, &q->lock, &deadline);
    q->lingering--;
}

static size_t ring_take(struct queue *q, void **items, size_t max)
{
    size_t taken = q->count < max ? q->count : max;
    for (size_t i = 0; i < taken; i++)
        items[i] = q->ring[(q->head + i) % q->max];
    q->head = (q->head + taken) % q->max;
    q->count -= taken;
    metric_set(q->length_gauge, (int64_t)q->count);
    if (taken > 0)
        pthread_cond_broadcast(&q->not_full);
    if (q->count > 0) /* a taker that lingered may have kept others from what is left */
        pthread_cond_signal(&q->not_empty);
    return taken;
}

size_t queue_take(struct queue *q, void **items, size_t max, int timeout_ms, int linger_ms)
{
    must(max > 0);
    struct timespec deadline = deadline_in(timeout_ms);
    size_t taken = 0;
    int rc = 0;
    pthread_mutex_lock(&q->lock);
    while (taken == 0) {
        while (!q->closed && q->count == 0 && rc == 0)
            rc = pthread_cond_timedwait(&q->not_empty, &q->lock, &deadline);
        if (q->count == 0)
            break;
        if (linger_ms > 0 && q->count < max)
            ring_linger(q, max, linger_ms);
        taken = ring_take(q, items, max); /* 0 when another taker was first */
    }
    pthread_mutex_unlock(&q->lock);
    return taken;
}

size_t queue_length(struct queue *q)
{
    pthread_mutex_lock(&q->lock);
    size_t count = q->count;
    pthread_mutex_unlock(&q->lock);
    return count;
}

void queue_close(struct queue *q)
{
    pthread_mutex_lock(&q->lock);
    q->closed = true;
    pthread_cond_broadcast(&q->not_empty);
    pthread_cond_broadcast(&q->not_full);
    pthread_cond_broadcast(&q->batch_ready);
    pthread_mutex_unlock(&q->lock);
}

bool queue_closed(struct queue *q)
{
    pthread_mutex_lock(&q->lock);
    bool closed = q->closed;
    pthread_mutex_unlock(&q->lock);
    return closed;
}

void queue_free(struct queue *q)
{
    if (!q)
        return;
    metric_set(q->length_gauge, 0);
    pthread_cond_destroy(&q->not_empty);
    pthread_cond_destroy(&q->not_full);
    pthread_cond_destroy(&q->batch_ready);
    pthread_mutex_destroy(&q->lock);
    free(q->ring);
    free(q);
}
