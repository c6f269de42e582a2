/* What the tests of adapters share: JSON in single quotes, prepared requests as text, answers, and
 * read-backs. */
#ifndef HOLDFAST_TEST_ADAPTERS_H
#define HOLDFAST_TEST_ADAPTERS_H

#include "adapters/adapter.h"
#include "common/base/config.h"
#include "common/base/json.h"
#include "common/http/fill.h"
#include "tests/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EFFECT_ULID "01ARZ3NDEKTSV4RRFFQ69G5FAV"
#define EFFECT_ID "eff_" EFFECT_ULID

/* Parses as the wire does; ' stands for ", so that C strings stay readable. */
static inline json_t *json_of(const char *text)
{
    struct error err = {0};
    char *copy = strdup(text);
    assert_non_null(copy);
    for (char *at = copy; *at; at++)
        if (*at == '\'')
            *at = '"';
    json_t *value = json_parse_strict(copy, strlen(copy), &err);
    if (!value)
        fail_msg("%s: %s %s", copy, err.place, err.text);
    free(copy);
    return value;
}

static inline bool secret_give(void *opaque, const char *name, struct secret_value *out,
                               struct error *err)
{
    (void)opaque;
    (void)err;
    (void)name;
    *out = (struct secret_value){.value = "sk&1", .len = 4, .version = 1};
    return true;
}

/* The request as it would leave, one line each: method and URL, headers, "", body. malloc'd. */
static inline char *request_show(const struct request *request)
{
    struct error err = {0};
    struct buf out;
    struct filled *filled = request_fill(request, EFFECT_ID, "key-1", secret_give, NULL, &err);
    if (!filled)
        fail_msg("%s: %s", err.place, err.text);
    buf_init(&out, 1u << 20);
    buf_printf(&out, "%s %s\n", filled->method, filled->url.data);
    for (size_t i = 0; i < filled->header_count; i++)
        buf_printf(&out, "%s\n", filled->headers[i].data);
    if (filled->has_body)
        buf_printf(&out, "\n%s", filled->body.data ? filled->body.data : "");
    filled_free(filled);
    return buf_take(&out, NULL);
}

static inline void request_shows(const struct request *request, const char *expected)
{
    char *text = request_show(request);
    assert_string_equal(text, expected);
    free(text);
}

/* A complete answer as it came in; `head` is status and header lines, separated by \n. */
static inline void answer_make(struct answer *answer, const char *head, const char *body)
{
    char line[512];
    answer_init(answer, 1u << 20);
    while (*head) {
        size_t len = strcspn(head, "\n");
        snprintf(line, sizeof(line), "%.*s\r\n", (int)len, head);
        answer_take_line(answer, line, strlen(line), true);
        head += len + (head[len] == '\n');
    }
    snprintf(line, sizeof(line), "Content-Length: %zu\r\n", strlen(body));
    answer_take_line(answer, line, strlen(line), true);
    answer_take_line(answer, "\r\n", 2, true);
    answer_take_body(answer, body, strlen(body));
    answer_finish(answer, true);
}

/* The same with ' for " in the body. */
static inline void answer_make_json(struct answer *answer, const char *head, const char *body)
{
    char *copy = strdup(body);
    assert_non_null(copy);
    for (char *at = copy; *at; at++)
        if (*at == '\'')
            *at = '"';
    answer_make(answer, head, copy);
    free(copy);
}

static inline int destinations_setup(void **state)
{
    struct error err = {0};
    (void)state;
    setenv("HOLDFAST_DEV_DESTINATIONS", "127.0.0.1:8420,sandbox.test", 1);
    if (!config_load(&err))
        fail_msg("%s", err.text);
    return 0;
}

#endif
