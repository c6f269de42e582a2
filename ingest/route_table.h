/* All routes of the API in one place, and finding the one that a request means. */
#ifndef HOLDFAST_ROUTE_TABLE_H
#define HOLDFAST_ROUTE_TABLE_H

#include "ingest/call.h"

#define PATH_SEGMENTS_MAX 12

/* A request's path: its segments, each decoded by itself, so that %2F inside one stays inside. */
struct path {
    char *text; /* what segments point into */
    const char *segments[PATH_SEGMENTS_MAX];
    int count;
};

/* Reads the raw path of a request line. False with err: not a path we could have (bad escapes,
 * control characters, too long, empty segments). Freed with path_free also then. */
bool path_read(const char *raw, struct path *out, struct error *err);
void path_free(struct path *path);

/* Undoes %XX in place. False: a bad escape, or one that stands for a control character. */
bool percent_decode(char *text);

struct route_match {
    const struct route *route;               /* NULL: no such path, or not with this method */
    const char *captured[CALL_SEGMENTS_MAX]; /* what {x} matched, in order */
    char allow[64];                          /* the methods of the path; "" when it is unknown */
};
void route_find(const char *method, const struct path *path, struct route_match *out);

#endif
