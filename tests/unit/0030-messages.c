/* The messages between the parts: what is written is read back, and everything else is refused with
 * a reason. */
#include "common/base/json.h"
#include "common/bus/message.h"
#include "tests/test.h"

#include <stdlib.h>
#include <string.h>

#define ID "eff_01ARZ3NDEKTSV4RRFFQ69G5FAV"

static struct ulid effect_id(void)
{
    struct ulid id;
    assert_true(ulid_parse_prefixed("eff", ID, &id));
    return id;
}

static void test_effect_round_trip(void **state)
{
    (void)state;
    struct effect_message in = {.effect = effect_id(), .environment = 7, .seq = 2, .reply = -1};
    struct effect_message out;
    struct buf json;
    strcpy(in.destination, "api.stripe.com:443");
    buf_init(&json, MESSAGE_MAX);
    assert_true(effect_message_encode(&in, &json));
    assert_string_equal(json.data, "{\"v\":1,\"effect\":\"" ID "\",\"environment\":7,\"seq\":2,"
                                   "\"destination\":\"api.stripe.com:443\",\"reply\":-1}");
    assert_true(effect_message_decode(json.data, json.len, &out, NULL));
    assert_int_equal(ulid_compare(&in.effect, &out.effect), 0);
    assert_int_equal(out.environment, 7);
    assert_int_equal(out.seq, 2);
    assert_int_equal(out.reply, -1);
    assert_string_equal(out.destination, in.destination);
    buf_free(&json);
}

static void test_longest_effect_fits(void **state)
{
    (void)state;
    struct effect_message in = {
        .effect = effect_id(), .environment = JSON_EXACT_MAX, .seq = INT32_MAX, .reply = INT32_MAX};
    struct effect_message out;
    struct buf json;
    memset(in.destination, 'a', sizeof(in.destination) - 1);
    buf_init(&json, MESSAGE_MAX);
    assert_true(effect_message_encode(&in, &json));
    assert_true(effect_message_decode(json.data, json.len, &out, NULL));
    assert_string_equal(out.destination, in.destination);
    buf_free(&json);
}

static void test_reconcile_round_trip(void **state)
{
    (void)state;
    for (int purpose = 0; purpose < READ_PURPOSE_COUNT; purpose++) {
        struct reconcile_message in = {
            .effect = effect_id(), .environment = 1, .purpose = purpose, .reply = 3};
        struct reconcile_message out;
        struct buf json;
        buf_init(&json, MESSAGE_MAX);
        assert_true(reconcile_message_encode(&in, &json));
        assert_true(reconcile_message_decode(json.data, json.len, &out, NULL));
        assert_int_equal(ulid_compare(&in.effect, &out.effect), 0);
        assert_int_equal(out.purpose, purpose);
        assert_int_equal(out.reply, 3);
        buf_free(&json);
    }
}

static void test_outcome_round_trip(void **state)
{
    (void)state;
    for (int what = 0; what < WHAT_COUNT; what++) {
        struct outcome_message in = {.effect = effect_id(), .environment = 1, .what = what};
        struct outcome_message out;
        struct buf json;
        buf_init(&json, MESSAGE_MAX);
        assert_true(outcome_message_encode(&in, &json));
        assert_true(outcome_message_decode(json.data, json.len, &out, NULL));
        assert_int_equal(out.what, what);
        buf_free(&json);
    }
}

static void effect_refused(const char *text, size_t len, const char *place)
{
    struct effect_message out;
    struct error err = {0};
    assert_false(effect_message_decode(text, len, &out, &err));
    assert_int_equal(err.code, ERROR_INVALID);
    assert_true(err.text[0] != '\0');
    if (place)
        assert_string_equal(err.place, place);
}

static void test_garbage_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *place;
    } cases[] = {
        {"", NULL},
        {"{", NULL},
        {"[]", NULL},
        {"null", NULL},
        {"\xff\xfe", NULL},
        {"{\"v\":1}", "/effect"},
        {"{\"effect\":\"" ID "\"}", "/v"},
        {"{\"v\":2,\"effect\":\"" ID "\",\"later\":1}", "/v"},
        {"{\"v\":\"1\"}", "/v"},
        {"{\"v\":1,\"v\":1}", NULL},
        {"{\"v\":1,\"effect\":\"inv_01ARZ3NDEKTSV4RRFFQ69G5FAV\",\"environment\":1}", "/effect"},
        {"{\"v\":1,\"effect\":\"eff_01ARZ3NDEKTSV4RRFFQ69G5FA\",\"environment\":1}", "/effect"},
        {"{\"v\":1,\"effect\":7,\"environment\":1}", "/effect"},
        {"{\"v\":1,\"effect\":\"" ID "\",\"environment\":0}", "/environment"},
        {"{\"v\":1,\"effect\":\"" ID "\",\"environment\":1.0}", "/environment"},
        {"{\"v\":1,\"effect\":\"" ID "\",\"environment\":1,\"seq\":0}", "/seq"},
        {"{\"v\":1,\"effect\":\"" ID "\",\"environment\":1,\"seq\":1,\"destination\":\"\"}",
         "/destination"},
        {"{\"v\":1,\"effect\":\"" ID "\",\"environment\":1,\"seq\":1,\"destination\":\"h:1\"}",
         "/reply"},
        {"{\"v\":1,\"effect\":\"" ID "\",\"environment\":1,\"seq\":1,\"destination\":\"h:1\","
         "\"reply\":-2}",
         "/reply"},
        {"{\"v\":1,\"effect\":\"" ID "\",\"environment\":1,\"seq\":1,\"destination\":\"h:1\","
         "\"reply\":2147483648}",
         "/reply"},
        {"{\"v\":1,\"effect\":\"" ID "\",\"environment\":1,\"seq\":1,\"destination\":\"h:1\","
         "\"reply\":0,\"more\":1}",
         "/more"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        effect_refused(cases[i].text, strlen(cases[i].text), cases[i].place);
    effect_refused(NULL, 0, NULL);
}

static void test_megabyte_is_refused(void **state)
{
    (void)state;
    size_t len = 1024 * 1024;
    char *text = malloc(len);
    memset(text, '[', len);
    effect_refused(text, len, NULL);
    free(text);
}

/* Every truncation and every changed byte of a good message: an error or a message, never a crash.
 */
static void test_mutations(void **state)
{
    (void)state;
    static const char good[] = "{\"v\":1,\"effect\":\"" ID "\",\"environment\":7,\"seq\":2,"
                               "\"destination\":\"api.stripe.com:443\",\"reply\":-1}";
    struct effect_message out;
    size_t len = sizeof(good) - 1;
    for (size_t cut = 0; cut < len; cut++)
        assert_false(effect_message_decode(good, cut, &out, NULL));
    for (size_t at = 0; at < len; at++) {
        for (int byte = 0; byte < 256; byte++) {
            char text[sizeof(good)];
            struct error err = {0};
            memcpy(text, good, sizeof(good));
            text[at] = (char)byte;
            if (!effect_message_decode(text, len, &out, &err))
                assert_int_equal(err.code, ERROR_INVALID);
        }
    }
}

static void test_unknown_words(void **state)
{
    (void)state;
    static const char reconcile[] = "{\"v\":1,\"effect\":\"" ID "\",\"environment\":1,"
                                    "\"purpose\":\"guess\",\"reply\":-1}";
    static const char outcome[] = "{\"v\":1,\"effect\":\"" ID "\",\"environment\":1,"
                                  "\"what\":\"Settled\"}";
    struct reconcile_message reconcile_out;
    struct outcome_message outcome_out;
    struct error err = {0};
    assert_false(reconcile_message_decode(reconcile, sizeof(reconcile) - 1, &reconcile_out, &err));
    assert_string_equal(err.place, "/purpose");
    assert_false(outcome_message_decode(outcome, sizeof(outcome) - 1, &outcome_out, &err));
    assert_string_equal(err.place, "/what");
}

static void dead_letter_check(const struct bus_message *message, const char *member,
                              const char *wanted)
{
    struct buf json;
    struct error err = {0};
    buf_init(&json, 256 * 1024);
    assert_true(message_put_dead_letter(&json, "holdfast.effects", message, "why \"so\""));
    json_t *object = json_parse_object(json.data, json.len, &err);
    assert_non_null(object);
    assert_int_equal(json_integer_value(json_object_get(object, "partition")), message->partition);
    assert_int_equal(json_integer_value(json_object_get(object, "offset")), message->offset);
    assert_string_equal(json_string_value(json_object_get(object, "reason")), "why \"so\"");
    const char *text = json_string_value(json_object_get(object, member));
    if (wanted)
        assert_string_equal(text, wanted);
    else
        assert_true(json_is_null(json_object_get(object, member)));
    json_decref(object);
    buf_free(&json);
}

static void test_dead_letter(void **state)
{
    (void)state;
    struct bus_message message = {.partition = 3, .offset = 5000000000, .key = "k", .key_len = 1};
    dead_letter_check(&message, "payload", NULL);
    dead_letter_check(&message, "key", "k");
    message.payload = "{\"v\":";
    message.len = message.full_len = 5;
    dead_letter_check(&message, "payload", "eyJ2Ijo=");
    message.key = "\xff\n";
    message.key_len = 2;
    dead_letter_check(&message, "key", "\xef\xbf\xbd\n");
}

static void test_long_dead_letter_is_cut(void **state)
{
    (void)state;
    size_t len = 100 * 1024;
    char *payload = calloc(1, len);
    struct bus_message message = {.payload = payload, .len = len, .full_len = 1048576};
    struct buf json;
    buf_init(&json, 256 * 1024);
    assert_true(message_put_dead_letter(&json, "t", &message, "long"));
    json_t *object = json_parse_object(json.data, json.len, NULL);
    assert_non_null(object);
    assert_int_equal(json_string_length(json_object_get(object, "payload")), (65536 + 2) / 3 * 4);
    assert_int_equal(json_integer_value(json_object_get(object, "payloadBytes")), 1048576);
    json_decref(object);
    buf_free(&json);
    free(payload);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_effect_round_trip),
        cmocka_unit_test(test_longest_effect_fits),
        cmocka_unit_test(test_reconcile_round_trip),
        cmocka_unit_test(test_outcome_round_trip),
        cmocka_unit_test(test_garbage_is_refused),
        cmocka_unit_test(test_megabyte_is_refused),
        cmocka_unit_test(test_mutations),
        cmocka_unit_test(test_unknown_words),
        cmocka_unit_test(test_dead_letter),
        cmocka_unit_test(test_long_dead_letter_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
