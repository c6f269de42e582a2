/* Prepared requests: built, refused, encoded, decoded, hashed; escapes for every place. */
#include "common/base/config.h"
#include "common/http/request.h"
#include "tests/test.h"

#include <stdlib.h>
#include <string.h>

static struct request *refund_build(void)
{
    struct error err = {0};
    struct request *r = request_new("POST", "https://API.Stripe.com/v1/", BODY_FORM, &err);
    assert_non_null(r);
    request_put_literal(r, PLACE_URL, "/refunds", 8);
    request_put_header(r, "Authorization");
    request_put_literal(r, PLACE_HEADER, "Bearer ", 7);
    request_put_secret(r, PLACE_HEADER, "STRIPE_KEY");
    request_put_header(r, "Idempotency-Key");
    request_put_provider_key(r, PLACE_HEADER);
    request_put_literal(r, PLACE_BODY, "amount=", 7);
    request_put_text(r, PLACE_BODY, "100", 3);
    request_put_literal(r, PLACE_BODY, "&metadata[holdfast_effect]=", 27);
    request_put_effect_id(r, PLACE_BODY);
    if (!request_check(r, &err))
        fail_msg("%s", err.text);
    return r;
}

static void encode(const struct request *r, struct buf *out)
{
    buf_init(out, REQUEST_ENCODED_MAX);
    assert_true(request_encode(r, out));
}

static void test_encoding(void **state)
{
    (void)state;
    static const char expected[] =
        "{\"body\":[\"amount=100&metadata[holdfast_effect]=\",{\"slot\":\"effect_id\"}],"
        "\"format\":\"form\",\"headers\":[{\"name\":\"Authorization\",\"value\":[\"Bearer \","
        "{\"secret\":\"STRIPE_KEY\"}]},{\"name\":\"Idempotency-Key\",\"value\":["
        "{\"slot\":\"provider_key\"}]}],\"host\":\"api.stripe.com\",\"https\":true,"
        "\"method\":\"POST\",\"port\":443,\"url\":[\"/v1/refunds\"],\"v\":1}";
    struct request *r = refund_build();
    struct buf bytes;
    char destination[264];
    encode(r, &bytes);
    assert_string_equal(bytes.data, expected);
    assert_string_equal(request_destination(r, destination, sizeof(destination)),
                        "api.stripe.com:443");
    buf_free(&bytes);
    request_free(r);
}

static void test_round_trip(void **state)
{
    (void)state;
    struct request *r = refund_build();
    struct buf bytes, again;
    struct error err = {0};
    encode(r, &bytes);
    struct request *decoded = request_decode(bytes.data, bytes.len, &err);
    if (!decoded)
        fail_msg("%s", err.text);
    encode(decoded, &again);
    assert_string_equal(bytes.data, again.data);
    uint8_t one[SHA256_SIZE], two[SHA256_SIZE];
    request_hash(bytes.data, bytes.len, one);
    request_hash(again.data, again.len, two);
    assert_memory_equal(one, two, SHA256_SIZE);
    buf_free(&bytes);
    buf_free(&again);
    request_free(decoded);
    request_free(r);
}

/* Text that looks like a slot in any spelling stays text, and hashes differently from the slot. */
static void test_text_is_never_a_slot(void **state)
{
    (void)state;
    static const char *const marks[] = {"{{secret:STRIPE_KEY}}", "{\"secret\":\"STRIPE_KEY\"}",
                                        "{{effect.id}}", "[{\"slot\":\"provider_key\"}]"};
    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
        struct request *r = request_new("POST", "https://a.example.com", BODY_TEXT, NULL);
        struct buf bytes;
        struct error err;
        request_put_text(r, PLACE_BODY, marks[i], strlen(marks[i]));
        request_put_header(r, "X-Note");
        request_put_text(r, PLACE_HEADER, marks[i], strlen(marks[i]));
        assert_true(request_check(r, NULL));
        encode(r, &bytes);
        struct request *decoded = request_decode(bytes.data, bytes.len, &err);
        assert_non_null(decoded);
        assert_int_equal(decoded->body.count, 1);
        assert_int_equal(decoded->body.items[0].kind, PART_LITERAL);
        assert_string_equal(decoded->body.items[0].text.data, marks[i]);
        assert_int_equal(decoded->headers[0].value.items[0].kind, PART_LITERAL);
        buf_free(&bytes);
        request_free(decoded);
        request_free(r);
    }
}

struct escape_sample {
    enum place place;
    enum body_format format;
    const char *text;
    const char *expected; /* NULL: refused */
};

static const struct escape_sample escapes[] = {
    {PLACE_URL, BODY_NONE, "a b/c?d#e@f%2f", "/x/a%20b%2Fc%3Fd%23e%40f%252f"},
    {PLACE_URL, BODY_NONE, "../../etc", "/x/..%2F..%2Fetc"},
    {PLACE_URL, BODY_NONE, "..", NULL},
    {PLACE_URL, BODY_NONE, ".", NULL},
    {PLACE_URL, BODY_NONE, "", NULL},
    {PLACE_URL, BODY_NONE, "a\r\nHost: b", "/x/a%0D%0AHost%3A%20b"},
    {PLACE_URL, BODY_NONE, "\xc3\xa9~-._", "/x/%C3%A9~-._"},
    {PLACE_URL, BODY_NONE, "\xff", NULL},
    {PLACE_URL, BODY_NONE, "\xc0\xaf", NULL},     /* overlong */
    {PLACE_URL, BODY_NONE, "\xed\xa0\x80", NULL}, /* surrogate */
    {PLACE_HEADER, BODY_NONE, "plain; q=\"1\"", "plain; q=\"1\""},
    {PLACE_HEADER, BODY_NONE, "a\r\nX: b", NULL},
    {PLACE_HEADER, BODY_NONE, "a\nb", NULL},
    {PLACE_HEADER, BODY_NONE, "a\tb", NULL},
    {PLACE_HEADER, BODY_NONE, "a\x7f", NULL},
    {PLACE_BODY, BODY_FORM, "a b&c=d+\xc3\xa9*", "a+b%26c%3Dd%2B%C3%A9*"},
    {PLACE_BODY, BODY_FORM, "x\r\n", "x%0D%0A"},
    {PLACE_BODY, BODY_TEXT, "as\r\nit \"is\"", "as\r\nit \"is\""},
    {PLACE_BODY, BODY_TEXT, "\xff", NULL},
};

static const struct part *escaped_part(const struct request *r, enum place place)
{
    if (place == PLACE_URL)
        return &r->url.items[0];
    return place == PLACE_HEADER ? &r->headers[0].value.items[0] : &r->body.items[0];
}

static void test_escapes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(escapes) / sizeof(escapes[0]); i++) {
        const struct escape_sample *s = &escapes[i];
        struct error err = {0};
        struct request *r = request_new("POST", "https://a.example.com/x", s->format, &err);
        request_put_literal(r, PLACE_URL, "/", 1);
        request_put_header(r, "X-Value");
        request_put_text(r, s->place, s->text, strlen(s->text));
        if (s->place != PLACE_URL)
            request_put_literal(r, PLACE_URL, "y", 1);
        bool ok = request_check(r, &err);
        if (ok != (s->expected != NULL))
            fail_msg("sample %zu: %s", i, err.text);
        if (ok)
            assert_string_equal(escaped_part(r, s->place)->text.data, s->expected);
        else
            assert_int_equal(err.code, ERROR_INVALID);
        request_free(r);
    }
}

static void test_json_escape(void **state)
{
    (void)state;
    struct request *r = request_new("POST", "https://a.example.com", BODY_JSON, NULL);
    struct error err;
    request_put_literal(r, PLACE_BODY, "{\"note\":\"", 9);
    request_put_text(r, PLACE_BODY, "a\"b\\c\n\x01\",\"admin\":true", 21);
    request_put_literal(r, PLACE_BODY, "\"}", 2);
    assert_true(request_check(r, &err));
    assert_string_equal(r->body.items[0].text.data,
                        "{\"note\":\"a\\\"b\\\\c\\n\\u0001\\\",\\\"admin\\\":true\"}");
    request_free(r);
}

static void test_json_slots_stand_in_strings(void **state)
{
    (void)state;
    static const struct {
        const char *before, *after;
        bool ok;
    } samples[] = {
        {"{\"a\":\"", "\"}", true},      {"{\"a\":", "}", false},
        {"{\"a\":\"x\\\"", "\"}", true}, {"{\"a\":\"x\\", "\"}", false},
        {"{\"a\":\"b\",", "}", false},   {"{\"a\":\"", "}", false},
    };
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
        struct request *r = request_new("POST", "https://a.example.com", BODY_JSON, NULL);
        struct error err;
        request_put_literal(r, PLACE_BODY, samples[i].before, strlen(samples[i].before));
        request_put_secret(r, PLACE_BODY, "K");
        request_put_literal(r, PLACE_BODY, samples[i].after, strlen(samples[i].after));
        assert_int_equal(request_check(r, &err), samples[i].ok);
        request_free(r);
    }
}

static void test_bases(void **state)
{
    (void)state;
    static const struct {
        const char *base;
        bool ok;
    } samples[] = {
        {"https://a.example.com", true},
        {"HTTPS://A.example.com:8443/p/q", true},
        {"https://8.8.8.8/x", true},
        {"https://[2606:4700::1111]:443/", true},
        {"http://a.example.com", false}, /* plain */
        {"http://dev.test:81/", true},   /* a development destination */
        {"http://dev.test:82/", false},  /* another port of it */
        {"ftp://a.example.com", false},
        {"a.example.com", false},
        {"https://", false},
        {"https:///x", false},
        {"https://user@a.example.com", false},
        {"https://user:pw@a.example.com", false},
        {"https://a.example.com@evil.com", false},
        {"https://a.example.com\\@evil.com", false},
        {"https://a.example.com:0", false},
        {"https://a.example.com:65536", false},
        {"https://a.example.com:443x", false},
        {"https://a.example.com:", false},
        {"https://a.example.com.", false},
        {"https://a..example.com", false},
        {"https://-a.example.com", false},
        {"https://a.example.com/x?y", false},
        {"https://a.example.com/x#y", false},
        {"https://a.example.com/../x", false},
        {"https://a.example.com/%2E%2e/x", false},
        {"https://a.example.com/%zz", false},
        {"https://a.example.com/a b", false},
        {"https://127.0.0.1", false},
        {"https://127.1", false},
        {"https://2130706433", false},
        {"https://0x7f000001", false},
        {"https://0x7f.0.0.1", false},
        {"https://0177.0.0.1", false},
        {"https://1.2.3.04", false},
        {"https://[::1]", false},
        {"https://[::ffff:8.8.8.8]", false},
        {"https://::1", false},
        {"https://[fe80::1%25eth0]", false},
        {"https://[a.example.com]", false},
        {"https://ex\xc3\xa4mple.com", false},
        {"https://a%2eexample.com", false},
    };
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
        struct error err = {0};
        struct request *r = request_new("GET", samples[i].base, BODY_NONE, &err);
        bool ok = r && request_check(r, &err);
        if (ok != samples[i].ok)
            fail_msg("%s: %s", samples[i].base, ok ? "taken" : err.text);
        request_free(r);
    }
}

static void test_headers(void **state)
{
    (void)state;
    static const char *const refused[] = {"Host",
                                          "content-length",
                                          "Transfer-Encoding",
                                          "Connection",
                                          "TE",
                                          "Expect",
                                          "a b",
                                          "a:b",
                                          "",
                                          "X\r\nY",
                                          "Upgrade",
                                          "Accept-Encoding"};
    struct error err;
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        struct request *r = request_new("GET", "https://a.example.com", BODY_NONE, NULL);
        request_put_header(r, refused[i]);
        request_put_literal(r, PLACE_HEADER, "x", 1);
        assert_false(request_check(r, &err));
        request_free(r);
    }
    struct request *r = request_new("GET", "https://a.example.com", BODY_NONE, NULL);
    request_put_header(r, "X-A");
    request_put_header(r, "x-a");
    assert_false(request_check(r, &err));
    assert_string_equal(err.place, "x-a");
    request_free(r);
}

static void test_limits(void **state)
{
    (void)state;
    struct error err;
    struct request *r = request_new("POST", "https://a.example.com", BODY_TEXT, NULL);
    char *big = malloc(REQUEST_BODY_MAX + 1);
    memset(big, 'a', REQUEST_BODY_MAX + 1);
    request_put_text(r, PLACE_BODY, big, REQUEST_BODY_MAX + 1);
    assert_false(request_check(r, &err));
    assert_int_equal(err.code, ERROR_TOO_LARGE);
    request_free(r);
    r = request_new("POST", "https://a.example.com", BODY_TEXT, NULL);
    for (int i = 0; i < REQUEST_PARTS_MAX + 1; i++)
        request_put_effect_id(r, PLACE_BODY);
    assert_false(request_check(r, &err));
    request_free(r);
    r = request_new("GET", "https://a.example.com", BODY_TEXT, NULL);
    assert_false(request_check(r, &err)); /* a GET has no body */
    request_free(r);
    r = request_new("DELETE", "https://a.example.com", BODY_NONE, NULL);
    request_put_text(r, PLACE_BODY, "x", 1);
    assert_false(request_check(r, &err));
    request_free(r);
    assert_null(request_new("TRACE", "https://a.example.com", BODY_NONE, &err));
    free(big);
}

/* Whatever is not exactly what request_encode writes is refused. */
static void test_decode_refuses(void **state)
{
    (void)state;
#define WITH(url, headers, format, body)                                                           \
    "{\"body\":" body ",\"format\":\"" format "\",\"headers\":" headers                            \
    ",\"host\":\"a.example.com\",\"https\":true,\"method\":\"POST\",\"port\":443,\"url\":" url     \
    ",\"v\":1}"
    static const struct {
        const char *text;
        bool ok;
    } samples[] = {
        {WITH("[\"/x\"]", "[]", "json", "[\"{}\"]"), true},
        {WITH("[\"/x\"]", "[]", "none", "null"), true},
        {WITH("[\"/x\",\"y\"]", "[]", "json", "[]"), false},
        {WITH("[\"\"]", "[]", "json", "[]"), false},
        {WITH("[\"x\"]", "[]", "json", "[]"), false},
        {WITH("[\"/../x\"]", "[]", "json", "[]"), false},
        {WITH("\"/x\"", "[]", "json", "[]"), false},
        {WITH("[\"/x\",{\"slot\":\"other\"}]", "[]", "json", "[]"), false},
        {WITH("[\"/x\",{\"secret\":\"\"}]", "[]", "json", "[]"), false},
        {WITH("[\"/x\",{\"secret\":\"a b\"}]", "[]", "json", "[]"), false},
        {WITH("[\"/x\",{\"secret\":\"A\",\"slot\":\"effect_id\"}]", "[]", "json", "[]"), false},
        {WITH("[\"/x\",7]", "[]", "json", "[]"), false},
        {WITH("[\"/x\"]", "[{\"name\":\"Host\",\"value\":[\"b\"]}]", "json", "[]"), false},
        {WITH("[\"/x\"]", "[{\"name\":\"A\",\"value\":[\"b\\r\\nc\"]}]", "json", "[]"), false},
        {WITH("[\"/x\"]", "[{\"name\":\"A\"}]", "json", "[]"), false},
        {WITH("[\"/x\"]", "[{\"name\":\"A\",\"value\":[],\"w\":1}]", "json", "[]"), false},
        {WITH("[\"/x\"]", "[]", "xml", "[]"), false},
        {WITH("[\"/x\"]", "[]", "none", "[]"), false},
        {WITH("[\"/x\"]", "[]", "json", "null"), false},
        {WITH("[\"/x\"]", "[]", "json", "[{\"secret\":\"A\"}]"), false},
        {"{}", false},
        {"[]", false},
        {"", false},
    };
#undef WITH
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
        struct error err = {0};
        struct request *r = request_decode(samples[i].text, strlen(samples[i].text), &err);
        if ((r != NULL) != samples[i].ok)
            fail_msg("sample %zu: %s", i, r ? "taken" : err.text);
        request_free(r);
    }
}

static int setup(void **state)
{
    (void)state;
    struct error err;
    setenv("HOLDFAST_DEV_DESTINATIONS", "dev.test:81", 1);
    return config_load(&err) ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_encoding),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_text_is_never_a_slot),
        cmocka_unit_test(test_escapes),
        cmocka_unit_test(test_json_escape),
        cmocka_unit_test(test_json_slots_stand_in_strings),
        cmocka_unit_test(test_bases),
        cmocka_unit_test(test_headers),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_decode_refuses),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
