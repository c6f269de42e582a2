/* Places in JSON documents as JSON pointers (RFC 6901), and texts cut to fit into an error. */
#include "common/base/schema_internal.h"

#include <stdio.h>
#include <string.h>

static bool token_put(struct buf *out, const char *name, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (name[i] == '~')
            buf_puts(out, "~0");
        else if (name[i] == '/')
            buf_puts(out, "~1");
        else
            buf_put(out, &name[i], 1);
    }
    return !out->failed;
}

/* Recursion is as deep as the document, which its reader bounds. */
bool schema_place_put(const struct schema_place *place, struct buf *out)
{
    if (!place)
        return buf_put(out, "", 0);
    if (!schema_place_put(place->up, out))
        return false;
    if (!place->name)
        return buf_printf(out, "/%zu", place->index);
    buf_puts(out, "/");
    return token_put(out, place->name, place->name_len);
}

int schema_name_compare(const char *a, size_t a_len, const char *b, size_t b_len)
{
    int order = memcmp(a, b, a_len < b_len ? a_len : b_len);
    return order ? order : (a_len > b_len) - (a_len < b_len);
}

int schema_text_fit(const char *text, size_t len, size_t max)
{
    if (len > max) {
        len = max;
        while (len && ((unsigned char)text[len] & 0xc0) == 0x80)
            len--;
    }
    return (int)len;
}

char *schema_pointer_cut(const char *pointer, size_t len, char *out, size_t size)
{
    if (len < size) {
        memcpy(out, len ? pointer : "", len);
        out[len] = '\0';
        return out;
    }
    snprintf(out, size, "%.*s...", schema_text_fit(pointer, len, size - sizeof("...")), pointer);
    return out;
}

char *schema_place_write(const struct schema_place *place, char *out, size_t size)
{
    struct buf pointer;
    buf_init(&pointer, SIZE_MAX);
    schema_place_put(place, &pointer);
    schema_pointer_cut(pointer.data, pointer.len, out, size);
    buf_free(&pointer);
    return out;
}
