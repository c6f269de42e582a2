/* Identifiers: their order, their text forms, and what is refused as one. */
#include "common/base/clock.h"
#include "common/base/ulid.h"
#include "tests/test.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 4
#define EACH 5000

static int64_t time_of(const struct ulid *id)
{
    int64_t ms = 0;
    for (int i = 0; i < 6; i++)
        ms = ms << 8 | id->bytes[i];
    return ms;
}

static void test_holds_the_time(void **state)
{
    struct ulid id;
    int64_t now = clock_wall_ms();
    (void)state;
    ulid_new(&id, now);
    assert_int_equal(time_of(&id), now);
}

static void test_ascends(void **state)
{
    struct ulid before;
    struct ulid after;
    int64_t now = clock_wall_ms() + 1000;
    (void)state;
    ulid_new(&before, now);
    for (int i = 0; i < 10000; i++) {
        /* The clock stands, goes on, and steps back a little. */
        ulid_new(&after, now + i / 100 - (i % 7 == 0 ? 500 : 0));
        assert_true(ulid_compare(&before, &after) < 0);
        before = after;
    }
}

static void test_follows_a_corrected_clock(void **state)
{
    struct ulid id;
    int64_t now = clock_wall_ms();
    (void)state;
    ulid_new(&id, now + 3600000);
    assert_int_equal(time_of(&id), now + 3600000);
    ulid_new(&id, now);
    assert_int_equal(time_of(&id), now);
}

static void *make_many(void *opaque)
{
    struct ulid *ids = opaque;
    for (int i = 0; i < EACH; i++)
        ulid_new(&ids[i], clock_wall_ms());
    return NULL;
}

static int compare(const void *a, const void *b)
{
    return ulid_compare(a, b);
}

static void test_unique_across_threads(void **state)
{
    pthread_t threads[THREADS];
    struct ulid *ids = calloc((size_t)THREADS * EACH, sizeof(*ids));
    (void)state;
    assert_non_null(ids);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, make_many, ids + i * EACH), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int t = 0; t < THREADS; t++)
        for (int i = 1; i < EACH; i++)
            assert_true(ulid_compare(&ids[t * EACH + i - 1], &ids[t * EACH + i]) < 0);
    qsort(ids, (size_t)THREADS * EACH, sizeof(*ids), compare);
    for (int i = 1; i < THREADS * EACH; i++)
        assert_int_not_equal(ulid_compare(&ids[i - 1], &ids[i]), 0);
    free(ids);
}

static const struct ulid known = {{0x01, 0x56, 0x3e, 0x3a, 0xb5, 0xd3, 0xd6, 0x76, 0x4c, 0x61, 0xef,
                                   0xb9, 0x93, 0x02, 0xbd, 0x5b}};

/* The example of github.com/ulid/spec and of several libraries. */
static void test_text(void **state)
{
    static const struct ulid highest = {
        {255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255}};
    char text[ULID_TEXT_SIZE];
    struct ulid id;
    (void)state;
    assert_string_equal(ulid_format(&known, text), "01ARZ3NDEKTSV4RRFFQ69G5FAV");
    assert_true(ulid_parse("01ARZ3NDEKTSV4RRFFQ69G5FAV", 26, &id));
    assert_int_equal(ulid_compare(&id, &known), 0);
    assert_true(ulid_parse("01arz3ndektsv4rrffq69g5fav", 26, &id));
    assert_int_equal(ulid_compare(&id, &known), 0);
    assert_string_equal(ulid_format(&highest, text), "7ZZZZZZZZZZZZZZZZZZZZZZZZZ");
    assert_true(ulid_parse(text, 26, &id));
    assert_int_equal(ulid_compare(&id, &highest), 0);
    assert_true(ulid_parse("00000000000000000000000000", 26, &id));
    assert_true(ulid_is_zero(&id));
    assert_false(ulid_is_zero(&known));
}

static void test_text_refused(void **state)
{
    static const char *const texts[] = {
        "",
        "01ARZ3NDEKTSV4RRFFQ69G5FA",
        "01ARZ3NDEKTSV4RRFFQ69G5FAVX",
        "81ARZ3NDEKTSV4RRFFQ69G5FAV",
        "01ARZ3NDEKTSV4RRFFQ69G5FAU",
        "01ARZ3NDEKTSV4RRFFQ69G5FAI",
        "01ARZ3NDEKTSV4RRFFQ69G5FAL",
        "O1ARZ3NDEKTSV4RRFFQ69G5FAV",
        "01ARZ3NDEKTSV4RRFFQ69G5FA ",
        "01ARZ3NDEKTSV4RRFF\xc3\xa9"
        "9G5FAV",
    };
    struct ulid id = known;
    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        if (ulid_parse(texts[i], strlen(texts[i]), &id))
            fail_msg("%s was taken", texts[i]);
    assert_false(ulid_parse("01ARZ3NDEKTSV4RRFFQ69G5FA\0", 26, &id));
    assert_int_equal(ulid_compare(&id, &known), 0);
}

static void test_prefix(void **state)
{
    char text[ULID_PREFIXED_SIZE];
    struct ulid id;
    (void)state;
    assert_string_equal(ulid_format_prefixed("eff", &known, text),
                        "eff_01ARZ3NDEKTSV4RRFFQ69G5FAV");
    assert_true(ulid_parse_prefixed("eff", text, &id));
    assert_int_equal(ulid_compare(&id, &known), 0);
    assert_false(ulid_parse_prefixed("inv", text, &id));
    assert_false(ulid_parse_prefixed("ef", text, &id));
    assert_false(ulid_parse_prefixed("eff", "eff_", &id));
    assert_false(ulid_parse_prefixed("eff", "eff", &id));
    assert_false(ulid_parse_prefixed("eff", "", &id));
    assert_false(ulid_parse_prefixed("eff", "eff-01ARZ3NDEKTSV4RRFFQ69G5FAV", &id));
    assert_false(ulid_parse_prefixed("eff", "EFF_01ARZ3NDEKTSV4RRFFQ69G5FAV", &id));
    assert_false(ulid_parse_prefixed("eff", "eff_01ARZ3NDEKTSV4RRFFQ69G5FAV1", &id));
    assert_int_equal(strlen(ulid_format_prefixed("twelve_bytes", &known, text)), 39);
}

static void test_uuid(void **state)
{
    static const char *const refused[] = {"",
                                          "01563e3a-b5d3-d676-4c61-efb99302bd5",
                                          "01563e3a-b5d3-d676-4c61-efb99302bd5b0",
                                          "01563e3ab5d3d6764c61efb99302bd5b",
                                          "01563e3a-b5d3-d676-4c61-efb99302bd5g",
                                          "01563e3a_b5d3-d676-4c61-efb99302bd5b",
                                          "{01563e3a-b5d3-d676-4c61-efb99302bd5b}",
                                          "0156-3e3ab5d3-d676-4c61-efb99302bd5b"};
    char text[UUID_TEXT_SIZE];
    struct ulid id;
    (void)state;
    assert_string_equal(ulid_uuid_format(&known, text), "01563e3a-b5d3-d676-4c61-efb99302bd5b");
    assert_true(ulid_uuid_parse(text, &id));
    assert_int_equal(ulid_compare(&id, &known), 0);
    assert_true(ulid_uuid_parse("01563E3A-B5D3-D676-4C61-EFB99302BD5B", &id));
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
        if (ulid_uuid_parse(refused[i], &id))
            fail_msg("%s was taken", refused[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_holds_the_time),
        cmocka_unit_test(test_ascends),
        cmocka_unit_test(test_follows_a_corrected_clock),
        cmocka_unit_test(test_unique_across_threads),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_text_refused),
        cmocka_unit_test(test_prefix),
        cmocka_unit_test(test_uuid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
