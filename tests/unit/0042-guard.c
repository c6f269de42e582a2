/* The destination rules: which addresses are public, which hosts are spelled as we take them. */
#include "common/base/config.h"
#include "common/http/guard.h"
#include "tests/test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

static bool is_public(const char *ip)
{
    struct sockaddr_in in = {.sin_family = AF_INET};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};
    if (inet_pton(AF_INET, ip, &in.sin_addr) == 1)
        return guard_address_public((struct sockaddr *)&in);
    assert_int_equal(inet_pton(AF_INET6, ip, &in6.sin6_addr), 1);
    return guard_address_public((struct sockaddr *)&in6);
}

static void test_addresses(void **state)
{
    (void)state;
    static const char *const refused[] = {"0.0.0.0",
                                          "0.1.2.3",
                                          "10.0.0.1",
                                          "10.255.255.255",
                                          "100.64.0.1",
                                          "100.127.255.255",
                                          "127.0.0.1",
                                          "127.255.255.254",
                                          "169.254.169.254",
                                          "172.16.0.1",
                                          "172.31.255.255",
                                          "192.0.0.1",
                                          "192.0.2.1",
                                          "192.88.99.1",
                                          "192.168.1.1",
                                          "198.18.0.1",
                                          "198.19.255.255",
                                          "198.51.100.7",
                                          "203.0.113.7",
                                          "224.0.0.1",
                                          "239.255.255.255",
                                          "240.0.0.1",
                                          "255.255.255.255",
                                          "::",
                                          "::1",
                                          "::8.8.8.8",
                                          "::ffff:8.8.8.8",
                                          "::ffff:127.0.0.1",
                                          "::ffff:0:8.8.8.8",
                                          "64:ff9b::8.8.8.8",
                                          "64:ff9b:1::1",
                                          "100::1",
                                          "fc00::1",
                                          "fd12::1",
                                          "fe80::1",
                                          "fec0::1",
                                          "ff02::1",
                                          "2001::1",
                                          "2001:10::1",
                                          "2001:1ff:ffff::1",
                                          "2001:db8::1",
                                          "2002:0808:0808::1",
                                          "3fff::1",
                                          "4000::1",
                                          "1fff::1",
                                          "5f00::1"};
    static const char *const fine[] = {"1.1.1.1",
                                       "8.8.8.8",
                                       "9.255.255.255",
                                       "11.0.0.0",
                                       "100.63.255.255",
                                       "100.128.0.0",
                                       "126.255.255.255",
                                       "128.0.0.0",
                                       "169.253.1.1",
                                       "172.15.255.255",
                                       "172.32.0.0",
                                       "192.0.1.1",
                                       "192.167.255.255",
                                       "192.169.0.0",
                                       "198.17.255.255",
                                       "198.20.0.0",
                                       "223.255.255.255",
                                       "2001:200::1",
                                       "2001:4860:4860::8888",
                                       "2606:4700:4700::1111",
                                       "2003::1",
                                       "2a00::1",
                                       "3ffe::1"};
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
        if (is_public(refused[i]))
            fail_msg("%s is taken for public", refused[i]);
    for (size_t i = 0; i < sizeof(fine) / sizeof(fine[0]); i++)
        if (!is_public(fine[i]))
            fail_msg("%s is refused", fine[i]);
    struct sockaddr_un other = {.sun_family = AF_UNIX};
    assert_false(guard_address_public((struct sockaddr *)&other));
}

static void test_hosts(void **state)
{
    (void)state;
    static const char *const refused[] = {"",
                                          ".",
                                          "a.",
                                          ".a",
                                          "a..b",
                                          "A.com",
                                          "-a.com",
                                          "a-.com",
                                          "a b.com",
                                          "a/b",
                                          "a@b",
                                          "a:80",
                                          "[::1]",
                                          "127.1",
                                          "1",
                                          "0x7f.1",
                                          "0x7f000001",
                                          "0x",
                                          "a.0x1f",
                                          "010.1.1.1",
                                          "1.2.3.4.5",
                                          "1.2.3",
                                          "256.1.1.1",
                                          "fe80::1%eth0",
                                          "\xc3\xa4.com",
                                          "a\nb.com",
                                          "2130706433",
                                          "017700000001",
                                          "0x7f.0.0.1",
                                          "0300.0250.1.1",
                                          "127.0.0.1.",
                                          "metadata.google.internal.",
                                          "user@10.0.0.1",
                                          "a#b",
                                          "a?b",
                                          "a\\b",
                                          "::ffff:127.0.0.1%lo",
                                          "[::ffff:7f00:1]"};
    static const char *const fine[] = {
        "localhost", "a.example.com", "xn--bcher-kva.example", "_dmarc.example.com",
        "1.2.3.4",   "::1",           "2606:4700::1",          "4chan.org",
        "a.b0x1f",   "1a.2b"};
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
        if (guard_host_valid(refused[i]))
            fail_msg("host \"%s\" is taken", refused[i]);
    for (size_t i = 0; i < sizeof(fine) / sizeof(fine[0]); i++)
        if (!guard_host_valid(fine[i]))
            fail_msg("host \"%s\" is refused", fine[i]);
    char label[66];
    memset(label, 'a', 65);
    label[63] = '\0';
    assert_true(guard_host_valid(label));
    label[63] = 'a';
    label[64] = '\0';
    assert_false(guard_host_valid(label));
    char name[260];
    for (size_t i = 0; i < sizeof(name); i++)
        name[i] = i % 10 == 9 ? '.' : 'a';
    name[254] = '\0';
    assert_false(guard_host_valid(name));
}

static void test_destinations(void **state)
{
    (void)state;
    struct error err;
    assert_true(guard_destination(true, "api.example.com", 443, &err));
    assert_false(guard_destination(false, "api.example.com", 443, &err));
    assert_string_equal(err.place, "url");
    assert_false(guard_destination(true, "127.0.0.1", 9000, &err));
    assert_true(guard_destination(false, "127.0.0.1", 9001, &err));
    assert_true(guard_destination(false, "dev.test", 7, &err)); /* listed without a port */
    assert_false(guard_destination(true, "169.254.169.254", 443, &err));
    assert_false(guard_destination(true, "::1", 443, &err));
    assert_false(guard_destination(true, "a.com", 0, &err));
    assert_false(guard_destination(true, "a.com", 65536, &err));
}

static int setup(void **state)
{
    (void)state;
    struct error err;
    setenv("HOLDFAST_DEV_DESTINATIONS", "127.0.0.1:9001,dev.test", 1);
    return config_load(&err) ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_destinations),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
