/* Form-encoded bodies and query strings, decoded; and the two text forms that control needs. */
#include "tests/provider/sandbox/form.h"

#include "common/base/crypto.h"
#include "tests/provider/sandbox/table.h"

#include <stdlib.h>
#include <string.h>

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Decodes in place: the result is never longer. */
static void form_text_decode(char *text)
{
    char *out = text;
    for (char *in = text; *in; in++) {
        if (*in == '%' && hex_digit(in[1]) >= 0 && hex_digit(in[2]) >= 0) {
            *out++ = (char)(hex_digit(in[1]) * 16 + hex_digit(in[2]));
            in += 2;
        } else {
            *out++ = *in == '+' ? ' ' : *in;
        }
    }
    *out = '\0';
}

static void form_pair_add(struct form *form, char *text)
{
    if (*text == '\0' || form->count == FORM_PAIRS_MAX)
        return;
    char *equals = strchr(text, '=');
    struct form_pair *pair = &form->pairs[form->count++];
    pair->name = text;
    pair->value = text + strlen(text);
    if (equals) {
        *equals = '\0';
        pair->value = equals + 1;
    }
    form_text_decode(pair->name);
    form_text_decode(pair->value);
}

void form_parse(struct form *form, const char *text, size_t len, bool whole)
{
    form->count = 0;
    form->text = must_strndup(text, len);
    char *rest = form->text;
    for (char *end = strchr(rest, '&'); end; end = strchr(rest, '&')) {
        *end = '\0';
        form_pair_add(form, rest);
        rest = end + 1;
    }
    if (whole)
        form_pair_add(form, rest);
}

void form_free(struct form *form)
{
    free(form->text);
    form->text = NULL;
    form->count = 0;
}

const char *form_get(const struct form *form, const char *name)
{
    for (size_t i = 0; i < form->count; i++)
        if (strcmp(form->pairs[i].name, name) == 0)
            return form->pairs[i].value;
    return NULL;
}

static int pair_compare(const void *a, const void *b)
{
    const struct form_pair *left = a, *right = b;
    int order = strcmp(left->name, right->name);
    return order ? order : strcmp(left->value, right->value);
}

void form_hash(const struct form *form, uint8_t out[32])
{
    struct form_pair sorted[FORM_PAIRS_MAX];
    struct crypto_part parts[2 * FORM_PAIRS_MAX];
    memcpy(sorted, form->pairs, form->count * sizeof(sorted[0]));
    qsort(sorted, form->count, sizeof(sorted[0]), pair_compare);
    for (size_t i = 0; i < form->count; i++) {
        parts[2 * i] = (struct crypto_part){sorted[i].name, strlen(sorted[i].name)};
        parts[2 * i + 1] = (struct crypto_part){sorted[i].value, strlen(sorted[i].value)};
    }
    crypto_sha256_parts(parts, 2 * form->count, out);
}

static int base64_digit(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

bool base64_decode(const char *text, struct buf *out)
{
    uint32_t bits = 0;
    int have = 0;
    for (; *text && *text != '='; text++) {
        int digit = base64_digit(*text);
        if (digit < 0)
            return false;
        bits = (bits << 6 | (uint32_t)digit) & 0xffff;
        have += 6;
        if (have >= 8) {
            have -= 8;
            char byte = (char)(bits >> have & 0xff);
            buf_put(out, &byte, 1);
        }
    }
    return strspn(text, "=") == strlen(text) && !out->failed;
}

json_t *json_bytes(const char *bytes, size_t len)
{
    char *text = must_calloc(2 * len + 1);
    size_t out = 0;
    for (size_t i = 0; i < len; i++) {
        unsigned char byte = (unsigned char)bytes[i];
        if (byte >= 0x80) {
            text[out++] = (char)(0xc0 | byte >> 6);
            byte = 0x80 | (byte & 0x3f);
        }
        text[out++] = (char)byte;
    }
    json_t *string = json_stringn(text, out);
    free(text);
    return string;
}
