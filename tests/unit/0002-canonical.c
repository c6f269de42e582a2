/* Canonical JSON out, against the vectors that RFC 8785 and its authors publish. */
#include "common/base/crypto.h"
#include "common/base/json.h"
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define OUT_MAX 65536

/* Parses without our limits on numbers, since the vectors go past them, and writes canonically. */
static char *canonical(const char *text)
{
    struct buf out;
    json_error_t failure;
    json_t *value = json_loads(text, JSON_DECODE_ANY, &failure);
    assert_non_null(value);
    buf_init(&out, OUT_MAX);
    assert_true(json_canonical(value, &out));
    json_decref(value);
    return buf_take(&out, NULL);
}

static void assert_canonical(const char *text, const char *expected)
{
    char *out = canonical(text);
    assert_string_equal(out, expected);
    free(out);
}

/* RFC 8785 section 3.2 and the six files of github.com/cyberphone/json-canonicalization/testdata.
 */
static void test_published_documents(void **state)
{
    (void)state;
    assert_canonical("[ 56, { \"d\": true, \"10\": null, \"1\": [ ] } ]",
                     "[56,{\"1\":[],\"10\":null,\"d\":true}]");
    assert_canonical("{\"peach\":\"This sorting order\",\"p\xc3\xa9"
                     "ch\xc3\xa9\":\"is wrong\","
                     "\"p\xc3\xaa"
                     "che\":\"but canonicalization MUST\",\"sin\":\"ignore locale\"}",
                     "{\"peach\":\"This sorting order\",\"p\xc3\xa9"
                     "ch\xc3\xa9\":\"is wrong\","
                     "\"p\xc3\xaa"
                     "che\":\"but canonicalization MUST\",\"sin\":\"ignore locale\"}");
    assert_canonical("{ \"1\": {\"f\": {\"f\": \"hi\",\"F\": 5} ,\"\\n\": 56.0}, \"10\": { }, "
                     "\"\": \"empty\", \"a\": { }, \"111\": [ {\"e\": \"yes\",\"E\": \"no\" } ], "
                     "\"A\": { } }",
                     "{\"\":\"empty\",\"1\":{\"\\n\":56,\"f\":{\"F\":5,\"f\":\"hi\"}},\"10\":{},"
                     "\"111\":[{\"E\":\"no\",\"e\":\"yes\"}],\"A\":{},\"a\":{}}");
    assert_canonical("{\"Unnormalized Unicode\":\"A\\u030a\"}",
                     "{\"Unnormalized Unicode\":\"A\xcc\x8a\"}");
    assert_canonical("{\"numbers\": [333333333.33333329, 1E30, 4.50, 2e-3, "
                     "0.000000000000000000000000001], "
                     "\"string\": \"\\u20ac$\\u000F\\u000aA'\\u0042\\u0022\\u005c\\\\\\\"\\/\", "
                     "\"literals\": [null, true, false]}",
                     "{\"literals\":[null,true,false],\"numbers\":[333333333.3333333,1e+30,4.5,"
                     "0.002,1e-27],\"string\":\"\xe2\x82\xac$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}");
    assert_canonical(
        "{\"\\u20ac\":\"Euro Sign\",\"\\r\":\"Carriage Return\",\"\\u000a\":\"Newline\","
        "\"1\":\"One\",\"\\u0080\":\"Control\\u007f\",\"\\ud83d\\ude02\":\"Smiley\","
        "\"\\u00f6\":\"Latin\",\"\\ufb33\":\"Hebrew\",\"</script>\":\"Browser\"}",
        "{\"\\n\":\"Newline\",\"\\r\":\"Carriage Return\",\"1\":\"One\","
        "\"</script>\":\"Browser\",\"\xc2\x80\":\"Control\x7f\",\"\xc3\xb6\":\"Latin\","
        "\"\xe2\x82\xac\":\"Euro Sign\",\"\xf0\x9f\x98\x82\":\"Smiley\","
        "\"\xef\xac\xb3\":\"Hebrew\"}");
}

static void assert_number(uint64_t bits, const char *expected)
{
    struct buf out;
    double number;
    memcpy(&number, &bits, sizeof(number));
    json_t *value = json_real(number);
    buf_init(&out, 64);
    assert_true(json_canonical(value, &out));
    assert_string_equal(out.data, expected);
    buf_free(&out);
    json_decref(value);
}

/* RFC 8785 appendix B, and powers of two where the gap below a number is half the gap above. */
static void test_published_numbers(void **state)
{
    static const struct {
        uint64_t bits;
        const char *text;
    } rows[] = {
        {0x0000000000000000, "0"},
        {0x8000000000000000, "0"},
        {0x0000000000000001, "5e-324"},
        {0x8000000000000001, "-5e-324"},
        {0x7fefffffffffffff, "1.7976931348623157e+308"},
        {0xffefffffffffffff, "-1.7976931348623157e+308"},
        {0x4340000000000000, "9007199254740992"},
        {0xc340000000000000, "-9007199254740992"},
        {0x4430000000000000, "295147905179352830000"},
        {0x44b52d02c7e14af5, "9.999999999999997e+22"},
        {0x44b52d02c7e14af6, "1e+23"},
        {0x44b52d02c7e14af7, "1.0000000000000001e+23"},
        {0x444b1ae4d6e2ef4e, "999999999999999700000"},
        {0x444b1ae4d6e2ef4f, "999999999999999900000"},
        {0x444b1ae4d6e2ef50, "1e+21"},
        {0x3eb0c6f7a0b5ed8c, "9.999999999999997e-7"},
        {0x3eb0c6f7a0b5ed8d, "0.000001"},
        {0x41b3de4355555553, "333333333.3333332"},
        {0x41b3de4355555554, "333333333.33333325"},
        {0x41b3de4355555555, "333333333.3333333"},
        {0x41b3de4355555556, "333333333.3333334"},
        {0x41b3de4355555557, "333333333.33333343"},
        {0xbecbf647612f3696, "-0.0000033333333333333333"},
        {0x43143ff3c1cb0959, "1424953923781206.2"},
        {0x3d30000000000000, "5.684341886080802e-14"}, /* 2^-44 */
        {0x0010000000000000, "2.2250738585072014e-308"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_number(rows[i].bits, rows[i].text);
}

/* The first numbers of the published sequence (es6testfile100m of the same repository). */
static const uint64_t sequence_start[] = {
    0x0000000000000000, 0x8000000000000000, 0x0000000000000001, 0x8000000000000001,
    0xc46696695dbd1cc3, 0xc43211ede4974a35, 0xc3fce97ca0f21056, 0xc3c7213080c1a6ac,
    0xc39280f39a348556, 0xc35d9b1f5d20d557, 0xc327af4c4a80aaac, 0xc2f2f2a36ecd5556,
    0xc2be51057e155558, 0xc28840d131aaaaac, 0xc253670dc1555557, 0xc21f0b4935555557,
    0xc1e8d5d42aaaaaac, 0xc1b3de4355555556, 0xc17fca0555555556, 0xc1496e6aaaaaaaab,
    0xc114585555555555, 0xc0e046aaaaaaaaab, 0xc0aa0aaaaaaaaaaa, 0xc074d55555555555,
    0xc040aaaaaaaaaaab, 0xc00aaaaaaaaaaaab, 0xbfd5555555555555, 0xbfa1111111111111,
    0xbf6b4e81b4e81b4f, 0xbf35d867c3ece2a5, 0xbf0179ec9cbd821e, 0xbecbf647612f3696,
    0xbe965e9f80f29212, 0xbe61e54c672874db, 0xbe2ca213d840baf8, 0xbdf6e80fe033c8c6,
    0xbdc2533fe68fd3d2, 0xbd8d51ffd74c861c, 0xbd5774ccac3d3817, 0xbd22c3d6f030f9ac,
    0xbcee0624b3818f79, 0xbcb804ea293472c7, 0xbc833721ba905bd3, 0xbc4ebe9c5db3c61e,
    0xbc18987d17c304e5, 0xbbe3ad30dfcf371d, 0xbbaf7b816618582f, 0xbb792f9ab81379bf,
    0xbb442615600f9499, 0xbb101e77800c76e1, 0xbad9ca58cce0be35, 0xbaa4a1e0a3e6fe90,
    0xba708180831f320d, 0xba3a68cd9e985016, 0x446696695dbd1cc3, 0x443211ede4974a35,
    0x43fce97ca0f21056, 0x43c7213080c1a6ac, 0x439280f39a348556, 0x435d9b1f5d20d557,
    0x4327af4c4a80aaac, 0x42f2f2a36ecd5556, 0x42be51057e155558, 0x428840d131aaaaac,
    0x4253670dc1555557, 0x421f0b4935555557, 0x41e8d5d42aaaaaac, 0x41b3de4355555556,
    0x417fca0555555556, 0x41496e6aaaaaaaab, 0x4114585555555555, 0x40e046aaaaaaaaab,
    0x40aa0aaaaaaaaaaa, 0x4074d55555555555, 0x4040aaaaaaaaaaab, 0x400aaaaaaaaaaaab,
    0x3fd5555555555555, 0x3fa1111111111111, 0x3f6b4e81b4e81b4f, 0x3f35d867c3ece2a5,
    0x3f0179ec9cbd821e, 0x3ecbf647612f3696, 0x3e965e9f80f29212, 0x3e61e54c672874db,
    0x3e2ca213d840baf8, 0x3df6e80fe033c8c6, 0x3dc2533fe68fd3d2, 0x3d8d51ffd74c861c,
    0x3d5774ccac3d3817, 0x3d22c3d6f030f9ac, 0x3cee0624b3818f79, 0x3cb804ea293472c7,
    0x3c833721ba905bd3, 0x3c4ebe9c5db3c61e, 0x3c18987d17c304e5, 0x3be3ad30dfcf371d,
    0x3baf7b816618582f, 0x3b792f9ab81379bf, 0x3b442615600f9499, 0x3b101e77800c76e1,
    0x3ad9ca58cce0be35, 0x3aa4a1e0a3e6fe90, 0x3a708180831f320d, 0x3a3a68cd9e985016,
    0x4024000000000000, 0x4014000000000000, 0x3fe0000000000000, 0x3fa999999999999a,
    0x3f747ae147ae147b, 0x3f40624dd2f1a9fc, 0x3f0a36e2eb1c432d, 0x3ed4f8b588e368f1,
    0x3ea0c6f7a0b5ed8d, 0x3e6ad7f29abcaf48, 0x3e35798ee2308c3a, 0x3ed539223589fa95,
    0x3ed4ff26cd5a7781, 0x3ed4f95a762283ff, 0x3ed4f8c60703520c, 0x3ed4f8b72f19cd0d,
    0x3ed4f8b5b31c0c8d, 0x3ed4f8b58d1c461a, 0x3ed4f8b5894f7f0e, 0x3ed4f8b588ee37f3,
    0x3ed4f8b588e47da4, 0x3ed4f8b588e3849c, 0x3ed4f8b588e36bb5, 0x3ed4f8b588e36937,
    0x3ed4f8b588e368f8, 0x3ed4f8b588e368f1, 0x3ff0000000000000, 0xbff0000000000000,
    0xbfeffffffffffffa, 0xbfeffffffffffffb, 0x3feffffffffffffa, 0x3feffffffffffffb,
    0x3feffffffffffffc, 0x3feffffffffffffe, 0xbfefffffffffffff, 0xbfefffffffffffff,
    0x3fefffffffffffff, 0x3fefffffffffffff, 0x3fd3333333333332, 0x3fd3333333333333,
    0x3fd3333333333334, 0x0010000000000000, 0x000ffffffffffffd, 0x000fffffffffffff,
    0x7fefffffffffffff, 0xffefffffffffffff, 0x4340000000000000, 0xc340000000000000,
    0x4430000000000000, 0x44b52d02c7e14af5, 0x44b52d02c7e14af6, 0x44b52d02c7e14af7,
    0x444b1ae4d6e2ef4e, 0x444b1ae4d6e2ef4f, 0x444b1ae4d6e2ef50, 0x3eb0c6f7a0b5ed8c,
    0x3eb0c6f7a0b5ed8d, 0x41b3de4355555553, 0x41b3de4355555554, 0x41b3de4355555555,
    0x41b3de4355555556, 0x41b3de4355555557, 0xbecbf647612f3696, 0x43143ff3c1cb0959,
};

#define SEQUENCE_START (sizeof(sequence_start) / sizeof(sequence_start[0]))
#define SEQUENCE_SERIAL 2000
#define SEQUENCE_LINES 10000

/* After the fixed and the serial numbers come those read from a chain of SHA-256 digests. */
struct sequence {
    size_t index;
    uint8_t block[SHA256_SIZE];
    size_t left; /* of the block, in numbers */
};

static uint64_t sequence_next(struct sequence *s)
{
    size_t index = s->index++;
    uint64_t bits;
    double number;
    if (index < SEQUENCE_START)
        return sequence_start[index];
    if (index < SEQUENCE_START + SEQUENCE_SERIAL)
        return 0x0010000000000000 + (index - SEQUENCE_START);
    do {
        if (s->left == 0) {
            crypto_sha256(s->block, sizeof(s->block), s->block);
            s->left = SHA256_SIZE / sizeof(bits);
        }
        memcpy(&bits, s->block + SHA256_SIZE - s->left * sizeof(bits), sizeof(bits));
        memcpy(&number, &bits, sizeof(number));
        s->left--;
    } while (number == 0 || !isfinite(number));
    return bits;
}

static void test_published_sequence(void **state)
{
    /* The published digest of this many lines, each the bits in hex and the number. */
    static const char expected[] =
        "b9f7a8e75ef22a835685a52ccba7f7d6bdc99e34b010992cbc5864cd12be6892";
    struct sequence sequence = {0};
    struct buf lines;
    (void)state;
    buf_init(&lines, SEQUENCE_LINES * 64);
    for (int i = 0; i < SEQUENCE_LINES; i++) {
        double number;
        uint64_t bits = sequence_next(&sequence);
        memcpy(&number, &bits, sizeof(number));
        json_t *value = json_real(number);
        buf_printf(&lines, "%llx,", (unsigned long long)bits);
        assert_true(json_canonical(value, &lines));
        buf_puts(&lines, "\n");
        json_decref(value);
    }
    assert_false(lines.failed);

    uint8_t digest[SHA256_SIZE];
    char hex[SHA256_SIZE * 2 + 1];
    crypto_sha256(lines.data, lines.len, digest);
    crypto_hex(digest, sizeof(digest), hex);
    assert_string_equal(hex, expected);
    buf_free(&lines);
}

/* Texts that say the same have one canonical form; texts that do not have another. */
static void test_equal_values(void **state)
{
    (void)state;
    assert_canonical("-0", "0");
    assert_canonical("-0.0", "0");
    assert_canonical("100.0", "100");
    assert_canonical("1e2", "100");
    assert_canonical("0.1e1", "1");
    assert_canonical("1E-7", "1e-7");
    assert_canonical("{\"b\":1,\"a\":{\"d\":[ ],\"c\":\"\\u0061\\/\"}}",
                     "{\"a\":{\"c\":\"a/\",\"d\":[]},\"b\":1}");
    assert_canonical("\"\\u0008\\u0009\\u000b\\u000c\\u001F\\u2028\\u007f\"",
                     "\"\\b\\t\\u000b\\f\\u001f\xe2\x80\xa8\x7f\"");
}

/* By UTF-16 code units: a shorter name first, and U+1F600 (a surrogate pair) before U+FF61. */
static void test_member_order(void **state)
{
    (void)state;
    assert_canonical("{\"ab\":1,\"a\":2,\"\":3,\"aa\":4}", "{\"\":3,\"a\":2,\"aa\":4,\"ab\":1}");
    assert_canonical("{\"x\xef\xbd\xa1\":1,\"x\xf0\x9f\x98\x80\":2,\"x\xed\x9f\xbf\":3,\"x\":4}",
                     "{\"x\":4,\"x\xed\x9f\xbf\":3,\"x\xf0\x9f\x98\x80\":2,\"x\xef\xbd\xa1\":1}");
}

static void test_string_repair(void **state)
{
    static const struct {
        const char *text;
        size_t len;
        const char *out;
    } rows[] = {
        {"", 0, "\"\""},
        {"a\0b", 3,
         "\"a\xef\xbf\xbd"
         "b\""},
        {"\xff", 1, "\"\xef\xbf\xbd\""},
        {"ab\xe2\x82", 4, "\"ab\xef\xbf\xbd\xef\xbf\xbd\""},
        {"\xc0\xaf", 2, "\"\xef\xbf\xbd\xef\xbf\xbd\""},
        {"\xed\xa0\x80x", 4, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdx\""},
        {"\xf4\x90\x80\x80", 4, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""},
        {"\xf4\x8f\xbf\xbf", 4, "\"\xf4\x8f\xbf\xbf\""},
        {"q\"b\\n\n", 6, "\"q\\\"b\\\\n\\n\""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct buf out;
        buf_init(&out, 256);
        assert_true(json_put_string(&out, rows[i].text, rows[i].len));
        assert_string_equal(out.data, rows[i].out);
        /* Whatever went in, what comes out is JSON. */
        json_t *value = json_loads(out.data, JSON_DECODE_ANY, NULL);
        assert_non_null(value);
        json_decref(value);
        buf_free(&out);
    }
}

static void test_limit(void **state)
{
    struct buf out;
    json_t *value = json_pack("{s:[i,i,s]}", "a", 1, 2, "three");
    (void)state;
    buf_init(&out, 19); /* {"a":[1,2,"three"]} */
    assert_true(json_canonical(value, &out));
    assert_int_equal(out.len, 19);
    buf_free(&out);
    for (size_t max = 0; max < 19; max++) {
        buf_init(&out, max);
        assert_false(json_canonical(value, &out));
        assert_true(out.len <= max);
        buf_free(&out);
    }
    json_decref(value);
}

/* Reading what was written and writing it again gives the same bytes. */
static void test_round_trip(void **state)
{
    static const char text[] =
        "{\"b\":[1,-7,0.5,1e-9,{\"\xf0\x9f\x98\x80\":\"\\u0001\"}],\"a\":null}";
    struct error err;
    (void)state;
    char *first = canonical(text);
    json_t *again = json_parse_strict(first, strlen(first), &err);
    assert_non_null(again);
    struct buf out;
    buf_init(&out, OUT_MAX);
    assert_true(json_canonical(again, &out));
    assert_string_equal(out.data, first);
    buf_free(&out);
    json_decref(again);
    free(first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_documents),
        cmocka_unit_test(test_published_numbers),
        cmocka_unit_test(test_published_sequence),
        cmocka_unit_test(test_equal_values),
        cmocka_unit_test(test_member_order),
        cmocka_unit_test(test_string_repair),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
