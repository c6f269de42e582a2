/* The connection to Redis: our own socket calls, since each must know the deadline of the whole;
 * the protocol is read by hiredis. */
#include "common/cache/link.h"

#include "common/base/clock.h"
#include "common/base/log.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKOFF_FIRST_MS 250
#define BACKOFF_MAX_MS 5000
#define RECEIVE_MAX (64 * 1024 * 1024) /* bytes of all replies of one exchange */

void link_init(struct link *link, const struct redis_url *url)
{
    *link = (struct link){.url = *url, .fd = -1, .backoff_ms = BACKOFF_FIRST_MS};
}

static void link_disconnect(struct link *link)
{
    if (link->fd >= 0)
        close(link->fd);
    link->fd = -1;
    if (link->reader)
        redisReaderFree(link->reader);
    link->reader = NULL;
}

void link_close(struct link *link)
{
    link_disconnect(link);
    lookup_free(link->lookup);
    link->lookup = NULL;
}

void link_put_command(struct buf *out, int argc)
{
    buf_printf(out, "*%d\r\n", argc);
}

void link_put_arg(struct buf *out, const void *data, size_t len)
{
    buf_printf(out, "$%zu\r\n", len);
    buf_put(out, data, len);
    buf_puts(out, "\r\n");
}

void link_put_text(struct buf *out, const char *text)
{
    link_put_arg(out, text, strlen(text));
}

/* Waits for the socket; false at the deadline. */
static bool socket_wait(int fd, short events, int64_t deadline_ms)
{
    struct pollfd wait = {.fd = fd, .events = events};
    for (;;) {
        int64_t left_ms = deadline_ms - clock_boot_ms();
        if (left_ms <= 0)
            return false;
        int rc = poll(&wait, 1, (int)left_ms);
        if (rc > 0)
            return true;
        if (rc < 0 && errno != EINTR)
            return false;
    }
}

static int socket_connect(const struct addrinfo *address, int64_t deadline_ms)
{
    int on = 1;
    int failed = 0;
    socklen_t size = sizeof(failed);
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (connect(fd, address->ai_addr, address->ai_addrlen) == 0)
        return fd;
    if (errno == EINPROGRESS && socket_wait(fd, POLLOUT, deadline_ms) &&
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &size) == 0 && failed == 0)
        return fd;
    close(fd);
    return -1;
}

/* Resolves again for each connection: after a failover the name leads elsewhere. A resolution that
 * takes too long is taken up again by the next try. */
static bool socket_open(struct link *link, int64_t deadline_ms)
{
    const struct addrinfo *address = NULL;
    if (!link->lookup)
        link->lookup = lookup_start(link->url.host, link->url.port);
    if (!link->lookup || !lookup_wait(link->lookup, deadline_ms, &address))
        return false;
    for (; address && link->fd < 0; address = address->ai_next)
        link->fd = socket_connect(address, deadline_ms);
    lookup_free(link->lookup);
    link->lookup = NULL;
    return link->fd >= 0;
}

static bool send_all(struct link *link, const struct buf *commands, int64_t deadline_ms)
{
    size_t sent = 0;
    while (sent < commands->len) {
        ssize_t n = send(link->fd, commands->data + sent, commands->len - sent, MSG_NOSIGNAL);
        if (n > 0)
            sent += (size_t)n;
        else if (errno != EINTR &&
                 (errno != EAGAIN || !socket_wait(link->fd, POLLOUT, deadline_ms)))
            return false;
    }
    return true;
}

/* Feeds the reader with what is there, waiting for it if need be. False: closed, failed, late or
 * too much. */
static bool receive_some(struct link *link, size_t *received, int64_t deadline_ms)
{
    char bytes[16384];
    for (;;) {
        ssize_t n = recv(link->fd, bytes, sizeof(bytes), 0);
        if (n > 0) {
            *received += (size_t)n;
            return *received <= RECEIVE_MAX &&
                   redisReaderFeed(link->reader, bytes, (size_t)n) == REDIS_OK;
        }
        if (n == 0 ||
            (errno != EINTR && (errno != EAGAIN || !socket_wait(link->fd, POLLIN, deadline_ms))))
            return false;
    }
}

/* *count says how many replies came, also on failure. */
static bool receive_all(struct link *link, size_t wanted, redisReply **replies, size_t *count,
                        int64_t deadline_ms)
{
    size_t received = 0;
    while (*count < wanted) {
        void *reply = NULL;
        if (redisReaderGetReply(link->reader, &reply) != REDIS_OK)
            return false;
        if (reply)
            replies[(*count)++] = reply;
        else if (!receive_some(link, &received, deadline_ms))
            return false;
    }
    return true;
}

static void replies_free(redisReply **replies, size_t count)
{
    for (size_t i = 0; i < count; i++)
        freeReplyObject(replies[i]);
}

/* Sends and receives on the connection as it is. Frees what came when not all did. */
static bool exchange(struct link *link, const struct buf *commands, size_t wanted,
                     redisReply **replies, int64_t deadline_ms)
{
    size_t count = 0;
    if (send_all(link, commands, deadline_ms) &&
        receive_all(link, wanted, replies, &count, deadline_ms))
        return true;
    replies_free(replies, count);
    return false;
}

/* Frees the replies. */
static bool greeting_accepted(redisReply **replies, size_t count)
{
    bool accepted = true;
    for (size_t i = 0; i < count; i++) {
        if (replies[i]->type == REDIS_REPLY_ERROR) {
            log_event(LOG_ERROR, "redis_refused", "text=%s", replies[i]->str);
            accepted = false;
        }
    }
    replies_free(replies, count);
    return accepted;
}

/* Says who we are and which database we want. */
static bool greet(struct link *link, int64_t deadline_ms)
{
    const struct redis_url *url = &link->url;
    struct buf commands;
    redisReply *replies[2];
    char database[8];
    size_t count = 0;
    buf_init(&commands, 8192);
    if (url->password[0]) {
        link_put_command(&commands, url->user[0] ? 3 : 2);
        link_put_text(&commands, "AUTH");
        if (url->user[0])
            link_put_text(&commands, url->user);
        link_put_text(&commands, url->password);
        count++;
    }
    if (url->database != 0) {
        snprintf(database, sizeof(database), "%d", url->database);
        link_put_command(&commands, 2);
        link_put_text(&commands, "SELECT");
        link_put_text(&commands, database);
        count++;
    }
    bool accepted = count == 0 || (exchange(link, &commands, count, replies, deadline_ms) &&
                                   greeting_accepted(replies, count));
    buf_wipe(&commands);
    return accepted;
}

static bool link_connect(struct link *link, int64_t deadline_ms)
{
    if (!socket_open(link, deadline_ms))
        return false;
    link->reader = redisReaderCreate();
    must(link->reader);
    return greet(link, deadline_ms);
}

void link_trouble(struct link *link)
{
    link_disconnect(link);
    if (atomic_exchange(&link->up, false))
        log_event(LOG_WARN, "redis_away", "host=%s port=%s", link->url.host, link->url.port);
    link->retry_at_ms = clock_boot_ms() + link->backoff_ms;
    link->backoff_ms =
        link->backoff_ms * 2 < BACKOFF_MAX_MS ? link->backoff_ms * 2 : BACKOFF_MAX_MS;
}

static void link_fine(struct link *link)
{
    if (!atomic_exchange(&link->up, true))
        log_event(LOG_INFO, "redis_answers", "host=%s port=%s", link->url.host, link->url.port);
    link->retry_at_ms = 0;
    link->backoff_ms = BACKOFF_FIRST_MS;
}

/* A kept connection may have been closed by the server in the meantime, which shows only now: a
 * second try, on a new one. All our commands may be done twice. */
static bool exchange_twice(struct link *link, const struct buf *commands, size_t count,
                           redisReply **replies, int64_t deadline_ms)
{
    if (link->fd >= 0) {
        if (exchange(link, commands, count, replies, deadline_ms))
            return true;
        link_disconnect(link);
    }
    return clock_boot_ms() < deadline_ms && link_connect(link, deadline_ms) &&
           exchange(link, commands, count, replies, deadline_ms);
}

bool link_exchange(struct link *link, const struct buf *commands, size_t count,
                   redisReply **replies, int64_t deadline_ms)
{
    if (clock_boot_ms() < link->retry_at_ms || commands->failed)
        return false;
    if (!exchange_twice(link, commands, count, replies, deadline_ms)) {
        link_trouble(link);
        return false;
    }
    link_fine(link);
    return true;
}
