/* Secrets are found in answers in every spelling that a provider echoes them in. */
#include "common/http/mask.h"
#include "tests/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECRET "sk_live/\"Zq+9\\w\xc3\xa4x%7"

static struct mask *mask_of(const char *value)
{
    struct mask *mask = mask_new();
    assert_non_null(mask);
    assert_true(mask_add(mask, "KEY", value, strlen(value)));
    return mask;
}

static void expect_text(const char *secret, const char *text, bool cut, const char *wanted)
{
    struct mask *mask = mask_of(secret);
    struct buf buf;
    buf_init(&buf, 1 << 16);
    buf_puts(&buf, text);
    mask_buf(mask, &buf, cut);
    if (strcmp(buf.data, wanted) != 0)
        fail_msg("of \"%s\" came \"%s\", not \"%s\"", text, buf.data, wanted);
    buf_free(&buf);
    mask_free(mask);
}

static void test_spellings(void **state)
{
    (void)state;
    static const char *const spellings[] = {
        SECRET,
        "sk_live/\\\"Zq+9\\\\w\xc3\xa4x%7",
        "sk_live\\/\\\"Zq+9\\\\w\\u00e4x%7",
        "sk_live\\u002f\\u0022Zq\\u002B9\\u005cw\\u00E4x\\u00257",
        "sk_live\\\\/\\\\\\\"Zq+9\\\\\\\\w\\\\u00e4x%7", /* JSON in JSON */
        "sk_live%2F%22Zq%2B9%5Cw%C3%A4x%257",
        "sk%5flive%2f%22Zq%2b9%5cw%c3%a4x%257",
        "sk_live/&quot;Zq+9\\w&#228;x%7",
        "sk_live&#x2f;&#34;Zq&#43;9\\w&#xE4;x%7",
        "736b5f6c6976652f225a712b395c77c3a4782537",
        "736B5F6C6976652F225A712B395C77C3A4782537",
        "c2tfbGl2ZS8iWnErOVx3w6R4JTc=", /* base64 alone, and behind one and two bytes */
        "OnNrX2xpdmUvIlpxKzlcd8OkeCU3",
        "dTpza19saXZlLyJacSs5XHfDpHglNw==",
        "dXNlcjpza19saXZlLyJacSs5XHfDpHglNw",
    };
    for (size_t i = 0; i < sizeof(spellings) / sizeof(spellings[0]); i++) {
        char text[256], wanted[256];
        snprintf(text, sizeof text, "{\"error\":\"no key %s here\"}", spellings[i]);
        snprintf(wanted, sizeof wanted, "{\"error\":\"no key [masked KEY] here\"}");
        expect_text(SECRET, text, false, wanted);
    }
}

static void test_base64_alphabets(void **state)
{
    (void)state;
    expect_text("\xfb\xef\xbe\xff\xff\xfe_key", "a ++++///+X2tleQ== b", false, "a [masked KEY] b");
    expect_text("\xfb\xef\xbe\xff\xff\xfe_key", "a ----___-X2tleQ b", false, "a [masked KEY] b");
    expect_text("\xfb\xef\xbe\xff\xff\xfe_key", "a ++++\\/\\/\\/+X2tleQ== b", false,
                "a [masked KEY] b");
}

static void test_pairs(void **state)
{
    (void)state;
    expect_text("account:pa55word", "user account, password pa55word", false,
                "user [masked KEY], password [masked KEY]");
    expect_text("account:pa55word", "Basic YWNjb3VudDpwYTU1d29yZA==", false, "Basic [masked KEY]");
    /* A value kept as Basic credentials is known decoded too, and in its halves. */
    expect_text("YWNjb3VudDpwYTU1d29yZA==", "bad password pa55word of account", false,
                "bad password [masked KEY] of [masked KEY]");
    expect_text("Basic YWNjb3VudDpwYTU1d29yZA==", "got YWNjb3VudDpwYTU1d29yZA==, pa55word", false,
                "got [masked KEY], [masked KEY]");
    expect_text("Bearer tok_123456", "token tok_123456 expired", false,
                "token [masked KEY] expired");
    /* Neither a URL nor a document is a pair of halves. */
    expect_text("https://hooks.example.com/T0001", "see https and //hooks.example.com/", false,
                "see https and //hooks.example.com/");
}

static void test_lines(void **state)
{
    (void)state;
    expect_text("-----BEGIN-----\nMIIEvQIBADANBgkqhkiG\nshort\n", "at MIIEvQIBADANBgkqhkiG!", false,
                "at [masked KEY]!");
    expect_text("-----BEGIN-----\nMIIEvQIBADANBgkqhkiG\n",
                "\"-----BEGIN-----\\nMIIEvQIBADANBgkqhkiG\\n\"", false, "\"[masked KEY]\"");
}

static void test_short_and_absent(void **state)
{
    (void)state;
    expect_text("abcde", "abcde abcde", false, "abcde abcde");
    expect_text("abcdef", "abcde abcdeg abcdefg", false, "abcde abcdeg [masked KEY]g");
    expect_text("abcdef", "abcabcdefabcdef", false, "abc[masked KEY][masked KEY]");
    expect_text("aaaaaab", "aaaaaaaaab", false, "aaa[masked KEY]");
    expect_text("\\u005cabc", "x \\u005cabc", false, "x [masked KEY]");
    expect_text("secret value", "secret+value secret%20value", false, "[masked KEY] [masked KEY]");
    expect_text("abcdef", "\\", false, "\\");
    expect_text("abcdef", "%6", false, "%6");
    expect_text("abcdef", "&#x;\\u12", false, "&#x;\\u12");
    expect_text("\xf0\x9f\x94\x91 is it", "\\ud83d\\udd11 is it", false, "[masked KEY]");
    expect_text("\xf0\x9f\x94\x91 is it", "\\ud83d", false, "\\ud83d");
}

/* Only where the text may go on is a beginning taken for the whole. */
static void test_cut(void **state)
{
    (void)state;
    expect_text("sk_live_0123456789", "key sk_live_012", true, "key [masked KEY]");
    expect_text("sk_live_0123456789", "key sk_live_012", false, "key sk_live_012");
    expect_text("sk_live_0123456789", "key sk_li", true, "key sk_li");
    expect_text("sk_live_0123456789", "key sk_live_012 x", true, "key sk_live_012 x");
}

static void test_several(void **state)
{
    (void)state;
    struct mask *mask = mask_of("first_secret");
    assert_true(mask_add(mask, "OTHER", "first_secret_longer", 19));
    char text[64] = "first_secret, first_secret_longer";
    assert_int_equal(mask_text(mask, text, sizeof text), 2);
    assert_string_equal(text, "[masked KEY], [masked OTHER]");
    char small[16] = "x first_secret";
    assert_int_equal(mask_text(mask, small, sizeof small), 1);
    assert_string_equal(small, "x [masked KEY]");
    char none[8] = "nothing";
    assert_int_equal(mask_text(mask, none, sizeof none), 0);
    assert_string_equal(none, "nothing");
    assert_int_equal(mask_text(NULL, none, sizeof none), 0);
    mask_free(mask);
    mask_free(NULL);
}

/* Bytes of any kind go through unchanged. */
static void test_bytes(void **state)
{
    (void)state;
    struct mask *mask = mask_of("needle_in_hay");
    struct buf buf;
    char hay[4096];
    for (size_t i = 0; i < sizeof hay; i++)
        hay[i] = (char)(i * 37 + i / 256);
    buf_init(&buf, 1 << 16);
    buf_put(&buf, hay, sizeof hay);
    assert_int_equal(mask_buf(mask, &buf, true), 0);
    buf_put(&buf, "needle_in_hay\0", 14);
    buf_put(&buf, hay, sizeof hay);
    assert_int_equal(mask_buf(mask, &buf, false), 1);
    assert_int_equal(buf.len, 2 * sizeof hay + 13);
    assert_memory_equal(buf.data, hay, sizeof hay);
    assert_memory_equal(buf.data + sizeof hay, "[masked KEY]\0", 13);
    assert_memory_equal(buf.data + sizeof hay + 13, hay, sizeof hay);
    buf_free(&buf);
    mask_free(mask);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spellings),
        cmocka_unit_test(test_base64_alphabets),
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_short_and_absent),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_several),
        cmocka_unit_test(test_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
