/* Operation keys from an effectKey template. */
#include "adapters/shared.h"
#include "tests/adapters.h"

static void test_check(void **state)
{
    (void)state;
    static const struct {
        const char *definition;
        bool taken;
    } cases[] = {
        {"{}", true},
        {"{'effectKey':null}", true},
        {"{'effectKey':'refund:{payment_id}'}", true},
        {"{'effectKey':'{a.b.0}/{c}'}", true},
        {"{'effectKey':7}", false},
        {"{'effectKey':''}", false},
        {"{'effectKey':'constant'}", false},
        {"{'effectKey':'a b:{c}'}", false},
        {"{'effectKey':'\\u00fc:{c}'}", false},
        {"{'effectKey':'a{c'}", false},
        {"{'effectKey':'a}c{d}'}", false},
        {"{'effectKey':'{}'}", false},
        {"{'effectKey':'{{input.a}}'}", false},
        {"{'effectKey':'{a.*}'}", false},
        {"{'effectKey':'{a..b}'}", false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct error err = {0};
        json_t *definition = json_of(cases[i].definition);
        if (effect_key_check(definition, &err) != cases[i].taken)
            fail_msg("%s: %s", cases[i].definition, err.text);
        if (!cases[i].taken)
            assert_string_equal(err.place, "/effectKey");
        json_decref(definition);
    }
}

static void test_expand(void **state)
{
    (void)state;
    static const struct {
        const char *template, *input, *expected, *refused_at;
    } cases[] = {
        {"refund:{id}", "{'id':'pi_1'}", "refund:pi_1", NULL},
        {"{a.b}:{n}:{t}", "{'a':{'b':'x'},'n':7,'t':false}", "x:7:false", NULL},
        {"{a}:{b}", "{'a':'x:y','b':'z'}", "x%3Ay:z", NULL},
        {"{a}:{b}", "{'a':'x','b':'y:z'}", "x:y%3Az", NULL},
        {"k:{a}", "{'a':'{a}'}", "k:%7Ba%7D", NULL},
        {"k:{a}", "{'a':'\xc3\xbc \\r\\n'}", "k:%C3%BC%20%0D%0A", NULL},
        {"k:{a}", "{}", NULL, "/input/a"},
        {"k:{a.b}", "{'a':1}", NULL, "/input/a/b"},
        {"k:{a}", "{'a':''}", NULL, "/input/a"},
        {"k:{a}", "{'a':null}", NULL, "/input/a"},
        {"k:{a}", "{'a':[1]}", NULL, "/input/a"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct error err = {0};
        char *key = NULL;
        json_t *input = json_of(cases[i].input);
        bool ok = effect_key_expand(cases[i].template, input, &key, &err);
        if (ok != (cases[i].expected != NULL))
            fail_msg("%s: %s", cases[i].template, err.text);
        if (ok)
            assert_string_equal(key, cases[i].expected);
        else
            assert_string_equal(err.place, cases[i].refused_at);
        free(key);
        json_decref(input);
    }
}

static void test_length(void **state)
{
    (void)state;
    char value[400];
    char *key = NULL;
    struct error err = {0};
    memset(value, 'a', sizeof(value));
    static const struct {
        size_t len;
        bool taken;
    } cases[] = {{253, true}, {254, false}, {399, false}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        json_t *input = json_pack("{s:s%}", "v", value, cases[i].len);
        assert_int_equal(effect_key_expand("k:{v}", input, &key, &err), cases[i].taken);
        if (cases[i].taken) {
            assert_int_equal(strlen(key), 255);
            free(key);
        }
        json_decref(input);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_expand),
        cmocka_unit_test(test_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
