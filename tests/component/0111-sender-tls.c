/* The sender over TLS: who is trusted, and what leaves on a kept connection that dies or talks.
 * Also the fetcher, which reads with the same hands. */
#include "common/base/clock.h"
#include "common/base/config.h"
#include "common/http/fetcher.h"
#include "dispatcher/sender.h"
#include "tests/misbehave.h"
#include "tests/test.h"

#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define ANSWER_MAX 65536

static struct server server;
static char ca_path[] = "/tmp/holdfast-test-ca-XXXXXX";
static pthread_mutex_t done_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t done_changed = PTHREAD_COND_INITIALIZER;

static void note_done(int *done)
{
    pthread_mutex_lock(&done_lock);
    (*done)++;
    pthread_cond_broadcast(&done_changed);
    pthread_mutex_unlock(&done_lock);
}

static void await_done(const int *done)
{
    pthread_mutex_lock(&done_lock);
    while (!*done)
        pthread_cond_wait(&done_changed, &done_lock);
    pthread_mutex_unlock(&done_lock);
}

static void on_done(struct send *send, void *opaque)
{
    (void)opaque;
    note_done(send->owner);
}

static struct sender *sender_trusting(const char *ca_file)
{
    struct sender_config config = {.threads = 1,
                                   .slots = 1,
                                   .connect_timeout_ms = 2000,
                                   .answer_max = ANSWER_MAX,
                                   .ca_file = ca_file,
                                   .on_done = on_done};
    struct error err = {0};
    struct sender *sender = sender_start(&config, &err);
    if (!sender)
        fail_msg("%s", err.text);
    return sender;
}

static struct filled *filled_for(const char *method, const char *host, int port, const char *path)
{
    char base[128];
    struct error err = {0};
    snprintf(base, sizeof(base), "https://%s:%d", host, port);
    enum body_format format = strcmp(method, "POST") == 0 ? BODY_TEXT : BODY_NONE;
    struct request *request = request_new(method, base, format, &err);
    if (!request)
        fail_msg("%s", err.text);
    request_put_literal(request, PLACE_URL, path, strlen(path));
    struct filled *filled = request_fill(request, NULL, NULL, NULL, NULL, &err);
    if (!filled)
        fail_msg("%s", err.text);
    request_free(request);
    return filled;
}

/* Sends and judges; *moves (may be NULL) gets how many connections it gave up. */
static void send_expect_at(struct sender *sender, const char *host, const char *path,
                           enum send_result result, const char *evidence, unsigned *moves)
{
    struct send send = {.timeout_ms = 5000};
    int done = 0;
    struct ulid effect;
    ulid_new(&effect, clock_wall_ms());
    send_record_init(&send.record, &effect, 1, clock_boot_ms() + 5000);
    struct filled *filled = filled_for("POST", host, server.port, path);
    send.filled = filled;
    send.owner = &done;
    assert_true(sender_submit(sender, &send));
    await_done(&done);
    if (send.result != result || !strstr(send.evidence, evidence))
        fail_msg("%s: %s, \"%s\"", path, send_result_name(send.result), send.evidence);
    assert_true(atomic_load(&send.record.asked) <= 1 || send.transfer.resend_refused);
    if (moves)
        *moves = send.transfer.moves;
    answer_free(&send.answer);
    filled_free(filled);
}

static void send_expect(struct sender *sender, const char *path, enum send_result result,
                        const char *evidence)
{
    send_expect_at(sender, "localhost", path, result, evidence, NULL);
}

static void test_missing_roots(void **state)
{
    struct sender_config config = {.threads = 1, .slots = 1, .ca_file = "/nonexistent/ca.pem"};
    struct error err;
    (void)state;
    assert_null(sender_start(&config, &err));
    assert_string_equal(err.place, "HOLDFAST_PROVIDER_CA_FILE");
}

static void test_trust(void **state)
{
    (void)state;
    int before = server_counted(&server, "/status/201");
    struct sender *sender = sender_trusting(NULL); /* the system's roots do not know this server */
    send_expect(sender, "/status/201", SEND_NEVER_LEFT, "certificate");
    sender_stop(sender, 0);
    sender = sender_trusting(ca_path);
    /* The certificate is localhost's, not this address's. */
    send_expect_at(sender, "127.0.0.1", "/status/201", SEND_NEVER_LEFT, "never left", NULL);
    assert_int_equal(server_counted(&server, "/status/201"), before);
    send_expect(sender, "/status/201", SEND_SUCCESS, "HTTP 201");
    assert_int_equal(server_counted(&server, "/status/201"), before + 1);
    sender_stop(sender, 0);
}

/* A new connection holds the server's session tickets and is not taken for one that talks; a kept
 * one is used again. */
static void test_kept_connection(void **state)
{
    (void)state;
    struct sender *sender = sender_trusting(ca_path);
    int connected = server_connected(&server);
    for (int i = 0; i < 5; i++) {
        unsigned moves = 1;
        send_expect_at(sender, "localhost", "/ok", SEND_SUCCESS, "", &moves);
        assert_int_equal(moves, 0);
    }
    assert_int_equal(server_connected(&server), connected + 1);
    sender_stop(sender, 0);
}

static void test_kept_connection_dies(void **state)
{
    (void)state;
    static const char *const paths[] = {"/die-fin", "/die-rst", "/die-notify"};
    for (int i = 0; i < 3; i++) {
        struct sender *sender = sender_trusting(ca_path);
        int before = server_counted(&server, paths[i]);
        send_expect(sender, "/ok", SEND_SUCCESS, "");
        send_expect(sender, paths[i], SEND_UNKNOWN, "No answer");
        assert_int_equal(server_counted(&server, paths[i]), before + 1);
        sender_stop(sender, 0);
    }
}

static void test_idle_connection_talks(void **state)
{
    (void)state;
    static const char *const paths[] = {"/ok-then-talk", "/ok-then-408", "/ok-then-notify"};
    for (int i = 0; i < 3; i++) {
        struct sender *sender = sender_trusting(ca_path);
        unsigned moves = 0;
        send_expect(sender, paths[i], SEND_SUCCESS, "");
        int said = server_read(&server, &server.said);
        int before = server_counted(&server, "/status/202");
        server_note(&server, &server.talk);
        server_await(&server, &server.said, said + 1);
        send_expect_at(sender, "localhost", "/status/202", SEND_SUCCESS, "HTTP 202", &moves);
        assert_int_equal(server_counted(&server, "/status/202"), before + 1);
        if (i != 1)
            assert_int_equal(moves, 1);
        sender_stop(sender, 0);
    }
}

/* Both answers stand in one TLS record: what is left of it is in OpenSSL's hands, not in the
 * socket. */
static void test_two_answers_in_one_record(void **state)
{
    (void)state;
    static const char *const paths[] = {"/two-answers", "/two-answers-chunked", "/body-and-more"};
    for (int i = 0; i < 3; i++) {
        struct sender *sender = sender_trusting(ca_path);
        send_expect(sender, paths[i], SEND_SUCCESS, "HTTP 200");
        int before = server_counted(&server, "/status/402");
        send_expect(sender, "/status/402", SEND_REFUSED, "HTTP 402");
        assert_int_equal(server_counted(&server, "/status/402"), before + 1);
        sender_stop(sender, 0);
    }
}

/* A body that lasts until the close is taken with and without TLS's good-bye: libcurl asks OpenSSL
 * to overlook a missing one, and the status that counts was authenticated. What was promised must
 * come. */
static void test_ends(void **state)
{
    (void)state;
    struct sender *sender = sender_trusting(ca_path);
    send_expect(sender, "/to-the-close", SEND_SUCCESS, "HTTP 200");
    send_expect(sender, "/to-the-notify", SEND_SUCCESS, "HTTP 200");
    send_expect(sender, "/to-the-close-rst", SEND_UNKNOWN, "");
    send_expect(sender, "/cut-body", SEND_UNKNOWN, "at 1 of 100 bytes");
    send_expect(sender, "/cut-head", SEND_UNKNOWN, "head of the answer (HTTP 200)");
    sender_stop(sender, 0);
}

/* -- the fetcher -- */

static void on_fetched(struct fetch *fetch)
{
    note_done(fetch->owner);
}

/* One read; the caller frees the answer. */
static void fetch_run(struct fetcher *fetcher, struct fetch *fetch, const char *method,
                      const char *path)
{
    int done = 0;
    struct filled *filled = filled_for(method, "localhost", server.port, path);
    *fetch =
        (struct fetch){.filled = filled, .timeout_ms = 400, .done = on_fetched, .owner = &done};
    assert_true(fetcher_submit(fetcher, fetch));
    await_done(&done);
    filled_free(filled);
}

static void test_fetcher(void **state)
{
    (void)state;
    struct fetcher_config config = {.threads = 2,
                                    .slots = 4,
                                    .connect_timeout_ms = 2000,
                                    .answer_max = ANSWER_MAX,
                                    .ca_file = ca_path};
    static const struct {
        const char *method, *path;
        int status;
        bool complete;
    } samples[] = {
        {"GET", "/ok", 200, true},         {"GET", "/status/404", 404, true},
        {"GET", "/status/429", 429, true}, {"GET", "/status/503", 503, true},
        {"GET", "/302", 302, true},        {"HEAD", "/status/200", 200, true},
        {"GET", "/cut-body", 200, false},  {"GET", "/hang", 0, false},
        {"GET", "/die-fin", 0, false},     {"GET", "/four-digits", 0, false},
        {"GET", "/401-basic", 401, true},  {"GET", "/big", 200, false},
    };
    struct error err;
    struct fetcher *fetcher = fetcher_start(&config, &err);
    assert_non_null(fetcher);
    assert_int_equal(fetcher_room(fetcher), 4);
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
        struct fetch fetch;
        int before = server_counted(&server, samples[i].path);
        fetch_run(fetcher, &fetch, samples[i].method, samples[i].path);
        if (fetch.complete != samples[i].complete || fetch.answer.status != samples[i].status)
            fail_msg("%s: %d %s", samples[i].path, fetch.answer.status, fetch.cause);
        assert_int_equal(fetch.complete, fetch.cause[0] == '\0');
        assert_int_equal(server_counted(&server, samples[i].path), before + 1);
        answer_free(&fetch.answer);
    }
    fetcher_stop(fetcher, 1000);
}

/* -- the server's certificate -- */

static X509 *certificate_make(EVP_PKEY *key)
{
    X509 *cert = X509_new();
    X509_NAME *name = X509_get_subject_name(cert);
    X509V3_CTX context;
    X509_set_version(cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
    X509_gmtime_adj(X509_getm_notBefore(cert), -3600);
    X509_gmtime_adj(X509_getm_notAfter(cert), 86400);
    X509_set_pubkey(cert, key);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"localhost", -1, -1,
                               0);
    X509_set_issuer_name(cert, name);
    X509V3_set_ctx(&context, cert, cert, NULL, NULL, 0);
    X509_EXTENSION *names =
        X509V3_EXT_conf_nid(NULL, &context, NID_subject_alt_name, "DNS:localhost");
    X509_add_ext(cert, names, -1);
    X509_EXTENSION_free(names);
    X509_sign(cert, key, EVP_sha256());
    return cert;
}

static SSL_CTX *tls_make(void)
{
    SSL_CTX *tls = SSL_CTX_new(TLS_server_method());
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = certificate_make(key);
    FILE *file = fdopen(mkstemp(ca_path), "w");
    assert_non_null(file);
    PEM_write_X509(file, cert);
    fclose(file);
    assert_int_equal(SSL_CTX_use_certificate(tls, cert), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey(tls, key), 1);
    X509_free(cert);
    EVP_PKEY_free(key);
    return tls;
}

static int setup(void **state)
{
    struct error err;
    (void)state;
    signal(SIGPIPE, SIG_IGN); /* the server writes through OpenSSL */
    setenv("HOLDFAST_DEV_DESTINATIONS", "127.0.0.1,localhost", 1);
    if (!config_load(&err))
        return -1;
    server_start(&server, tls_make());
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    SSL_CTX *tls = server.tls;
    server_stop(&server);
    SSL_CTX_free(tls);
    unlink(ca_path);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_missing_roots),
        cmocka_unit_test(test_trust),
        cmocka_unit_test(test_kept_connection),
        cmocka_unit_test(test_kept_connection_dies),
        cmocka_unit_test(test_idle_connection_talks),
        cmocka_unit_test(test_two_answers_in_one_record),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_fetcher),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
