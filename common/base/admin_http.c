/* The admin port: three read-only pages, served by a thread of libmicrohttpd. */
#include "common/base/admin_http.h"

#include "common/base/buf.h"
#include "common/base/listen.h"
#include "common/base/metrics.h"

#include <microhttpd.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECKS_MAX 16
#define CONNECTIONS_MAX 64
#define IDLE_S 10
#define PAGE_MAX_BYTES ((size_t)8 << 20)

struct admin_http {
    struct MHD_Daemon *daemon;
    int port;
};

static struct {
    const char *name;
    ready_check check;
    void *opaque;
} checks[CHECKS_MAX];
static size_t check_count;
static atomic_bool draining;

void admin_http_ready_check(const char *name, ready_check check, void *opaque)
{
    must(check_count < CHECKS_MAX);
    checks[check_count].name = name;
    checks[check_count].check = check;
    checks[check_count].opaque = opaque;
    check_count++;
}

void admin_http_draining(void)
{
    atomic_store(&draining, true);
}

/* Every page function fills `out` and returns the status. */
static unsigned live_page(struct buf *out)
{
    buf_puts(out, "live\n");
    return MHD_HTTP_OK;
}

static unsigned ready_page(struct buf *out)
{
    if (atomic_load(&draining))
        buf_puts(out, "draining\n");
    for (size_t i = 0; i < check_count; i++) {
        char reason[256] = "not ready";
        if (!checks[i].check(checks[i].opaque, reason, sizeof(reason)))
            buf_printf(out, "%s: %s\n", checks[i].name, reason);
    }
    if (out->len > 0)
        return MHD_HTTP_SERVICE_UNAVAILABLE;
    buf_puts(out, "ready\n");
    return MHD_HTTP_OK;
}

static unsigned metrics_page(struct buf *out)
{
    metrics_render(out);
    return MHD_HTTP_OK;
}

static const struct page {
    const char *path;
    unsigned (*render)(struct buf *out);
    const char *type;
} pages[] = {
    {"/livez", live_page, "text/plain; charset=utf-8"},
    {"/readyz", ready_page, "text/plain; charset=utf-8"},
    {"/metrics", metrics_page, "text/plain; version=0.0.4; charset=utf-8"},
};

static const struct page *page_find(const char *path)
{
    for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++)
        if (strcmp(pages[i].path, path) == 0)
            return &pages[i];
    return NULL;
}

/* Sends the page and takes its bytes. */
static enum MHD_Result page_send(struct MHD_Connection *connection, unsigned status,
                                 const char *type, struct buf *page)
{
    size_t len;
    char *data = buf_take(page, &len);
    if (!data)
        return MHD_NO;
    struct MHD_Response *response =
        MHD_create_response_from_buffer(len, data, MHD_RESPMEM_MUST_FREE);
    if (!response) {
        free(data);
        return MHD_NO;
    }
    data = NULL; /* the response's now */
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result request_answer(void *opaque, struct MHD_Connection *connection,
                                      const char *url, const char *method, const char *version,
                                      const char *upload, size_t *upload_len, void **request)
{
    (void)opaque;
    (void)version;
    (void)upload;
    (void)request;
    struct buf out;
    unsigned status;
    const struct page *page = page_find(url);
    *upload_len = 0; /* a body, if one comes, is of no interest */
    buf_init(&out, PAGE_MAX_BYTES);
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0) {
        status = MHD_HTTP_METHOD_NOT_ALLOWED;
        buf_puts(&out, "only GET and HEAD are answered here\n");
    } else if (!page) {
        status = MHD_HTTP_NOT_FOUND;
        buf_puts(&out, "only /livez, /readyz and /metrics are here\n");
    } else {
        status = page->render(&out);
    }
    return page_send(connection, status, page ? page->type : pages[0].type, &out);
}

struct admin_http *admin_http_start(const char *listen_at, struct error *err)
{
    int fd = listen_open("the admin address", listen_at, CONNECTIONS_MAX, err);
    if (fd < 0)
        return NULL;
    struct admin_http *admin = calloc(1, sizeof(*admin));
    must(admin);
    admin->port = listen_port(fd);
    admin->daemon = MHD_start_daemon(
        MHD_USE_AUTO_INTERNAL_THREAD, 0, NULL, NULL, request_answer, NULL, MHD_OPTION_LISTEN_SOCKET,
        fd, MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)IDLE_S, MHD_OPTION_END);
    if (admin->daemon)
        return admin;
    /* Some failures come before libmicrohttpd takes the socket over and some after; the process
     * does not start anyway, so it is left to the end of the process. */
    error_set(err, ERROR_INTERNAL, "the admin thread on %s does not start", listen_at);
    free(admin);
    return NULL;
}

int admin_http_port(const struct admin_http *admin)
{
    return admin->port;
}

void admin_http_stop(struct admin_http *admin)
{
    if (!admin)
        return;
    MHD_stop_daemon(admin->daemon);
    free(admin);
}
