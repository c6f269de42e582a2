/* The growing buffer: its maximum, its failure that stays, and giving the bytes away. */
#include "common/base/buf.h"
#include "tests/test.h"

#include <stdlib.h>
#include <string.h>

static void test_grows(void **state)
{
    struct buf b;
    (void)state;
    buf_init(&b, 1000);
    assert_null(b.data);
    for (int i = 0; i < 100; i++)
        assert_true(buf_printf(&b, "%03d,", i));
    assert_int_equal(b.len, 400);
    assert_int_equal(strlen(b.data), 400);
    assert_memory_equal(b.data, "000,001,", 8);
    assert_memory_equal(b.data + 392, "098,099,", 8);
    assert_true(buf_put(&b, "a\0b", 3));
    assert_int_equal(b.len, 403);
    buf_free(&b);
    buf_free(&b);
    assert_null(b.data);
}

static void test_maximum(void **state)
{
    struct buf b;
    (void)state;
    buf_init(&b, 5);
    assert_true(buf_puts(&b, "abc"));
    assert_true(buf_puts(&b, "de"));
    assert_true(buf_puts(&b, ""));
    assert_false(buf_puts(&b, "f"));
    assert_true(b.failed);
    assert_string_equal(b.data, "abcde");
    assert_false(buf_puts(&b, "")); /* stays failed */
    buf_reset(&b);
    assert_false(b.failed);
    assert_string_equal(b.data, "");
    assert_false(buf_printf(&b, "%s", "abcdef"));
    assert_int_equal(b.len, 0);
    buf_reset(&b);
    assert_false(buf_put(&b, "x", SIZE_MAX));
    assert_false(buf_put(&b, "x", SIZE_MAX - 1));
    buf_free(&b);
    buf_init(&b, 0);
    assert_true(buf_puts(&b, ""));
    assert_false(buf_puts(&b, "x"));
    buf_free(&b);
}

static void test_take(void **state)
{
    struct buf b;
    size_t len = 9;
    (void)state;
    buf_init(&b, 100);
    char *empty = buf_take(&b, &len);
    assert_string_equal(empty, "");
    assert_int_equal(len, 0);
    free(empty);
    buf_puts(&b, "abc");
    char *text = buf_take(&b, &len);
    assert_string_equal(text, "abc");
    assert_int_equal(len, 3);
    assert_null(b.data);
    free(text);
    assert_true(buf_puts(&b, "again"));
    buf_put(&b, "x", SIZE_MAX);
    assert_null(buf_take(&b, &len));
    assert_int_equal(len, 0);
    assert_null(b.data);
}

static void test_wipe(void **state)
{
    struct buf b;
    (void)state;
    buf_init(&b, SIZE_MAX);
    buf_puts(&b, "secret");
    buf_wipe(&b);
    assert_null(b.data);
    buf_wipe(&b);
    struct buf zeroed = {0};
    buf_free(&zeroed);
    buf_wipe(&zeroed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grows),
        cmocka_unit_test(test_maximum),
        cmocka_unit_test(test_take),
        cmocka_unit_test(test_wipe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
