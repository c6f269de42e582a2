/* Impact declarations: what may be declared, and what an input then gives; never rounded. */
#include "adapters/impact.h"
#include "tests/adapters.h"

#include <inttypes.h>

static void test_check(void **state)
{
    (void)state;
    static const struct {
        const char *declaration;
        const char *refused_at; /* NULL: taken */
    } cases[] = {
        {"{'dimension':'money','unit':'usd','amount':'input.amount','bound':'exact'}", NULL},
        {"{'dimension':'emails','amount':'count(input.to)','bound':'upper_bound'}", NULL},
        {"{'dimension':'emails','unit':'emails','amount':'1','bound':'exact'}", NULL},
        {"{'dimension':'emails','unit':null,'amount':1,'bound':'exact'}", NULL},
        {"{'dimension':'a','amount':'input.a.b.0 * 100','bound':'exact'}", NULL},
        {"{'dimension':'a','amount':'count( input.a )*2','bound':'exact'}", NULL},
        {"{'dimension':'a','amount':'3 * 4','bound':'exact'}", NULL},
        {"{'dimension':'a','amount':'9007199254740991','bound':'exact'}", NULL},
        {"[]", "/impact"},
        {"'1'", "/impact"},
        {"{'dimension':'a','amount':'1','bound':'exact','x':1}", "/impact/x"},
        {"{'amount':'1','bound':'exact'}", "/impact/dimension"},
        {"{'dimension':'','amount':'1','bound':'exact'}", "/impact/dimension"},
        {"{'dimension':'Money','unit':'usd','amount':'1','bound':'exact'}", "/impact/dimension"},
        {"{'dimension':'1a','amount':'1','bound':'exact'}", "/impact/dimension"},
        {"{'dimension':'a-b','amount':'1','bound':'exact'}", "/impact/dimension"},
        {"{'dimension':'abcdefghijklmnopqrstuvwxyz0123456','amount':'1','bound':'exact'}",
         "/impact/dimension"},
        {"{'dimension':'money','amount':'1','bound':'exact'}", "/impact/unit"},
        {"{'dimension':'money','unit':'USD','amount':'1','bound':'exact'}", "/impact/unit"},
        {"{'dimension':'money','unit':'us','amount':'1','bound':'exact'}", "/impact/unit"},
        {"{'dimension':'a','unit':'b','amount':'1','bound':'exact'}", "/impact/unit"},
        {"{'dimension':'a','unit':1,'amount':'1','bound':'exact'}", "/impact/unit"},
        {"{'dimension':'a','amount':'1'}", "/impact/bound"},
        {"{'dimension':'a','amount':'1','bound':'about'}", "/impact/bound"},
        {"{'dimension':'a','bound':'exact'}", "/impact/amount"},
        {"{'dimension':'a','amount':'','bound':'exact'}", "/impact/amount"},
        {"{'dimension':'a','amount':1.0,'bound':'exact'}", "/impact/amount"},
        {"{'dimension':'a','amount':-1,'bound':'exact'}", "/impact/amount"},
        {"{'dimension':'a','amount':'-1','bound':'exact'}", "/impact/amount"},
        {"{'dimension':'a','amount':'1.5','bound':'exact'}", "/impact/amount"},
        {"{'dimension':'a','amount':'01','bound':'exact'}", "/impact/amount"},
        {"{'dimension':'a','amount':'1e2','bound':'exact'}", "/impact/amount"},
        {"{'dimension':'a','amount':'9007199254740992','bound':'exact'}", "/impact/amount"},
        {"{'dimension':'a','amount':'99999999999999999999999','bound':'exact'}", "/impact/amount"},
        {"{'dimension':'a','amount':'9007199254740991 * 2','bound':'exact'}", "/impact/amount"},
        {"{'dimension':'a','amount':'amount','bound':'exact'}", "/impact/amount"},
        {"{'dimension':'a','amount':'input','bound':'exact'}", "/impact/amount"},
        {"{'dimension':'a','amount':'input.','bound':'exact'}", "/impact/amount"},
        {"{'dimension':'a','amount':'{{input.a}}','bound':'exact'}", "/impact/amount"},
        {"{'dimension':'a','amount':'input.a * input.b','bound':'exact'}", "/impact/amount"},
        {"{'dimension':'a','amount':'input.a * -1','bound':'exact'}", "/impact/amount"},
        {"{'dimension':'a','amount':'input.a * 2 * 3','bound':'exact'}", "/impact/amount"},
        {"{'dimension':'a','amount':'input.a + 1','bound':'exact'}", "/impact/amount"},
        {"{'dimension':'a','amount':'2 * input.a','bound':'exact'}", "/impact/amount"},
        {"{'dimension':'a','amount':'count(input.a','bound':'exact'}", "/impact/amount"},
        {"{'dimension':'a','amount':'count()','bound':'exact'}", "/impact/amount"},
        {"{'dimension':'a','amount':'count(1)','bound':'exact'}", "/impact/amount"},
        {"{'dimension':'a','amount':'sum(input.a)','bound':'exact'}", "/impact/amount"},
        {"{'dimension':'a','amount':'count(input.*.a)','bound':'exact'}", "/impact/amount"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct error err = {0};
        json_t *declaration = json_of(cases[i].declaration);
        bool ok = impact_check(declaration, &err);
        if (ok != !cases[i].refused_at)
            fail_msg("%s: %s %s", cases[i].declaration, err.place, err.text);
        if (!ok) {
            assert_int_equal(err.code, ERROR_INVALID);
            assert_string_equal(err.place, cases[i].refused_at);
        }
        json_decref(declaration);
    }
}

#define NOTHING (-1) /* no quantity */
#define REFUSED (-2)

static void test_evaluate(void **state)
{
    (void)state;
    static const struct {
        const char *amount, *input;
        int64_t expected;
        const char *refused_at;
    } cases[] = {
        {"input.a", "{'a':12000}", 12000, NULL},
        {"input.a", "{'a':0}", 0, NULL},
        {"input.a", "{'a':9007199254740991}", 9007199254740991, NULL},
        {"input.a", "{}", NOTHING, NULL},
        {"input.a.b", "{'a':5}", NOTHING, NULL},
        {"input.a", "{'a':100.0}", REFUSED, "/input/a"},
        {"input.a", "{'a':1e2}", REFUSED, "/input/a"},
        {"input.a", "{'a':'100'}", REFUSED, "/input/a"},
        {"input.a", "{'a':-1}", REFUSED, "/input/a"},
        {"input.a", "{'a':null}", REFUSED, "/input/a"},
        {"input.a", "{'a':true}", REFUSED, "/input/a"},
        {"input.a", "{'a':[1]}", REFUSED, "/input/a"},
        {"input.a.0.b", "{'a':[{'b':7}]}", 7, NULL},
        {"input.a * 100", "{'a':3}", 300, NULL},
        {"input.a * 0", "{'a':3}", 0, NULL},
        {"input.a * 100", "{}", NOTHING, NULL},
        {"input.a * 2", "{'a':9007199254740991}", REFUSED, "/input/a"},
        {"input.a * 9007199254740991", "{'a':9007199254740991}", REFUSED, "/input/a"},
        {"count(input.to)", "{'to':[]}", 0, NULL},
        {"count(input.to)", "{'to':['a','b']}", 2, NULL},
        {"count(input.to)*3", "{'to':['a','b']}", 6, NULL},
        {"count(input.to)", "{}", NOTHING, NULL},
        {"count(input.to)", "{'to':'a,b'}", REFUSED, "/input/to"},
        {"count(input.to)", "{'to':{'a':1}}", REFUSED, "/input/to"},
        {"7", "{}", 7, NULL},
        {"7 * 6", "{}", 42, NULL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct error err = {0};
        struct impact impact;
        json_t *input = json_of(cases[i].input);
        json_t *declaration = json_of("{'dimension':'money','unit':'usd','bound':'exact'}");
        json_object_set_new(declaration, "amount", json_string(cases[i].amount));
        assert_true(impact_check(declaration, &err));
        bool ok = impact_evaluate(declaration, input, &impact, &err);
        if (ok != (cases[i].expected != REFUSED))
            fail_msg("%s %s: %s", cases[i].amount, cases[i].input, err.text);
        if (!ok) {
            assert_int_equal(err.code, ERROR_INVALID);
            assert_string_equal(err.place, cases[i].refused_at);
        } else {
            assert_true(impact.declared);
            assert_string_equal(impact.dimension, "money");
            assert_string_equal(impact.unit, "usd");
            assert_string_equal(impact.bound, "exact");
            assert_int_equal(impact.has_amount, cases[i].expected != NOTHING);
            if (impact.has_amount && impact.amount != cases[i].expected)
                fail_msg("%s %s gave %" PRId64, cases[i].amount, cases[i].input, impact.amount);
        }
        json_decref(declaration);
        json_decref(input);
    }
}

static void test_unit_of_a_count(void **state)
{
    (void)state;
    struct error err = {0};
    struct impact impact;
    json_t *declaration = json_of("{'dimension':'emails','amount':2,'bound':'upper_bound'}");
    assert_true(impact_evaluate(declaration, NULL, &impact, &err));
    assert_string_equal(impact.unit, "emails");
    assert_string_equal(impact.bound, "upper_bound");
    assert_int_equal(impact.amount, 2);
    json_decref(declaration);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_evaluate),
        cmocka_unit_test(test_unit_of_a_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
