/* Redis URLs: what is read from them, and what is refused without showing a password. */
#include "common/cache/redis_url.h"
#include "tests/test.h"

#include <string.h>

static void accepted(const char *text, const char *user, const char *password, const char *host,
                     const char *port, int database)
{
    struct redis_url url;
    struct error err = {0};
    if (!redis_url_parse(text, &url, &err))
        fail_msg("%s: %s", text, err.text);
    assert_string_equal(url.user, user);
    assert_string_equal(url.password, password);
    assert_string_equal(url.host, host);
    assert_string_equal(url.port, port);
    assert_int_equal(url.database, database);
}

static void test_accepts(void **state)
{
    (void)state;
    accepted("redis://localhost", "", "", "localhost", "6379", 0);
    accepted("redis://127.0.0.1:6380", "", "", "127.0.0.1", "6380", 0);
    accepted("redis://h:1/", "", "", "h", "1", 0);
    accepted("redis://h/15", "", "", "h", "6379", 15);
    accepted("redis://:secret@h:1/2", "", "secret", "h", "1", 2);
    accepted("redis://me:p%40ss%2f:w@h", "me", "p@ss/:w", "h", "6379", 0);
    accepted("redis://:a@b@h", "", "a@b", "h", "6379", 0);
    accepted("redis://[::1]:7/1", "", "", "::1", "7", 1);
    accepted("redis://[fe80::2]", "", "", "fe80::2", "6379", 0);
}

static void test_refuses(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "localhost:6379",
        "rediss://h",
        "redis://",
        "redis://:secret@",
        "redis://secret@h",
        "redis://:secret%zz@h",
        "redis://:secret%00@h",
        "redis://:secret@h:0",
        "redis://:secret@h:65536",
        "redis://:secret@h:12x",
        "redis://:secret@h:",
        "redis://h/x",
        "redis://h/70000",
        "redis://[::1",
        "redis://[::1]x",
        "redis://[]:1",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct redis_url url;
        struct error err = {0};
        if (redis_url_parse(bad[i], &url, &err))
            fail_msg("%s was taken", bad[i]);
        assert_int_equal(err.code, ERROR_INVALID);
        assert_null(strstr(err.text, "secret"));
    }
}

static void test_long_parts_are_refused(void **state)
{
    (void)state;
    char text[2048] = "redis://:";
    struct redis_url url;
    memset(text + 9, 'x', 1000);
    strcpy(text + 1009, "@h");
    assert_false(redis_url_parse(text, &url, NULL));
    strcpy(text, "redis://");
    memset(text + 8, 'h', 300);
    text[308] = '\0';
    assert_false(redis_url_parse(text, &url, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accepts),
        cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_long_parts_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
