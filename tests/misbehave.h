/* A provider that misbehaves in the way the request's path asks for, in threads of the test itself,
 * on a free port of 127.0.0.1, plain or TLS. It counts what arrives: a request counts when it was
 * read whole. */
#ifndef HOLDFAST_TESTS_MISBEHAVE_H
#define HOLDFAST_TESTS_MISBEHAVE_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SERVER_CONNECTIONS_MAX 4096
#define SERVER_PATHS_MAX 256

struct server;

struct server_connection {
    struct server *server;
    pthread_t thread;
    int fd;
    SSL *ssl;
};

struct path_count {
    char path[64];
    int count;
};

struct server {
    int listener;
    int port;
    SSL_CTX *tls; /* NULL: plain */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct server_connection *connections[SERVER_CONNECTIONS_MAX];
    int connection_count;
    struct path_count counts[SERVER_PATHS_MAX];
    int path_count;
    char last_head[4096]; /* of the last whole request */
    char last_body[4096];
    int talk;   /* permits for connections that wait to say something unasked */
    int closed; /* connections that this side has closed or shut after an answer */
    int said;   /* unasked words said */
};

/* -- bytes -- */

static inline ssize_t peer_read(struct server_connection *c, void *out, size_t size)
{
    return c->ssl ? SSL_read(c->ssl, out, (int)size) : recv(c->fd, out, size, 0);
}

static inline void peer_write(struct server_connection *c, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t sent =
            c->ssl ? SSL_write(c->ssl, bytes, (int)len) : send(c->fd, bytes, len, MSG_NOSIGNAL);
        if (sent <= 0)
            return;
        bytes += sent;
        len -= (size_t)sent;
    }
}

static inline void peer_say(struct server_connection *c, const char *text)
{
    peer_write(c, text, strlen(text));
}

/* The next close sends RST instead of FIN. */
static inline void peer_reset(struct server_connection *c)
{
    struct linger linger = {.l_onoff = 1, .l_linger = 0};
    setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
}

static inline void test_sleep_ms(long ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

/* -- counting -- */

static inline void server_count(struct server *s, const char *path, const char *head,
                                const char *body, size_t body_len)
{
    pthread_mutex_lock(&s->lock);
    int i = 0;
    while (i < s->path_count && strcmp(s->counts[i].path, path) != 0)
        i++;
    if (i == SERVER_PATHS_MAX)
        abort();
    if (i == s->path_count)
        snprintf(s->counts[s->path_count++].path, sizeof(s->counts[i].path), "%s", path);
    s->counts[i].count++;
    snprintf(s->last_head, sizeof(s->last_head), "%s", head);
    snprintf(s->last_body, sizeof(s->last_body), "%.*s", (int)body_len, body);
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static inline int server_counted(struct server *s, const char *path)
{
    int count = 0;
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < s->path_count; i++)
        if (strcmp(s->counts[i].path, path) == 0)
            count = s->counts[i].count;
    pthread_mutex_unlock(&s->lock);
    return count;
}

/* One of the server's counters. */
static inline int server_read(struct server *s, const int *counter)
{
    pthread_mutex_lock(&s->lock);
    int count = *counter;
    pthread_mutex_unlock(&s->lock);
    return count;
}

static inline int server_connected(struct server *s)
{
    return server_read(s, &s->connection_count);
}

static inline void server_note(struct server *s, int *counter)
{
    pthread_mutex_lock(&s->lock);
    (*counter)++;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

/* Waits until a counter of the server has reached a value. */
static inline void server_await(struct server *s, const int *counter, int value)
{
    pthread_mutex_lock(&s->lock);
    while (*counter < value)
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

/* -- behaviours: what follows a request that was read whole -- */

#define SERVER_OK "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"

static inline void say_status(struct server_connection *c, int status, const char *more)
{
    char answer[512];
    snprintf(answer, sizeof(answer), "HTTP/1.1 %d x\r\n%sContent-Length: 2\r\n\r\n{}", status,
             more);
    peer_say(c, answer);
}

static inline void say_big(struct server_connection *c, size_t size)
{
    char head[128], block[65536];
    snprintf(head, sizeof(head), "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n", size);
    memset(block, 'b', sizeof(block));
    peer_say(c, head);
    for (size_t sent = 0; sent < size; sent += sizeof(block))
        peer_write(c, block, size - sent < sizeof(block) ? size - sent : sizeof(block));
}

struct behaviour {
    const char *path;
    const char *says;
    bool closes; /* FIN right after */
    bool resets; /* RST right after */
};

static const struct behaviour behaviours[] = {
    {"/ok", SERVER_OK},
    {"/close-says-so", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}", true},
    {"/die-fin", "", true},
    {"/die-rst", "", false, true},
    {"/only-100", "HTTP/1.1 100 Continue\r\n\r\n", true},
    {"/only-103", "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", true},
    {"/only-101", "HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n", true},
    {"/then-200", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nA: b\r\n\r\n" SERVER_OK},
    {"/cut-status", "HTTP/1.1 2", true},
    {"/cut-status-line", "HTTP/1.1 200 OK\r\n", true},
    {"/cut-head", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-A: b\r\n", true},
    {"/cut-head-rst", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-A: b\r\n", false, true},
    {"/cut-head-mid-line", "HTTP/1.1 200 OK\r\nContent-Le", true},
    {"/cut-body", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", true},
    {"/cut-body-all", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", true},
    {"/cut-body-4xx", "HTTP/1.1 402 x\r\nContent-Length: 100\r\n\r\n{", true},
    {"/cut-body-rst", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", false, true},
    {"/cut-chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc", true},
    {"/cut-chunk-end", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", true},
    {"/cut-chunk-last", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n",
     true},
    {"/bad-chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n0\r\n\r\n"},
    {"/chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"},
    {"/trailer",
     "HTTP/1.1 500 x\r\nTransfer-Encoding: chunked\r\nTrailer: A\r\n\r\n3\r\nabc\r\n0\r\n"
     "HTTP/1.1 200 OK\r\nA: b\r\n\r\n"},
    {"/to-the-close", "HTTP/1.1 200 OK\r\n\r\nas long as it is", true},
    {"/to-the-close-rst", "HTTP/1.1 200 OK\r\n\r\nas long as it is", false, true},
    {"/http-1.0", "HTTP/1.0 200 OK\r\n\r\n{}", true},
    {"/huge-length", "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n{}", true},
    {"/bad-length", "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n{}", true},
    {"/two-lengths", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 1\r\n\r\n{}", true},
    {"/gzip-coded",
     "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"},
    {"/http-0.9", "<html>I am a page</html>", true},
    {"/garbage", "\x16\x03\x01\x02\x00\x01\xff\xfe garbage\r\n\r\n", true},
    {"/http-2", "HTTP/2 200\r\nContent-Length: 0\r\n\r\n", true},
    {"/http-9.9", "HTTP/9.9 200 OK\r\nContent-Length: 0\r\n\r\n", true},
    {"/four-digits", "HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n", true},
    {"/no-version", "HTTP 200 OK\r\nContent-Length: 0\r\n\r\n", true},
    {"/icy", "ICY 200 OK\r\nContent-Length: 0\r\n\r\n", true},
    {"/nul", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n\"\\u0000\"\xff", false},
    {"/302", "HTTP/1.1 302 x\r\nLocation: /ok\r\nContent-Length: 0\r\n\r\n"},
    {"/307", "HTTP/1.1 307 x\r\nLocation: /ok\r\nContent-Length: 0\r\n\r\n"},
    {"/401-basic",
     "HTTP/1.1 401 x\r\nWWW-Authenticate: Basic realm=\"x\"\r\nContent-Length: 0\r\n\r\n"},
    {"/401-digest", "HTTP/1.1 401 x\r\nWWW-Authenticate: Digest realm=\"x\", nonce=\"y\"\r\n"
                    "Content-Length: 0\r\n\r\n"},
    {"/401-negotiate", "HTTP/1.1 401 x\r\nWWW-Authenticate: Negotiate\r\nWWW-Authenticate: NTLM\r\n"
                       "Content-Length: 0\r\n\r\n"},
    {"/407",
     "HTTP/1.1 407 x\r\nProxy-Authenticate: Basic realm=\"x\"\r\nContent-Length: 0\r\n\r\n"},
    {"/421-close", "HTTP/1.1 421 x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", true},
    {"/426", "HTTP/1.1 426 x\r\nUpgrade: h2c\r\nConnection: Upgrade\r\nContent-Length: 0\r\n\r\n"},
    {"/alt-svc",
     "HTTP/1.1 200 OK\r\nAlt-Svc: h2=\"127.0.0.1:1\"; ma=60\r\nContent-Length: 2\r\n\r\n{}"},
    {"/two-answers", SERVER_OK SERVER_OK},
    {"/two-answers-chunked",
     "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" SERVER_OK},
    {"/more-than-promised", SERVER_OK " and a piece of nonsense"},
};

static inline void wait_for_talk(struct server *s)
{
    pthread_mutex_lock(&s->lock);
    while (s->talk == 0)
        pthread_cond_wait(&s->changed, &s->lock);
    s->talk--;
    pthread_mutex_unlock(&s->lock);
}

/* TLS's own good-bye; on a plain connection nothing. */
static inline void peer_notify(struct server_connection *c)
{
    if (c->ssl)
        SSL_shutdown(c->ssl);
}

/* False: the connection ends. */
static inline bool behave(struct server_connection *c, const char *path)
{
    for (size_t i = 0; i < sizeof(behaviours) / sizeof(behaviours[0]); i++) {
        const struct behaviour *b = &behaviours[i];
        if (strcmp(b->path, path) != 0)
            continue;
        peer_say(c, b->says);
        if (b->resets)
            peer_reset(c);
        return !b->closes && !b->resets;
    }
    if (strncmp(path, "/status/", 8) == 0)
        say_status(c, atoi(path + 8), "Retry-After: 7\r\n");
    else if (strcmp(path, "/slow") == 0) {
        test_sleep_ms(300);
        peer_say(c, SERVER_OK);
    } else if (strcmp(path, "/hang") == 0) {
        char byte;
        peer_read(c, &byte, 1); /* until the other side gives up */
        return false;
    } else if (strcmp(path, "/ok-then-close") == 0) {
        peer_say(c, SERVER_OK);
        return false;
    } else if (strcmp(path, "/ok-then-talk") == 0) {
        peer_say(c, SERVER_OK);
        wait_for_talk(c->server);
        peer_say(c, SERVER_OK); /* an answer that nobody asked for */
        server_note(c->server, &c->server->said);
    } else if (strcmp(path, "/ok-then-408") == 0) {
        peer_say(c, SERVER_OK);
        wait_for_talk(c->server);
        peer_say(c,
                 "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
        server_note(c->server, &c->server->said);
        return false;
    } else if (strcmp(path, "/body-and-more") == 0) {
        /* Apart, so that the reader knows the length and leaves what is behind the body unread. */
        peer_say(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n");
        test_sleep_ms(100);
        peer_say(c, "{}" SERVER_OK);
    } else if (strcmp(path, "/ok-then-notify") == 0) {
        peer_say(c, SERVER_OK);
        wait_for_talk(c->server);
        peer_notify(c);
        server_note(c->server, &c->server->said);
        char byte;
        recv(c->fd, &byte, 1, MSG_PEEK); /* the connection itself stays open */
        return false;
    } else if (strcmp(path, "/die-notify") == 0) {
        peer_notify(c);
        return false;
    } else if (strcmp(path, "/to-the-notify") == 0) {
        peer_say(c, "HTTP/1.1 200 OK\r\n\r\nas long as it is");
        peer_notify(c);
        return false;
    } else if (strcmp(path, "/big") == 0)
        say_big(c, 10u << 20);
    else if (strcmp(path, "/endless") == 0)
        say_big(c, (size_t)1 << 40);
    else
        return false;
    return true;
}

/* -- connections -- */

/* Reads one request; false when the peer ended. "/early" is answered before its body is read. */
static inline bool request_read(struct server_connection *c, char *path, size_t path_size)
{
    char head[4096], *body = NULL;
    size_t len = 0, want = 0, have = 0;
    bool ok = false;
    for (head[0] = '\0'; !strstr(head, "\r\n\r\n");) {
        ssize_t got = len < sizeof(head) - 1 ? peer_read(c, head + len, 1) : 0;
        if (got <= 0)
            return false;
        len += (size_t)got;
        head[len] = '\0';
    }
    char *length = strcasestr(head, "\r\nContent-Length:");
    if (length)
        want = strtoul(length + 17, NULL, 10);
    const char *start = strchr(head, ' ');
    size_t path_len = start ? strcspn(start + 1, " ?") : 0;
    snprintf(path, path_size, "%.*s", (int)path_len, start ? start + 1 : "");
    if (strcmp(path, "/early") == 0) {
        peer_say(c, SERVER_OK);
        test_sleep_ms(200);
    } else if (strcmp(path, "/early-413") == 0) {
        say_status(c, 413, "");
    }
    body = malloc(want + 1);
    while (body && have < want) {
        ssize_t got = peer_read(c, body + have, want - have);
        if (got <= 0)
            goto out;
        have += (size_t)got;
    }
    ok = true;
    server_count(c->server, path, head, body ? body : "", have);
out:
    free(body);
    return ok;
}

static inline void *connection_run(void *opaque)
{
    struct server_connection *c = opaque;
    char path[64];
    if (!c->ssl || SSL_accept(c->ssl) == 1)
        while (request_read(c, path, sizeof(path)) &&
               (strncmp(path, "/early", 6) == 0 || behave(c, path)))
            ;
    pthread_mutex_lock(&c->server->lock);
    if (c->ssl)
        SSL_free(c->ssl);
    close(c->fd);
    c->fd = -1;
    c->server->closed++;
    pthread_cond_broadcast(&c->server->changed);
    pthread_mutex_unlock(&c->server->lock);
    return NULL;
}

static inline void *server_run(void *opaque)
{
    struct server *s = opaque;
    for (;;) {
        int fd = accept(s->listener, NULL, NULL);
        if (fd < 0)
            return NULL;
        struct server_connection *c = calloc(1, sizeof(*c));
        *c = (struct server_connection){.server = s, .fd = fd};
        if (s->tls) {
            c->ssl = SSL_new(s->tls);
            SSL_set_fd(c->ssl, fd);
        }
        pthread_mutex_lock(&s->lock);
        if (s->connection_count == SERVER_CONNECTIONS_MAX)
            abort();
        s->connections[s->connection_count++] = c;
        pthread_create(&c->thread, NULL, connection_run, c);
        pthread_mutex_unlock(&s->lock);
    }
}

/* A listening socket on a free port; `receive` bytes of receive buffer, 0: the kernel's choice. */
static inline int listener_open(int *port, int receive)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (receive)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive, sizeof(receive));
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
        listen(fd, 512) < 0 || getsockname(fd, (struct sockaddr *)&address, &len) < 0)
        abort();
    *port = ntohs(address.sin_port);
    return fd;
}

static inline void server_start(struct server *s, SSL_CTX *tls)
{
    memset(s, 0, sizeof(*s));
    s->tls = tls;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    s->listener = listener_open(&s->port, 8192);
    pthread_create(&s->thread, NULL, server_run, s);
}

static inline void server_stop(struct server *s)
{
    shutdown(s->listener, SHUT_RDWR);
    pthread_join(s->thread, NULL);
    close(s->listener);
    pthread_mutex_lock(&s->lock);
    s->talk = SERVER_CONNECTIONS_MAX;
    pthread_cond_broadcast(&s->changed);
    for (int i = 0; i < s->connection_count; i++)
        if (s->connections[i]->fd >= 0)
            shutdown(s->connections[i]->fd, SHUT_RDWR);
    pthread_mutex_unlock(&s->lock);
    for (int i = 0; i < s->connection_count; i++) {
        pthread_join(s->connections[i]->thread, NULL);
        free(s->connections[i]);
    }
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
}

#endif
