/* The sender against a provider that misbehaves in every way we know: what leaves, how often, and
 * what is said of it. W is the number of requests that the provider read whole. */
#include "common/base/clock.h"
#include "common/base/config.h"
#include "dispatcher/sender.h"
#include "tests/misbehave.h"
#include "tests/test.h"

#include <stdlib.h>
#include <string.h>

#define ANSWER_MAX (256u << 10) /* the 10 MB answer is longer, and not without end */
#define SLOTS 8

static struct server server;
static pthread_mutex_t done_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t done_changed = PTHREAD_COND_INITIALIZER;

/* One send with what it needs, and whether it came back. */
struct call {
    struct send send;
    struct filled *filled;
    int done;
};

static void on_done(struct send *send, void *opaque)
{
    struct call *call = send->owner;
    (void)opaque;
    pthread_mutex_lock(&done_lock);
    call->done++;
    pthread_cond_broadcast(&done_changed);
    pthread_mutex_unlock(&done_lock);
}

static struct sender *sender_with(unsigned threads, size_t slots, size_t answer_max)
{
    struct sender_config config = {.threads = threads,
                                   .slots = slots,
                                   .connect_timeout_ms = 2000,
                                   .answer_max = answer_max,
                                   .on_done = on_done};
    struct error err = {0};
    struct sender *sender = sender_start(&config, &err);
    if (!sender)
        fail_msg("%s", err.text);
    return sender;
}

/* A POST of `size` bytes to base + path. */
static void call_init_at(struct call *call, const char *base, const char *path, size_t size)
{
    struct error err = {0};
    memset(call, 0, sizeof(*call));
    struct request *request = request_new("POST", base, BODY_TEXT, &err);
    if (!request)
        fail_msg("%s", err.text);
    char *body = malloc(size + 1);
    memset(body, 'w', size);
    request_put_literal(request, PLACE_URL, path, strlen(path));
    request_put_header(request, "Idempotency-Key");
    request_put_provider_key(request, PLACE_HEADER);
    request_put_literal(request, PLACE_BODY, body, size);
    call->filled = request_fill(request, "eff_1", "key-1", NULL, NULL, &err);
    if (!call->filled)
        fail_msg("%s", err.text);
    free(body);
    request_free(request);
    struct ulid effect;
    ulid_new(&effect, clock_wall_ms());
    send_record_init(&call->send.record, &effect, 1, clock_boot_ms() + 5000);
    call->send.filled = call->filled;
    call->send.timeout_ms = 5000;
    call->send.owner = call;
}

static void call_init(struct call *call, const char *path)
{
    char base[64];
    snprintf(base, sizeof(base), "http://127.0.0.1:%d", server.port);
    call_init_at(call, base, path, 100);
}

static void call_wait(struct call *call)
{
    pthread_mutex_lock(&done_lock);
    while (!call->done)
        pthread_cond_wait(&done_changed, &done_lock);
    assert_int_equal(call->done, 1);
    pthread_mutex_unlock(&done_lock);
}

static void call_free(struct call *call)
{
    answer_free(&call->send.answer);
    filled_free(call->filled);
}

static void call_run(struct sender *sender, struct call *call)
{
    assert_true(sender_submit(sender, &call->send));
    call_wait(call);
}

static void expect(const struct call *call, enum send_result result, const char *evidence)
{
    const struct send *send = &call->send;
    if (send->result != result || !strstr(send->evidence, evidence))
        fail_msg("%s: got %s, \"%s\"", call->filled->url.data, send_result_name(send->result),
                 send->evidence);
    assert_int_equal(send->sent_at_us != 0, result != SEND_NEVER_LEFT);
    assert_true(send->finished_at_us >= send->sent_at_us);
    assert_int_equal(gate_opened(&send->record), result != SEND_NEVER_LEFT);
}

/* Sends to a path and frees everything but what was counted. */
static void send_expect(struct sender *sender, const char *path, enum send_result result,
                        const char *evidence)
{
    struct call call;
    call_init(&call, path);
    call_run(sender, &call);
    expect(&call, result, evidence);
    call_free(&call);
}

struct row {
    const char *path;
    enum send_result result;
    const char *evidence;
};

/* Every answer, each on a connection of its own and on one that was kept alive. W is 1, always. A
 * reset may overtake what was said before it, so those rows promise no words. */
static const struct row rows[] = {
    {"/ok", SEND_SUCCESS, "HTTP 200"},
    {"/status/201", SEND_SUCCESS, "HTTP 201"},
    {"/status/299", SEND_SUCCESS, "HTTP 299"},
    {"/close-says-so", SEND_SUCCESS, "HTTP 200"},
    {"/chunked", SEND_SUCCESS, "HTTP 200"},
    {"/to-the-close", SEND_SUCCESS, "HTTP 200"},
    {"/http-1.0", SEND_SUCCESS, "HTTP 200"},
    {"/then-200", SEND_SUCCESS, "HTTP 200"},
    {"/alt-svc", SEND_SUCCESS, "HTTP 200"},
    {"/nul", SEND_SUCCESS, "HTTP 200"},
    {"/big", SEND_SUCCESS, "HTTP 200"},
    {"/more-than-promised", SEND_SUCCESS, "HTTP 200"},
    {"/status/400", SEND_REFUSED, "HTTP 400"},
    {"/401-basic", SEND_REFUSED, "HTTP 401"},
    {"/401-digest", SEND_REFUSED, "HTTP 401"},
    {"/401-negotiate", SEND_REFUSED, "HTTP 401"},
    {"/status/402", SEND_REFUSED, "HTTP 402"},
    {"/status/404", SEND_REFUSED, "HTTP 404"},
    {"/407", SEND_REFUSED, "HTTP 407"},
    {"/status/417", SEND_REFUSED, "HTTP 417"},
    {"/status/421", SEND_REFUSED, "HTTP 421"},
    {"/421-close", SEND_REFUSED, "HTTP 421"},
    {"/status/422", SEND_REFUSED, "HTTP 422"},
    {"/426", SEND_REFUSED, "HTTP 426"},
    {"/status/429", SEND_REFUSED, "HTTP 429"},
    {"/302", SEND_UNKNOWN, "redirect"},
    {"/307", SEND_UNKNOWN, "redirect"},
    {"/status/408", SEND_UNKNOWN, "HTTP 408"},
    {"/status/409", SEND_UNKNOWN, "HTTP 409"},
    {"/status/500", SEND_UNKNOWN, "HTTP 500"},
    {"/status/502", SEND_UNKNOWN, "HTTP 502"},
    {"/status/503", SEND_UNKNOWN, "HTTP 503"},
    {"/status/600", SEND_UNKNOWN, "not valid HTTP"},
    {"/die-fin", SEND_UNKNOWN, "No answer"},
    {"/die-rst", SEND_UNKNOWN, "No answer"},
    {"/only-100", SEND_UNKNOWN, "interim"},
    {"/only-103", SEND_UNKNOWN, "interim"},
    {"/only-101", SEND_UNKNOWN, "interim"},
    {"/cut-status", SEND_UNKNOWN, ""},
    {"/cut-status-line", SEND_UNKNOWN, "head of the answer (HTTP 200) was cut"},
    {"/cut-head", SEND_UNKNOWN, "head of the answer (HTTP 200) was cut"},
    {"/cut-head-rst", SEND_UNKNOWN, ""},
    {"/cut-head-mid-line", SEND_UNKNOWN, "head of the answer (HTTP 200) was cut"},
    {"/cut-body", SEND_UNKNOWN, "at 1 of 100 bytes"},
    {"/cut-body-all", SEND_UNKNOWN, "at 0 of 100 bytes"},
    {"/cut-body-4xx", SEND_UNKNOWN, "(HTTP 402) was cut off at 1 of 100"},
    {"/cut-body-rst", SEND_UNKNOWN, ""},
    {"/cut-chunk", SEND_UNKNOWN, "body of the answer (HTTP 200) was cut"},
    {"/cut-chunk-end", SEND_UNKNOWN, "body of the answer (HTTP 200) was cut"},
    {"/cut-chunk-last", SEND_UNKNOWN, "body of the answer (HTTP 200) was cut"},
    {"/bad-chunk", SEND_UNKNOWN, "body of the answer (HTTP 200) was cut"},
    {"/trailer", SEND_UNKNOWN, "HTTP 500"},
    {"/to-the-close-rst", SEND_UNKNOWN, ""},
    {"/huge-length", SEND_UNKNOWN, ""},
    {"/bad-length", SEND_UNKNOWN, ""},
    {"/two-lengths", SEND_UNKNOWN, ""},
    {"/gzip-coded", SEND_SUCCESS, "HTTP 200"}, /* kept as it came */
    {"/http-0.9", SEND_UNKNOWN, ""},
    {"/garbage", SEND_UNKNOWN, ""},
    {"/http-2", SEND_UNKNOWN, ""},
    {"/http-9.9", SEND_UNKNOWN, ""},
    {"/four-digits", SEND_UNKNOWN, ""},
    {"/no-version", SEND_UNKNOWN, ""},
    {"/icy", SEND_UNKNOWN, ""},
};

static void test_outcome_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (int warm = 0; warm < 2; warm++) {
            struct sender *sender = sender_with(1, 1, ANSWER_MAX);
            if (warm)
                send_expect(sender, "/ok", SEND_SUCCESS, "");
            int before = server_counted(&server, rows[i].path);
            int connected = server_connected(&server);
            struct call call;
            call_init(&call, rows[i].path);
            call_run(sender, &call);
            expect(&call, rows[i].result, rows[i].evidence);
            assert_int_equal(server_counted(&server, rows[i].path), before + 1);
            /* A second send has got a connection by the time it is refused. */
            bool refused = call.send.transfer.resend_refused;
            int made = server_connected(&server) - connected;
            assert_true(warm ? made <= refused : made == 1 && !refused);
            call_free(&call);
            send_expect(sender, "/ok", SEND_SUCCESS, ""); /* and the next one is served */
            sender_stop(sender, 0);
        }
    }
}

/* The kept connection dies after the request was read whole: libcurl would send it again. */
static void test_reused_connection_dies(void **state)
{
    (void)state;
    static const char *const paths[] = {"/die-fin", "/die-rst"};
    for (int i = 0; i < 2; i++) {
        struct sender *sender = sender_with(1, 1, ANSWER_MAX);
        struct call a, b;
        int before = server_counted(&server, paths[i]);
        call_init(&a, "/ok");
        call_run(sender, &a);
        expect(&a, SEND_SUCCESS, "");
        call_init(&b, paths[i]);
        call_run(sender, &b);
        expect(&b, SEND_UNKNOWN, "sending again was refused");
        assert_true(b.send.transfer.resend_refused);
        assert_int_equal(server_counted(&server, paths[i]), before + 1);
        call_free(&a);
        call_free(&b);
        sender_stop(sender, 0);
    }
}

/* The provider closed the idle connection: the next send goes on a new one. */
static void test_idle_connection_closed(void **state)
{
    (void)state;
    struct sender *sender = sender_with(1, 1, ANSWER_MAX);
    struct call call;
    int closed = server_read(&server, &server.closed);
    send_expect(sender, "/ok-then-close", SEND_SUCCESS, "");
    server_await(&server, &server.closed, closed + 1);
    int before = server_counted(&server, "/status/201");
    call_init(&call, "/status/201");
    call_run(sender, &call);
    expect(&call, SEND_SUCCESS, "HTTP 201");
    assert_int_equal(atomic_load(&call.send.record.asked), 1);
    assert_int_equal(server_counted(&server, "/status/201"), before + 1);
    call_free(&call);
    sender_stop(sender, 0);
}

/* The provider said something unasked on the idle connection. libcurl takes it for alive and would
 * take the words for the answer; the peek moves the send, and the gate is asked once. */
static void test_idle_connection_talks(void **state)
{
    (void)state;
    static const char *const paths[] = {"/ok-then-talk", "/ok-then-408"};
    for (int i = 0; i < 2; i++) {
        struct sender *sender = sender_with(1, 1, ANSWER_MAX);
        struct call call;
        send_expect(sender, paths[i], SEND_SUCCESS, "");
        int said = server_read(&server, &server.said),
            before = server_counted(&server, "/status/201");
        server_note(&server, &server.talk);
        server_await(&server, &server.said, said + 1);
        call_init(&call, "/status/201");
        call_run(sender, &call);
        expect(&call, SEND_SUCCESS, "HTTP 201");
        assert_int_equal(call.send.answer.status, 201);
        assert_int_equal(atomic_load(&call.send.record.asked), 1);
        /* libcurl itself sees the end that follows the 408. */
        if (i == 0)
            assert_int_equal(call.send.transfer.moves, 1);
        assert_int_equal(server_counted(&server, "/status/201"), before + 1);
        call_free(&call);
        sender_stop(sender, 0);
    }
}

/* A second answer behind the first one is never taken for the next request's. */
static void test_two_answers_at_once(void **state)
{
    (void)state;
    static const char *const paths[] = {"/two-answers", "/two-answers-chunked", "/body-and-more"};
    for (int i = 0; i < 3; i++) {
        struct sender *sender = sender_with(1, 1, ANSWER_MAX);
        send_expect(sender, paths[i], SEND_SUCCESS, "HTTP 200");
        int before = server_counted(&server, "/status/402");
        send_expect(sender, "/status/402", SEND_REFUSED, "HTTP 402");
        assert_int_equal(server_counted(&server, "/status/402"), before + 1);
        sender_stop(sender, 0);
    }
}

static int port_closed(void)
{
    int port;
    close(listener_open(&port, 0));
    return port;
}

static void test_never_left(void **state)
{
    (void)state;
    struct sender *sender = sender_with(1, SLOTS, ANSWER_MAX);
    struct call call;
    char base[64];
    int silent_port, silent = listener_open(&silent_port, 0);

    snprintf(base, sizeof(base), "http://127.0.0.1:%d", port_closed());
    call_init_at(&call, base, "/ok", 10);
    call_run(sender, &call);
    expect(&call, SEND_NEVER_LEFT, "Failed to connect");
    call_free(&call);

    call_init_at(&call, "https://no-such-host.invalid", "/ok", 10);
    call_run(sender, &call);
    expect(&call, SEND_NEVER_LEFT, "never left");
    call_free(&call);

    /* A name that resolves to a private address, and is no development destination. */
    snprintf(base, sizeof(base), "https://localhost:%d", server.port);
    int connected = server_connected(&server);
    call_init_at(&call, base, "/ok", 10);
    call_run(sender, &call);
    expect(&call, SEND_NEVER_LEFT, "not public");
    call_free(&call);
    assert_int_equal(server_connected(&server), connected);

    /* send_by passes while the handshake waits. */
    snprintf(base, sizeof(base), "https://127.0.0.1:%d", silent_port);
    call_init_at(&call, base, "/ok", 10);
    call.send.record.send_by_ms = clock_boot_ms() + 200;
    call_run(sender, &call);
    expect(&call, SEND_NEVER_LEFT, "never left");
    assert_true(clock_boot_ms() >= call.send.record.send_by_ms);
    call_free(&call);

    /* No TLS there. */
    snprintf(base, sizeof(base), "https://127.0.0.1:%d", server.port);
    call_init_at(&call, base, "/ok", 10);
    call.send.record.send_by_ms = clock_boot_ms() + 500;
    call_run(sender, &call);
    expect(&call, SEND_NEVER_LEFT, "never left");
    call_free(&call);

    sender_stop(sender, 0);
    close(silent);
}

static void test_late_gate(void **state)
{
    (void)state;
    struct sender *sender = sender_with(1, SLOTS, ANSWER_MAX);
    struct call call;
    int before = server_counted(&server, "/status/299");
    for (int warm = 0; warm < 2; warm++) {
        if (warm)
            send_expect(sender, "/ok", SEND_SUCCESS, "");
        call_init(&call, "/status/299");
        call.send.record.send_by_ms = clock_boot_ms(); /* now is late */
        call_run(sender, &call);
        expect(&call, SEND_NEVER_LEFT, "never left");
        call_free(&call);
    }
    assert_int_equal(server_counted(&server, "/status/299"), before);
    sender_stop(sender, 0);
}

static bool journal_fails(struct send_record *record, void *opaque)
{
    (void)record;
    (void)opaque;
    return false;
}

static void test_journal_holds(void **state)
{
    (void)state;
    struct sender *sender = sender_with(1, SLOTS, ANSWER_MAX);
    struct call call;
    int before = server_counted(&server, "/status/298");
    call_init(&call, "/status/298");
    call.send.record.before_open = journal_fails;
    call_run(sender, &call);
    expect(&call, SEND_NEVER_LEFT, "journal");
    call_free(&call);
    sender_stop(sender, 0);
    assert_int_equal(server_counted(&server, "/status/298"), before);
}

static void test_timeout(void **state)
{
    (void)state;
    struct sender *sender = sender_with(1, SLOTS, ANSWER_MAX);
    struct call call;
    int64_t start = clock_boot_ms();
    call_init(&call, "/hang");
    call.send.timeout_ms = 300;
    call_run(sender, &call);
    expect(&call, SEND_UNKNOWN, "the time for an answer ran out");
    assert_in_range(clock_boot_ms() - start, 300, 1500);
    call_free(&call);
    sender_stop(sender, 0);
}

/* A whole 200 that comes before the request was sent proves nothing; a refusal does. */
static void test_early_answers(void **state)
{
    (void)state;
    struct sender *sender = sender_with(1, SLOTS, ANSWER_MAX);
    struct call call;
    char base[64];
    snprintf(base, sizeof(base), "http://127.0.0.1:%d", server.port);
    call_init_at(&call, base, "/early", REQUEST_BODY_MAX);
    call_run(sender, &call);
    expect(&call, SEND_UNKNOWN, "before the whole request");
    call_free(&call);
    call_init_at(&call, base, "/early", 10); /* small: all of it was sent in one piece */
    call_run(sender, &call);
    expect(&call, SEND_SUCCESS, "HTTP 200");
    call_free(&call);
    call_init_at(&call, base, "/ok", REQUEST_BODY_MAX); /* large, and answered in turn */
    call_run(sender, &call);
    expect(&call, SEND_SUCCESS, "HTTP 200");
    call_free(&call);
    sender_stop(sender, 0);
}

static void test_answers_are_kept(void **state)
{
    (void)state;
    struct sender *sender = sender_with(1, 1, ANSWER_MAX);
    struct call call;
    size_t len;
    call_init(&call, "/status/429");
    call_run(sender, &call);
    const char *wait = answer_header(&call.send.answer, "Retry-After", &len);
    assert_non_null(wait);
    assert_memory_equal(wait, "7", len);
    assert_string_equal(call.send.answer.body.data, "{}");
    call_free(&call);
    assert_non_null(strstr(server.last_head, "\r\nIdempotency-Key: key-1\r\n"));
    assert_null(strcasestr(server.last_head, "\r\nExpect:"));
    assert_null(strcasestr(server.last_head, "\r\nContent-Type:"));
    assert_null(strcasestr(server.last_head, "\r\nAccept-Encoding:"));

    call_init(&call, "/nul");
    call_run(sender, &call);
    assert_int_equal(call.send.answer.body.len, 9);
    assert_memory_equal(call.send.answer.body.data, "\"\\u0000\"\xff", 9);
    call_free(&call);

    call_init(&call, "/big"); /* more than is kept */
    call_run(sender, &call);
    expect(&call, SEND_SUCCESS, "HTTP 200");
    assert_true(call.send.answer.body_truncated);
    assert_int_equal(call.send.answer.body.len, ANSWER_MAX);
    assert_int_equal(call.send.answer.body_bytes, 10 << 20);
    call_free(&call);

    call_init(&call, "/endless");
    call_run(sender, &call);
    expect(&call, SEND_UNKNOWN, "(HTTP 200) was cut off");
    call_free(&call);
    sender_stop(sender, 0);
}

static void test_drill(void **state)
{
    (void)state;
    struct sender *sender = sender_with(1, SLOTS, ANSWER_MAX);
    struct call call;
    int before = server_counted(&server, "/ok");
    call_init(&call, "/ok");
    call.send.drop_response_after_send = true;
    call_run(sender, &call);
    expect(&call, SEND_UNKNOWN, "Fault drill: the answer was dropped after the send");
    assert_int_equal(call.send.answer.status, 0);
    assert_int_equal(server_counted(&server, "/ok"), before + 1);
    call_free(&call);
    sender_stop(sender, 0);
}

static void test_parallel(void **state)
{
    (void)state;
    struct sender *sender = sender_with(1, 2, ANSWER_MAX);
    struct call a, b, c;
    int64_t start = clock_boot_ms();
    call_init(&a, "/slow");
    call_init(&b, "/slow");
    call_init(&c, "/ok");
    assert_true(sender_submit(sender, &a.send));
    assert_true(sender_submit(sender, &b.send));
    assert_int_equal(sender_room(sender), 0);
    assert_false(sender_submit(sender, &c.send)); /* no slot: the gate was not asked */
    assert_int_equal(atomic_load(&c.send.record.asked), 0);
    call_wait(&a);
    call_wait(&b);
    assert_in_range(clock_boot_ms() - start, 300, 590);
    expect(&a, SEND_SUCCESS, "");
    expect(&b, SEND_SUCCESS, "");
    assert_int_equal(sender_room(sender), 2);
    call_free(&a);
    call_free(&b);
    call_free(&c);
    sender_stop(sender, 0);
}

/* Many sends over few slots and two threads, some of them dying: each arrives exactly once. */
static void test_many(void **state)
{
    (void)state;
    enum { MANY = 600 };
    static const char *const paths[] = {"/ok",      "/die-fin",       "/status/402",
                                        "/die-rst", "/ok-then-close", "/chunked"};
    struct sender *sender = sender_with(2, SLOTS, ANSWER_MAX);
    struct call *calls = calloc(MANY, sizeof(*calls));
    int before[6], results[4] = {0};
    for (int i = 0; i < 6; i++)
        before[i] = server_counted(&server, paths[i]);
    for (int i = 0; i < MANY; i++) {
        call_init(&calls[i], paths[i % 6]);
        while (!sender_submit(sender, &calls[i].send))
            test_sleep_ms(1);
    }
    sender_stop(sender, 5000); /* drains */
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(calls[i].done, 1);
        results[calls[i].send.result]++;
        call_free(&calls[i]);
    }
    for (int i = 0; i < 6;
         i++) /* a send that raced a closing connection may be unknown, never two */
        assert_in_range(server_counted(&server, paths[i]) - before[i], MANY / 12, MANY / 6);
    assert_int_equal(results[SEND_NEVER_LEFT], 0);
    assert_true(results[SEND_SUCCESS] > 0 && results[SEND_UNKNOWN] >= MANY / 3);
    free(calls);
}

static void test_stop(void **state)
{
    (void)state;
    struct sender *sender = sender_with(1, SLOTS, ANSWER_MAX);
    struct call sent, waiting;
    char base[64];
    int silent_port, silent = listener_open(&silent_port, 0);
    int before = server_counted(&server, "/hang");
    call_init(&sent, "/hang");
    assert_true(sender_submit(sender, &sent.send));
    while (server_counted(&server, "/hang") == before)
        test_sleep_ms(1);
    snprintf(base, sizeof(base), "https://127.0.0.1:%d", silent_port);
    call_init_at(&waiting, base, "/ok", 10);
    assert_true(sender_submit(sender, &waiting.send));
    int64_t start = clock_boot_ms();
    sender_stop(sender, 200);
    assert_in_range(clock_boot_ms() - start, 150, 1500);
    assert_int_equal(sent.done, 1);
    assert_int_equal(waiting.done, 1);
    expect(&sent, SEND_UNKNOWN, "the process stopped");
    expect(&waiting, SEND_NEVER_LEFT, "the process stopped");
    call_free(&sent);
    call_free(&waiting);
    close(silent);
}

static int setup(void **state)
{
    struct error err;
    (void)state;
    setenv("HOLDFAST_DEV_DESTINATIONS", "127.0.0.1", 1);
    setenv("http_proxy", "http://127.0.0.1:1", 1); /* the environment's proxy is not ours */
    setenv("all_proxy", "http://127.0.0.1:1", 1);
    if (!config_load(&err))
        return -1;
    server_start(&server, NULL);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    server_stop(&server);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_outcome_table),
        cmocka_unit_test(test_reused_connection_dies),
        cmocka_unit_test(test_idle_connection_closed),
        cmocka_unit_test(test_idle_connection_talks),
        cmocka_unit_test(test_two_answers_at_once),
        cmocka_unit_test(test_never_left),
        cmocka_unit_test(test_late_gate),
        cmocka_unit_test(test_journal_holds),
        cmocka_unit_test(test_timeout),
        cmocka_unit_test(test_early_answers),
        cmocka_unit_test(test_answers_are_kept),
        cmocka_unit_test(test_drill),
        cmocka_unit_test(test_parallel),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_stop),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
