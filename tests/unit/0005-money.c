/* Checked money: the edges of the range, and currency codes. */
#include "common/base/money.h"
#include "tests/test.h"

static void test_add(void **state)
{
    int64_t out = 7;
    (void)state;
    assert_true(money_add(0, 0, &out));
    assert_int_equal(out, 0);
    assert_true(money_add(MONEY_MAX - 1, 1, &out));
    assert_true(out == MONEY_MAX);
    out = 7;
    assert_false(money_add(MONEY_MAX, 1, &out));
    assert_false(money_add(1, MONEY_MAX, &out));
    assert_false(money_add(INT64_MAX, INT64_MAX, &out));
    assert_false(money_add(INT64_MAX, 0, &out));
    assert_false(money_add(-1, 1, &out));
    assert_false(money_add(1, -1, &out));
    assert_false(money_add(INT64_MIN, INT64_MIN, &out));
    assert_int_equal(out, 7);
}

static void test_multiply(void **state)
{
    int64_t out = 7;
    (void)state;
    assert_true(money_multiply(0, MONEY_MAX, &out));
    assert_int_equal(out, 0);
    assert_true(money_multiply(1, MONEY_MAX, &out));
    assert_true(out == MONEY_MAX);
    assert_true(money_multiply(94906265, 94906265, &out));
    assert_true(out == 9007199136250225);
    out = 7;
    assert_false(money_multiply(94906267, 94906267, &out)); /* just past 2^53 */
    assert_false(money_multiply(2, MONEY_MAX, &out));
    assert_false(money_multiply(INT64_C(1) << 32, INT64_C(1) << 32, &out)); /* wraps to 0 */
    assert_false(money_multiply(-1, -1, &out));
    assert_false(money_multiply(INT64_MIN, -1, &out));
    assert_int_equal(out, 7);
}

static void test_currency(void **state)
{
    static const char *const refused[] = {"",    "e",   "eu",  "EUR",      "euro",
                                          "e1r", "eu ", " eu", "e\xc3\xbc"};
    (void)state;
    assert_true(money_currency_valid("eur"));
    assert_true(money_currency_valid("zzz"));
    assert_false(money_currency_valid(NULL));
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
        if (money_currency_valid(refused[i]))
            fail_msg("%s was taken", refused[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_add),
        cmocka_unit_test(test_multiply),
        cmocka_unit_test(test_currency),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
