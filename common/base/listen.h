/* A listening TCP socket from a "host:port" setting. */
#ifndef HOLDFAST_LISTEN_H
#define HOLDFAST_LISTEN_H

#include "common/base/error.h"

/* Listens on "host:port" or "[v6]:port"; port 0 picks a free one. Non-blocking, close-on-exec; the
 * caller closes it. -1 with err, which calls the address by `what` ("the admin address"). */
int listen_open(const char *what, const char *address, int backlog, struct error *err);
/* The port that a socket listens on. */
int listen_port(int fd);

#endif
