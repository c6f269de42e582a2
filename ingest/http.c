/* The API port, and the life of a call: read here, handed to the routes, answered here.
 *
 * libmicrohttpd is driven by threads of our own, since its own ones can fall asleep over work: when
 * exactly 128 connections (its MAX_EVENTS) have something to read at once, MHD_epoll looks for more
 * and waits there, up to the idle time-out, then closes all of them unread. MHD_run never waits. */
#include "ingest/http.h"

#include "common/base/clock.h"
#include "common/base/config.h"
#include "common/base/listen.h"
#include "common/base/log.h"
#include "common/base/metrics.h"
#include "ingest/access.h"
#include "ingest/exchange.h"
#include "ingest/routes.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define BACKLOG 1024
#define THREADS_MAX 64
#define POLL_MAX_MS 60000
#define CONNECTION_MEMORY ((size_t)32 << 10) /* headers of one request */

/* One thread and the connections that it accepted. */
struct http_thread {
    pthread_t thread;
    struct MHD_Daemon *daemon; /* NULL: not started */
    int daemon_fd;             /* readable when the daemon has work; the daemon's */
    int wake_fd;               /* an eventfd: written to after a resume, and for a stop */
};

struct http {
    struct http_thread threads[THREADS_MAX];
    int port;
    struct exchange_limits limits;
    atomic_bool draining;
    atomic_bool stopping;
    atomic_int open;           /* exchanges that are not over */
    struct metric *answers[6]; /* by the status' first digit */
    struct metric *seconds;
};

/* One API port a process: libmicrohttpd hands no pointer of ours to call_finish. */
static struct http http_port_state;

/* ---- called by libmicrohttpd, on its threads ---- */

/* Paths and parameters are decoded piece by piece by ourselves. */
static size_t unescape_nothing(void *opaque, struct MHD_Connection *connection, char *text)
{
    (void)opaque;
    (void)connection;
    return strlen(text);
}

static enum MHD_Result answer_send(struct http *http, struct http_exchange *x)
{
    int64_t took_ms = clock_boot_ms() - x->call.arrived_ms;
    metric_observe_us(http->seconds, took_ms * 1000);
    enum MHD_Result result = exchange_send(x, atomic_load(&http->draining));
    metric_add(http->answers[x->call.status / 100 % 6], 1);
    return result;
}

/* The request is whole. Suspended first: the answer may come before this function returns. */
static enum MHD_Result request_hand_over(struct http *http, struct http_exchange *x)
{
    struct call *call = &x->call;
    if (call->status != 0)
        return answer_send(http, x);
    MHD_suspend_connection(x->connection);
    if (!routes_submit(call)) {
        call_error(
            call, 503, "SERVICE_UNAVAILABLE", NULL,
            "Holdfast has too many requests waiting or is stopping; nothing was stored, send "
            "this one again with the same Idempotency-Key");
        call->retry_after_s = 1;
        call_finish(call);
    }
    return MHD_YES;
}

static enum MHD_Result request_take(void *opaque, struct MHD_Connection *connection,
                                    const char *url, const char *method, const char *version,
                                    const char *upload, size_t *upload_len, void **state)
{
    const struct http_thread *t = opaque;
    struct http *http = &http_port_state;
    struct http_exchange *x = *state;
    (void)version;
    if (x == NULL) {
        x = exchange_new(connection, url, method, &http->limits);
        x->wake_fd = t->wake_fd;
        atomic_fetch_add(&http->open, 1);
        *state = x;
        if (x->unframed)
            return answer_send(http, x);
        if (!exchange_too_long(x, &http->limits))
            return MHD_YES;
        call_error(&x->call, 413, "PAYLOAD_TOO_LARGE", NULL,
                   "the body is larger than the %zu bytes that are taken; nothing was stored",
                   http->limits.body_max);
        return answer_send(http, x);
    }
    if (*upload_len > 0) {
        bool go_on = exchange_take_body(x, upload, *upload_len, &http->limits);
        *upload_len = 0;
        return go_on ? MHD_YES : MHD_NO;
    }
    return x->answered ? answer_send(http, x) : request_hand_over(http, x);
}

static void request_ended(void *opaque, struct MHD_Connection *connection, void **state,
                          enum MHD_RequestTerminationCode code)
{
    struct http *http = &http_port_state;
    struct http_exchange *x = *state;
    (void)opaque;
    (void)connection;
    (void)code;
    if (x == NULL)
        return;
    *state = NULL;
    access_release(x->call.principal);
    exchange_free(x);
    atomic_fetch_sub(&http->open, 1);
}

static void daemon_log(void *opaque, const char *fmt, va_list args)
{
    char text[384];
    (void)opaque;
    vsnprintf(text, sizeof text, fmt, args);
    text[strcspn(text, "\n")] = '\0';
    log_event(LOG_DEBUG, "http_daemon", "text=%s", text);
}

/* ---- any thread ---- */

static void thread_wake(int wake_fd)
{
    uint64_t one = 1;
    must(write(wake_fd, &one, sizeof one) == sizeof one); /* a counter that can't get full */
}

void call_finish(struct call *call)
{
    struct http_exchange *x = call->exchange;
    int wake_fd = x->wake_fd;
    x->answered = true;
    MHD_resume_connection(x->connection); /* x may be gone from here on */
    thread_wake(wake_fd);
}

/* ---- the threads ---- */

/* Until when the daemon has nothing to do by itself, for poll(). */
static int daemon_idle_ms(struct MHD_Daemon *daemon)
{
    unsigned long long ms;
    if (MHD_get_timeout(daemon, &ms) != MHD_YES)
        return -1;
    return ms < POLL_MAX_MS ? (int)ms : POLL_MAX_MS;
}

static void listening_end(struct http_thread *t)
{
    int fd = MHD_quiesce_daemon(t->daemon);
    if (fd != MHD_INVALID_SOCKET)
        close(fd);
}

static void *http_thread_run(void *opaque)
{
    struct http_thread *t = opaque;
    struct http *http = &http_port_state;
    struct pollfd fds[] = {{.fd = t->daemon_fd, .events = POLLIN},
                           {.fd = t->wake_fd, .events = POLLIN}};
    bool listening = true;
    while (!atomic_load(&http->stopping)) {
        uint64_t wakes;
        if (poll(fds, 2, daemon_idle_ms(t->daemon)) > 0 && fds[1].revents != 0)
            must(read(t->wake_fd, &wakes, sizeof wakes) == sizeof wakes);
        if (listening && atomic_load(&http->draining)) {
            listening_end(t);
            listening = false;
        }
        MHD_run(t->daemon);
    }
    MHD_stop_daemon(t->daemon);
    return NULL;
}

/* ---- start and stop ---- */

static void metrics_make(struct http *http)
{
    for (int i = 0; i < 6; i++) {
        char labels[32];
        snprintf(labels, sizeof labels, "status=\"%dxx\"", i);
        http->answers[i] =
            metric_counter("holdfast_http_answers_total", labels, "Answers of the API.");
    }
    http->seconds =
        metric_histogram("holdfast_http_seconds", "", "From a request's head to its answer.");
}

/* Takes the listening socket; it is closed when this fails. */
static bool thread_start(struct http *http, struct http_thread *t, int fd, unsigned connections)
{
    t->wake_fd = eventfd(0, EFD_CLOEXEC);
    must(t->wake_fd >= 0);
    t->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL, request_take,
        t, MHD_OPTION_EXTERNAL_LOGGER, daemon_log, NULL, MHD_OPTION_LISTEN_SOCKET, fd,
        MHD_OPTION_NOTIFY_COMPLETED, request_ended, NULL, MHD_OPTION_UNESCAPE_CALLBACK,
        unescape_nothing, NULL, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        CONNECTION_MEMORY, MHD_OPTION_CONNECTION_LIMIT, connections, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)(http->limits.read_max_ms / 1000), MHD_OPTION_PER_IP_CONNECTION_LIMIT,
        (unsigned)config_int("HOLDFAST_HTTP_PER_IP"), MHD_OPTION_END);
    if (t->daemon == NULL) {
        close(t->wake_fd);
        return false;
    }
    t->daemon_fd = MHD_get_daemon_info(t->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
    must(pthread_create(&t->thread, NULL, http_thread_run, t) == 0);
    pthread_setname_np(t->thread, "http");
    return true;
}

struct http *http_start(struct error *err)
{
    struct http *http = &http_port_state;
    unsigned count = (unsigned)config_int("HOLDFAST_HTTP_THREADS");
    unsigned connections = (unsigned)config_int("HOLDFAST_HTTP_CONNECTIONS");
    int fd = listen_open("the API address", config_text("HOLDFAST_HTTP_LISTEN"), BACKLOG, err);
    if (fd < 0)
        return NULL;
    must(count >= 1 && count <= THREADS_MAX);
    metrics_make(http);
    http->port = listen_port(fd);
    http->limits.body_max = (size_t)config_int("HOLDFAST_BODY_MAX_BYTES");
    http->limits.read_max_ms = config_int("HOLDFAST_HTTP_IDLE_S") * 1000;
    /* Each daemon closes the socket that it was given. */
    bool ok = true;
    for (unsigned i = 0; i < count && ok; i++) {
        int own = i + 1 < count ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : fd;
        ok = own >= 0 && thread_start(http, &http->threads[i], own, connections / count + 1);
    }
    if (ok)
        return http;
    error_set(err, ERROR_INTERNAL, "the threads of the API port do not start");
    return NULL;
}

int http_port(const struct http *http)
{
    return http->port;
}

static void threads_wake(struct http *http)
{
    for (int i = 0; i < THREADS_MAX; i++)
        if (http->threads[i].daemon != NULL)
            thread_wake(http->threads[i].wake_fd);
}

void http_drain(struct http *http)
{
    atomic_store(&http->draining, true);
    threads_wake(http);
}

bool http_wait_idle(struct http *http, int timeout_ms)
{
    int64_t deadline_ms = clock_boot_ms() + timeout_ms;
    while (atomic_load(&http->open) > 0) {
        if (clock_boot_ms() >= deadline_ms)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    return true;
}

void http_stop(struct http *http)
{
    atomic_store(&http->stopping, true);
    threads_wake(http);
    for (int i = 0; i < THREADS_MAX; i++) {
        struct http_thread *t = &http->threads[i];
        if (t->daemon == NULL)
            continue;
        pthread_join(t->thread, NULL);
        t->daemon = NULL;
        close(t->wake_fd);
    }
}
