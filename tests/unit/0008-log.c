/* Log lines: each is one JSON object and one write, whatever the values are. */
#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "tests/test.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* stderr goes to a packet socket, where one write is one packet. */
static int packets;
static int saved_stderr;

static void capture_begin(void)
{
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    saved_stderr = dup(STDERR_FILENO);
    dup2(pair[0], STDERR_FILENO);
    close(pair[0]);
    packets = pair[1];
}

static void capture_end(void)
{
    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    close(packets);
}

/* The next write; NULL when there is none. */
static char *packet_next(void)
{
    static char packet[PIPE_BUF * 2];
    ssize_t len = recv(packets, packet, sizeof(packet) - 1, MSG_DONTWAIT);
    if (len < 0)
        return NULL;
    packet[len] = '\0';
    return packet;
}

/* Takes the one line that was written, which must be one JSON object. */
static json_t *line_take(void)
{
    char *line = packet_next();
    assert_non_null(line);
    size_t len = strlen(line);
    assert_true(len > 0 && len <= PIPE_BUF);
    assert_int_equal(line[len - 1], '\n');
    assert_ptr_equal(strchr(line, '\n'), line + len - 1);
    struct error err = {0};
    json_t *object = json_parse_object(line, len, &err);
    if (!object)
        fail_msg("%s: %s", err.text, line);
    assert_null(packet_next());
    return object;
}

static const char *text_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    assert_non_null(text);
    return text;
}

static void test_line(void **state)
{
    (void)state;
    log_init("dispatcher-1", LOG_INFO);
    capture_begin();
    log_event(LOG_WARN, "claim_retry", "effect=%s tries=%d", "eff_1", 3);
    json_t *line = line_take();
    capture_end();
    assert_string_equal(text_of(line, "level"), "warn");
    assert_string_equal(text_of(line, "part"), "dispatcher-1");
    assert_string_equal(text_of(line, "event"), "claim_retry");
    assert_string_equal(text_of(line, "effect"), "eff_1");
    assert_int_equal(json_integer_value(json_object_get(line, "tries")), 3);
    assert_int_equal(strlen(text_of(line, "at")), 24);
    assert_int_equal(json_object_size(line), 6);
    json_decref(line);
}

static void test_numbers(void **state)
{
    (void)state;
    capture_begin();
    log_event(LOG_INFO, "numbers",
              "a=%d b=%u c=%ld d=%lld e=%zu f=%" PRId64 " g=%d ms h=%05d i=%x j=%.2f k=%c l=%lu "
              "m=%" PRIu64 " n=%hhd",
              -1, 4000000000u, LONG_MIN, LLONG_MAX, SIZE_MAX / 4, INT64_C(-5), 7, 42, 255u, 1.5,
              'x', 9ul, UINT64_C(10), (signed char)-3);
    char *text = packet_next();
    capture_end();
    assert_non_null(text);
    assert_string_equal(strstr(text, "\"a\":"),
                        "\"a\":-1,\"b\":4000000000,\"c\":-9223372036854775808,"
                        "\"d\":9223372036854775807,\"e\":4611686018427387903,\"f\":-5,"
                        "\"g\":\"7 ms\",\"h\":\"00042\",\"i\":\"ff\",\"j\":\"1.50\","
                        "\"k\":\"x\",\"l\":9,\"m\":10,\"n\":-3}\n");
}

static void test_values_are_escaped(void **state)
{
    const char *volatile nothing = NULL; /* so that the compiler does not see it coming */
    (void)state;
    capture_begin();
    log_event(LOG_INFO, "texts", "a=%s b=say %s to %s c=%.*s d=%s e=100%% f=%s", "q\"\\\n\x01",
              "x y=z", "\xff", 3, "abcdef", nothing, "");
    json_t *line = line_take();
    capture_end();
    assert_string_equal(text_of(line, "a"), "q\"\\\n\x01");
    assert_string_equal(text_of(line, "b"), "say x y=z to \xef\xbf\xbd");
    assert_string_equal(text_of(line, "c"), "abc");
    assert_string_equal(text_of(line, "d"), "null");
    assert_string_equal(text_of(line, "e"), "100%");
    assert_string_equal(text_of(line, "f"), "");
    json_decref(line);
}

static void test_no_fields(void **state)
{
    (void)state;
    capture_begin();
    log_event(LOG_ERROR, "bare", "%s", "");
    json_decref(line_take());
    log_event(LOG_INFO, "bare", " ");
    json_t *line = line_take();
    assert_int_equal(json_object_size(line), 4);
    json_decref(line);
    capture_end();
}

static void test_long_values_are_cut(void **state)
{
    char text[2000];
    (void)state;
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    capture_begin();
    log_event(LOG_INFO, "long", "a=%s b=%s%s c=%d", text, "ab", text, 5);
    json_t *line = line_take();
    capture_end();
    assert_int_equal(strlen(text_of(line, "a")), 512);
    assert_int_equal(strlen(text_of(line, "b")), 512);
    assert_memory_equal(text_of(line, "b"), "abxx", 4);
    assert_int_equal(json_integer_value(json_object_get(line, "c")), 5);
    json_decref(line);
}

/* A member that does not fit whole is left out and the line says so; later small ones still come.
 */
static void test_long_lines_are_cut(void **state)
{
    char text[513];
    (void)state;
    memset(text, 1, sizeof(text) - 1); /* six bytes each, once escaped */
    text[sizeof(text) - 1] = '\0';
    capture_begin();
    log_event(LOG_INFO, "wide", "a=%s b=%s c=%d", text, text, 5);
    json_t *line = line_take();
    capture_end();
    assert_non_null(json_object_get(line, "a"));
    assert_null(json_object_get(line, "b"));
    assert_int_equal(json_integer_value(json_object_get(line, "c")), 5);
    assert_true(json_is_true(json_object_get(line, "cut")));
    json_decref(line);
}

static void test_level(void **state)
{
    enum log_level level;
    (void)state;
    log_init("x", LOG_WARN);
    capture_begin();
    log_event(LOG_INFO, "quiet", "a=%d", 1);
    log_event(LOG_DEBUG, "quiet", "a=%d", 1);
    assert_null(packet_next());
    log_event(LOG_ERROR, "loud", "a=%d", 1);
    json_decref(line_take());
    capture_end();
    log_init("x", LOG_INFO);
    assert_true(log_level_parse("debug", &level));
    assert_int_equal(level, LOG_DEBUG);
    assert_true(log_level_parse("error", &level));
    assert_int_equal(level, LOG_ERROR);
    assert_false(log_level_parse("Error", &level));
    assert_false(log_level_parse("", &level));
}

static void test_error(void **state)
{
    struct error err;
    (void)state;
    error_set_at(&err, ERROR_TOO_LARGE, "/input/x", "it is %d too long", 3);
    capture_begin();
    errno = ENOENT;
    log_error(LOG_ERROR, "failed", &err);
    assert_int_equal(errno, ENOENT);
    json_t *line = line_take();
    capture_end();
    assert_string_equal(text_of(line, "code"), "too_large");
    assert_string_equal(text_of(line, "place"), "/input/x");
    assert_string_equal(text_of(line, "text"), "it is 3 too long");
    json_decref(line);
}

static void test_error_values(void **state)
{
    struct error err;
    char place[300];
    (void)state;
    memset(place, 'p', sizeof(place) - 1);
    place[sizeof(place) - 1] = '\0';
    assert_false(error_set(&err, ERROR_DENIED, "no"));
    assert_string_equal(err.place, "");
    assert_false(error_set_at(&err, ERROR_INVALID, place, "%s%s", place, place));
    assert_int_equal(strlen(err.place), sizeof(err.place) - 1);
    assert_int_equal(strlen(err.text), sizeof(err.text) - 1);
    assert_false(error_set(NULL, ERROR_DENIED, "nobody asks"));
    assert_false(error_set_at(&err, ERROR_INVALID, NULL, "x"));
    assert_string_equal(err.place, "");
}

/* A broken promise ends the process, with a line that says where. */
static void test_must(void **state)
{
    int status;
    (void)state;
    capture_begin();
    pid_t child = fork();
    if (child == 0) {
        signal(SIGABRT, SIG_DFL);
        must(1 == 1);
        must(strcmp("a", "b") == 0);
        _exit(0);
    }
    waitpid(child, &status, 0);
    json_t *line = line_take();
    capture_end();
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_string_equal(text_of(line, "event"), "must_failed");
    assert_string_equal(text_of(line, "cond"), "strcmp(\"a\", \"b\") == 0");
    assert_non_null(strstr(text_of(line, "file"), "0008-log.c"));
    json_decref(line);
}

#define THREADS 4
#define LINES 200

static void *log_many(void *opaque)
{
    for (int i = 0; i < LINES; i++)
        log_event(LOG_INFO, "many", "thread=%s line=%d", (const char *)opaque, i);
    return NULL;
}

static void test_threads(void **state)
{
    static char *const names[THREADS] = {"a", "b", "c", "d"};
    pthread_t threads[THREADS];
    int seen = 0;
    (void)state;
    capture_begin();
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, log_many, names[i]), 0);
    while (seen < THREADS * LINES) {
        char line[PIPE_BUF + 1];
        struct error err;
        ssize_t len = recv(packets, line, sizeof(line), 0);
        assert_true(len > 0);
        json_t *object = json_parse_object(line, (size_t)len, &err);
        assert_non_null(object);
        json_decref(object);
        seen++;
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_null(packet_next());
    capture_end();
}

static void test_time_format(void **state)
{
    char out[32];
    (void)state;
    assert_string_equal(clock_format_us(0, out, sizeof(out)), "1970-01-01T00:00:00.000Z");
    assert_string_equal(clock_format_us(1796070185123999, out, sizeof(out)),
                        "2026-11-30T20:23:05.123Z");
    assert_string_equal(clock_format_us(-1, out, sizeof(out)), "1969-12-31T23:59:59.999Z");
    assert_string_equal(clock_format_us(951782400000000, out, 25), "2000-02-29T00:00:00.000Z");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_line),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_values_are_escaped),
        cmocka_unit_test(test_no_fields),
        cmocka_unit_test(test_long_values_are_cut),
        cmocka_unit_test(test_long_lines_are_cut),
        cmocka_unit_test(test_level),
        cmocka_unit_test(test_error),
        cmocka_unit_test(test_error_values),
        cmocka_unit_test(test_must),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_time_format),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
