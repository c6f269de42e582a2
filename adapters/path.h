/* Dotted paths into JSON ("order.items.0.id"): the one way in which templates, impact expressions
 * and verify rules name a value. */
#ifndef HOLDFAST_PATH_H
#define HOLDFAST_PATH_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define PATH_LENGTH_MAX 256
#define PATH_DEPTH_MAX 16

/* One to PATH_DEPTH_MAX segments of visible characters without . { } ( ) *; with `stars`, a segment
 * may be a lone *. */
bool path_valid(const char *path, size_t len, bool stars);

/* The value at a path without stars: a member of an object, or the item of a list when the segment
 * is a number. Borrowed; NULL when there is none. */
const json_t *path_find(const json_t *root, const char *path, size_t len);

/* Whether `holds` says so for any value at the path; * stands for every item of a list. */
typedef bool (*path_test)(const json_t *value, const void *opaque);
bool path_any(const json_t *root, const char *path, size_t len, path_test holds,
              const void *opaque);

/* Writes `prefix` and the path as a JSON pointer, for error places; cut to what fits. */
char *path_pointer(const char *prefix, const char *path, size_t len, char *out, size_t size);

#endif
