/* Strict JSON in: what is taken, what is refused, where and in which words. */
#include "common/base/json.h"
#include "tests/test.h"

#include <stdlib.h>
#include <string.h>

struct sample {
    const char *text;
    size_t len; /* 0: strlen */
    const char *place;
    const char *sentence;
};

static const char exact[] = "a number is outside the range that can be held exactly";
static const char duplicate[] = "an object has two members of the same name";
static const char invalid[] = "the text is not valid JSON";
static const char nul[] = "the JSON holds a NUL character";
static const char utf8[] = "the JSON is not valid UTF-8";

static json_t *parse(const struct sample *s, struct error *err)
{
    size_t len = s->len ? s->len : strlen(s->text);
    /* A copy of exactly that length: a read past it is seen by the address sanitizer. */
    char *copy = malloc(len ? len : 1);
    assert_non_null(copy);
    memcpy(copy, s->text, len);
    memset(err, 0, sizeof(*err));
    json_t *value = json_parse_strict(copy, len, err);
    free(copy);
    return value;
}

static void test_accepts(void **state)
{
    static const struct sample samples[] = {
        {"{}"},
        {" [1, 2.5, -3e-2, true, false, null, \"x\"]\r\n\t "},
        {"\"alone\""},
        {"7"},
        {"-0"},
        {"-0.0"},
        {"0.0e7"},
        {"0e-999"},
        {"9007199254740991"},
        {"-9007199254740991"},
        {"9007199254740991.0"},
        {"4503599627370497.5"},
        {"100.0"},
        {"1e15"},
        {"5e-324"},
        {"\"\\u20ac \\ud83d\\ude00 \\u0001 \\/\""},
        {"\"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \xef\xbf\xbf\""},
        {"{\"a\":1,\"A\":2,\"\":3}"},
        {"{\"a\":{\"a\":{\"a\":1}}}"},
        {"\"1e400 99999999999999999999 [[[\""},
        {"\"\\\"-\\\\\""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
        struct error err;
        json_t *value = parse(&samples[i], &err);
        if (!value)
            fail_msg("%s: %s: %s", samples[i].text, err.place, err.text);
        json_decref(value);
    }
}

static void test_refuses(void **state)
{
    static const struct sample samples[] = {
        {"{\"a\":1,\"a\":2}", 0, NULL, duplicate},
        {"{\"a\":1,\"\\u0061\":2}", 0, NULL, duplicate},
        {"{\"\xc3\xa9\":1,\"\\u00e9\":1}", 0, NULL, duplicate},
        {"{\"\xf0\x9f\x98\x80\":1,\"\\ud83d\\uDE00\":1}", 0, NULL, duplicate},
        {"[{\"x\":{\"a\\/b\":1,\"a/b\":1}}]", 0, NULL, duplicate},
        {"\"\\ud800\"", 0, NULL, invalid},
        {"\"\\udc00\"", 0, NULL, invalid},
        {"\"\\ud800\\u0041\"", 0, NULL, invalid},
        {"\"\\ud800x\"", 0, NULL, invalid},
        {"\"\\udc00\\ud800\"", 0, NULL, invalid},
        {"\"a\\u0000b\"", 0, NULL, nul},
        {"{\"a\\u0000b\":1}", 0, NULL, nul},
        {"\"a\0b\"", 5, "line 1 column 3", nul},
        {"[1]\0", 4, "line 1 column 4", nul},
        {"\0", 1, NULL, nul},
        {"\"\\\0\"", 4, NULL, invalid},
        {"\"a\nb\"", 0, NULL, invalid},
        {"\"a\x1f\"", 0, NULL, invalid},
        {"1e400", 0, "line 1 column 1", exact},
        {"-1e400", 0, "line 1 column 1", exact},
        {"1e-400", 0, "line 1 column 1", exact},
        {"{\"n\":0.0000001e-400}", 0, "line 1 column 6", exact},
        {"9007199254740992", 0, "line 1 column 1", exact},
        {"-9007199254740992", 0, "line 1 column 1", exact},
        {"[1,\n \"\xc3\xa9\", 9007199254740993]", 0, "line 2 column 7", exact},
        {"9007199254740993.0", 0, "line 1 column 1", exact},
        {"9007199254740991.5", 0, "line 1 column 1", exact},
        {"1e16", 0, "line 1 column 1", exact},
        {"123456789012345678901234567890", 0, "line 1 column 1", exact},
        {"99999999999999999999999999999999999999999999999999999999999999999999999.5", 0,
         "line 1 column 1", exact},
        {"01", 0, NULL, invalid},
        {"-01", 0, NULL, invalid},
        {"00", 0, NULL, invalid},
        {"+1", 0, NULL, invalid},
        {"1.", 0, NULL, invalid},
        {".5", 0, NULL, invalid},
        {"1e", 0, NULL, NULL},
        {"-", 0, NULL, NULL},
        {"1.5.5", 0, NULL, NULL},
        {"0x10", 0, NULL, NULL},
        {"NaN", 0, NULL, invalid},
        {"Infinity", 0, NULL, invalid},
        {"{} x", 0, NULL, "something follows the JSON value"},
        {"{}{}", 0, NULL, "something follows the JSON value"},
        {"1 2", 0, NULL, "something follows the JSON value"},
        {"\xef\xbb\xbf{}", 0, NULL, invalid},
        {"", 0, NULL, "the JSON ends too early"},
        {"  ", 0, NULL, "the JSON ends too early"},
        {"[1,", 0, NULL, "the JSON ends too early"},
        {"\"abc", 0, NULL, "the JSON ends too early"},
        {"\"abc\\", 0, NULL, NULL},
        {"[1,]", 0, NULL, invalid},
        {"{\"a\":1,}", 0, NULL, invalid},
        {"{a:1}", 0, NULL, invalid},
        {"{'a':1}", 0, NULL, invalid},
        {"[1] // note", 0, NULL, "something follows the JSON value"},
        {"TRUE", 0, NULL, invalid},
        {"\"\xc0\xaf\"", 0, NULL, utf8},         /* overlong "/" */
        {"\"\xe0\x80\xaf\"", 0, NULL, utf8},     /* overlong, three bytes */
        {"\"\xf0\x80\x80\xaf\"", 0, NULL, utf8}, /* overlong, four bytes */
        {"\"\xed\xa0\x80\"", 0, NULL, utf8},     /* a surrogate as UTF-8 */
        {"\"\xf4\x90\x80\x80\"", 0, NULL, utf8}, /* past U+10FFFF */
        {"\"\xff\"", 0, NULL, utf8},
        {"\"\xe2\x82\"", 0, NULL, utf8},
        {"\"\xe2", 0, NULL, utf8},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
        const struct sample *s = &samples[i];
        struct error err;
        json_t *value = parse(s, &err);
        if (value)
            fail_msg("sample %zu was taken: %s", i, s->text);
        assert_int_equal(err.code, ERROR_INVALID);
        if (s->sentence && strcmp(err.text, s->sentence) != 0)
            fail_msg("sample %zu, %s: says \"%s\"", i, s->text, err.text);
        if (s->place && strcmp(err.place, s->place) != 0)
            fail_msg("sample %zu, %s: at %s", i, s->text, err.place);
        assert_memory_equal(err.place, "line ", 5);
    }
}

/* `depth` levels, alternately arrays and objects. */
static json_t *parse_nested(int depth, struct error *err)
{
    char text[2048] = "";
    for (int i = 0; i < depth; i++)
        strcat(text, i % 2 ? "{\"a\":" : "[");
    strcat(text, "1");
    for (int i = depth - 1; i >= 0; i--)
        strcat(text, i % 2 ? "}" : "]");
    return json_parse_strict(text, strlen(text), err);
}

static void test_depth(void **state)
{
    struct error err;
    (void)state;
    json_t *value = parse_nested(64, &err);
    assert_non_null(value);
    json_decref(value);
    assert_null(parse_nested(65, &err));
    assert_string_equal(err.text, "the JSON is nested more than 64 levels deep");

    /* Many values side by side are not deep. */
    char wide[1024] = "[[]";
    for (int i = 0; i < 100; i++)
        strcat(wide, ",[{}]");
    strcat(wide, "]");
    value = json_parse_strict(wide, strlen(wide), &err);
    assert_non_null(value);
    json_decref(value);
}

static void test_messages_hold_no_input(void **state)
{
    static const char *const texts[] = {"{\"sekret\":1,\"sekret\":2}", "[sekret]", "\"sekret",
                                        "{\"a\":\"sekret\" \"b\"}", "{} sekret"};
    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct error err;
        assert_null(json_parse_strict(texts[i], strlen(texts[i]), &err));
        assert_null(strstr(err.text, "sek"));
        assert_null(strstr(err.place, "sek"));
    }
}

static void test_object_only(void **state)
{
    struct error err;
    (void)state;
    assert_null(json_parse_object("[1]", 3, &err));
    assert_int_equal(err.code, ERROR_INVALID);
    assert_string_equal(err.text, "the JSON value must be an object");
    json_t *value = json_parse_object("{\"a\":1}", 7, &err);
    assert_true(json_is_object(value));
    json_decref(value);
}

static json_t *value_of(const char *text)
{
    struct error err;
    json_t *value = json_parse_strict(text, strlen(text), &err);
    assert_non_null(value);
    return value;
}

static void test_pointer(void **state)
{
    /* The document and the answers of RFC 6901, section 5. */
    json_t *root = value_of("{\"foo\":[\"bar\",\"baz\"],\"\":0,\"a/b\":1,\"c%d\":2,\"e^f\":3,"
                            "\"g|h\":4,\"i\\\\j\":5,\"k\\\"l\":6,\" \":7,\"m~n\":8}");
    static const struct {
        const char *pointer;
        int value;
    } numbers[] = {{"/", 0},     {"/a~1b", 1}, {"/c%d", 2}, {"/e^f", 3}, {"/g|h", 4},
                   {"/i\\j", 5}, {"/k\"l", 6}, {"/ ", 7},   {"/m~0n", 8}};
    static const char *const absent[] = {
        "/nope",   "/foo/2", "/foo/-", "/foo/00", "/foo/01", "/foo/0x",
        "/foo/0/", "foo",    "/m~n",   "/m~2n",   "/foo/",   "/foo/99999999999999999999"};
    (void)state;
    assert_ptr_equal(json_at_pointer(root, ""), root);
    assert_string_equal(json_string_value(json_at_pointer(root, "/foo/0")), "bar");
    assert_string_equal(json_string_value(json_at_pointer(root, "/foo/1")), "baz");
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        json_t *value = json_at_pointer(root, numbers[i].pointer);
        assert_true(json_is_integer(value));
        assert_int_equal(json_integer_value(value), numbers[i].value);
    }
    for (size_t i = 0; i < sizeof(absent) / sizeof(absent[0]); i++)
        if (json_at_pointer(root, absent[i]))
            fail_msg("%s names something", absent[i]);
    json_decref(root);
}

static void test_amount(void **state)
{
    static const char *const refused[] = {"100.0", "1e2",  "\"100\"", "-1", "0",   "1001",
                                          "null",  "true", "[1]",     "-0", "1.5", "1e-1"};
    int64_t amount = 7;
    struct error err;
    (void)state;
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        json_t *value = value_of(refused[i]);
        if (json_amount(value, "/amount", 1, 1000, &amount, &err))
            fail_msg("%s was taken", refused[i]);
        assert_int_equal(err.code, ERROR_INVALID);
        assert_string_equal(err.place, "/amount");
        assert_int_equal(amount, 7);
        json_decref(value);
    }
    assert_false(json_amount(NULL, "/amount", 0, 10, &amount, &err));
    json_t *value = value_of("1000");
    assert_true(json_amount(value, "/amount", 1, 1000, &amount, &err));
    assert_int_equal(amount, 1000);
    json_decref(value);
}

static void test_fields(void **state)
{
    json_t *object = value_of("{\"name\":\"abc\",\"on\":true,\"n\":5,\"none\":null,\"real\":5.0}");
    const char *text = "before";
    bool flag = false;
    int64_t number = -1;
    struct error err;
    (void)state;
    assert_true(json_field_text(object, "name", true, 1, 3, &text, &err));
    assert_string_equal(text, "abc");
    assert_false(json_field_text(object, "name", true, 1, 2, &text, &err));
    assert_string_equal(err.place, "/name");
    assert_string_equal(err.text, "must be from 1 to 2 bytes long");
    assert_false(json_field_text(object, "on", false, 0, 9, &text, &err));
    assert_string_equal(err.text, "must be a string");
    assert_true(json_field_text(object, "absent", false, 0, 9, &text, &err));
    assert_true(json_field_text(object, "none", false, 0, 9, &text, &err));
    assert_string_equal(text, "abc");
    assert_false(json_field_text(object, "absent", true, 0, 9, &text, &err));
    assert_string_equal(err.text, "is required");
    assert_false(json_field_text(object, "none", true, 0, 9, &text, &err));

    assert_true(json_field_bool(object, "on", true, &flag, &err));
    assert_true(flag);
    assert_false(json_field_bool(object, "n", false, &flag, &err));

    assert_true(json_field_int(object, "n", true, 5, 5, &number, &err));
    assert_int_equal(number, 5);
    assert_false(json_field_int(object, "n", true, 6, 9, &number, &err));
    assert_string_equal(err.text, "must be from 6 to 9");
    assert_false(json_field_int(object, "real", true, 0, 9, &number, &err));
    json_decref(object);
}

static void test_only_members(void **state)
{
    static const char *const all[] = {"a", "b", "c", NULL};
    static const char *const some[] = {"a", NULL};
    json_t *object = value_of("{\"a\":1,\"b\":2}");
    struct error err;
    (void)state;
    assert_true(json_only_members(object, all, &err));
    assert_false(json_only_members(object, some, &err));
    assert_string_equal(err.place, "/b");
    json_decref(object);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accepts),      cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_depth),        cmocka_unit_test(test_messages_hold_no_input),
        cmocka_unit_test(test_object_only),  cmocka_unit_test(test_pointer),
        cmocka_unit_test(test_amount),       cmocka_unit_test(test_fields),
        cmocka_unit_test(test_only_members),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
