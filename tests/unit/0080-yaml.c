/* YAML as far as it says what JSON can say; everything that readers disagree about is refused. */
#include "common/base/json.h"
#include "common/base/yaml.h"
#include "tests/test.h"

#include <stdlib.h>
#include <string.h>

static void test_taken(void **state)
{
    (void)state;
    static const struct {
        const char *yaml, *json;
    } cases[] = {
        {"a: 1\nb: [x, 'y', \"z\\n\"]\n", "{\"a\":1,\"b\":[\"x\",\"y\",\"z\\n\"]}"},
        {"- true\n- False\n- null\n- ~\n-\n", "[true,false,null,null,null]"},
        {"'yes'", "\"yes\""},
        {"{a: {b: -1.5}, \"c\": 1e2}", "{\"a\":{\"b\":-1.5},\"c\":100}"},
        {"a: |\n  one\n  two\n", "{\"a\":\"one\\ntwo\\n\"}"},
        {"--- 2026-01-01", "\"2026-01-01\""},
        {"[1.2.3, v1, 1-2, a:b, -, .]", "[\"1.2.3\",\"v1\",\"1-2\",\"a:b\",\"-\",\".\"]"},
        {"a: # a comment\n  ü", "{\"a\":\"ü\"}"},
        {"1: x", "{\"1\":\"x\"}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct error err = {0};
        struct buf out;
        json_t *value = yaml_parse(cases[i].yaml, strlen(cases[i].yaml), &err);
        if (value == NULL)
            fail_msg("%s: %s %s", cases[i].yaml, err.place, err.text);
        buf_init(&out, 1000);
        assert_true(json_canonical(value, &out));
        assert_string_equal(out.data, cases[i].json);
        buf_free(&out);
        json_decref(value);
    }
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *yaml, *place;
    } cases[] = {
        {"", "line 1 column 1"},
        {"# nothing", "line 1 column 1"},
        {"a: &x 1\nb: *x", "line 1 column 4"},
        {"a: &x [1]\n", "line 1 column 4"},
        {"- *x", "line 1 column 3"},
        {"<<: {a: 1}", "line 1 column 1"},
        {"a: !!str 1", "line 1 column 4"},
        {"a: !mine [1]", "line 1 column 4"},
        {"a: 1\na: 2", "line 2 column 4"},
        {"\"a\": 1\na: 2", "line 2 column 4"},
        {"{? [a] : 1}", "line 1 column 4"},
        {"--- 1\n--- 2\n", "line 2 column 1"},
        {"a: yes", "line 1 column 4"},
        {"a: Off", "line 1 column 4"},
        {"a: n", "line 1 column 4"},
        {"a: 0x10", "line 1 column 4"},
        {"a: 010", "line 1 column 4"},
        {"a: 1_000", "line 1 column 4"},
        {"a: +1", "line 1 column 4"},
        {"a: .5", "line 1 column 4"},
        {"a: .inf", "line 1 column 4"},
        {"a: 12:30", "line 1 column 4"},
        {"a: 9007199254740993", "line 1 column 4"},
        {"a: \"\\0\"", "line 1 column 4"},
        {"\"a\\0b\": 1", "line 1 column 1"},
        {"a: [1", NULL},
        {"a: \"\xff\"", NULL},
        {"\t- a", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct error err = {0};
        json_t *value = yaml_parse(cases[i].yaml, strlen(cases[i].yaml), &err);
        if (value != NULL)
            fail_msg("%s: was taken", cases[i].yaml);
        assert_int_equal(err.code, ERROR_INVALID);
        assert_true(err.text[0] != '\0');
        if (cases[i].place != NULL)
            assert_string_equal(err.place, cases[i].place);
    }
}

/* Nesting and sheer number end the reading, whatever was built by then. */
static void test_bounds(void **state)
{
    (void)state;
    struct buf text;
    for (int depth = JSON_DEPTH_MAX; depth <= JSON_DEPTH_MAX + 1; depth++) {
        buf_init(&text, 10000);
        for (int i = 0; i < depth; i++)
            buf_puts(&text, "[");
        for (int i = 0; i < depth; i++)
            buf_puts(&text, "]");
        json_t *value = yaml_parse(text.data, text.len, NULL);
        assert_int_equal(value != NULL, depth == JSON_DEPTH_MAX);
        json_decref(value);
        buf_free(&text);
    }
    buf_init(&text, 10 * YAML_NODES_MAX);
    for (int i = 0; i < YAML_NODES_MAX; i++)
        buf_puts(&text, "- a\n");
    assert_null(yaml_parse(text.data, text.len, NULL));
    buf_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_taken), cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_bounds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
