/* Paths of requests and the routes that they mean. */
#include "ingest/route_table.h"
#include "tests/test.h"

#include <string.h>

static void find(const char *method, const char *raw, struct path *path, struct route_match *match)
{
    struct error err = {0};
    assert_true(path_read(raw, path, &err));
    route_find(method, path, match);
}

static void test_a_literal_segment_wins(void **state)
{
    struct path path;
    struct route_match match;
    (void)state;
    find("GET", "/api/v2/actions/invocations", &path, &match);
    assert_string_equal(match.route->pattern, "/api/v2/actions/invocations");
    path_free(&path);
    find("GET", "/api/v2/actions/pay", &path, &match);
    assert_string_equal(match.route->pattern, "/api/v2/actions/{ref}");
    assert_string_equal(match.captured[0], "pay");
    path_free(&path);
    find("GET", "/api/v2/actions/invocations/inv_1", &path, &match);
    assert_string_equal(match.route->pattern, "/api/v2/actions/invocations/{id}");
    assert_string_equal(match.captured[0], "inv_1");
    path_free(&path);
}

static void test_a_segment_is_decoded_by_itself(void **state)
{
    struct path path;
    struct route_match match;
    (void)state;
    find("POST", "/api/v2/actions/a%2Fb/invoke", &path, &match);
    assert_non_null(match.route);
    assert_string_equal(match.captured[0], "a/b");
    path_free(&path);
}

static void test_what_is_no_path_of_ours(void **state)
{
    static const char *const unknown[] = {"/", "/api/v2/actions/", "/api/v2/actions/pay/invoke/",
                                          "/api/v2/actions//invoke", "/api/v2"};
    static const char *const bad[] = {"*", "http://x/", "/a%0", "/a%zz", "/a%00", "/a%0a", "/a%7f"};
    struct path path;
    struct route_match match;
    (void)state;
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        find("POST", unknown[i], &path, &match);
        assert_null(match.route);
        assert_string_equal(match.allow, "");
        path_free(&path);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct error err = {0};
        assert_false(path_read(bad[i], &path, &err));
        assert_int_equal(err.code, ERROR_INVALID);
        path_free(&path);
    }
}

static void test_another_method_is_told_those_there_are(void **state)
{
    struct path path;
    struct route_match match;
    (void)state;
    find("PUT", "/api/v2/actions/pay", &path, &match);
    assert_null(match.route);
    assert_non_null(strstr(match.allow, "GET"));
    assert_non_null(strstr(match.allow, "DELETE"));
    path_free(&path);
}

static void test_too_many_segments(void **state)
{
    struct path path;
    struct error err = {0};
    (void)state;
    assert_false(path_read("/1/2/3/4/5/6/7/8/9/10/11/12/13", &path, &err));
    assert_int_equal(err.code, ERROR_NOT_FOUND);
    path_free(&path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_literal_segment_wins),
        cmocka_unit_test(test_a_segment_is_decoded_by_itself),
        cmocka_unit_test(test_what_is_no_path_of_ours),
        cmocka_unit_test(test_another_method_is_told_those_there_are),
        cmocka_unit_test(test_too_many_segments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
