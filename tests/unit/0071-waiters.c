/* The table of waits, against what each wait was promised: found once, when its effect or its time
 * is due. */
#include "ingest/waiters.h"
#include "tests/test.h"

#include <stdlib.h>

enum { EFFECTS = 300, WAITS = 2000 };

static struct ulid effects[EFFECTS];
static struct call calls[WAITS];

static int setup(void **state)
{
    (void)state;
    for (int i = 0; i < EFFECTS; i++)
        ulid_new(&effects[i], 1000);
    waiters_start();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    waiters_stop();
    return 0;
}

static size_t list_free(struct wait *list)
{
    size_t count = 0;
    while (list != NULL) {
        struct wait *next = list->next;
        free(list);
        list = next;
        count++;
    }
    return count;
}

static void test_a_poke_finds_who_waits(void **state)
{
    struct ulid due[4];
    (void)state;
    waiters_poke(&effects[0]); /* nobody waits */
    assert_int_equal(waiters_take_due(due, 4, 0), 0);
    waiters_add(&effects[0], &calls[0], WAIT_FIRST, 1000, false);
    waiters_add(&effects[0], &calls[1], WAIT_DUPLICATE, 2000, false);
    assert_int_equal(waiters_take_due(due, 4, 0), 0);
    waiters_poke(&effects[0]);
    waiters_poke(&effects[0]); /* twice is once */
    assert_int_equal(waiters_take_due(due, 4, 0), 1);
    assert_int_equal(ulid_compare(&due[0], &effects[0]), 0);
    assert_int_equal(list_free(waiters_detach(&due[0], true, 0)), 2);
    assert_null(waiters_detach(&due[0], true, 0));
    assert_int_equal(waiters_count(), 0);
}

static void test_only_those_whose_time_is_over_leave(void **state)
{
    struct ulid due[4];
    (void)state;
    waiters_add(&effects[1], &calls[0], WAIT_FIRST, 1000, false);
    waiters_add(&effects[1], &calls[1], WAIT_DUPLICATE, 2000, false);
    waiters_expire(999);
    assert_int_equal(waiters_take_due(due, 4, 0), 0);
    waiters_expire(1000);
    assert_int_equal(waiters_take_due(due, 4, 0), 1);
    struct wait *over = waiters_detach(&effects[1], false, 1000);
    assert_ptr_equal(over->call, &calls[0]);
    assert_int_equal(list_free(over), 1);
    waiters_limit(1500); /* from now on nobody waits past it */
    waiters_expire(1500);
    assert_int_equal(waiters_take_due(due, 4, 0), 1);
    assert_int_equal(list_free(waiters_detach(&effects[1], false, 1500)), 1);
}

/* An effect that is due and detached by another path leaves no trace in the list of the due. */
static void test_due_and_gone(void **state)
{
    struct ulid due[4];
    (void)state;
    for (int i = 2; i < 5; i++)
        waiters_add(&effects[i], &calls[i], WAIT_FIRST, 1000, true);
    assert_int_equal(list_free(waiters_detach(&effects[4], true, 0)), 1); /* the last one */
    assert_int_equal(list_free(waiters_detach(&effects[2], true, 0)), 1); /* the first one */
    waiters_add(&effects[5], &calls[5], WAIT_FIRST, 1000, true);
    assert_int_equal(waiters_take_due(due, 4, 0), 2);
    assert_int_equal(ulid_compare(&due[0], &effects[3]), 0);
    assert_int_equal(ulid_compare(&due[1], &effects[5]), 0);
    list_free(waiters_detach(&effects[3], true, 0));
    list_free(waiters_detach(&effects[5], true, 0));
}

static void test_each_wait_ends_once(void **state)
{
    struct ulid due[64];
    size_t count, found = 0;
    (void)state;
    srand(11);
    for (int i = 0; i < WAITS; i++)
        waiters_add(&effects[rand() % EFFECTS], &calls[i], WAIT_FIRST, rand() % 1000, rand() % 2);
    free(waiters_all(&count));
    assert_true(count > 0 && count <= EFFECTS);
    for (int64_t now_ms = 0; now_ms <= 1000; now_ms += 50) {
        size_t n;
        waiters_expire(now_ms);
        while ((n = waiters_take_due(due, 64, 0)) > 0)
            for (size_t i = 0; i < n; i++)
                found += list_free(waiters_detach(&due[i], rand() % 4 == 0, now_ms));
    }
    assert_int_equal(found, WAITS);
    assert_int_equal(waiters_count(), 0);
    assert_null(waiters_all(&count));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_poke_finds_who_waits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_only_those_whose_time_is_over_leave, setup, teardown),
        cmocka_unit_test_setup_teardown(test_due_and_gone, setup, teardown),
        cmocka_unit_test_setup_teardown(test_each_wait_ends_once, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
