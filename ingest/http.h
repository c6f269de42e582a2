/* The API port: libmicrohttpd reads requests on threads of http.c; a request that is whole is
 * suspended, handed to the routes, and resumed when call_finish has its answer. */
#ifndef HOLDFAST_HTTP_H
#define HOLDFAST_HTTP_H

#include "common/base/error.h"

#include <stdbool.h>

struct http;

/* Listens and answers from now on; the routes must be running. NULL with err. */
struct http *http_start(struct error *err);
int http_port(const struct http *http);

/* No new connections; requests on the old ones are answered 503 and their connections closed. */
void http_drain(struct http *http);
/* Waits until every request has been answered and sent. False: some were not by then. */
bool http_wait_idle(struct http *http, int timeout_ms);
/* Ends the port. Every call must have been finished. */
void http_stop(struct http *http);

#endif
