/* Metrics and the admin port, asked over a real socket. */
#include "common/base/admin_http.h"
#include "common/base/metrics.h"
#include "tests/test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void assert_rendered(const char *expected)
{
    struct buf out;
    buf_init(&out, 1 << 20);
    metrics_render(&out);
    assert_false(out.failed);
    if (!strstr(out.data, expected))
        fail_msg("\"%s\" is not in:\n%s", expected, out.data);
    buf_free(&out);
}

static void test_counter_and_gauge(void **state)
{
    struct metric *known = metric_counter("t_sends_total", "outcome=\"unknown\"", "Sends.");
    struct metric *good = metric_counter("t_sends_total", "outcome=\"ok\"", "Sends.");
    struct metric *gauge = metric_gauge("t_open", "", "Open.");
    (void)state;
    assert_ptr_equal(known, metric_counter("t_sends_total", "outcome=\"unknown\"", "Sends."));
    assert_ptr_not_equal(known, good);
    metric_add(known, 1);
    metric_add(known, 2);
    metric_set(gauge, 10);
    metric_add(gauge, -13);
    assert_rendered("# HELP t_sends_total Sends.\n# TYPE t_sends_total counter\n"
                    "t_sends_total{outcome=\"unknown\"} 3\nt_sends_total{outcome=\"ok\"} 0\n");
    assert_rendered("# TYPE t_open gauge\nt_open -3\n");
}

static double read_answer(void *opaque)
{
    return *(double *)opaque;
}

static void test_callback(void **state)
{
    static double answer = 41.5;
    static double other = 7;
    (void)state;
    metric_callback("t_answer", "", "Answer.", read_answer, &answer);
    assert_rendered("# TYPE t_answer gauge\nt_answer 41.5\n");
    metric_callback("t_answer", "", "Answer.", read_answer, &other);
    assert_rendered("\nt_answer 7\n");
}

static void test_histogram(void **state)
{
    struct metric *h = metric_histogram("t_took_seconds", "", "Took.");
    struct metric *l = metric_histogram("t_took_seconds", "kind=\"read\"", "Took.");
    (void)state;
    metric_observe_us(h, 500);      /* on the edge: in the first */
    metric_observe_us(h, 501);      /* in the second */
    metric_observe_us(h, 60000000); /* in the last */
    metric_observe_us(h, 60000001); /* past it */
    metric_observe_us(l, 2000);
    assert_rendered("# TYPE t_took_seconds histogram\nt_took_seconds_bucket{le=\"0.0005\"} 1\n"
                    "t_took_seconds_bucket{le=\"0.001\"} 2\n");
    assert_rendered("t_took_seconds_bucket{le=\"30\"} 2\nt_took_seconds_bucket{le=\"60\"} 3\n"
                    "t_took_seconds_bucket{le=\"+Inf\"} 4\nt_took_seconds_sum 120.001002\n"
                    "t_took_seconds_count 4\n");
    assert_rendered("t_took_seconds_bucket{kind=\"read\",le=\"0.0025\"} 1\n");
    assert_rendered("t_took_seconds_sum{kind=\"read\"} 0.002000\n"
                    "t_took_seconds_count{kind=\"read\"} 1\n");
}

#define THREADS 4
#define ADDS 20000

static void *add_many(void *opaque)
{
    struct metric *counter = metric_counter("t_race_total", "", "Race.");
    struct metric *histogram = metric_histogram("t_race_seconds", "", "Race.");
    (void)opaque;
    for (int i = 0; i < ADDS; i++) {
        metric_add(counter, 1);
        metric_observe_us(histogram, i);
    }
    return NULL;
}

static void test_threads(void **state)
{
    pthread_t threads[THREADS];
    (void)state;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, add_many, NULL), 0);
    for (int i = 0; i < 20; i++)
        assert_rendered("# HELP");
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_rendered("t_race_total 80000\n");
    assert_rendered("t_race_seconds_count 80000\n");
}

/* ---- the admin port ---- */

struct answer {
    int status;
    char text[65536];
};

static void ask_raw(int port, const char *request, struct answer *a)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    size_t len = 0;
    ssize_t n;
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(write(fd, request, strlen(request)), strlen(request));
    while ((n = read(fd, a->text + len, sizeof(a->text) - 1 - len)) > 0)
        len += (size_t)n;
    close(fd);
    a->text[len] = '\0';
    assert_int_equal(sscanf(a->text, "HTTP/1.1 %d", &a->status), 1);
}

static void ask(struct admin_http *admin, const char *method, const char *path, struct answer *a)
{
    char request[256];
    snprintf(request, sizeof(request), "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
             method, path);
    ask_raw(admin_http_port(admin), request, a);
}

static atomic_bool database_there = true;

static bool database_ready(void *opaque, char *reason, size_t size)
{
    (void)opaque;
    if (atomic_load(&database_there))
        return true;
    snprintf(reason, size, "no connection for %d s", 5);
    return false;
}

static bool always_ready(void *opaque, char *reason, size_t size)
{
    (void)opaque;
    (void)reason;
    (void)size;
    return true;
}

static void test_admin(void **state)
{
    struct error err = {0};
    struct answer a;
    (void)state;
    admin_http_ready_check("database", database_ready, NULL);
    admin_http_ready_check("broker", always_ready, NULL);
    struct admin_http *admin = admin_http_start("127.0.0.1:0", &err);
    if (!admin)
        fail_msg("%s", err.text);
    assert_true(admin_http_port(admin) > 0);

    ask(admin, "GET", "/livez", &a);
    assert_int_equal(a.status, 200);
    ask(admin, "GET", "/readyz", &a);
    assert_int_equal(a.status, 200);
    assert_non_null(strstr(a.text, "\r\n\r\nready\n"));
    ask(admin, "GET", "/metrics", &a);
    assert_int_equal(a.status, 200);
    assert_non_null(strstr(a.text, "text/plain; version=0.0.4"));
    assert_non_null(strstr(a.text, "\nt_sends_total{outcome=\"unknown\"} 3\n"));
    ask(admin, "HEAD", "/livez", &a);
    assert_int_equal(a.status, 200);
    assert_null(strstr(a.text, "live\n"));
    ask(admin, "GET", "/livez/", &a);
    assert_int_equal(a.status, 404);
    ask(admin, "POST", "/livez", &a);
    assert_int_equal(a.status, 405);
    ask_raw(admin_http_port(admin),
            "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
            &a);
    assert_int_equal(a.status, 405);

    atomic_store(&database_there, false);
    ask(admin, "GET", "/readyz", &a);
    assert_int_equal(a.status, 503);
    assert_non_null(strstr(a.text, "\r\n\r\ndatabase: no connection for 5 s\n"));
    assert_null(strstr(a.text, "broker"));
    ask(admin, "GET", "/livez", &a);
    assert_int_equal(a.status, 200);
    atomic_store(&database_there, true);

    admin_http_draining();
    ask(admin, "GET", "/readyz", &a);
    assert_int_equal(a.status, 503);
    assert_non_null(strstr(a.text, "draining"));
    ask(admin, "GET", "/livez", &a);
    assert_int_equal(a.status, 200);
    admin_http_stop(admin);
}

static void test_admin_refused(void **state)
{
    struct error err = {0};
    char taken[64];
    (void)state;
    struct admin_http *admin = admin_http_start("127.0.0.1:0", &err);
    assert_non_null(admin);
    snprintf(taken, sizeof(taken), "127.0.0.1:%d", admin_http_port(admin));
    assert_null(admin_http_start(taken, &err));
    assert_int_equal(err.code, ERROR_UNAVAILABLE);
    assert_non_null(strstr(err.text, taken));
    assert_null(admin_http_start("nonsense", &err));
    assert_null(admin_http_start("name.invalid:80", &err));
    admin_http_stop(admin);
    admin_http_stop(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counter_and_gauge),
        cmocka_unit_test(test_callback),
        cmocka_unit_test(test_histogram),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_admin),
        cmocka_unit_test(test_admin_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
