/* Hashes against published digests, the vault cipher, and the master key file. */
#include "common/base/crypto.h"
#include "tests/test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void assert_sha256(const char *text, size_t len, const char *expected)
{
    uint8_t digest[SHA256_SIZE];
    char hex[SHA256_SIZE * 2 + 1];
    crypto_sha256(text, len, digest);
    crypto_hex(digest, sizeof(digest), hex);
    assert_string_equal(hex, expected);
}

/* FIPS 180-4's examples. */
static void test_sha256(void **state)
{
    static const char two_blocks[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    (void)state;
    assert_sha256("", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_sha256("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_sha256(two_blocks, strlen(two_blocks),
                  "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

static void parts_hash(const char *a, const char *b, const char *c, uint8_t out[SHA256_SIZE])
{
    const struct crypto_part parts[] = {{a, strlen(a)}, {b, strlen(b)}, {c, c ? strlen(c) : 0}};
    crypto_sha256_parts(parts, 3, out);
}

static void test_sha256_parts(void **state)
{
    static const char encoded[] = "\0\0\0\0\0\0\0\2ab\0\0\0\0\0\0\0\0";
    const struct crypto_part parts[] = {{"ab", 2}, {"", 0}};
    uint8_t a[SHA256_SIZE];
    uint8_t b[SHA256_SIZE];
    (void)state;
    crypto_sha256_parts(parts, 2, a);
    crypto_sha256(encoded, sizeof(encoded) - 1, b);
    assert_memory_equal(a, b, SHA256_SIZE);

    parts_hash("ab", "c", "", a);
    parts_hash("a", "bc", "", b);
    assert_memory_not_equal(a, b, SHA256_SIZE);
    parts_hash("", "abc", "", b);
    assert_memory_not_equal(a, b, SHA256_SIZE);
    parts_hash("ab", "c", "", b);
    assert_memory_equal(a, b, SHA256_SIZE);
}

static void test_small_things(void **state)
{
    uint8_t a[32] = {0};
    uint8_t b[32] = {0};
    char hex[7];
    (void)state;
    crypto_hex((const uint8_t *)"\x00\xaf\x10", 3, hex);
    assert_string_equal(hex, "00af10");
    assert_true(crypto_equal(a, b, sizeof(a)));
    b[31] = 1;
    assert_false(crypto_equal(a, b, sizeof(a)));
    crypto_random(a, sizeof(a));
    crypto_random(b, sizeof(b));
    assert_memory_not_equal(a, b, sizeof(a));
    crypto_wipe(a, sizeof(a));
    memset(b, 0, sizeof(b));
    assert_memory_equal(a, b, sizeof(a));
}

static const uint8_t key[32] = "0123456789abcdef0123456789abcde";
static const char plain[] = "sk_test_value";
static const char context[] = "env:NAME:1";

static bool opens(const uint8_t *with_key, const char *with_context, const uint8_t *sealed,
                  size_t len)
{
    uint8_t out[64];
    struct error err = {0};
    memset(out, 0x55, sizeof(out));
    bool ok = crypto_open(with_key, with_context, strlen(with_context), sealed, len, out, &err);
    if (ok)
        assert_memory_equal(out, plain, len - SEAL_OVERHEAD);
    else
        assert_int_equal(err.code, ERROR_INVALID);
    /* What failed leaves no plain text behind. */
    if (!ok)
        assert_null(memmem(out, sizeof(out), "sk_test", 7));
    return ok;
}

static void test_seal(void **state)
{
    uint8_t other_key[32];
    uint8_t sealed[sizeof(plain) + SEAL_OVERHEAD];
    uint8_t again[sizeof(sealed)];
    struct error err;
    (void)state;
    memcpy(other_key, key, sizeof(key));
    other_key[0] ^= 1;
    assert_true(crypto_seal(key, context, strlen(context), plain, sizeof(plain), sealed, &err));
    assert_true(opens(key, context, sealed, sizeof(sealed)));
    assert_null(memmem(sealed, sizeof(sealed), "sk_test", 7));
    assert_false(opens(other_key, context, sealed, sizeof(sealed)));
    assert_false(opens(key, "env:NAME:2", sealed, sizeof(sealed)));
    assert_false(opens(key, "", sealed, sizeof(sealed)));
    for (size_t i = 0; i < sizeof(sealed); i++) {
        sealed[i] ^= 0x40;
        assert_false(opens(key, context, sealed, sizeof(sealed)));
        sealed[i] ^= 0x40;
    }
    for (size_t len = 0; len < sizeof(sealed); len++)
        assert_false(opens(key, context, sealed, len));

    assert_true(crypto_seal(key, context, strlen(context), plain, sizeof(plain), again, &err));
    assert_memory_not_equal(sealed, again, sizeof(sealed)); /* each has a nonce of its own */
}

static void test_seal_nothing(void **state)
{
    uint8_t sealed[SEAL_OVERHEAD];
    struct error err;
    (void)state;
    assert_true(crypto_seal(key, "", 0, "", 0, sealed, &err));
    assert_true(opens(key, "", sealed, sizeof(sealed)));
    sealed[SEAL_OVERHEAD - 1] ^= 1;
    assert_false(opens(key, "", sealed, sizeof(sealed)));
}

/* NIST's GCM test case 14 (key, nonce and plain text all zero), in our layout. */
static void test_published_cipher_text(void **state)
{
    static const uint8_t zero_key[32];
    static const uint8_t zeros[16];
    static const uint8_t sealed[16 + SEAL_OVERHEAD] =
        "\0\0\0\0\0\0\0\0\0\0\0\0"
        "\xce\xa7\x40\x3d\x4d\x60\x6b\x6e\x07\x4e\xc5\xd3\xba\xf3\x9d\x18"
        "\xd0\xd1\xc8\xa7\x99\x99\x6b\xf0\x26\x5b\x98\xb5\xd4\x8a\xb9\x19";
    uint8_t out[16];
    struct error err;
    (void)state;
    assert_true(crypto_open(zero_key, "", 0, sealed, sizeof(sealed), out, &err));
    assert_memory_equal(out, zeros, sizeof(out));
}

#define HEX64 "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1eFF"

/* Writes a key file and loads it. */
static bool load_keys(const char *text, mode_t mode, uint8_t out[][32], size_t max, size_t *count,
                      struct error *err)
{
    char path[] = "/tmp/holdfast-key-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
    bool ok = crypto_master_keys_load(path, out, max, count, err);
    unlink(path);
    return ok;
}

static bool load(const char *text, mode_t mode, uint8_t out[32], struct error *err)
{
    size_t count;
    return load_keys(text, mode, (uint8_t(*)[32])out, 1, &count, err);
}

static void test_master_key(void **state)
{
    static const char *const refused[] = {"",         "\n",       "0011",     HEX64 "0",
                                          HEX64 " 0", " g" HEX64, "00 " HEX64};
    uint8_t out[32];
    struct error err;
    (void)state;
    assert_true(load(HEX64, 0600, out, &err));
    assert_int_equal(out[0], 0);
    assert_int_equal(out[30], 0x1e);
    assert_int_equal(out[31], 0xff);
    assert_true(load("\n  " HEX64 "\r\n\n", 0400, out, &err));
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        if (load(refused[i], 0600, out, &err))
            fail_msg("sample %zu was taken", i);
        assert_int_equal(err.code, ERROR_INVALID);
        assert_string_equal(err.place, "HOLDFAST_MASTER_KEY_FILE");
    }
    assert_false(load(HEX64, 0640, out, &err));
    assert_non_null(strstr(err.text, "0640"));
    assert_false(load(HEX64, 0604, out, &err));
    static const char *const nowhere[] = {"", "/nonexistent/key", "/tmp"};
    uint8_t keys[1][32];
    size_t count;
    for (size_t i = 0; i < sizeof(nowhere) / sizeof(nowhere[0]); i++)
        assert_false(crypto_master_keys_load(nowhere[i], keys, 1, &count, &err));
}

#define HEX64_B "1111111111111111111111111111111111111111111111111111111111111111"
#define HEX64_C "2222222222222222222222222222222222222222222222222222222222222222"

static void test_several_master_keys(void **state)
{
    uint8_t keys[2][32];
    size_t count;
    struct error err;
    (void)state;
    assert_true(load_keys(HEX64_B "\n" HEX64_C "\n", 0600, keys, 2, &count, &err));
    assert_int_equal(count, 2);
    assert_int_equal(keys[0][0], 0x11);
    assert_int_equal(keys[1][31], 0x22);
    assert_true(load_keys("\t" HEX64_C "\n", 0600, keys, 2, &count, &err));
    assert_int_equal(count, 1);
    assert_false(load_keys(HEX64_B HEX64_C, 0600, keys, 2, &count, &err));
    assert_false(load_keys(HEX64_B "\n" HEX64_B, 0600, keys, 2, &count, &err)); /* a mistake */
    assert_false(load_keys(HEX64_B " " HEX64_C " " HEX64, 0600, keys, 2, &count, &err));
    assert_false(load_keys(HEX64_B "," HEX64_C, 0600, keys, 2, &count, &err));
}

/* RFC 4231, test case 2. */
static void test_hmac(void **state)
{
    uint8_t digest[SHA256_SIZE];
    char hex[SHA256_SIZE * 2 + 1];
    (void)state;
    crypto_hmac((const uint8_t *)"Jefe", 4, "what do ya want for nothing?", 28, digest);
    crypto_hex(digest, sizeof(digest), hex);
    assert_string_equal(hex, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

static void test_key_file_too_long(void **state)
{
    char text[4096];
    uint8_t out[32];
    struct error err;
    (void)state;
    memset(text, ' ', sizeof(text));
    memcpy(text, HEX64, 64);
    text[sizeof(text) - 1] = '\0';
    /* Something may stand past what was read, so a long file is not taken. */
    text[sizeof(text) - 2] = 'x';
    assert_false(load(text, 0600, out, &err));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sha256),       cmocka_unit_test(test_sha256_parts),
        cmocka_unit_test(test_small_things), cmocka_unit_test(test_seal),
        cmocka_unit_test(test_seal_nothing), cmocka_unit_test(test_published_cipher_text),
        cmocka_unit_test(test_master_key),   cmocka_unit_test(test_several_master_keys),
        cmocka_unit_test(test_hmac),         cmocka_unit_test(test_key_file_too_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
