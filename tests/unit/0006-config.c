/* Settings: defaults, bad values, unknown names, and what is shown of secrets. */
#include "common/base/config.h"
#include "tests/test.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Removes every setting, whatever the environment of the test runner holds. */
static int environment_clear(void **state)
{
    (void)state;
    for (char **entry = environ; *entry;) {
        char name[256];
        size_t len = strcspn(*entry, "=");
        if (strncmp(*entry, "HOLDFAST_", 9) == 0 && len < sizeof(name)) {
            memcpy(name, *entry, len);
            name[len] = '\0';
            unsetenv(name);
        } else {
            entry++;
        }
    }
    return 0;
}

static void load(void)
{
    struct error err = {0};
    if (!config_load(&err))
        fail_msg("%s: %s", err.place, err.text);
}

/* Sets one value, expects a refusal that names it, and takes the value back. */
static void assert_refused(const char *name, const char *value, struct error *err)
{
    memset(err, 0, sizeof(*err));
    setenv(name, value, 1);
    if (config_load(err))
        fail_msg("%s=%s was taken", name, value);
    unsetenv(name);
    assert_int_equal(err->code, ERROR_INVALID);
    assert_string_equal(err->place, name);
    assert_non_null(strstr(err->text, name));
}

static void assert_taken(const char *name, const char *value)
{
    struct error err = {0};
    setenv(name, value, 1);
    if (!config_load(&err))
        fail_msg("%s=%s: %s", name, value, err.text);
    assert_string_equal(config_text(name), value);
    unsetenv(name);
}

static void test_defaults(void **state)
{
    static const int64_t schedule[] = {30000,  60000,   120000,   300000,
                                       900000, 3600000, 21600000, 86400000};
    int64_t rungs[32];
    (void)state;
    load();
    assert_int_equal(config_int("HOLDFAST_SEND_LEASE_MS"), 10000);
    assert_int_equal(config_int("HOLDFAST_PROVIDER_TIMEOUT_MS"), 20000);
    assert_int_equal(config_int("HOLDFAST_INVOKE_WAIT_MS"), 25000);
    assert_true(config_bool("HOLDFAST_RESTORE_GUARD"));
    assert_string_equal(config_text("HOLDFAST_LOG_LEVEL"), "info");
    assert_string_equal(config_text("HOLDFAST_NAME"), "");
    assert_int_equal(config_durations("HOLDFAST_READBACK_SCHEDULE", rungs, 32), 8);
    assert_memory_equal(rungs, schedule, sizeof(schedule));
    assert_int_equal(config_durations("HOLDFAST_READBACK_SCHEDULE", rungs, 3), 3);
}

static void test_integers(void **state)
{
    static const char *const refused[] = {"",    " 1", "1 ", "1.5", "1e3",  "0x10",
                                          "abc", "0",  "-1", "+5",  "5000", "99999999999999999999"};
    struct error err;
    (void)state;
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
        assert_refused("HOLDFAST_ACCEPT_BATCH", refused[i], &err);
    assert_refused("HOLDFAST_ACCEPT_BATCH", "many", &err);
    assert_string_equal(err.text,
                        "HOLDFAST_ACCEPT_BATCH holds \"many\"; it must be an integer from "
                        "1 to 4096 (calls)");
    assert_taken("HOLDFAST_ACCEPT_BATCH", "4096");
    assert_int_equal(config_int("HOLDFAST_ACCEPT_BATCH"), 4096);
    assert_taken("HOLDFAST_ACCEPT_LINGER_MS", "0");
}

static void test_booleans(void **state)
{
    static const char *const on[] = {"on", "ON", "true", "1"};
    static const char *const off[] = {"off", "Off", "false", "0"};
    struct error err;
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        assert_taken("HOLDFAST_RESTORE_GUARD", off[i]);
        assert_false(config_bool("HOLDFAST_RESTORE_GUARD"));
        assert_taken("HOLDFAST_RESTORE_GUARD", on[i]);
        assert_true(config_bool("HOLDFAST_RESTORE_GUARD"));
    }
    assert_refused("HOLDFAST_RESTORE_GUARD", "", &err);
    assert_refused("HOLDFAST_RESTORE_GUARD", "yes", &err);
    assert_refused("HOLDFAST_RESTORE_GUARD", "2", &err);
}

static void test_durations(void **state)
{
    static const char *const refused[] = {"",    ",",     "30",   "30s,",         ",30s", "30s,,1m",
                                          "1d",  "-1s",   "1.5s", "30s, 1m",      "s",    "0s",
                                          "9ms", "30sec", "1ms ", "99999999999h", "745h"};
    char long_list[512] = "1s";
    int64_t rungs[32];
    struct error err;
    (void)state;
    assert_taken("HOLDFAST_READBACK_SCHEDULE", "10ms,2s,3m,4h");
    assert_int_equal(config_durations("HOLDFAST_READBACK_SCHEDULE", rungs, 32), 4);
    assert_int_equal(rungs[0], 10);
    assert_int_equal(rungs[1], 2000);
    assert_int_equal(rungs[2], 180000);
    assert_int_equal(rungs[3], 14400000);
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
        assert_refused("HOLDFAST_READBACK_SCHEDULE", refused[i], &err);
    for (int i = 1; i < 32; i++)
        strcat(long_list, ",1s");
    assert_taken("HOLDFAST_READBACK_SCHEDULE", long_list);
    assert_int_equal(config_durations("HOLDFAST_READBACK_SCHEDULE", rungs, 32), 32);
    strcat(long_list, ",1s");
    assert_refused("HOLDFAST_READBACK_SCHEDULE", long_list, &err);
}

static void test_addresses(void **state)
{
    static const char *const refused[] = {
        "",      "localhost", ":80",  "a:",          "a:65536", "a:b",
        "a:1:2", "[::1]",     "[::1", "http://a:80", "a b:80"};
    struct error err;
    (void)state;
    assert_taken("HOLDFAST_HTTP_LISTEN", "0.0.0.0:0");
    assert_taken("HOLDFAST_HTTP_LISTEN", "[::]:65535");
    assert_taken("HOLDFAST_HTTP_LISTEN", "localhost:8080");
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
        assert_refused("HOLDFAST_HTTP_LISTEN", refused[i], &err);
}

static void test_dev_destinations(void **state)
{
    struct error err;
    (void)state;
    load();
    assert_false(config_dev_destination("127.0.0.1", 80));
    assert_false(config_dev_destination("", 80));
    assert_taken("HOLDFAST_DEV_DESTINATIONS", "127.0.0.1:9090,Sandbox.test,[::1]:7,[fd00::2]");
    assert_true(config_dev_destination("127.0.0.1", 9090));
    assert_false(config_dev_destination("127.0.0.1", 9091));
    assert_false(config_dev_destination("127.0.0.1", 909));
    assert_false(config_dev_destination("127.0.0.10", 9090));
    assert_false(config_dev_destination("127.0.0.", 9090));
    assert_true(config_dev_destination("sandbox.TEST", 1));
    assert_true(config_dev_destination("sandbox.test", 65535));
    assert_false(config_dev_destination("x.sandbox.test", 80));
    assert_true(config_dev_destination("::1", 7));
    assert_true(config_dev_destination("[::1]", 7));
    assert_false(config_dev_destination("::1", 8));
    assert_true(config_dev_destination("fd00::2", 8));
    assert_refused("HOLDFAST_DEV_DESTINATIONS", "a,", &err);
    assert_refused("HOLDFAST_DEV_DESTINATIONS", ",a", &err);
    assert_refused("HOLDFAST_DEV_DESTINATIONS", "a,,b", &err);
    assert_refused("HOLDFAST_DEV_DESTINATIONS", "a, b", &err);
    assert_refused("HOLDFAST_DEV_DESTINATIONS", "http://a", &err);
    assert_refused("HOLDFAST_DEV_DESTINATIONS", "a:0", &err);
    assert_refused("HOLDFAST_DEV_DESTINATIONS", "[::1]x:80", &err);
}

static void test_unknown_names(void **state)
{
    struct error err;
    (void)state;
    assert_refused("HOLDFAST_SEND_LEASE", "1", &err);
    assert_string_equal(err.text,
                        "HOLDFAST_SEND_LEASE is not a setting; `holdfast config` lists them all");
    assert_refused("HOLDFAST_", "1", &err);
    assert_refused("HOLDFAST_send_lease_ms", "1", &err);
    setenv("HOLDFASTER", "1", 1);
    setenv("HOLDFAST", "1", 1);
    load();
    unsetenv("HOLDFASTER");
    unsetenv("HOLDFAST");
    /* What clients use is known and ignored. */
    assert_taken("HOLDFAST_URL", "anything at all");
    assert_taken("HOLDFAST_OPERATOR_KEY", "hf_x");
    assert_taken("HOLDFAST_AGENT_KEY", "hf_x");
    assert_taken("HOLDFAST_RESOLVER_KEY", "hf_x");
}

static void test_relations(void **state)
{
    struct error err;
    (void)state;
    assert_refused("HOLDFAST_REPUBLISH_MAX_MS", "4999", &err);
    assert_taken("HOLDFAST_REPUBLISH_MAX_MS", "5000");
    assert_refused("HOLDFAST_LOG_LEVEL", "verbose", &err);
    assert_taken("HOLDFAST_LOG_LEVEL", "debug");
}

static char *printed(void)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    assert_non_null(out);
    config_print(out);
    fclose(out);
    return text;
}

static void test_print_hides_secrets(void **state)
{
    static const char *const urls[] = {
        "postgresql://app:sekret@db:5432/holdfast", "postgresql://:sekret@db/x",
        "postgresql://app:sekret:@/x@db/y",         "host=db password=sekret",
        "postgresql://db/x?user=a&password=sekret", "host=db PASSWORD='sekret'",
    };
    (void)state;
    setenv("HOLDFAST_OPERATOR_KEY", "sekret", 1);
    setenv("HOLDFAST_REDIS_URL", "redis://:sekret@cache:6379/0", 1);
    for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++) {
        setenv("HOLDFAST_DATABASE_URL", urls[i], 1);
        load();
        char *text = printed();
        if (strstr(text, "sekret"))
            fail_msg("%s was shown", urls[i]);
        assert_non_null(strstr(text, "redis://:***@cache:6379/0"));
        free(text);
    }
    setenv("HOLDFAST_DATABASE_URL", "", 1);
    struct error err;
    assert_false(config_load(&err));
    assert_null(strstr(err.text, "sekret"));
    environment_clear(NULL);
}

static void test_print(void **state)
{
    (void)state;
    setenv("HOLDFAST_TICK_MS", "321", 1);
    load();
    environment_clear(NULL);
    char *text = printed();
    char *line = strstr(text, "HOLDFAST_TICK_MS");
    assert_non_null(line);
    char *end = strchr(line, '\n');
    *end = '\0';
    assert_non_null(strstr(line, " 321 "));
    assert_non_null(strstr(line, " 200 "));
    assert_non_null(strstr(line, " ms "));
    assert_int_equal(end[-1], '.');
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_integers),
        cmocka_unit_test(test_booleans),
        cmocka_unit_test(test_durations),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_dev_destinations),
        cmocka_unit_test(test_unknown_names),
        cmocka_unit_test(test_relations),
        cmocka_unit_test(test_print_hides_secrets),
        cmocka_unit_test(test_print),
    };
    return cmocka_run_group_tests(tests, environment_clear, NULL);
}
