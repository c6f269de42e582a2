/* The gate: once, in time, and never again. */
#include "dispatcher/gate.h"
#include "tests/test.h"

#include <pthread.h>
#include <stddef.h>

static const struct ulid effect = {{1}};

struct journal {
    int calls;
    bool fails;
    enum gate_state seen;
};

static bool journal_write(struct send_record *record, void *opaque)
{
    struct journal *journal = opaque;
    journal->calls++;
    journal->seen = record->state;
    return !journal->fails;
}

static struct send_record record_with(struct journal *journal)
{
    struct send_record record;
    send_record_init(&record, &effect, 1, 1000);
    record.before_open = journal ? journal_write : NULL;
    record.before_open_opaque = journal;
    return record;
}

static void test_opens_once(void **state)
{
    (void)state;
    struct journal journal = {0};
    struct send_record record = record_with(&journal);
    assert_false(gate_opened(&record));
    assert_null(gate_cause(&record));
    assert_true(gate_pass(&record, 500000, 77));
    assert_true(gate_opened(&record));
    assert_int_equal(record.opened_boot_us, 500000);
    assert_int_equal(record.opened_wall_us, 77);
    assert_int_equal(journal.seen, GATE_NOT_ASKED); /* written before it opened */
    for (int i = 0; i < 3; i++)
        assert_false(gate_pass(&record, 500001, 78));
    assert_int_equal(record.opened_wall_us, 77);
    assert_int_equal(journal.calls, 1);
    assert_true(gate_opened(&record)); /* a refusal does not unsay that it opened */
    assert_null(gate_cause(&record));
}

static void test_late(void **state)
{
    (void)state;
    struct journal journal = {0};
    struct send_record record = record_with(&journal);
    assert_false(gate_pass(&record, 1000000, 1)); /* at send_by is late */
    assert_false(gate_opened(&record));
    assert_non_null(gate_cause(&record));
    assert_int_equal(journal.calls, 0);
    assert_false(gate_pass(&record, 1, 1)); /* a clock that says otherwise later changes nothing */
    assert_false(gate_opened(&record));
    struct send_record other = record_with(NULL);
    assert_true(gate_pass(&other, 999999, 1));
}

static void test_held(void **state)
{
    (void)state;
    struct journal journal = {.fails = true};
    struct send_record record = record_with(&journal);
    assert_false(gate_pass(&record, 1, 1));
    assert_false(gate_opened(&record));
    assert_non_null(gate_cause(&record));
    journal.fails = false;
    assert_false(gate_pass(&record, 1, 1)); /* shut for good */
    assert_int_equal(journal.calls, 1);
}

static void *ask(void *opaque)
{
    return (void *)(intptr_t)gate_pass(opaque, 1, 1);
}

static void test_threads(void **state)
{
    (void)state;
    for (int round = 0; round < 200; round++) {
        struct send_record record = record_with(NULL);
        pthread_t threads[4];
        int opened = 0;
        for (int i = 0; i < 4; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, ask, &record), 0);
        for (int i = 0; i < 4; i++) {
            void *passed;
            pthread_join(threads[i], &passed);
            opened += passed != NULL;
        }
        assert_int_equal(opened, 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_opens_once),
        cmocka_unit_test(test_late),
        cmocka_unit_test(test_held),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
