/* Inside of http.c: one request and its answer on a connection of libmicrohttpd. */
#ifndef HOLDFAST_EXCHANGE_H
#define HOLDFAST_EXCHANGE_H

#include "ingest/call.h"
#include "ingest/route_table.h"

#include <microhttpd.h>
#include <stdatomic.h>

#define QUERY_MAX 24 /* parameters of one query string */

struct query_value {
    char *name;
    char *value;
};

struct http_exchange {
    struct call call; /* call.exchange points back here */
    struct MHD_Connection *connection;
    struct path path;
    struct route_match match;
    struct query_value query[QUERY_MAX];
    int query_count;
    int framings;         /* headers that say where the body ends */
    bool unframed;        /* the head is in doubt: answered at once, the connection ends with it */
    size_t body_seen;     /* bytes that came, kept or not */
    size_t body_reserved; /* of the budget that all requests share */
    int wake_fd;          /* of the thread that serves the connection */
    bool answered;        /* call_finish was called; the server thread sees it after the resume */
};

/* What the server allows one request. */
struct exchange_limits {
    size_t body_max;
    int64_t read_max_ms; /* for a whole request to arrive */
};

/* Reads the request line and the headers. Never NULL; what is wrong with them is the call's answer.
 */
struct http_exchange *exchange_new(struct MHD_Connection *connection, const char *raw_path,
                                   const char *method, const struct exchange_limits *limits);
void exchange_free(struct http_exchange *x);

/* Takes a piece of the body. False: the connection is to be closed. */
bool exchange_take_body(struct http_exchange *x, const char *bytes, size_t len,
                        const struct exchange_limits *limits);
/* Whether so much body is announced that it is better refused unread. */
bool exchange_too_long(const struct http_exchange *x, const struct exchange_limits *limits);
/* Queues the call's answer. */
enum MHD_Result exchange_send(struct http_exchange *x, bool close_connection);

#endif
