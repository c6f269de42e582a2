/* Filling slots: escaped for their place, checked against each secret's restrictions, noted by
 * version. */
#include "common/base/config.h"
#include "common/http/fill.h"
#include "tests/test.h"

#include <stdlib.h>
#include <string.h>

static const char *const stripe_hosts[] = {"API.stripe.com", ".example.com"};

struct vault {
    struct secret_value secret;
    bool away;
    bool changes; /* another version at each look-up */
    int asked;
};

static bool vault_lookup(void *opaque, const char *name, struct secret_value *out,
                         struct error *err)
{
    struct vault *vault = opaque;
    vault->asked++;
    if (vault->away)
        return error_set(err, ERROR_UNAVAILABLE, "the vault is away");
    if (strcmp(name, "KEY") != 0)
        return error_set_at(err, ERROR_NOT_FOUND, name, "there is no secret %s", name);
    *out = vault->secret;
    if (vault->changes)
        out->version = vault->asked;
    return true;
}

static struct vault vault_of(const char *value)
{
    return (struct vault){.secret = {.value = value, .len = strlen(value), .version = 7}};
}

/* A request with the secret at one place. */
static struct request *request_with(enum place place, enum body_format format)
{
    struct request *r = request_new("POST", "https://api.stripe.com/v1", format, NULL);
    assert_non_null(r);
    request_put_literal(r, PLACE_URL, "/x?k=", 5);
    request_put_header(r, "X-Key");
    if (place == PLACE_BODY && format == BODY_JSON)
        request_put_literal(r, PLACE_BODY, "{\"k\":\"", 6);
    request_put_secret(r, place, "KEY");
    if (place == PLACE_BODY && format == BODY_JSON)
        request_put_literal(r, PLACE_BODY, "\"}", 2);
    return r;
}

static struct filled *fill(struct request *r, struct vault *vault, struct error *err)
{
    *err = (struct error){0};
    struct filled *filled = request_fill(r, "eff_1", "key-1", vault_lookup, vault, err);
    request_free(r);
    return filled;
}

static void test_whole(void **state)
{
    (void)state;
    struct error err = {0};
    struct vault vault = vault_of("sk_1/2");
    struct request *r = request_new("POST", "https://api.stripe.com/v1", BODY_FORM, &err);
    request_put_literal(r, PLACE_URL, "/refunds/", 9);
    request_put_effect_id(r, PLACE_URL);
    request_put_header(r, "Authorization");
    request_put_literal(r, PLACE_HEADER, "Bearer ", 7);
    request_put_secret(r, PLACE_HEADER, "KEY");
    request_put_header(r, "Idempotency-Key");
    request_put_provider_key(r, PLACE_HEADER);
    request_put_header(r, "X-Empty");
    request_put_literal(r, PLACE_BODY, "k=", 2);
    request_put_secret(r, PLACE_BODY, "KEY");
    request_put_literal(r, PLACE_BODY, "&e=", 3);
    request_put_effect_id(r, PLACE_BODY);
    struct filled *f = fill(r, &vault, &err);
    if (!f)
        fail_msg("%s", err.text);
    assert_string_equal(f->method, "POST");
    assert_string_equal(f->url.data, "https://api.stripe.com:443/v1/refunds/eff_1");
    assert_int_equal(f->header_count, 3);
    assert_string_equal(f->headers[0].data, "Authorization: Bearer sk_1/2");
    assert_string_equal(f->headers[1].data, "Idempotency-Key: key-1");
    assert_string_equal(f->headers[2].data, "X-Empty;");
    assert_true(f->has_body);
    assert_string_equal(f->body.data, "k=sk_1%2F2&e=eff_1");
    assert_int_equal(f->secret_count, 1);
    assert_string_equal(f->secrets[0].name, "KEY");
    assert_int_equal(f->secrets[0].version, 7);
    assert_false(f->dev_destination);
    filled_free(f);
    filled_free(NULL);
}

static void test_empty_path_and_dev(void **state)
{
    (void)state;
    struct error err;
    struct request *r = request_new("GET", "http://127.0.0.1:24000", BODY_NONE, &err);
    assert_non_null(r);
    struct filled *f = request_fill(r, NULL, NULL, NULL, NULL, &err);
    assert_non_null(f);
    assert_string_equal(f->url.data, "http://127.0.0.1:24000/");
    assert_true(f->dev_destination);
    assert_false(f->has_body);
    filled_free(f);
    request_put_provider_key(r, PLACE_URL);
    assert_null(request_fill(r, NULL, NULL, NULL, NULL, &err)); /* no key was given */
    assert_int_equal(err.code, ERROR_INTERNAL);
    request_free(r);
}

struct place_sample {
    enum place place;
    enum body_format format;
    const char *value;
    const char *expected; /* NULL: refused */
};

static void test_places(void **state)
{
    (void)state;
    static const struct place_sample samples[] = {
        {PLACE_URL, BODY_NONE, "a b&c=\"/..",
         "https://api.stripe.com:443/v1/x?k=a%20b%26c%3D%22%2F.."},
        {PLACE_URL, BODY_NONE, "a\r\nb", NULL},
        {PLACE_URL, BODY_NONE, "", NULL},
        {PLACE_HEADER, BODY_NONE, "a b\"c", "X-Key: a b\"c"},
        {PLACE_HEADER, BODY_NONE, "a\r\nEvil: 1", NULL},
        {PLACE_HEADER, BODY_NONE, "a\n", NULL},
        {PLACE_HEADER, BODY_NONE, "", "X-Key;"},
        {PLACE_BODY, BODY_JSON, "a\"b\\\n", "{\"k\":\"a\\\"b\\\\\\n\"}"},
        {PLACE_BODY, BODY_FORM, "a b&c\n", "a+b%26c%0A"},
        {PLACE_BODY, BODY_TEXT, "a\r\nb", "a\r\nb"},
        {PLACE_BODY, BODY_TEXT, "\xff", NULL},
    };
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
        const struct place_sample *s = &samples[i];
        struct vault vault = vault_of(s->value);
        struct error err;
        struct filled *f = fill(request_with(s->place, s->format), &vault, &err);
        if ((f != NULL) != (s->expected != NULL))
            fail_msg("sample %zu: %s", i, err.text);
        if (f) {
            const char *got = s->place == PLACE_URL      ? f->url.data
                              : s->place == PLACE_HEADER ? f->headers[0].data
                                                         : f->body.data;
            assert_string_equal(got, s->expected);
        } else {
            assert_int_equal(err.code, ERROR_INVALID);
            assert_null(strstr(err.text, "Evil")); /* no secret in an error */
        }
        filled_free(f);
    }
    struct vault nul = {.secret = {.value = "a\0b", .len = 3}};
    struct error err;
    assert_null(fill(request_with(PLACE_HEADER, BODY_NONE), &nul, &err));
    assert_null(fill(request_with(PLACE_BODY, BODY_TEXT), &nul, &err));
}

/* A slot may not make a dot segment, in a path that was fine while it was open. */
static void test_dot_segment_from_a_slot(void **state)
{
    (void)state;
    struct vault vault = vault_of("..");
    struct error err;
    struct request *r = request_new("GET", "https://api.stripe.com/v1/", BODY_NONE, NULL);
    request_put_literal(r, PLACE_URL, "/", 1);
    request_put_secret(r, PLACE_URL, "KEY");
    assert_true(request_check(r, &err));
    assert_null(fill(r, &vault, &err));
    assert_int_equal(err.code, ERROR_INVALID);
}

static void test_hosts(void **state)
{
    (void)state;
    assert_true(host_allowed("api.stripe.com", "API.stripe.com"));
    assert_false(host_allowed("evil-api.stripe.com", "api.stripe.com"));
    assert_false(host_allowed("x.api.stripe.com", "api.stripe.com"));
    assert_true(host_allowed("x.stripe.com", ".Stripe.com"));
    assert_true(host_allowed("y.x.stripe.com", ".stripe.com"));
    assert_false(host_allowed("stripe.com", ".stripe.com"));
    assert_false(host_allowed("evilstripe.com", ".stripe.com"));
    assert_false(host_allowed("stripe.com.evil.com", ".stripe.com"));

    struct vault vault = vault_of("v");
    struct error err;
    vault.secret.allowed_hosts = stripe_hosts;
    vault.secret.allowed_host_count = 2;
    struct filled *f = fill(request_with(PLACE_HEADER, BODY_NONE), &vault, &err);
    assert_non_null(f);
    filled_free(f);
    vault.secret.allowed_hosts = stripe_hosts + 1;
    vault.secret.allowed_host_count = 1;
    assert_null(fill(request_with(PLACE_HEADER, BODY_NONE), &vault, &err));
    assert_int_equal(err.code, ERROR_DENIED);
    assert_string_equal(err.place, "KEY");
    vault.secret.allowed_host_count = 0; /* an empty list allows no host */
    assert_null(fill(request_with(PLACE_HEADER, BODY_NONE), &vault, &err));
}

static void test_placements(void **state)
{
    (void)state;
    static const enum place places[] = {PLACE_URL, PLACE_HEADER, PLACE_BODY};
    for (size_t i = 0; i < 3; i++) {
        for (size_t j = 0; j < 3; j++) {
            struct vault vault = vault_of("v");
            struct error err;
            vault.secret.allowed_placements = places[i];
            struct filled *f = fill(request_with(places[j], BODY_TEXT), &vault, &err);
            assert_int_equal(f != NULL, i == j);
            if (!f)
                assert_int_equal(err.code, ERROR_DENIED);
            filled_free(f);
        }
    }
}

static void test_lookup_failures(void **state)
{
    (void)state;
    struct error err;
    struct vault away = {.away = true};
    assert_null(fill(request_with(PLACE_HEADER, BODY_NONE), &away, &err));
    assert_int_equal(err.code, ERROR_UNAVAILABLE);

    struct vault vault = vault_of("v");
    struct request *r = request_new("GET", "https://api.stripe.com/", BODY_NONE, NULL);
    request_put_header(r, "A");
    request_put_secret(r, PLACE_HEADER, "OTHER");
    assert_null(fill(r, &vault, &err));
    assert_int_equal(err.code, ERROR_NOT_FOUND);

    vault.changes = true; /* two versions in one request */
    r = request_new("GET", "https://api.stripe.com/", BODY_NONE, NULL);
    request_put_header(r, "A");
    request_put_secret(r, PLACE_HEADER, "KEY");
    request_put_secret(r, PLACE_HEADER, "KEY");
    assert_null(fill(r, &vault, &err));
    assert_int_equal(err.code, ERROR_CONFLICT);
}

static int setup(void **state)
{
    (void)state;
    struct error err;
    setenv("HOLDFAST_DEV_DESTINATIONS", "127.0.0.1:24000", 1);
    return config_load(&err) ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),           cmocka_unit_test(test_empty_path_and_dev),
        cmocka_unit_test(test_places),          cmocka_unit_test(test_dot_segment_from_a_slot),
        cmocka_unit_test(test_hosts),           cmocka_unit_test(test_placements),
        cmocka_unit_test(test_lookup_failures),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
