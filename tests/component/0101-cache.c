/* The cache against a real Redis, named by HOLDFAST_REDIS_URL (its database 9 is flushed), directly
 * and through a proxy in this program that can fall silent, answer a byte at a time, close its
 * connections, or go away. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/cache/cache.h"
#include "common/cache/redis_url.h"
#include "tests/test.h"

#include <arpa/inet.h>
#include <hiredis/hiredis.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TIMEOUT_MS 150
#define SLACK_MS 100 /* what a loaded machine may add */
#define SETTLE_MS 10000

static struct redis_url server;
static const char *server_url;
static char prefix[48]; /* of every key of this run */

static const uint8_t hash_a[SHA256_SIZE] = {1, 2, 0, 255};

static const char *key(const char *name)
{
    static char keys[8][128];
    static int next;
    char *out = keys[next++ % 8];
    snprintf(out, 128, "%s:%s", prefix, name);
    return out;
}

static struct cache *cache_open(const char *url)
{
    struct error err = {0};
    struct cache *c = cache_new(url, TIMEOUT_MS, &err);
    if (!c)
        fail_msg("%s", err.text);
    return c;
}

/* A command past the cache, on the default database. */
static redisReply *raw(const char *format, const char *arg)
{
    redisContext *context = redisConnect(server.host, atoi(server.port));
    assert_true(context && !context->err);
    if (server.password[0])
        freeReplyObject(redisCommand(context, "AUTH %s", server.password));
    redisReply *reply = redisCommand(context, format, arg);
    assert_non_null(reply);
    redisFree(context);
    return reply;
}

static void raw_done(const char *format, const char *arg)
{
    redisReply *reply = raw(format, arg);
    if (reply->type == REDIS_REPLY_ERROR)
        fail_msg("%s: %s", format, reply->str);
    freeReplyObject(reply);
}

/* ---- the proxy ---- */

enum mode { PASS, SILENT, TRICKLE };

static struct {
    pthread_t thread;
    int listener;
    int port;
    atomic_int mode;
    atomic_bool drop; /* close all connections once */
    atomic_bool stop;
} proxy;

#define PAIRS_MAX 8

static int proxy_listen(int port)
{
    int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(at);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(listen(fd, 16), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &size), 0);
    proxy.port = ntohs(at.sin_port);
    return fd;
}

static int proxy_connect(void)
{
    struct addrinfo *found = NULL;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    int fd = -1;
    getaddrinfo(server.host, server.port, &hints, &found);
    for (struct addrinfo *at = found; at && fd < 0; at = at->ai_next) {
        fd = socket(at->ai_family, SOCK_STREAM, 0);
        if (connect(fd, at->ai_addr, at->ai_addrlen) != 0) {
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(found);
    return fd;
}

/* Copies what is there. False: this side has closed. */
static bool proxy_copy(int from, int to)
{
    char bytes[65536];
    ssize_t n = recv(from, bytes, sizeof(bytes), 0);
    if (n <= 0)
        return false;
    if (proxy.mode == SILENT)
        return true;
    size_t step = proxy.mode == TRICKLE ? 1 : (size_t)n;
    for (size_t at = 0; at < (size_t)n && proxy.mode != SILENT; at += step) {
        if (send(to, bytes + at, step, MSG_NOSIGNAL) < 0)
            return false;
        if (step == 1)
            usleep(20000);
    }
    return true;
}

static void proxy_close(struct pollfd *fds, size_t at)
{
    close(fds[at].fd);
    close(fds[at + 1].fd);
    fds[at].fd = fds[at + 1].fd = -1;
}

static void proxy_accept(struct pollfd *fds)
{
    int fd = accept(proxy.listener, NULL, NULL);
    for (size_t at = 1; at < 1 + 2 * PAIRS_MAX; at += 2) {
        if (fds[at].fd < 0) {
            fds[at] = (struct pollfd){.fd = fd, .events = POLLIN};
            fds[at + 1] = (struct pollfd){.fd = proxy_connect(), .events = POLLIN};
            return;
        }
    }
    close(fd);
}

static void *proxy_main(void *arg)
{
    struct pollfd fds[1 + 2 * PAIRS_MAX];
    (void)arg;
    for (size_t i = 0; i < 1 + 2 * PAIRS_MAX; i++)
        fds[i] = (struct pollfd){.fd = -1, .events = POLLIN};
    fds[0].fd = proxy.listener;
    while (!proxy.stop) {
        poll(fds, 1 + 2 * PAIRS_MAX, 5);
        bool drop = atomic_exchange(&proxy.drop, false);
        for (size_t at = 1; at < 1 + 2 * PAIRS_MAX; at += 2) {
            bool alive = !drop;
            if (fds[at].fd >= 0 && alive && fds[at].revents)
                alive = proxy_copy(fds[at].fd, fds[at + 1].fd);
            if (fds[at].fd >= 0 && alive && fds[at + 1].revents)
                alive = proxy_copy(fds[at + 1].fd, fds[at].fd);
            if (fds[at].fd >= 0 && !alive)
                proxy_close(fds, at);
        }
        if (fds[0].revents)
            proxy_accept(fds);
    }
    for (size_t at = 1; at < 1 + 2 * PAIRS_MAX; at += 2)
        if (fds[at].fd >= 0)
            proxy_close(fds, at);
    close(proxy.listener);
    return NULL;
}

static void proxy_start(int port)
{
    proxy.listener = proxy_listen(port);
    proxy.mode = PASS;
    proxy.stop = false;
    assert_int_equal(pthread_create(&proxy.thread, NULL, proxy_main, NULL), 0);
}

static void proxy_stop(void)
{
    proxy.stop = true;
    pthread_join(proxy.thread, NULL);
}

static struct cache *cache_by_proxy(void)
{
    char url[1024];
    snprintf(url, sizeof(url), "redis://%s%s%s@127.0.0.1:%d/%d", server.user, ":", server.password,
             proxy.port, server.database);
    return cache_open(url);
}

/* ---- tests ---- */

static bool put(struct cache *c, const char *name, int64_t revision, const char *body)
{
    return cache_put_reply(c, key(name), revision, hash_a, body, strlen(body), 60);
}

/* What the cache says under this name; NULL: not found. */
static const char *get(struct cache *c, const char *name)
{
    static char body[256];
    const char *keys[1] = {key(name)};
    struct cache_reply reply;
    cache_get_many(c, keys, 1, &reply);
    if (!reply.found)
        return NULL;
    assert_true(reply.body_len < sizeof(body));
    memcpy(body, reply.body, reply.body_len + 1);
    cache_reply_free(&reply);
    assert_false(reply.found);
    return body;
}

static void test_round_trip(void **state)
{
    (void)state;
    static const char binary[] = "{\"a\":\"\r\n$5\r\n\"}\0\xff tail";
    struct cache *c = cache_open(server_url);
    struct cache_reply replies[3];
    assert_true(cache_put_reply(c, key("bin"), 7, hash_a, binary, sizeof(binary), 60));
    assert_true(put(c, "empty", 0, ""));
    const char *keys[3] = {key("bin"), key("missing"), key("empty")};
    assert_true(cache_get_many(c, keys, 3, replies));
    assert_true(replies[0].found && !replies[1].found && replies[2].found);
    assert_int_equal(replies[0].revision, 7);
    assert_int_equal(replies[0].body_len, sizeof(binary));
    assert_memory_equal(replies[0].body, binary, sizeof(binary));
    assert_memory_equal(replies[0].request_hash, hash_a, SHA256_SIZE);
    assert_int_equal(replies[2].body_len, 0);
    for (int i = 0; i < 3; i++)
        cache_reply_free(&replies[i]);
    cache_free(c);
}

static void test_only_a_higher_revision_replaces(void **state)
{
    (void)state;
    struct cache *c = cache_open(server_url);
    assert_true(put(c, "rev", 9, "nine"));
    assert_true(put(c, "rev", 8, "eight"));
    assert_string_equal(get(c, "rev"), "nine");
    assert_true(put(c, "rev", 9, "nine again"));
    assert_string_equal(get(c, "rev"), "nine");
    assert_true(put(c, "rev", 10, "ten"));
    assert_string_equal(get(c, "rev"), "ten");
    assert_true(put(c, "rev", INT64_MAX, "last"));
    assert_true(put(c, "rev", INT64_MAX - 1, "last but one"));
    assert_string_equal(get(c, "rev"), "last");
    cache_free(c);
}

static void test_many(void **state)
{
    (void)state;
    enum { MANY = 700 };
    static char names[MANY][96], bodies[MANY][32];
    static struct cache_put puts[MANY];
    static const char *keys[MANY];
    static struct cache_reply replies[MANY];
    struct cache *c = cache_open(server_url);
    for (int i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof(names[i]), "%s:many%d", prefix, i);
        snprintf(bodies[i], sizeof(bodies[i]), "body %d", i);
        puts[i] = (struct cache_put){names[i], i, hash_a, bodies[i], strlen(bodies[i]), 60};
        keys[i] = names[i];
    }
    raw_done("SCRIPT %s", "FLUSH"); /* the script must be taught again, once a chunk */
    assert_true(cache_put_many(c, puts, MANY));
    assert_true(cache_get_many(c, keys, MANY, replies));
    for (int i = 0; i < MANY; i++) {
        assert_true(replies[i].found);
        assert_int_equal(replies[i].revision, i);
        assert_string_equal(replies[i].body, bodies[i]);
        cache_reply_free(&replies[i]);
    }
    cache_free(c);
}

static void test_large_bodies(void **state)
{
    (void)state;
    enum { MANY = 12 };
    static char names[MANY][96];
    struct cache_put puts[MANY];
    struct cache_reply reply;
    struct error err = {0};
    char *body = malloc(CACHE_BODY_MAX + 1);
    memset(body, 'x', CACHE_BODY_MAX + 1);
    struct cache *c = cache_new(server_url, 5000, &err); /* the size is tested, not the speed */
    for (int i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof(names[i]), "%s:large%d", prefix, i);
        size_t len = i == 5 ? CACHE_BODY_MAX + 1 : CACHE_BODY_MAX;
        puts[i] = (struct cache_put){names[i], 1, hash_a, body, len, 60};
    }
    raw_done("SCRIPT %s", "FLUSH");
    assert_true(cache_put_many(c, puts, MANY));
    for (int i = 0; i < MANY; i++) {
        const char *keys[1] = {names[i]};
        assert_true(cache_get_many(c, keys, 1, &reply));
        assert_int_equal(reply.found, i != 5);
        assert_true(!reply.found || reply.body_len == CACHE_BODY_MAX);
        cache_reply_free(&reply);
        assert_true(cache_drop(c, names[i]));
    }
    free(body);
    cache_free(c);
}

static void test_foreign_values_are_not_found(void **state)
{
    (void)state;
    static const char *const values[] = {"", "1:", "garbage",
                                         "1:00000000000000000x1 and so on and on"};
    struct cache *c = cache_open(server_url);
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        char command[256];
        snprintf(command, sizeof(command), "SET %s %%s", key("foreign"));
        raw_done(command, values[i]);
        assert_null(get(c, "foreign"));
    }
    raw_done("DEL %s", key("foreign"));
    raw_done("RPUSH %s x", key("foreign"));
    assert_null(get(c, "foreign"));
    assert_false(put(c, "foreign", 1, "x"));
    assert_true(put(c, "after", 1, "x")); /* the server is not in trouble for that */
    assert_true(cache_drop(c, key("foreign")));
    assert_true(put(c, "foreign", 1, "x"));
    assert_string_equal(get(c, "foreign"), "x");
    cache_free(c);
}

static void test_drop_ttl_and_flush(void **state)
{
    (void)state;
    char url[1024];
    snprintf(url, sizeof(url), "redis://:%s@%s:%s/9", server.password, server.host, server.port);
    struct cache *c = cache_open(url);
    const char *keys[1] = {key("gone")};
    struct cache_reply reply;
    assert_true(put(c, "gone", 1, "x"));
    assert_true(cache_drop(c, key("gone")));
    assert_true(cache_get_many(c, keys, 1, &reply)); /* known not to be there */
    assert_false(reply.found);

    assert_true(cache_put_reply(c, key("short"), 1, hash_a, "x", 1, 1));
    assert_non_null(get(c, "short"));
    usleep(1100 * 1000);
    assert_null(get(c, "short"));

    assert_true(put(c, "flushed", 5, "x"));
    raw_done("EVAL %s 0", "redis.call('SELECT', 9) redis.call('FLUSHDB')");
    assert_null(get(c, "flushed"));
    assert_true(put(c, "flushed", 1, "again"));
    assert_string_equal(get(c, "flushed"), "again");
    cache_free(c);
}

static void test_user_password_database(void **state)
{
    (void)state;
    char url[1024];
    char reason[128];
    raw_done("ACL SETUSER %s on >p@ss/word ~* +@all", prefix);
    snprintf(url, sizeof(url), "redis://%s:p%%40ss%%2fword@%s:%s/9", prefix, server.host,
             server.port);
    struct cache *c = cache_open(url);
    assert_true(put(c, "mine", 1, "x"));
    assert_true(cache_ready(c, reason, sizeof(reason)));
    cache_free(c);

    struct cache *plain = cache_open(server_url); /* another database */
    assert_null(get(plain, "mine"));
    cache_free(plain);

    snprintf(url, sizeof(url), "redis://%s:wrong@%s:%s", prefix, server.host, server.port);
    c = cache_open(url);
    assert_false(cache_ping(c));
    assert_false(cache_ready(c, reason, sizeof(reason)));
    cache_free(c);
    raw_done("ACL DELUSER %s", prefix);
}

static int64_t ping_ms(struct cache *c, bool wanted)
{
    int64_t start_ms = clock_boot_ms();
    assert_int_equal(cache_ping(c), wanted);
    return clock_boot_ms() - start_ms;
}

/* Until it answers again; it must do so within the longest back-off. */
static void await_answer(struct cache *c)
{
    int64_t end_ms = clock_boot_ms() + SETTLE_MS;
    while (!cache_ping(c)) {
        assert_true(clock_boot_ms() < end_ms);
        usleep(10000);
    }
}

static void test_stopped_and_back(void **state)
{
    (void)state;
    char reason[128];
    proxy_start(0);
    struct cache *c = cache_by_proxy();
    assert_true(put(c, "kept", 1, "before"));
    proxy_stop();
    assert_in_range(ping_ms(c, false), 0, TIMEOUT_MS + SLACK_MS);
    assert_false(cache_ready(c, reason, sizeof(reason)));
    assert_null(get(c, "kept"));
    assert_false(put(c, "kept", 2, "lost"));
    /* Left alone: a dead server costs nothing. */
    int64_t start_ms = clock_boot_ms();
    for (int i = 0; i < 1000; i++)
        assert_null(get(c, "kept"));
    assert_in_range(clock_boot_ms() - start_ms, 0, 200);

    proxy_start(proxy.port);
    await_answer(c);
    assert_true(cache_ready(c, reason, sizeof(reason)));
    assert_string_equal(get(c, "kept"), "before");
    cache_free(c);
    proxy_stop();
}

/* Accepts and never answers, or a byte now and then: the time-out holds, and a late answer is never
 * taken for that of another question. */
static void test_silent_or_slow(void **state)
{
    (void)state;
    proxy_start(0);
    struct cache *c = cache_by_proxy();
    assert_true(put(c, "one", 1, "one"));
    assert_true(put(c, "two", 1, "two"));
    for (int mode = SILENT; mode <= TRICKLE; mode++) {
        proxy.mode = mode;
        int64_t start_ms = clock_boot_ms();
        assert_null(get(c, "one"));
        assert_in_range(clock_boot_ms() - start_ms, TIMEOUT_MS - 5, TIMEOUT_MS + SLACK_MS);
        proxy.mode = PASS;
        await_answer(c);
        assert_string_equal(get(c, "two"), "two");
        assert_string_equal(get(c, "one"), "one");
    }
    cache_free(c);
    proxy_stop();
}

/* Redis closes what was idle for long: that is no trouble. */
static void test_closed_while_idle(void **state)
{
    (void)state;
    proxy_start(0);
    struct cache *c = cache_by_proxy();
    for (int i = 0; i < 3; i++) {
        assert_true(put(c, "idle", i, "x"));
        proxy.drop = true;
        while (proxy.drop)
            usleep(1000);
        usleep(20000);
        assert_string_equal(get(c, "idle"), "x");
    }
    cache_free(c);
    proxy_stop();
}

/* One connection is accepted, told this, and held for longer than anybody waits. */
struct nonsense {
    int listener;
    const char *text;
};

static void *nonsense_main(void *arg)
{
    const struct nonsense *nonsense = arg;
    int fd = accept(nonsense->listener, NULL, NULL);
    send(fd, nonsense->text, strlen(nonsense->text), MSG_NOSIGNAL);
    usleep(2 * TIMEOUT_MS * 1000);
    close(fd);
    return NULL;
}

static void test_server_that_talks_nonsense(void **state)
{
    (void)state;
    static const char *const answers[] = {"HTTP/1.1 400 Bad Request\r\n\r\n",
                                          "*3\r\n:1\r\n",
                                          "$-5\r\n",
                                          "-LOADING wait\r\n",
                                          ":1\r\n",
                                          "*0\r\n"};
    char url[64];
    char reason[128];
    const char *keys[1] = {"k"};
    int listener = proxy_listen(0);
    snprintf(url, sizeof(url), "redis://127.0.0.1:%d", proxy.port);
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        struct nonsense nonsense = {listener, answers[i]};
        struct cache *c = cache_open(url);
        struct cache_reply reply;
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, nonsense_main, &nonsense), 0);
        int64_t start_ms = clock_boot_ms();
        assert_false(cache_get_many(c, keys, 1, &reply));
        assert_false(reply.found);
        assert_in_range(clock_boot_ms() - start_ms, 0, TIMEOUT_MS + SLACK_MS);
        assert_false(cache_ready(c, reason, sizeof(reason)));
        cache_free(c);
        pthread_join(thread, NULL);
    }
    close(listener);
}

static void test_nowhere(void **state)
{
    (void)state;
    struct error err = {0};
    struct cache *c = cache_open("redis://no-such-host.invalid");
    assert_in_range(ping_ms(c, false), 0, TIMEOUT_MS + SLACK_MS);
    assert_in_range(ping_ms(c, false), 0, 20);
    cache_free(c);
    c = cache_open("redis://127.0.0.1:1");
    assert_in_range(ping_ms(c, false), 0, TIMEOUT_MS + SLACK_MS);
    cache_free(c);
    c = cache_open("");
    char reason[128];
    assert_false(cache_ping(c));
    assert_true(cache_ready(c, reason, sizeof(reason)));
    cache_free(c);
    assert_null(cache_new("http://h", TIMEOUT_MS, &err));
    assert_int_equal(err.code, ERROR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_only_a_higher_revision_replaces),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_large_bodies),
        cmocka_unit_test(test_foreign_values_are_not_found),
        cmocka_unit_test(test_drop_ttl_and_flush),
        cmocka_unit_test(test_user_password_database),
        cmocka_unit_test(test_stopped_and_back),
        cmocka_unit_test(test_silent_or_slow),
        cmocka_unit_test(test_closed_while_idle),
        cmocka_unit_test(test_server_that_talks_nonsense),
        cmocka_unit_test(test_nowhere),
    };
    struct error err = {0};
    server_url = getenv("HOLDFAST_REDIS_URL");
    if (!server_url || !server_url[0]) {
        fprintf(stderr, "skipped: HOLDFAST_REDIS_URL is not set\n");
        return 77;
    }
    log_init("test", getenv("TEST_VERBOSE") ? LOG_DEBUG : LOG_ERROR);
    if (!redis_url_parse(server_url, &server, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    snprintf(prefix, sizeof(prefix), "t%lld-%d", (long long)clock_wall_ms(), (int)getpid());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
