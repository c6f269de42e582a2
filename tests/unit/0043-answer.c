/* Answers as they come off the wire, and the outcome table: every row of it. */
#include "common/http/answer.h"
#include "tests/test.h"

#include <stdio.h>
#include <string.h>

enum { LEFT = 1, DROPPED = 2, EARLY = 4, BROKEN = 8, HEAD_REQUEST = 16 };

struct row {
    const char *name;
    const char *head; /* lines as they are handed over, or NULL: nothing came */
    const char *body;
    int flags;
    enum send_result result;
    const char *evidence; /* a piece of it */
};

#define LINE(status) "HTTP/1.1 " status "\r\n"
#define WHOLE(status) LINE(status) "Content-Length: 2\r\n\r\n"

static const struct row rows[] = {
    {"gate never passed", NULL, NULL, BROKEN, SEND_NEVER_LEFT, "never left: broken"},
    {"gate never passed, drill", NULL, NULL, BROKEN | DROPPED, SEND_NEVER_LEFT, "never left"},
    {"200", WHOLE("200 OK"), "{}", LEFT, SEND_SUCCESS, "HTTP 200"},
    {"201", WHOLE("201 Created"), "{}", LEFT, SEND_SUCCESS, "HTTP 201"},
    {"202", WHOLE("202 Accepted"), "{}", LEFT, SEND_SUCCESS, "HTTP 202"},
    {"204", LINE("204 No Content") "\r\n", NULL, LEFT, SEND_SUCCESS, "HTTP 204"},
    {"204 with a length", LINE("204 X") "Content-Length: 9\r\n\r\n", NULL, LEFT, SEND_SUCCESS, ""},
    {"299", WHOLE("299 x"), "{}", LEFT, SEND_SUCCESS, "HTTP 299"},
    {"no reason phrase", "HTTP/1.1 200\r\nContent-Length: 2\r\n\r\n", "{}", LEFT, SEND_SUCCESS, ""},
    {"HTTP/1.0, closed", "HTTP/1.0 200 OK\r\n\r\n", "anything", LEFT, SEND_SUCCESS, ""},
    {"bare line feeds", "HTTP/1.1 200 OK\nContent-Length: 2\n\n", "{}", LEFT, SEND_SUCCESS, ""},
    {"chunked", LINE("200 OK") "Transfer-Encoding: chunked\r\n\r\n", "abc", LEFT, SEND_SUCCESS, ""},
    {"chunked in other letters", LINE("200 OK") "Transfer-Encoding: Chunked \r\n\r\n", "abc", LEFT,
     SEND_SUCCESS, ""},
    {"a length and chunked",
     LINE("400 x") "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", "abc", LEFT,
     SEND_UNKNOWN, "not valid"},
    {"chunked and a length",
     LINE("400 x") "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n", "abc", LEFT,
     SEND_UNKNOWN, "not valid"},
    {"chunked twice",
     LINE("400 x") "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", "abc", LEFT,
     SEND_UNKNOWN, "not valid"},
    {"another encoding", LINE("400 x") "Transfer-Encoding: gzip\r\n\r\n", "abc", LEFT, SEND_UNKNOWN,
     "not valid"},
    {"coded, then chunked", LINE("400 x") "Transfer-Encoding: gzip, Chunked\r\n\r\n", "abc", LEFT,
     SEND_REFUSED, "HTTP 400"},
    {"almost chunked", LINE("400 x") "Transfer-Encoding: xchunked\r\n\r\n", "abc", LEFT,
     SEND_UNKNOWN, "not valid"},
    {"a length of blanks", LINE("400 x") "Content-Length: \r\n\r\n", "", LEFT, SEND_UNKNOWN,
     "not valid"},
    {"a list of lengths", LINE("400 x") "Content-Length: 2, 2\r\n\r\n", "{}", LEFT, SEND_UNKNOWN,
     "not valid"},
    {"100 then 200", LINE("100 Continue") "\r\n" WHOLE("200 OK"), "{}", LEFT, SEND_SUCCESS, ""},
    {"103 then 402", LINE("103 Hints") "Link: x\r\n\r\n" WHOLE("402 x"), "{}", LEFT, SEND_REFUSED,
     "HTTP 402"},
    {"HEAD", LINE("200 OK") "Content-Length: 99\r\n\r\n", NULL, LEFT | HEAD_REQUEST, SEND_SUCCESS,
     ""},
    {"400", WHOLE("400 x"), "{}", LEFT, SEND_REFUSED, "HTTP 400"},
    {"401", WHOLE("401 x"), "{}", LEFT, SEND_REFUSED, "HTTP 401"},
    {"402", WHOLE("402 x"), "{}", LEFT, SEND_REFUSED, "HTTP 402"},
    {"404", WHOLE("404 x"), "{}", LEFT, SEND_REFUSED, "HTTP 404"},
    {"421", WHOLE("421 x"), "{}", LEFT, SEND_REFUSED, "HTTP 421"},
    {"422", WHOLE("422 x"), "{}", LEFT, SEND_REFUSED, "HTTP 422"},
    {"429", WHOLE("429 x"), "{}", LEFT, SEND_REFUSED, "HTTP 429"},
    {"499", WHOLE("499 x"), "{}", LEFT, SEND_REFUSED, "HTTP 499"},
    {"early 413", WHOLE("413 x"), "{}", LEFT | EARLY, SEND_REFUSED, "HTTP 413"},
    {"408", WHOLE("408 x"), "{}", LEFT, SEND_UNKNOWN, "HTTP 408"},
    {"409", WHOLE("409 x"), "{}", LEFT, SEND_UNKNOWN, "HTTP 409"},
    {"300", WHOLE("300 x"), "{}", LEFT, SEND_UNKNOWN, "redirect"},
    {"302", WHOLE("302 x") "", "{}", LEFT, SEND_UNKNOWN, "redirect"},
    {"304", LINE("304 x") "\r\n", NULL, LEFT, SEND_UNKNOWN, "HTTP 304"},
    {"399", WHOLE("399 x"), "{}", LEFT, SEND_UNKNOWN, "HTTP 399"},
    {"500", WHOLE("500 x"), "{}", LEFT, SEND_UNKNOWN, "HTTP 500"},
    {"502", WHOLE("502 x"), "{}", LEFT, SEND_UNKNOWN, "HTTP 502"},
    {"503", WHOLE("503 x"), "{}", LEFT, SEND_UNKNOWN, "HTTP 503"},
    {"599", WHOLE("599 x"), "{}", LEFT, SEND_UNKNOWN, "HTTP 599"},
    {"600", WHOLE("600 x"), "{}", LEFT, SEND_UNKNOWN, "not valid HTTP"},
    {"early 200", WHOLE("200 OK"), "{}", LEFT | EARLY, SEND_UNKNOWN, "before the whole request"},
    {"nothing", NULL, NULL, LEFT | BROKEN, SEND_UNKNOWN, "No answer came"},
    {"only 100", LINE("100 Continue") "\r\n", NULL, LEFT | BROKEN, SEND_UNKNOWN, "interim"},
    {"only 101", LINE("101 Switching") "\r\n", NULL, LEFT, SEND_UNKNOWN, "interim"},
    {"cut head, no error", LINE("200 OK") "Content-Length: 0\r\n", NULL, LEFT, SEND_UNKNOWN,
     "head of the answer (HTTP 200)"},
    {"cut status line, no error", "HTTP/1.1 200 OK", NULL, LEFT, SEND_UNKNOWN, ""},
    {"cut 4xx head", LINE("400 x") "A: b\r\n", NULL, LEFT | BROKEN, SEND_UNKNOWN, "HTTP 400"},
    {"cut body", WHOLE("200 OK"), "{", LEFT | BROKEN, SEND_UNKNOWN, "at 1 of 2 bytes"},
    {"cut body, no error", WHOLE("200 OK"), "{", LEFT, SEND_UNKNOWN, "at 1 of 2 bytes"},
    {"cut 4xx body", WHOLE("402 x"), "{", LEFT | BROKEN, SEND_UNKNOWN, "at 1 of 2 bytes"},
    {"cut chunk", LINE("200 OK") "Transfer-Encoding: chunked\r\n\r\n", "a", LEFT | BROKEN,
     SEND_UNKNOWN, "body of the answer (HTTP 200)"},
    {"close-delimited, reset", LINE("200 OK") "\r\n", "a", LEFT | BROKEN, SEND_UNKNOWN, "broken"},
    {"more than promised", WHOLE("200 OK"), "{} ", LEFT, SEND_UNKNOWN, ""},
    {"two lengths", LINE("200 OK") "Content-Length: 2\r\nContent-Length: 3\r\n\r\n", "{}", LEFT,
     SEND_UNKNOWN, "not valid"},
    {"equal lengths", LINE("200 OK") "Content-Length: 2\r\ncontent-length:2 \r\n\r\n", "{}", LEFT,
     SEND_SUCCESS, ""},
    {"bad length", LINE("200 OK") "Content-Length: 2x\r\n\r\n", "{}", LEFT, SEND_UNKNOWN, ""},
    {"negative length", LINE("200 OK") "Content-Length: -2\r\n\r\n", "{}", LEFT, SEND_UNKNOWN, ""},
    {"huge length", LINE("200 OK") "Content-Length: 99999999999999999999\r\n\r\n", "{}", LEFT,
     SEND_UNKNOWN, ""},
    {"HTTP/2 line", "HTTP/2 200\r\n\r\n", NULL, LEFT, SEND_UNKNOWN, "not valid HTTP"},
    {"HTTP/1.9", "HTTP/1.9 200 OK\r\n\r\n", NULL, LEFT, SEND_UNKNOWN, "not valid HTTP"},
    {"four digits", "HTTP/1.1 2000 OK\r\n\r\n", NULL, LEFT, SEND_UNKNOWN, "not valid HTTP"},
    {"two digits", "HTTP/1.1 20 OK\r\n\r\n", NULL, LEFT, SEND_UNKNOWN, "not valid HTTP"},
    {"no version", "HTTP 200 OK\r\n\r\n", NULL, LEFT, SEND_UNKNOWN, "not valid HTTP"},
    {"garbage", "\x16\x03\x01 garbage\r\n\r\n", NULL, LEFT, SEND_UNKNOWN, "not valid HTTP"},
    {"a second status line in a head", LINE("500 x") LINE("200 OK") "\r\n", NULL, LEFT,
     SEND_UNKNOWN, "not valid HTTP"},
    {"drill, 200", WHOLE("200 OK"), "{}", LEFT | DROPPED, SEND_UNKNOWN, "Fault drill: the answer"},
    {"drill, 402", WHOLE("402 x"), "{}", LEFT | DROPPED, SEND_UNKNOWN, "Fault drill"},
    {"drill, nothing came", NULL, NULL, LEFT | DROPPED | BROKEN, SEND_UNKNOWN, "No answer came"},
};

/* Hands a head over line by line, as libcurl does. */
static void take_head(struct answer *answer, const char *head, bool upload_complete)
{
    while (*head) {
        const char *end = strchr(head, '\n');
        size_t len = end ? (size_t)(end - head) + 1 : strlen(head);
        answer_take_line(answer, head, len, upload_complete);
        head += len;
    }
}

static void test_outcome_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct row *row = &rows[i];
        struct answer answer;
        char evidence[384];
        answer_init(&answer, 64);
        answer.bodiless = row->flags & HEAD_REQUEST;
        if (row->head)
            take_head(&answer, row->head, !(row->flags & EARLY));
        if (row->body)
            answer_take_body(&answer, row->body, strlen(row->body));
        answer_finish(&answer, !(row->flags & BROKEN));
        struct answer_facts facts = {.left = row->flags & LEFT,
                                     .dropped = row->flags & DROPPED,
                                     .cause = row->flags & BROKEN ? "broken" : NULL};
        enum send_result result = answer_classify(&answer, &facts, evidence, sizeof(evidence));
        if (result != row->result || !strstr(evidence, row->evidence))
            fail_msg("%s: %s, \"%s\"", row->name, send_result_name(result), evidence);
        assert_true(evidence[0] != '\0');
        answer_free(&answer);
    }
}

/* Each status by itself: 2xx and refusals are what the promise says, and nothing else is. */
static void test_every_status(void **state)
{
    (void)state;
    for (int status = 200; status < 600; status++) {
        char line[64], evidence[384];
        struct answer answer;
        answer_init(&answer, 64);
        snprintf(line, sizeof(line), "HTTP/1.1 %d x\r\n\r\n", status);
        take_head(&answer, line, true);
        answer_finish(&answer, true);
        struct answer_facts facts = {.left = true};
        enum send_result want = status < 300                     ? SEND_SUCCESS
                                : status < 400 || status >= 500  ? SEND_UNKNOWN
                                : status == 408 || status == 409 ? SEND_UNKNOWN
                                                                 : SEND_REFUSED;
        assert_int_equal(answer_classify(&answer, &facts, evidence, sizeof(evidence)), want);
        assert_int_equal(answer.status, status);
        answer_free(&answer);
    }
}

static void test_headers(void **state)
{
    (void)state;
    struct answer answer;
    size_t len = 0;
    answer_init(&answer, 64);
    take_head(&answer,
              LINE("100 Continue") "Retry-After: 1\r\n\r\n" LINE(
                  "429 x") "retry-AFTER: \t 7 \r\nRetry-After-Not: 8\r\nEmpty:\r\nContent-Length: "
                           "0\r\n\r\n"
                           "Trailer: 1\r\n\r\n",
              true);
    answer_finish(&answer, true);
    const char *value = answer_header(&answer, "Retry-After", &len);
    assert_non_null(value);
    assert_int_equal(len, 1);
    assert_memory_equal(value, "7", 1);
    assert_non_null(answer_header(&answer, "empty", &len));
    assert_int_equal(len, 0);
    assert_null(answer_header(&answer, "Retry", &len));
    assert_null(answer_header(&answer, "Trailer", &len));
    assert_true(answer_complete(&answer));
    answer_free(&answer);
    assert_null(answer_header(&answer, "Retry-After", &len));
}

/* A trailer can't change a final head, not even one that looks like a better one. */
static void test_trailer_is_no_head(void **state)
{
    (void)state;
    struct answer answer;
    answer_init(&answer, 64);
    take_head(&answer, LINE("500 x") "Transfer-Encoding: chunked\r\n\r\n" LINE("200 OK") "\r\n",
              true);
    answer_finish(&answer, true);
    assert_int_equal(answer.status, 500);
    answer_free(&answer);
}

static void test_bounds(void **state)
{
    (void)state;
    struct answer answer;
    char line[1024];
    size_t len;
    answer_init(&answer, 10);
    take_head(&answer, LINE("200 OK"), true);
    memset(line, 'a', sizeof(line));
    line[1] = ':';
    line[sizeof(line) - 1] = '\n';
    for (int i = 0; i < 100; i++)
        answer_take_line(&answer, line, sizeof(line), true);
    take_head(&answer, "Content-Length: 30\r\n\r\n", true);
    assert_true(answer.head_truncated);
    assert_true(answer.head.len <= ANSWER_HEAD_MAX);
    assert_int_equal(answer.promised, 30); /* what frames the body is seen past the bound */
    for (int i = 0; i < 10; i++)
        answer_take_body(&answer,
                         "\0\xff"
                         "x",
                         3);
    answer_finish(&answer, true);
    assert_true(answer.body_truncated);
    assert_int_equal(answer.body.len, 10);
    assert_int_equal(answer.body_bytes, 30);
    assert_memory_equal(answer.body.data, "\0\xffx\0\xffx\0\xffx\0", 10);
    assert_true(answer_complete(&answer)); /* too long to keep is still an answer */
    answer_reset(&answer);
    assert_int_equal(answer.status, 0);
    assert_int_equal(answer.body.max, 10);
    assert_null(answer_header(&answer, "a", &len));
    answer_free(&answer);
    answer_free(&answer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_outcome_table), cmocka_unit_test(test_every_status),
        cmocka_unit_test(test_headers),       cmocka_unit_test(test_trailer_is_no_head),
        cmocka_unit_test(test_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
