/* The API port, and the life of a call: read here, handed to the routes, answered here. */
#include "ingest/http.h"

#include "common/base/clock.h"
#include "common/base/config.h"
#include "common/base/listen.h"
#include "common/base/log.h"
#include "common/base/metrics.h"
#include "ingest/access.h"
#include "ingest/exchange.h"
#include "ingest/routes.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BACKLOG 1024
#define CONNECTION_MEMORY ((size_t)32 << 10) /* headers of one request */

struct http {
    struct MHD_Daemon *daemon;
    int port;
    struct exchange_limits limits;
    atomic_bool draining;
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
    struct http *http = opaque;
    struct http_exchange *x = *state;
    (void)version;
    if (x == NULL) {
        x = exchange_new(connection, url, method, &http->limits);
        atomic_fetch_add(&http->open, 1);
        *state = x;
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
    struct http *http = opaque;
    struct http_exchange *x = *state;
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

void call_finish(struct call *call)
{
    struct http_exchange *x = call->exchange;
    x->answered = true;
    MHD_resume_connection(x->connection); /* x may be gone from here on */
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

struct http *http_start(struct error *err)
{
    struct http *http = &http_port_state;
    unsigned threads = (unsigned)config_int("HOLDFAST_HTTP_THREADS");
    int fd = listen_open("the API address", config_text("HOLDFAST_HTTP_LISTEN"), BACKLOG, err);
    if (fd < 0)
        return NULL;
    metrics_make(http);
    http->port = listen_port(fd);
    http->limits.body_max = (size_t)config_int("HOLDFAST_BODY_MAX_BYTES");
    http->limits.read_max_ms = config_int("HOLDFAST_HTTP_IDLE_S") * 1000;
    /* A pool of one is no pool: libmicrohttpd wants none then. */
    struct MHD_OptionItem pool[] = {{MHD_OPTION_THREAD_POOL_SIZE, (intptr_t)threads, NULL},
                                    {MHD_OPTION_END, 0, NULL}};
    http->daemon = MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC | MHD_USE_ERROR_LOG,
        0, NULL, NULL, request_take, http, MHD_OPTION_EXTERNAL_LOGGER, daemon_log, NULL,
        MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_NOTIFY_COMPLETED, request_ended, http,
        MHD_OPTION_UNESCAPE_CALLBACK, unescape_nothing, NULL, MHD_OPTION_STRICT_FOR_CLIENT, 1,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, CONNECTION_MEMORY, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)config_int("HOLDFAST_HTTP_CONNECTIONS"), MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)config_int("HOLDFAST_HTTP_IDLE_S"), MHD_OPTION_ARRAY,
        threads > 1 ? pool : pool + 1, MHD_OPTION_END);
    if (http->daemon != NULL)
        return http;
    error_set(err, ERROR_INTERNAL, "the threads of the API port do not start");
    return NULL;
}

int http_port(const struct http *http)
{
    return http->port;
}

void http_drain(struct http *http)
{
    atomic_store(&http->draining, true);
    int fd = MHD_quiesce_daemon(http->daemon);
    if (fd != MHD_INVALID_SOCKET)
        close(fd);
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
    MHD_stop_daemon(http->daemon);
    http->daemon = NULL;
}
