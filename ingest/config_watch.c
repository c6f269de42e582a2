/* The thread that follows the configuration's revision and the database's clock. */
#include "ingest/config_watch.h"

#include "common/base/clock.h"
#include "common/base/config.h"
#include "common/base/log.h"
#include "common/store/store.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    ASK_EVERY_MS = 1000,
    FRESH_MS = 5000, /* how long an answer counts when none follows */
    STATEMENT_TIMEOUT_MS = 3000
};

static struct {
    pthread_t thread;
    struct store *store; /* the thread's */
    int stop_fd;         /* readable once config_watch_stop was called */
    _Atomic int64_t revision;
    _Atomic int64_t answered_ms; /* clock_boot_ms of the last answer; 0: none yet */
    _Atomic int64_t ahead_ms;    /* the database's clock less ours */
} watch;

/* Listening again costs nothing, and a connection that was replaced unseen listens again. */
static bool watch_ask(struct error *err)
{
    PGresult *r = store_query(watch.store, "listen holdfast_config", NULL, 0, true, err);
    if (r == NULL)
        return false;
    PQclear(r);
    r = store_query(watch.store, "select revision, hf_now() from config_revision", NULL, 0, true,
                    err);
    if (r == NULL)
        return false;
    bool ok = PQntuples(r) == 1;
    if (ok) {
        int64_t revision = row_int(r, 0, 0);
        atomic_store(&watch.ahead_ms, row_time_us(r, 0, 1) / 1000 - clock_wall_ms());
        atomic_store(&watch.answered_ms, clock_boot_ms());
        if (atomic_exchange(&watch.revision, revision) != revision)
            log_event(LOG_DEBUG, "config_changed", "revision=%" PRId64, revision);
    } else {
        error_set(err, ERROR_INTERNAL, "config_revision has no row");
    }
    PQclear(r);
    return ok;
}

/* Until a notification comes, the interval is over or the end is near. */
static void watch_wait(int64_t until_ms)
{
    PGconn *conn = store_connection(watch.store);
    bool notified = false;
    int64_t left_ms;
    while (!notified && (left_ms = until_ms - clock_boot_ms()) > 0) {
        struct pollfd fds[] = {{.fd = watch.stop_fd, .events = POLLIN},
                               {.fd = conn != NULL ? PQsocket(conn) : -1, .events = POLLIN}};
        if (poll(fds, 2, (int)left_ms) < 0 && errno != EINTR)
            return;
        if (fds[0].revents != 0)
            return;
        if (fds[1].revents == 0)
            continue;
        if (!PQconsumeInput(conn))
            conn = NULL; /* lost: the next question connects again */
        PGnotify *notify;
        while (conn != NULL && (notify = PQnotifies(conn)) != NULL) {
            notified = true;
            PQfreemem(notify);
        }
    }
}

static bool watch_stopping(void)
{
    struct pollfd fd = {.fd = watch.stop_fd, .events = POLLIN};
    return poll(&fd, 1, 0) > 0;
}

static void *watch_thread(void *opaque)
{
    bool was_well = true;
    (void)opaque;
    while (!watch_stopping()) {
        struct error err = {0};
        int64_t now_ms = clock_boot_ms();
        bool well = watch_ask(&err);
        if (!well && was_well)
            log_error(LOG_WARN, "database_away", &err);
        if (well && !was_well)
            log_event(LOG_INFO, "database_back", "revision=%" PRId64, config_revision());
        was_well = well;
        watch_wait(now_ms + (well ? ASK_EVERY_MS : ASK_EVERY_MS / 4));
    }
    return NULL;
}

void config_watch_start(void)
{
    struct store_options options = {.url = config_text("HOLDFAST_DATABASE_URL"),
                                    .name = "holdfast-ingest config",
                                    .statement_timeout_ms = STATEMENT_TIMEOUT_MS};
    watch.store = store_new(&options);
    watch.stop_fd = eventfd(0, EFD_CLOEXEC);
    must(watch.stop_fd >= 0);
    must(pthread_create(&watch.thread, NULL, watch_thread, NULL) == 0);
}

void config_watch_stop(void)
{
    uint64_t one = 1;
    must(write(watch.stop_fd, &one, sizeof one) == sizeof one);
    pthread_join(watch.thread, NULL);
    close(watch.stop_fd);
    store_free(watch.store);
}

static bool watch_fresh(void)
{
    int64_t answered_ms = atomic_load(&watch.answered_ms);
    return answered_ms != 0 && clock_boot_ms() - answered_ms <= FRESH_MS;
}

int64_t config_revision(void)
{
    return watch_fresh() ? atomic_load(&watch.revision) : 0;
}

int64_t database_now_ms(void)
{
    return clock_wall_ms() + atomic_load(&watch.ahead_ms);
}

bool config_watch_ready(void *opaque, char *reason, size_t size)
{
    (void)opaque;
    if (watch_fresh())
        return true;
    snprintf(reason, size, "the database has not answered for more than %d s", FRESH_MS / 1000);
    return false;
}
