/* Hashes, random bytes, the vault cipher and the master key file, through OpenSSL. */
#include "common/base/crypto.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NONCE_SIZE 12
#define TAG_SIZE 16
#define KEY_SIZE 32
#define KEY_FILE_MAX 1024

/* Fetched once: OpenSSL 3 otherwise looks an algorithm up, under a lock, at every use. */
static pthread_once_t fetch_once = PTHREAD_ONCE_INIT;
static EVP_MD *sha256;
static EVP_CIPHER *aes_gcm;

static void algorithms_free(void)
{
    EVP_MD_free(sha256);
    EVP_CIPHER_free(aes_gcm);
}

static void algorithms_fetch(void)
{
    sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
    aes_gcm = EVP_CIPHER_fetch(NULL, "AES-256-GCM", NULL);
    must(sha256 && aes_gcm);
    OPENSSL_atexit(algorithms_free);
}

static EVP_MD_CTX *sha256_begin(void)
{
    pthread_once(&fetch_once, algorithms_fetch);
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    must(ctx && EVP_DigestInit_ex2(ctx, sha256, NULL));
    return ctx;
}

static void sha256_end(EVP_MD_CTX *ctx, uint8_t out[SHA256_SIZE])
{
    must(EVP_DigestFinal_ex(ctx, out, NULL));
    EVP_MD_CTX_free(ctx);
}

void crypto_sha256(const void *data, size_t len, uint8_t out[SHA256_SIZE])
{
    EVP_MD_CTX *ctx = sha256_begin();
    must(EVP_DigestUpdate(ctx, data, len));
    sha256_end(ctx, out);
}

void crypto_sha256_parts(const struct crypto_part *parts, size_t count, uint8_t out[SHA256_SIZE])
{
    EVP_MD_CTX *ctx = sha256_begin();
    for (size_t i = 0; i < count; i++) {
        uint8_t length[8];
        for (int k = 0; k < 8; k++)
            length[k] = (uint8_t)((uint64_t)parts[i].len >> (56 - 8 * k));
        must(EVP_DigestUpdate(ctx, length, sizeof(length)));
        must(EVP_DigestUpdate(ctx, parts[i].data, parts[i].len));
    }
    sha256_end(ctx, out);
}

void crypto_hex(const uint8_t *data, size_t len, char *out)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < len; i++) {
        out[2 * i] = digits[data[i] >> 4];
        out[2 * i + 1] = digits[data[i] & 15];
    }
    out[2 * len] = '\0';
}

void crypto_random(void *out, size_t len)
{
    must(len <= INT_MAX && RAND_bytes(out, (int)len) == 1);
}

bool crypto_equal(const void *a, const void *b, size_t len)
{
    return CRYPTO_memcmp(a, b, len) == 0;
}

void crypto_wipe(void *data, size_t len)
{
    OPENSSL_cleanse(data, len);
}

void crypto_hmac(const uint8_t *key, size_t key_len, const void *data, size_t len,
                 uint8_t out[SHA256_SIZE])
{
    unsigned size = SHA256_SIZE;
    must(key_len <= INT_MAX && HMAC(EVP_sha256(), key, (int)key_len, data, len, out, &size));
}

static EVP_CIPHER_CTX *cipher_new(void)
{
    pthread_once(&fetch_once, algorithms_fetch);
    return EVP_CIPHER_CTX_new();
}

bool crypto_seal(const uint8_t key[KEY_SIZE], const void *context, size_t context_len,
                 const void *plain, size_t plain_len, uint8_t *sealed, struct error *err)
{
    if (plain_len > INT_MAX - SEAL_OVERHEAD || context_len > INT_MAX)
        return error_set(err, ERROR_TOO_LARGE, "the value is too large to be sealed");
    uint8_t *nonce = sealed;
    uint8_t *body = sealed + NONCE_SIZE;
    uint8_t *tag = body + plain_len;
    int n = 0;
    EVP_CIPHER_CTX *ctx = cipher_new();
    crypto_random(nonce, NONCE_SIZE);
    bool ok = ctx && EVP_EncryptInit_ex2(ctx, aes_gcm, key, nonce, NULL) &&
              EVP_EncryptUpdate(ctx, NULL, &n, context, (int)context_len) &&
              EVP_EncryptUpdate(ctx, body, &n, plain, (int)plain_len) &&
              EVP_EncryptFinal_ex(ctx, tag, &n) &&
              EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, TAG_SIZE, tag);
    EVP_CIPHER_CTX_free(ctx);
    return ok || error_set(err, ERROR_INTERNAL, "the cipher could not seal a value");
}

bool crypto_open(const uint8_t key[KEY_SIZE], const void *context, size_t context_len,
                 const uint8_t *sealed, size_t sealed_len, uint8_t *plain, struct error *err)
{
    if (sealed_len < SEAL_OVERHEAD || sealed_len > INT_MAX || context_len > INT_MAX)
        return error_set(err, ERROR_INVALID, "a sealed value has an impossible length");
    size_t plain_len = sealed_len - SEAL_OVERHEAD;
    uint8_t tag[TAG_SIZE];
    int n = 0;
    memcpy(tag, sealed + NONCE_SIZE + plain_len, TAG_SIZE);
    EVP_CIPHER_CTX *ctx = cipher_new();
    bool ok = ctx && EVP_DecryptInit_ex2(ctx, aes_gcm, key, sealed, NULL) &&
              EVP_DecryptUpdate(ctx, NULL, &n, context, (int)context_len) &&
              EVP_DecryptUpdate(ctx, plain, &n, sealed + NONCE_SIZE, (int)plain_len) &&
              EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, TAG_SIZE, tag) &&
              EVP_DecryptFinal_ex(ctx, plain + plain_len, &n);
    EVP_CIPHER_CTX_free(ctx);
    if (ok)
        return true;
    crypto_wipe(plain, plain_len); /* bytes that were not authenticated are nobody's business */
    return error_set(err, ERROR_INVALID, "a sealed value does not open with this master key");
}

static bool hex_read(const char *text, size_t digits, uint8_t *out)
{
    for (size_t i = 0; i < digits; i++) {
        int c = tolower((unsigned char)text[i]);
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0)
            return false;
        out[i / 2] = (uint8_t)(i % 2 ? out[i / 2] | digit : digit << 4);
    }
    return true;
}

/* Keys with white space between them, no two the same. */
static bool keys_text_read(const char *text, size_t len, uint8_t keys[][KEY_SIZE], size_t max,
                           size_t *count)
{
    *count = 0;
    for (size_t at = 0;; at += (size_t)KEY_SIZE * 2) {
        while (at < len && isspace((unsigned char)text[at]))
            at++;
        if (at == len)
            return *count > 0;
        size_t end = at + (size_t)KEY_SIZE * 2;
        if (*count == max || end > len || (end < len && !isspace((unsigned char)text[end])) ||
            !hex_read(text + at, (size_t)KEY_SIZE * 2, keys[*count]))
            return false;
        for (size_t i = 0; i < *count; i++)
            if (crypto_equal(keys[i], keys[*count], KEY_SIZE))
                return false;
        (*count)++;
    }
}

static bool key_file_check(int fd, const char *path, struct error *err)
{
    static const char *const place = "HOLDFAST_MASTER_KEY_FILE";
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        return error_set_at(err, ERROR_INVALID, place, "%s is not a regular file", path);
    if (st.st_mode & 077)
        return error_set_at(err, ERROR_INVALID, place,
                            "%s has mode %04o: nobody but its owner may have access to it", path,
                            (unsigned)st.st_mode & 07777);
    return true;
}

bool crypto_master_keys_load(const char *path, uint8_t keys[][KEY_SIZE], size_t max, size_t *count,
                             struct error *err)
{
    static const char *const place = "HOLDFAST_MASTER_KEY_FILE";
    char text[KEY_FILE_MAX];
    if (!path || !*path)
        return error_set_at(err, ERROR_INVALID, place,
                            "no master key file is named; the secrets vault cannot be opened");
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return error_set_at(err, ERROR_INVALID, place, "cannot open %s: %s", path, strerror(errno));
    bool ok = key_file_check(fd, path, err);
    if (ok) {
        ssize_t len = read(fd, text, sizeof(text));
        /* A full buffer means that there may be more than we saw. */
        ok = len >= 0 && len < KEY_FILE_MAX && keys_text_read(text, (size_t)len, keys, max, count);
        crypto_wipe(text, sizeof(text));
        if (!ok)
            error_set_at(err, ERROR_INVALID, place,
                         "%s does not hold 1 to %zu different keys of exactly 64 hex digits", path,
                         max);
    }
    close(fd);
    return ok;
}
