/* The state table and the words of the model: transition.c and effect.c against the database. */
#include "common/store/store.h"
#include "common/transition.h"
#include "tests/test.h"

#include <stdio.h>
#include <stdlib.h>

static struct store *store;

static PGresult *ask(const char *sql)
{
    struct error err = {0};
    PGresult *r = store_query(store, sql, NULL, 0, false, &err);
    if (r == NULL)
        fail_msg("%s: %s", sql, err.text);
    return r;
}

static void test_every_pair_of_stages(void **state)
{
    (void)state;
    PGresult *r =
        ask("select a, b, stage_may_move(a, b) from unnest(enum_range(null::effect_stage)) a, "
            "unnest(enum_range(null::effect_stage)) b");
    assert_int_equal(PQntuples(r), STAGE_COUNT * STAGE_COUNT);
    for (int i = 0; i < PQntuples(r); i++) {
        enum stage from, to;
        assert_true(stage_parse(PQgetvalue(r, i, 0), &from));
        assert_true(stage_parse(PQgetvalue(r, i, 1), &to));
        if (transition_allowed(from, to) != (PQgetvalue(r, i, 2)[0] == 't'))
            fail_msg("%s to %s differs", stage_name(from), stage_name(to));
    }
    PQclear(r);
}

/* A move is somebody's, or nobody's and not in the table. */
static void test_every_move_has_a_mover(void **state)
{
    (void)state;
    for (int from = 0; from < STAGE_COUNT; from++) {
        for (int to = 0; to < STAGE_COUNT; to++) {
            bool any = false;
            for (int mover = 0; mover < MOVER_COUNT; mover++)
                any |=
                    transition_mover_allowed((enum stage)from, (enum stage)to, (enum mover)mover);
            assert_int_equal(any, transition_allowed((enum stage)from, (enum stage)to));
        }
    }
}

/* What the design says of some of them. */
static void test_who_may_not(void **state)
{
    (void)state;
    for (int to = 0; to < STAGE_COUNT; to++) {
        assert_false(transition_allowed(STAGE_SETTLED, (enum stage)to));
        assert_false(transition_allowed(STAGE_REJECTED, (enum stage)to));
        assert_false(transition_allowed((enum stage)to, (enum stage)to));
    }
    for (int from = 0; from < STAGE_COUNT; from++) {
        assert_false(transition_mover_allowed((enum stage)from, STAGE_SETTLED, MOVER_SWEEP));
        assert_false(transition_mover_allowed((enum stage)from, STAGE_SETTLED, MOVER_INGEST));
    }
    for (int mover = 0; mover < MOVER_COUNT; mover++)
        assert_int_equal(
            transition_mover_allowed(STAGE_READY, STAGE_DISPATCHING, (enum mover)mover),
            mover == MOVER_DISPATCHER);
}

typedef const char *word_of(int);
static const char *word_stage(int i)
{
    return stage_name((enum stage)i);
}
static const char *word_outcome(int i)
{
    return outcome_name((enum outcome)i);
}
static const char *word_reason(int i)
{
    return settle_reason_name((enum settle_reason)(i + 1));
}

static void words_agree(const char *sql, word_of *word, int count)
{
    PGresult *r = ask(sql);
    assert_int_equal(PQntuples(r), count);
    for (int i = 0; i < count; i++)
        assert_string_equal(PQgetvalue(r, i, 0), word(i));
    PQclear(r);
}

static void test_the_words_are_the_same(void **state)
{
    (void)state;
    words_agree("select unnest(enum_range(null::effect_stage))", word_stage, STAGE_COUNT);
    words_agree("select unnest(enum_range(null::effect_outcome))", word_outcome, OUTCOME_COUNT);
    words_agree("select unnest(enum_range(null::settle_reason))", word_reason, REASON_COUNT - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_pair_of_stages),
        cmocka_unit_test(test_every_move_has_a_mover),
        cmocka_unit_test(test_who_may_not),
        cmocka_unit_test(test_the_words_are_the_same),
    };
    struct store_options options = {.url = getenv("HOLDFAST_DATABASE_URL"), .name = "test"};
    if (options.url == NULL) {
        fprintf(stderr, "skipped: HOLDFAST_DATABASE_URL is not set\n");
        return 77;
    }
    store = store_new(&options);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    store_free(store);
    return failed;
}
