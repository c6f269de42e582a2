/* The listening socket and its connections: one thread, one epoll loop. A connection reads one
 * request, answers it, and only then looks at the next; what comes in between waits in its buffer.
 */
#include "tests/provider/sandbox/server.h"

#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "tests/provider/sandbox/exchange.h"
#include "tests/provider/sandbox/ledger.h"
#include "tests/provider/sandbox/request.h"
#include "tests/provider/sandbox/table.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define READ_SIZE ((size_t)64 << 10)
#define INPUT_MAX (REQUEST_HEAD_MAX + READ_SIZE)
#define LINGER_MS 2000
#define EVENTS_MAX 256

enum conn_state {
    CONN_READING,  /* a request is awaited or being read */
    CONN_WAITING,  /* the answer's time has not come */
    CONN_WRITING,  /* the answer is being sent */
    CONN_HOLDING,  /* no (more) bytes are sent; the client may go */
    CONN_LINGERING /* our side is shut; what still comes is thrown away */
};

struct conn {
    int fd;
    uint64_t number;
    struct conn *next;
    struct conn *prev;
    enum conn_state state;
    uint32_t interest; /* epoll events */
    bool eof;          /* the client sends no more */
    bool closed;       /* freed as soon as its event is done with */
    struct buf in;
    struct request *request; /* once its head is whole */
    bool recorded;           /* that request is: it is answered though it is not whole */
    struct sending sending;
    size_t sent;
    int64_t due_ms; /* when the state's waiting is over; 0: it has no end */
    struct stale_plan stale;
};

static struct {
    int epoll_fd;
    int listen_fd;
    bool accepting;
    size_t count;
    uint64_t number;
    struct conn *first;
    int64_t due_ms; /* no connection is due before; 0: none is */
} server;

static void conn_set_due(struct conn *conn, int64_t due_ms)
{
    conn->due_ms = due_ms;
    if (due_ms && (server.due_ms == 0 || due_ms < server.due_ms))
        server.due_ms = due_ms;
}

static void conn_set_interest(struct conn *conn)
{
    uint32_t interest = 0;
    if (!conn->eof && conn->in.len < REQUEST_HEAD_MAX)
        interest |= EPOLLIN;
    if (conn->state == CONN_WRITING && conn->due_ms == 0)
        interest |= EPOLLOUT;
    if (interest == conn->interest)
        return;
    struct epoll_event event = {.events = interest, .data.ptr = conn};
    must(epoll_ctl(server.epoll_fd, EPOLL_CTL_MOD, conn->fd, &event) == 0);
    conn->interest = interest;
}

static void server_set_accepting(bool accepting)
{
    if (server.accepting == accepting)
        return;
    struct epoll_event event = {.events = accepting ? EPOLLIN : 0, .data.ptr = &server};
    must(epoll_ctl(server.epoll_fd, EPOLL_CTL_MOD, server.listen_fd, &event) == 0);
    server.accepting = accepting;
}

/* Records what is left of a request that will never be answered: part of it was read, or it waits
 * unread in the socket. */
static void conn_record_rest(struct conn *conn)
{
    char unread[REQUEST_HEAD_MAX];
    if (conn->recorded)
        return;
    if (conn->request || conn->in.len) {
        exchange_broken(conn->request, conn->in.data, conn->in.len, conn->number, false);
        return;
    }
    ssize_t len = conn->eof ? 0 : recv(conn->fd, unread, sizeof(unread), MSG_PEEK | MSG_DONTWAIT);
    if (len > 0)
        exchange_broken(NULL, unread, (size_t)len, conn->number, true);
}

/* Ends the connection; the memory goes when its event is done with. Where bytes are unread, the
 * kernel sends a reset, else a FIN. */
static void conn_close(struct conn *conn)
{
    conn_record_rest(conn);
    close(conn->fd);
    conn->closed = true;
}

static void conn_reset(struct conn *conn)
{
    struct linger linger = {.l_onoff = 1, .l_linger = 0};
    setsockopt(conn->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
    conn_close(conn);
}

/* Ends with a FIN. While the request's own body may still be coming, closing would make it a reset.
 */
static void conn_finish(struct conn *conn)
{
    if (conn->request == NULL || conn->eof) {
        conn_close(conn);
        return;
    }
    shutdown(conn->fd, SHUT_WR);
    conn->state = CONN_LINGERING;
    buf_reset(&conn->in);
    conn_set_due(conn, clock_boot_ms() + LINGER_MS);
}

static void conn_free(struct conn *conn)
{
    sending_over(&conn->sending);
    request_free(conn->request);
    buf_free(&conn->in);
    buf_free(&conn->stale.bytes);
    if (conn->prev)
        conn->prev->next = conn->next;
    else
        server.first = conn->next;
    if (conn->next)
        conn->next->prev = conn->prev;
    free(conn);
    server.count--;
    server_set_accepting(true);
}

static bool plan_is(const struct conn *conn, enum stale_mode mode)
{
    return conn->stale.set && conn->stale.mode == mode;
}

/* Nothing was asked since the answer, and the plan is to close on that. */
static void conn_close_idle(struct conn *conn)
{
    const struct buf *bytes = &conn->stale.bytes;
    if (bytes->len)
        (void)!send(conn->fd, bytes->data, bytes->len, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (conn->stale.rst)
        conn_reset(conn);
    else
        conn_close(conn);
}

/* The next request is there, and the plan is to close on it unread. */
static void conn_close_unread(struct conn *conn)
{
    if (!conn->stale.rst)
        shutdown(conn->fd, SHUT_WR);
    conn_close(conn);
}

/* The answer is out. True when the connection is kept and the next request may be looked at. */
static bool conn_end_answer(struct conn *conn)
{
    enum sending_end end = conn->sending.end;
    if (end == END_HOLD) {
        conn->state = CONN_HOLDING;
        conn_set_due(conn, clock_boot_ms() + conn->sending.hold_ms);
        return false;
    }
    buf_free(&conn->stale.bytes);
    conn->stale = conn->sending.stale; /* with its bytes */
    memset(&conn->sending.stale, 0, sizeof(conn->sending.stale));
    sending_over(&conn->sending);
    sending_init(&conn->sending);
    conn->state = CONN_READING;
    if (end == END_RST)
        conn_reset(conn);
    else if (end == END_FIN)
        conn_finish(conn);
    else if (plan_is(conn, STALE_IDLE))
        conn_set_due(conn, clock_boot_ms() + conn->stale.ms);
    return end == END_KEEP;
}

/* Sends what the socket takes. True as conn_end_answer, once all is sent. */
static bool conn_flush(struct conn *conn)
{
    struct sending *sending = &conn->sending;
    conn->state = CONN_WRITING;
    conn_set_due(conn, 0);
    while (conn->sent < sending->bytes.len) {
        size_t len = sending->drip_ms ? 1 : sending->bytes.len - conn->sent;
        ssize_t wrote =
            send(conn->fd, sending->bytes.data + conn->sent, len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (wrote < 0) {
            if (errno != EAGAIN)
                conn_close(conn);
            return false;
        }
        conn->sent += (size_t)wrote;
        if (sending->drip_ms) {
            conn_set_due(conn, clock_boot_ms() + sending->drip_ms);
            return false;
        }
    }
    return conn_end_answer(conn);
}

/* Begins the answer that stands in conn->sending. True as conn_end_answer. */
static bool conn_answer(struct conn *conn)
{
    conn->sent = 0;
    if (conn->sending.delay_ms == 0)
        return conn_flush(conn);
    conn->state = CONN_WAITING;
    conn_set_due(conn, clock_boot_ms() + conn->sending.delay_ms);
    return false;
}

static void conn_drop_input(struct conn *conn, size_t used)
{
    if (used == 0)
        return;
    memmove(conn->in.data, conn->in.data + used, conn->in.len - used);
    conn->in.len -= used;
}

/* The request is answered before it was whole, and the connection ends with that. */
static void conn_refuse(struct conn *conn, int status)
{
    conn->recorded = true;
    exchange_refuse(conn->request, conn->number, status, &conn->sending);
    conn_answer(conn);
}

/* Looks for a head. True when there is one whose body is to be read. */
static bool conn_read_head(struct conn *conn)
{
    bool ok;
    if (conn->in.len && plan_is(conn, STALE_UNREAD)) {
        conn_close_unread(conn);
        return false;
    }
    size_t len = request_head_length(conn->in.data, conn->in.len);
    if (len == 0 && conn->in.len < REQUEST_HEAD_MAX)
        return false;
    conn_set_due(conn, 0);
    conn->request = request_new(conn->in.data, len ? len : conn->in.len, &ok);
    conn_drop_input(conn, conn->request->head_len);
    if (len == 0 || !ok) {
        conn_refuse(conn, len ? 400 : 431);
        return false;
    }
    if (exchange_early(conn->request, conn->number, &conn->sending)) {
        conn->recorded = true;
        conn_answer(conn);
        return false;
    }
    if (conn->request->expects_continue && conn->in.len == 0)
        (void)!send(conn->fd, "HTTP/1.1 100 Continue\r\n\r\n", 25, MSG_NOSIGNAL | MSG_DONTWAIT);
    return true;
}

/* Reads the body on and, when it is whole, answers. True when the next request may be looked at. */
static bool conn_read_body(struct conn *conn)
{
    static const struct stale_plan none;
    size_t used;
    enum request_progress progress =
        request_feed(conn->request, conn->in.data, conn->in.len, &used);
    conn_drop_input(conn, used);
    if (progress == REQUEST_MORE)
        return false;
    if (progress != REQUEST_WHOLE) {
        conn_refuse(conn, progress == REQUEST_BAD ? 400 : 413);
        return false;
    }
    exchange_whole(conn->request, conn->number, plan_is(conn, STALE_WHOLE) ? &conn->stale : &none,
                   &conn->sending);
    request_free(conn->request);
    conn->request = NULL;
    return conn_answer(conn);
}

/* Goes on with what the buffer holds, as far as it reaches. */
static void conn_advance(struct conn *conn)
{
    do {
        if (conn->request == NULL && !conn_read_head(conn))
            return;
    } while (conn_read_body(conn));
}

/* Reads once what the socket has. */
static void conn_fill(struct conn *conn)
{
    char bytes[READ_SIZE];
    bool unread = conn->state == CONN_READING && plan_is(conn, STALE_UNREAD);
    ssize_t len = recv(conn->fd, bytes, sizeof(bytes), unread ? MSG_PEEK : 0);
    if (len > 0 && unread)
        conn_close_unread(conn);
    else if (len > 0 && conn->state != CONN_LINGERING)
        must(buf_put(&conn->in, bytes, (size_t)len));
    else if (len == 0)
        conn->eof = true;
    else if (len < 0 && errno != EAGAIN)
        conn_close(conn);
}

static void conn_on_events(struct conn *conn, uint32_t events)
{
    if (conn->interest & EPOLLIN)
        conn_fill(conn);
    else if (events & (EPOLLHUP | EPOLLERR))
        conn_close(conn);
    bool go_on = conn->state == CONN_READING;
    if (!conn->closed && conn->state == CONN_WRITING && conn->due_ms == 0)
        go_on = conn_flush(conn);
    if (!conn->closed && go_on)
        conn_advance(conn);
}

/* What the connection waited for by the clock is over. */
static void conn_on_due(struct conn *conn)
{
    conn_set_due(conn, 0);
    switch (conn->state) {
    case CONN_READING:
        conn_close_idle(conn);
        break;
    case CONN_WAITING:
    case CONN_WRITING:
        if (conn_flush(conn))
            conn_advance(conn);
        break;
    case CONN_HOLDING:
        conn_finish(conn);
        break;
    case CONN_LINGERING:
        conn_close(conn);
        break;
    }
}

/* After every event: closes what has nothing to wait for any more. */
static void conn_settle(struct conn *conn)
{
    bool waits_for_client =
        conn->state == CONN_READING || conn->state == CONN_HOLDING || conn->state == CONN_LINGERING;
    if (!conn->closed && conn->eof && waits_for_client)
        conn_close(conn);
    if (conn->closed)
        conn_free(conn);
    else
        conn_set_interest(conn);
}

static void server_accept(void)
{
    int fd = accept4(server.listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE)
            server_set_accepting(server.count == 0);
        return;
    }
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    struct conn *conn = must_calloc(sizeof(*conn));
    conn->fd = fd;
    conn->number = ++server.number;
    conn->interest = EPOLLIN;
    buf_init(&conn->in, INPUT_MAX);
    sending_init(&conn->sending);
    conn->next = server.first;
    if (conn->next)
        conn->next->prev = conn;
    server.first = conn;
    server_set_accepting(++server.count < SERVER_CONNECTIONS_MAX);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = conn};
    must(epoll_ctl(server.epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0);
    ledger_connection_opened();
}

static void server_run_due(void)
{
    int64_t now_ms = clock_boot_ms();
    if (server.due_ms == 0 || server.due_ms > now_ms)
        return;
    server.due_ms = 0;
    for (struct conn *conn = server.first, *next; conn; conn = next) {
        next = conn->next;
        if (conn->due_ms && conn->due_ms <= now_ms) {
            conn_on_due(conn);
            conn_settle(conn);
        } else {
            conn_set_due(conn, conn->due_ms);
        }
    }
}

static int server_wait_ms(void)
{
    if (server.due_ms == 0)
        return -1;
    int64_t left_ms = server.due_ms - clock_boot_ms();
    return left_ms > 0 ? (int)left_ms : 0;
}

static bool listen_address_parse(const char *listen, struct sockaddr_in *out, struct error *err)
{
    char host[64] = "";
    int port = -1;
    *out = (struct sockaddr_in){.sin_family = AF_INET};
    if (sscanf(listen, "%63[^:]:%d", host, &port) != 2 || port < 0 || port > 65535 ||
        inet_pton(AF_INET, host, &out->sin_addr) != 1)
        return error_set(err, ERROR_INVALID, "\"%s\" is not ADDRESS:PORT", listen);
    out->sin_port = htons((uint16_t)port);
    return true;
}

static bool server_listen(const char *listen_at, struct error *err)
{
    struct sockaddr_in address;
    socklen_t size = sizeof(address);
    int on = 1;
    if (!listen_address_parse(listen_at, &address, err))
        return false;
    server.listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    must(server.listen_fd >= 0);
    setsockopt(server.listen_fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(server.listen_fd, (struct sockaddr *)&address, size) != 0 ||
        listen(server.listen_fd, 1024) != 0 ||
        getsockname(server.listen_fd, (struct sockaddr *)&address, &size) != 0)
        return error_set(err, ERROR_UNAVAILABLE, "can't listen on %s: %s", listen_at,
                         strerror(errno));
    log_event(LOG_INFO, "sandbox_listening", "port=%d", ntohs(address.sin_port));
    return true;
}

static void server_watch(int fd, void *what)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = what};
    must(epoll_ctl(server.epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0);
}

static void server_loop(void *stop)
{
    struct epoll_event events[EVENTS_MAX];
    for (;;) {
        int count = epoll_wait(server.epoll_fd, events, EVENTS_MAX, server_wait_ms());
        for (int i = 0; i < count; i++) {
            if (events[i].data.ptr == stop)
                return;
            if (events[i].data.ptr == &server) {
                server_accept();
                continue;
            }
            conn_on_events(events[i].data.ptr, events[i].events);
            conn_settle(events[i].data.ptr);
        }
        server_run_due();
    }
}

bool server_run(const char *listen_at, int stop_fd, struct error *err)
{
    if (!server_listen(listen_at, err))
        return false;
    server.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    must(server.epoll_fd >= 0);
    server.accepting = true;
    server_watch(server.listen_fd, &server);
    server_watch(stop_fd, &stop_fd);
    server_loop(&stop_fd);
    while (server.first) {
        conn_close(server.first);
        conn_free(server.first);
    }
    close(server.epoll_fd);
    close(server.listen_fd);
    return true;
}
