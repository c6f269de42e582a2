/* The lists of waiting effects and the slots. One lock: everything in here is a few pointer moves.
 */
#include "dispatcher/destinations.h"

#include "common/base/clock.h"
#include "common/base/error.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A destination without anything waiting or in flight is forgotten when room is needed. */
enum { DESTINATIONS_MAX = 4096 };

struct destination {
    char name[MESSAGE_DESTINATION_SIZE];
    struct waiting *ring; /* waiting_max long */
    size_t first, count, in_flight;
    bool claiming; /* somebody has a batch of it in hand */
};

struct destinations {
    struct destinations_config config;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct destination *all[DESTINATIONS_MAX];
    size_t count, turn, in_flight, waiting;
    bool closed;
};

struct destinations *destinations_new(const struct destinations_config *config)
{
    struct destinations *d = calloc(1, sizeof *d);
    pthread_condattr_t attributes;
    must(d != NULL);
    d->config = *config;
    pthread_mutex_init(&d->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&d->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    return d;
}

static void destination_free(struct destination *one, size_t waiting_max)
{
    for (size_t i = 0; i < one->count; i++)
        bus_message_free(one->ring[(one->first + i) % waiting_max].delivered);
    free(one->ring);
    free(one);
}

void destinations_free(struct destinations *d)
{
    if (d == NULL)
        return;
    for (size_t i = 0; i < d->count; i++)
        destination_free(d->all[i], d->config.waiting_max);
    pthread_cond_destroy(&d->changed);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

static void destinations_forget_idle(struct destinations *d)
{
    size_t kept = 0;
    for (size_t i = 0; i < d->count; i++) {
        if (d->all[i]->count == 0 && d->all[i]->in_flight == 0 && !d->all[i]->claiming)
            destination_free(d->all[i], d->config.waiting_max);
        else
            d->all[kept++] = d->all[i];
    }
    d->count = kept;
}

static struct destination *destination_get(struct destinations *d, const char *name)
{
    for (size_t i = 0; i < d->count; i++)
        if (strcmp(d->all[i]->name, name) == 0)
            return d->all[i];
    if (d->count == DESTINATIONS_MAX)
        destinations_forget_idle(d);
    if (d->count == DESTINATIONS_MAX)
        return NULL;
    struct destination *one = calloc(1, sizeof *one);
    if (one == NULL)
        return NULL;
    one->ring = calloc(d->config.waiting_max, sizeof *one->ring);
    if (one->ring == NULL) {
        free(one);
        return NULL;
    }
    memcpy(one->name, name, strlen(name) + 1); /* decoded messages are bounded by the same size */
    d->all[d->count++] = one;
    return one;
}

bool destinations_put(struct destinations *d, const struct waiting *waiting)
{
    pthread_mutex_lock(&d->lock);
    struct destination *one = destination_get(d, waiting->message.destination);
    bool room = one != NULL && one->count < d->config.waiting_max;
    if (room) {
        one->ring[(one->first + one->count++) % d->config.waiting_max] = *waiting;
        d->waiting++;
        pthread_cond_broadcast(&d->changed);
    }
    pthread_mutex_unlock(&d->lock);
    return room;
}

static size_t destination_free_slots(const struct destinations *d, const struct destination *one)
{
    size_t own = d->config.destination_slots - one->in_flight;
    size_t all = d->config.slots - d->in_flight;
    return own < all ? own : all;
}

/* The next destination, in turn, that can go on. NULL: none. */
static struct destination *destinations_next(struct destinations *d)
{
    for (size_t i = 0; i < d->count; i++) {
        struct destination *one = d->all[(d->turn + i) % d->count];
        if (!one->claiming && one->count > 0 && destination_free_slots(d, one) > 0) {
            d->turn = (d->turn + i + 1) % d->count;
            return one;
        }
    }
    return NULL;
}

static struct timespec in_ms(int ms)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += ms / 1000;
    t.tv_nsec += (long)(ms % 1000) * 1000000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000;
    }
    return t;
}

/* Under the lock: waits until `one` has a batch of max, or the time is over. */
static void batch_linger(struct destinations *d, const struct destination *one, size_t max,
                         int linger_ms)
{
    struct timespec until = in_ms(linger_ms);
    while (!d->closed && linger_ms > 0 && one->count < max &&
           one->count < destination_free_slots(d, one))
        if (pthread_cond_timedwait(&d->changed, &d->lock, &until) != 0)
            break;
}

static size_t batch_take(struct destinations *d, struct destination *one, struct waiting *out,
                         size_t max)
{
    size_t taken = destination_free_slots(d, one);
    taken = taken < one->count ? taken : one->count;
    taken = taken < max ? taken : max;
    for (size_t i = 0; i < taken; i++) {
        out[i] = one->ring[one->first];
        one->first = (one->first + 1) % d->config.waiting_max;
    }
    one->count -= taken;
    one->in_flight += taken;
    d->in_flight += taken;
    d->waiting -= taken;
    return taken;
}

size_t destinations_take(struct destinations *d, struct waiting *out, size_t max, int timeout_ms,
                         int linger_ms, struct destination **from)
{
    struct timespec until = in_ms(timeout_ms);
    size_t taken = 0;
    struct destination *one = NULL;
    pthread_mutex_lock(&d->lock);
    while (!d->closed && (one = destinations_next(d)) == NULL)
        if (pthread_cond_timedwait(&d->changed, &d->lock, &until) != 0)
            break;
    if (one != NULL && !d->closed) {
        one->claiming = true;
        batch_linger(d, one, max, linger_ms);
        taken = batch_take(d, one, out, max);
        *from = one;
    }
    pthread_mutex_unlock(&d->lock);
    return taken;
}

void destinations_claimed(struct destinations *d, struct destination *from)
{
    pthread_mutex_lock(&d->lock);
    from->claiming = false;
    pthread_cond_broadcast(&d->changed);
    pthread_mutex_unlock(&d->lock);
}

void destinations_release(struct destinations *d, struct destination *from, size_t count)
{
    pthread_mutex_lock(&d->lock);
    must(from->in_flight >= count && d->in_flight >= count);
    from->in_flight -= count;
    d->in_flight -= count;
    pthread_cond_broadcast(&d->changed);
    pthread_mutex_unlock(&d->lock);
}

size_t destinations_waiting(struct destinations *d)
{
    pthread_mutex_lock(&d->lock);
    size_t n = d->waiting;
    pthread_mutex_unlock(&d->lock);
    return n;
}

size_t destinations_in_flight(struct destinations *d)
{
    pthread_mutex_lock(&d->lock);
    size_t n = d->in_flight;
    pthread_mutex_unlock(&d->lock);
    return n;
}

void destinations_close(struct destinations *d)
{
    pthread_mutex_lock(&d->lock);
    d->closed = true;
    pthread_cond_broadcast(&d->changed);
    pthread_mutex_unlock(&d->lock);
}
