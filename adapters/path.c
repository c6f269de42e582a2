/* Walking dotted paths. */
#include "adapters/path.h"

#include <string.h>

struct segment {
    const char *text;
    size_t len;
};

/* Takes the first segment off the path. */
static struct segment segment_next(const char **path, size_t *len)
{
    const char *dot = memchr(*path, '.', *len);
    struct segment segment = {*path, dot ? (size_t)(dot - *path) : *len};
    size_t taken = dot ? segment.len + 1 : segment.len;
    *path += taken;
    *len -= taken;
    return segment;
}

static bool is_star(struct segment segment)
{
    return segment.len == 1 && segment.text[0] == '*';
}

static bool segment_valid(struct segment segment, bool stars)
{
    if (stars && is_star(segment))
        return true;
    for (size_t i = 0; i < segment.len; i++) {
        unsigned char c = (unsigned char)segment.text[i];
        if (c <= ' ' || c == 0x7f || strchr("{}()*", c))
            return false;
    }
    return segment.len > 0;
}

bool path_valid(const char *path, size_t len, bool stars)
{
    if (len == 0 || len > PATH_LENGTH_MAX || path[len - 1] == '.')
        return false;
    for (int depth = 0; len > 0; depth++)
        if (depth == PATH_DEPTH_MAX || !segment_valid(segment_next(&path, &len), stars))
            return false;
    return true;
}

/* An index has no sign, no leading zero and at most 9 digits. */
static const json_t *item_at(const json_t *list, struct segment segment)
{
    size_t index = 0;
    if (segment.len == 0 || segment.len > 9 || (segment.text[0] == '0' && segment.len > 1))
        return NULL;
    for (size_t i = 0; i < segment.len; i++) {
        if (segment.text[i] < '0' || segment.text[i] > '9')
            return NULL;
        index = index * 10 + (size_t)(segment.text[i] - '0');
    }
    return json_array_get(list, index);
}

static const json_t *value_at(const json_t *value, struct segment segment)
{
    if (json_is_array(value))
        return item_at(value, segment);
    return json_object_getn(value, segment.text, segment.len);
}

const json_t *path_find(const json_t *root, const char *path, size_t len)
{
    while (root && len > 0)
        root = value_at(root, segment_next(&path, &len));
    return root;
}

bool path_any(const json_t *root, const char *path, size_t len, path_test holds, const void *opaque)
{
    if (!root)
        return false;
    if (len == 0)
        return holds(root, opaque);
    struct segment segment = segment_next(&path, &len);
    if (!is_star(segment))
        return path_any(value_at(root, segment), path, len, holds, opaque);
    for (size_t i = 0; i < json_array_size(root); i++)
        if (path_any(json_array_get(root, i), path, len, holds, opaque))
            return true;
    return false;
}

char *path_pointer(const char *prefix, const char *path, size_t len, char *out, size_t size)
{
    size_t at = 0;
    for (; *prefix && at + 1 < size; prefix++)
        out[at++] = *prefix;
    if (at + 1 < size)
        out[at++] = '/';
    for (size_t i = 0; i < len && at + 2 < size; i++) {
        if (path[i] == '~' || path[i] == '/') {
            out[at++] = '~';
            out[at++] = path[i] == '~' ? '0' : '1';
        } else {
            out[at++] = path[i] == '.' ? '/' : path[i];
        }
    }
    out[at] = '\0';
    return out;
}
