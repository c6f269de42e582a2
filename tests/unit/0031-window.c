/* The contiguous decided prefix of a partition, against a plain model. */
#include "common/bus/window.h"
#include "tests/test.h"

#include <stdlib.h>

static void test_prefix_waits_for_the_oldest(void **state)
{
    (void)state;
    struct window window = {0};
    uint64_t seq[3];
    int64_t position = -1;
    /* Offsets have gaps: transactions and compaction leave some out. */
    const int64_t offsets[3] = {10, 11, 15};
    for (int i = 0; i < 3; i++)
        assert_true(window_put(&window, offsets[i], &seq[i]));
    assert_int_equal(window_done(&window, seq[1], &position), 0);
    assert_int_equal(window_done(&window, seq[2], &position), 0);
    assert_int_equal(position, -1);
    assert_int_equal(window_done(&window, seq[0], &position), 3);
    assert_int_equal(position, 16);
    assert_int_equal(window_length(&window), 0);
    assert_int_equal(window_done(&window, seq[0], &position), 0);
    assert_int_equal(window_done(&window, 1000, &position), 0);
    window_free(&window);
}

enum { MESSAGES = 5000, OPEN_MAX = 700 };

/* Messages come, and open ones are decided in random order: after each step the position is the
 * offset after the longest decided prefix. */
static void test_random_order_keeps_the_prefix(void **state)
{
    (void)state;
    static bool done[MESSAGES];
    struct window window = {0};
    uint64_t seqs[MESSAGES];
    int64_t position = 0;
    int put = 0, prefix = 0;
    srand(7);
    while (prefix < MESSAGES) {
        if (put < MESSAGES && put - prefix < OPEN_MAX && rand() % 2) {
            assert_true(window_put(&window, put * 3, &seqs[put]));
            put++;
        } else if (put > prefix) {
            int i = prefix + rand() % (put - prefix);
            done[i] = true;
            int before = prefix;
            while (prefix < put && done[prefix])
                prefix++;
            assert_int_equal(window_done(&window, seqs[i], &position), prefix - before);
        }
        assert_int_equal(position, prefix == 0 ? 0 : (prefix - 1) * 3 + 1);
        assert_int_equal(window_length(&window), put - prefix);
    }
    window_free(&window);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prefix_waits_for_the_oldest),
        cmocka_unit_test(test_random_order_keeps_the_prefix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
