/* The admin port of each process: /livez, /readyz, /metrics. Liveness is 200 while the process can
 * answer at all; readiness is 503 with the reason while something it needs is away. */
#ifndef HOLDFAST_ADMIN_HTTP_H
#define HOLDFAST_ADMIN_HTTP_H

#include "common/base/error.h"

#include <stdbool.h>
#include <stddef.h>

struct admin_http;

/* A readiness check: true when fine; else writes why into reason. Called on the admin thread at
 * each /readyz; it must not block (read a flag that the owner keeps). */
typedef bool (*ready_check)(void *opaque, char *reason, size_t size);

/* Registers before admin_http_start; at most 16. `name` is kept as a pointer. */
void admin_http_ready_check(const char *name, ready_check check, void *opaque);
/* Listens on HOLDFAST_ADMIN_LISTEN ("127.0.0.1:9100"; port 0 picks one). NULL with err. */
struct admin_http *admin_http_start(const char *listen, struct error *err);
int admin_http_port(const struct admin_http *admin);
void admin_http_stop(struct admin_http *admin);
/* From now on /readyz answers 503 "draining". */
void admin_http_draining(void);

#endif
