/* Closed-loop load: C kept-alive connections, each with one invoke in flight. Counts every answer
 * from the first to the last, times those inside the window, and never sends a call again. */
#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/crypto.h"
#include "common/base/error.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    CONNECTIONS_MAX = 4096,
    REQUEST_SIZE = 2048,
    ANSWER_SIZE = 65536,
    EVENTS_MAX = 256,
    SAMPLES_MAX = 1 << 23,
    BROKEN_MAX = 1000, /* past it the run makes no sense any more */
    BROKEN_TOLD = 5,
    DRAIN_MAX_MS = 60000 /* longer than ingest lets a call wait */
};

static const char help[] =
    "bench-load --action NAME [--connections C] [--seconds N] [--warm-up N]\n"
    "HOLDFAST_URL and HOLDFAST_AGENT_KEY say where and as whom. Prints one JSON object.\n";

/* The last of them takes what has none of these words. */
static const char *const words[] = {"succeeded", "failed", "unknown",          "running",
                                    "expired",   "denied", "pending_approval", "none"};
enum { WORDS = sizeof words / sizeof words[0] };

struct conn {
    int fd;
    bool busy; /* a call is out and not answered */
    int64_t began_us;
    char out[REQUEST_SIZE];
    size_t out_len, out_sent;
    char in[ANSWER_SIZE];
    size_t in_len;
};

static struct load {
    const char *action, *key;
    char host[256], port[8];
    int count, seconds, warm_up;
    struct addrinfo *address;
    int epoll;
    struct conn *conns;
    char run[17];           /* of this process, in every key */
    uint64_t calls;         /* made so far */
    bool draining;          /* no new calls */
    int64_t from_us, to_us; /* the window */
    uint64_t by_status[600], by_word[WORDS], succeeded, broken;
    uint32_t *samples_us; /* of the answers inside the window */
    size_t sample_count;
} load;

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "bench-load: %s\n", what);
    exit(1);
}

/* ---- one call ---- */

static void call_write(struct conn *c)
{
    while (c->out_sent < c->out_len) {
        ssize_t n = send(c->fd, c->out + c->out_sent, c->out_len - c->out_sent, MSG_NOSIGNAL);
        if (n < 0)
            return; /* edge-triggered: the next event goes on, or tells the error */
        c->out_sent += (size_t)n;
    }
}

static void call_begin(struct conn *c)
{
    char body[256];
    uint64_t n = load.calls++;
    int len = snprintf(body, sizeof body,
                       "{\"input\":{\"order\":\"%s-%" PRIu64 "\",\"amount\":100}}", load.run, n);
    int out = snprintf(c->out, sizeof c->out,
                       "POST /api/v2/actions/%s/invoke HTTP/1.1\r\nHost: %s:%s\r\n"
                       "Authorization: Bearer %s\r\nIdempotency-Key: %s-%" PRIu64 "\r\n"
                       "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
                       load.action, load.host, load.port, load.key, load.run, n, len, body);
    must(out > 0 && (size_t)out < sizeof c->out);
    c->out_len = (size_t)out;
    c->out_sent = 0;
    c->in_len = 0;
    c->busy = true;
    c->began_us = clock_boot_us();
    call_write(c);
}

/* ---- connections ---- */

static void conn_open(struct conn *c)
{
    int yes = 1;
    c->fd = socket(load.address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->fd < 0)
        die("no socket");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (connect(c->fd, load.address->ai_addr, load.address->ai_addrlen) < 0 && errno != EINPROGRESS)
        die("connect fails");
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = c};
    must(epoll_ctl(load.epoll, EPOLL_CTL_ADD, c->fd, &event) == 0);
    call_begin(c);
}

static void conn_close(struct conn *c)
{
    close(c->fd);
    c->fd = -1;
    c->busy = false;
    if (!load.draining)
        conn_open(c);
}

/* What became of its call is not known here; the comparison at the end of the run finds out. */
static void conn_break(struct conn *c, const char *how)
{
    if (c->busy && load.broken++ < BROKEN_TOLD)
        fprintf(stderr, "bench-load: %s, %.3f s after its call, %zu bytes of an answer there\n",
                how, (double)(clock_boot_us() - c->began_us) / 1e6, c->in_len);
    if (load.broken > BROKEN_MAX)
        die("too many connections broke");
    conn_close(c);
}

/* ---- one answer ---- */

static size_t word_of(const char *body, size_t len)
{
    json_t *answer = json_loadb(body, len, 0, NULL);
    const json_t *data = json_object_get(answer, "data");
    const char *word = json_string_value(json_object_get(data, "status"));
    size_t i = 0;
    while (i < WORDS - 1 && (word == NULL || strcmp(words[i], word) != 0))
        i++;
    json_decref(answer);
    return i;
}

static void answer_count(const struct conn *c, int status, const char *body, size_t len)
{
    int64_t now_us = clock_boot_us();
    size_t word = word_of(body, len);
    load.by_status[status]++;
    load.by_word[word]++;
    load.succeeded += status == 200 && word == 0;
    if (now_us < load.from_us || now_us >= load.to_us)
        return;
    must(load.sample_count < SAMPLES_MAX);
    load.samples_us[load.sample_count++] = (uint32_t)(now_us - c->began_us);
}

/* The length that the head promises; -1: it promises none, which no answer of Holdfast does. */
static long body_length(const char *head)
{
    const char *line = strcasestr(head, "\r\nContent-Length:");
    return line != NULL ? strtol(line + 17, NULL, 10) : -1;
}

/* Takes the answer once it is whole. False: it is not one. */
static bool answer_take(struct conn *c)
{
    int status = 0;
    c->in[c->in_len] = '\0';
    char *end = strstr(c->in, "\r\n\r\n");
    if (end == NULL)
        return true;
    *end = '\0';
    size_t head = (size_t)(end - c->in) + 4;
    long body = body_length(c->in);
    bool last = strcasestr(c->in, "\r\nConnection: close") != NULL;
    if (sscanf(c->in, "HTTP/1.1 %d", &status) != 1 || status < 200 || status > 599 || body < 0 ||
        head + (size_t)body >= ANSWER_SIZE)
        return false;
    *end = '\r';
    if (c->in_len < head + (size_t)body)
        return true;
    answer_count(c, status, c->in + head, (size_t)body);
    c->busy = false;
    if (last || load.draining)
        conn_close(c);
    else
        call_begin(c);
    return true;
}

static void conn_read(struct conn *c)
{
    while (c->fd >= 0) {
        ssize_t n = recv(c->fd, c->in + c->in_len, ANSWER_SIZE - 1 - c->in_len, 0);
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            conn_break(c, n == 0 ? "a connection was closed" : strerror(errno));
            return;
        }
        c->in_len += (size_t)n;
        int fd = c->fd;
        if (!c->busy || !answer_take(c)) {
            conn_break(c, "an answer can't be read");
            return;
        }
        if (c->fd != fd)
            return; /* a new connection tells by itself when it can be read */
    }
}

/* ---- the run ---- */

static int busy_count(void)
{
    int busy = 0;
    for (int i = 0; i < load.count; i++)
        busy += load.conns[i].fd >= 0 && load.conns[i].busy;
    return busy;
}

static void events_take(int timeout_ms)
{
    struct epoll_event events[EVENTS_MAX];
    int n = epoll_wait(load.epoll, events, EVENTS_MAX, timeout_ms);
    for (int i = 0; i < n; i++) {
        struct conn *c = events[i].data.ptr;
        call_write(c);
        if (events[i].events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
            conn_read(c);
    }
}

static void load_run(void)
{
    load.from_us = clock_boot_us() + (int64_t)load.warm_up * 1000000;
    load.to_us = load.from_us + (int64_t)load.seconds * 1000000;
    for (int i = 0; i < load.count; i++)
        conn_open(&load.conns[i]);
    while (clock_boot_us() < load.to_us)
        events_take(10);
    load.draining = true;
    for (int64_t end_ms = clock_boot_ms() + DRAIN_MAX_MS;
         busy_count() > 0 && clock_boot_ms() < end_ms;)
        events_take(10);
}

/* ---- what is printed ---- */

static int sample_compare(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return (left > right) - (left < right);
}

/* The smallest sample that this part of all is not above. */
static uint32_t quantile_us(double part)
{
    if (load.sample_count == 0)
        return 0;
    size_t at = (size_t)(part * (double)load.sample_count);
    return load.samples_us[at < load.sample_count ? at : load.sample_count - 1];
}

static void counts_print(void)
{
    const char *comma = "";
    printf("\"by_status\":{");
    for (int i = 0; i < 600; i++) {
        if (load.by_status[i] == 0)
            continue;
        printf("%s\"%d\":%" PRIu64, comma, i, load.by_status[i]);
        comma = ",";
    }
    comma = "";
    printf("},\"by_word\":{");
    for (size_t i = 0; i < WORDS; i++) {
        printf("%s\"%s\":%" PRIu64, comma, words[i], load.by_word[i]);
        comma = ",";
    }
    printf("}");
}

static void result_print(void)
{
    qsort(load.samples_us, load.sample_count, sizeof *load.samples_us, sample_compare);
    printf("{\"connections\":%d,\"seconds\":%d,\"answers\":%zu,\"per_second\":%.1f,", load.count,
           load.seconds, load.sample_count, (double)load.sample_count / load.seconds);
    printf("\"p50_ms\":%.3f,\"p90_ms\":%.3f,\"p99_ms\":%.3f,\"max_ms\":%.3f,",
           quantile_us(0.5) / 1e3, quantile_us(0.9) / 1e3, quantile_us(0.99) / 1e3,
           quantile_us(1) / 1e3);
    printf("\"all\":{\"calls\":%" PRIu64 ",\"succeeded\":%" PRIu64 ",\"broken\":%" PRIu64
           ",\"unanswered\":%d,",
           load.calls, load.succeeded, load.broken, busy_count());
    counts_print();
    printf("}}\n");
}

/* ---- the start ---- */

static int number_read(const char *text, int least, int most)
{
    char *end;
    long n = strtol(text, &end, 10);
    if (*text == '\0' || *end != '\0' || n < least || n > most)
        die("a number is out of range; see --help");
    return (int)n;
}

static void options_read(int argc, char **argv)
{
    load.count = 64;
    load.seconds = 10;
    load.warm_up = 3;
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (value == NULL)
            die(help);
        if (strcmp(argv[i], "--action") == 0)
            load.action = value;
        else if (strcmp(argv[i], "--connections") == 0)
            load.count = number_read(value, 1, CONNECTIONS_MAX);
        else if (strcmp(argv[i], "--seconds") == 0)
            load.seconds = number_read(value, 1, 3600);
        else if (strcmp(argv[i], "--warm-up") == 0)
            load.warm_up = number_read(value, 0, 3600);
        else
            die(help);
    }
    if (load.action == NULL || strlen(load.action) > 100)
        die(help);
}

static void destination_find(void)
{
    const char *url = getenv("HOLDFAST_URL");
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    load.key = getenv("HOLDFAST_AGENT_KEY");
    if (url == NULL || load.key == NULL || strlen(load.key) > 512)
        die(help);
    if (sscanf(url, "http://%255[^:/]:%7[0-9]", load.host, load.port) != 2)
        die("HOLDFAST_URL is not http://HOST:PORT");
    if (getaddrinfo(load.host, load.port, &hints, &load.address) != 0)
        die("the host of HOLDFAST_URL is not known");
}

int main(int argc, char **argv)
{
    uint8_t random[8];
    options_read(argc, argv);
    destination_find();
    crypto_random(random, sizeof random);
    crypto_hex(random, sizeof random, load.run);
    load.conns = calloc((size_t)load.count, sizeof *load.conns);
    load.samples_us = malloc((size_t)SAMPLES_MAX * sizeof *load.samples_us);
    load.epoll = epoll_create1(EPOLL_CLOEXEC);
    must(load.conns != NULL && load.samples_us != NULL && load.epoll >= 0);
    load_run();
    result_print();
    bool whole = load.broken == 0 && busy_count() == 0;
    freeaddrinfo(load.address);
    free(load.conns);
    free(load.samples_us);
    close(load.epoll);
    return whole ? 0 : 1;
}
