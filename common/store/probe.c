/* The readiness of Postgres. */
#include "common/store/probe.h"

#include "common/base/admin_http.h"
#include "common/base/config.h"
#include "common/base/service.h"
#include "common/store/store.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

enum { PROBE_EVERY_MS = 500 };

static struct store *probe;
static pthread_t thread;

static bool postgres_ready(void *opaque, char *reason, size_t size)
{
    bool ok = store_healthy(opaque);
    if (!ok)
        snprintf(reason, size, "the database is away");
    return ok;
}

static void *probe_thread(void *opaque)
{
    (void)opaque;
    while (!service_stopping()) {
        struct error err = {0};
        PQclear(store_query(probe, "select 1", NULL, 0, false, &err));
        usleep(PROBE_EVERY_MS * 1000);
    }
    return NULL;
}

bool store_probe_start(struct error *err)
{
    struct store_options options = {.url = config_text("HOLDFAST_DATABASE_URL"),
                                    .name = service_name()};
    probe = store_new(&options);
    if (!store_ready(probe, err) && err->code == ERROR_DENIED)
        return false;
    admin_http_ready_check("postgres", postgres_ready, probe);
    must(pthread_create(&thread, NULL, probe_thread, NULL) == 0);
    return true;
}

void store_probe_stop(void)
{
    pthread_join(thread, NULL);
    store_free(probe);
}
