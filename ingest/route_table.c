/* The joined table of routes, and how a path is matched against it. */
#include "ingest/route_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_MAX_BYTES 4096

static const struct route *const tables[] = {
    routes_invoke,   routes_claims,       routes_invocations,    routes_actions, routes_limits,
    routes_secrets,  routes_environment,  routes_identity,       routes_effects, routes_approvals,
    routes_policies, routes_policy_files, routes_effect_batches,
};

/* ---- paths ---- */

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool percent_decode(char *text)
{
    char *to = text;
    for (const char *from = text; *from != '\0'; from++) {
        int value = (unsigned char)*from;
        if (*from == '%') {
            int high = hex_value(from[1]);
            int low = high < 0 ? -1 : hex_value(from[2]);
            if (low < 0)
                return false;
            value = high * 16 + low;
            from += 2;
        }
        if (value < 0x20 || value == 0x7f)
            return false;
        *to++ = (char)value;
    }
    *to = '\0';
    return true;
}

bool path_read(const char *raw, struct path *out, struct error *err)
{
    memset(out, 0, sizeof *out);
    if (raw[0] != '/' || strlen(raw) > PATH_MAX_BYTES)
        return error_set(err, ERROR_INVALID, "the path must begin with / and be at most %d bytes",
                         PATH_MAX_BYTES);
    out->text = strdup(raw + 1);
    if (out->text == NULL)
        return error_set(err, ERROR_MEMORY, "out of memory while reading a path");
    char *rest = out->text;
    while (rest != NULL) {
        char *segment = strsep(&rest, "/");
        if (out->count == PATH_SEGMENTS_MAX)
            return error_set(err, ERROR_NOT_FOUND, "the path has more segments than any we have");
        if (!percent_decode(segment))
            return error_set(err, ERROR_INVALID, "the path holds a bad escape");
        out->segments[out->count++] = segment;
    }
    return true;
}

void path_free(struct path *path)
{
    free(path->text);
    memset(path, 0, sizeof *path);
}

/* ---- matching ---- */

/* Where the segments of a pattern and a path agree: false, or which of the pattern's are literal,
 * the first in the highest bit, so that the larger number is the better match. */
static bool pattern_match(const char *pattern, const struct path *path, unsigned *literal,
                          const char *captured[CALL_SEGMENTS_MAX])
{
    int captures = 0;
    *literal = 0;
    for (int i = 0; i < path->count; i++) {
        if (*pattern++ != '/')
            return false;
        size_t len = strcspn(pattern, "/");
        const char *segment = path->segments[i];
        *literal <<= 1;
        if (pattern[0] == '{') {
            if (*segment == '\0' || captures == CALL_SEGMENTS_MAX)
                return false;
            captured[captures++] = segment;
        } else {
            if (strlen(segment) != len || memcmp(segment, pattern, len) != 0)
                return false;
            *literal |= 1;
        }
        pattern += len;
    }
    return *pattern == '\0';
}

static void allow_add(char *allow, size_t size, const char *method)
{
    size_t len = strlen(allow);
    if (strstr(allow, method) == NULL)
        snprintf(allow + len, size - len, "%s%s", len > 0 ? ", " : "", method);
}

void route_find(const char *method, const struct path *path, struct route_match *out)
{
    unsigned best = 0;
    memset(out, 0, sizeof *out);
    for (size_t t = 0; t < sizeof tables / sizeof tables[0]; t++) {
        for (const struct route *route = tables[t]; route->method != NULL; route++) {
            const char *captured[CALL_SEGMENTS_MAX] = {NULL};
            unsigned literal;
            if (!pattern_match(route->pattern, path, &literal, captured))
                continue;
            allow_add(out->allow, sizeof out->allow, route->method);
            if (strcmp(route->method, method) != 0 || (out->route != NULL && literal <= best))
                continue;
            best = literal;
            out->route = route;
            memcpy(out->captured, captured, sizeof captured);
        }
    }
}
