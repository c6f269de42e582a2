/* The route threads: check the key, run the handler, answer. */
#include "ingest/routes.h"

#include "common/base/config.h"
#include "common/base/log.h"
#include "common/base/queue.h"
#include "ingest/access.h"
#include "ingest/idempotent.h"

#include <pthread.h>
#include <stdlib.h>

enum { ROUTE_THREADS_MAX = 256, TAKE_WAIT_MS = 500 };

static struct queue *waiting; /* of struct call */
static pthread_t threads[ROUTE_THREADS_MAX];
static int thread_count;

static void call_handle(struct route_worker *worker, struct call *call)
{
    enum route_result result = ROUTE_ANSWERED;
    if (access_check(worker->store, call)) {
        if (call->route->recorded)
            idempotent_run(worker, call);
        else
            result = call->route->handle(worker, call);
    }
    if (result == ROUTE_ANSWERED)
        call_finish(call);
}

static void *route_thread(void *opaque)
{
    struct store_options options = {.url = config_text("HOLDFAST_DATABASE_URL"),
                                    .name = "holdfast-ingest route"};
    struct route_worker worker = {.store = store_new(&options)};
    void *item;
    (void)opaque;
    while (!queue_closed(waiting) || queue_length(waiting) > 0)
        if (queue_take(waiting, &item, 1, TAKE_WAIT_MS, 0) == 1)
            call_handle(&worker, item);
    store_free(worker.store);
    return NULL;
}

void routes_start(void)
{
    waiting = queue_new("routes", (size_t)config_int("HOLDFAST_ROUTE_QUEUE"));
    thread_count = (int)config_int("HOLDFAST_ROUTE_THREADS");
    must(waiting != NULL && thread_count <= ROUTE_THREADS_MAX);
    for (int i = 0; i < thread_count; i++)
        must(pthread_create(&threads[i], NULL, route_thread, NULL) == 0);
}

bool routes_submit(struct call *call)
{
    return queue_try_put(waiting, call);
}

void routes_stop(void)
{
    queue_close(waiting);
    for (int i = 0; i < thread_count; i++)
        pthread_join(threads[i], NULL);
}

void routes_free(void)
{
    queue_free(waiting);
    waiting = NULL;
}
