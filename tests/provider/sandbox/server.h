/* The listening socket and its connections: one thread, one epoll loop. */
#ifndef SANDBOX_SERVER_H
#define SANDBOX_SERVER_H

#include "common/base/error.h"

#include <stdbool.h>

#define SERVER_CONNECTIONS_MAX 4096

/* Listens on "ADDRESS:PORT" (IPv4; port 0 picks one) and serves until stop_fd is readable. False
 * with err when it can't listen. */
bool server_run(const char *listen_at, int stop_fd, struct error *err);

#endif
