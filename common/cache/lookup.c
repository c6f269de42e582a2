/* getaddrinfo on a thread of its own, since a name server that is away blocks it for many seconds.
 */
#include "common/cache/lookup.h"

#include "common/base/clock.h"
#include "common/base/error.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct lookup {
    char *host;
    char *port;
    struct addrinfo *addresses;
    pthread_mutex_t lock;
    pthread_cond_t done_cond;
    bool done;      /* addresses is final */
    bool abandoned; /* the thread frees */
};

static void lookup_destroy(struct lookup *lookup)
{
    if (lookup->addresses)
        freeaddrinfo(lookup->addresses);
    pthread_cond_destroy(&lookup->done_cond);
    pthread_mutex_destroy(&lookup->lock);
    free(lookup->host);
    free(lookup->port);
    free(lookup);
}

static void *lookup_main(void *arg)
{
    struct lookup *lookup = arg;
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    if (getaddrinfo(lookup->host, lookup->port, &hints, &found) != 0)
        found = NULL;
    pthread_mutex_lock(&lookup->lock);
    lookup->addresses = found;
    lookup->done = true;
    bool abandoned = lookup->abandoned;
    pthread_cond_signal(&lookup->done_cond);
    pthread_mutex_unlock(&lookup->lock);
    if (abandoned)
        lookup_destroy(lookup);
    return NULL;
}

static struct lookup *lookup_new(const char *host, const char *port)
{
    pthread_condattr_t attr;
    struct lookup *lookup = calloc(1, sizeof(*lookup));
    must(lookup);
    lookup->host = strdup(host);
    lookup->port = strdup(port);
    must(lookup->host && lookup->port);
    must(pthread_mutex_init(&lookup->lock, NULL) == 0);
    must(pthread_condattr_init(&attr) == 0);
    must(pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) == 0);
    must(pthread_cond_init(&lookup->done_cond, &attr) == 0);
    pthread_condattr_destroy(&attr);
    return lookup;
}

struct lookup *lookup_start(const char *host, const char *port)
{
    pthread_t thread;
    struct lookup *lookup = lookup_new(host, port);
    if (pthread_create(&thread, NULL, lookup_main, lookup) != 0) {
        lookup_destroy(lookup);
        return NULL;
    }
    pthread_detach(thread);
    return lookup;
}

bool lookup_wait(struct lookup *lookup, int64_t deadline_ms, const struct addrinfo **addresses)
{
    struct timespec at;
    int64_t left_ms = deadline_ms - clock_boot_ms();
    must(clock_gettime(CLOCK_MONOTONIC, &at) == 0);
    int64_t ns = at.tv_nsec + (left_ms > 0 ? left_ms : 0) * 1000000;
    at.tv_sec += ns / 1000000000;
    at.tv_nsec = ns % 1000000000;
    int rc = 0;
    pthread_mutex_lock(&lookup->lock);
    while (!lookup->done && rc == 0)
        rc = pthread_cond_timedwait(&lookup->done_cond, &lookup->lock, &at);
    bool done = lookup->done;
    if (done)
        *addresses = lookup->addresses;
    pthread_mutex_unlock(&lookup->lock);
    return done;
}

void lookup_free(struct lookup *lookup)
{
    if (!lookup)
        return;
    pthread_mutex_lock(&lookup->lock);
    bool done = lookup->done;
    lookup->abandoned = true;
    pthread_mutex_unlock(&lookup->lock);
    if (done)
        lookup_destroy(lookup);
}
