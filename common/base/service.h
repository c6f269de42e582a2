/* What every long-running process does at its start and end: settings, log, signals, admin port. */
#ifndef HOLDFAST_SERVICE_H
#define HOLDFAST_SERVICE_H

#include "common/base/error.h"

#include <stdbool.h>

/* Loads the configuration, opens the log under HOLDFAST_NAME (or `part`), blocks SIGTERM and SIGINT
 * for all threads made from now on, ignores SIGPIPE. Call first, before any thread. */
bool service_boot(const char *part, struct error *err);
/* The process' name: HOLDFAST_NAME or the part. */
const char *service_name(void);
/* A random word of this run of the process, as 16 bytes. */
const unsigned char *service_incarnation(void);

/* Starts the admin port, then waits for SIGTERM or SIGINT, or until `failed` (may be NULL; asked
 * twice a second) says true. Marks the admin port as draining before it returns. The returned value
 * is the exit status to end with: 0 for a signal, 1 for a failure. */
int service_run(bool (*failed)(void));

/* Whether service_run has returned, or is about to: loops of other threads end by it. */
bool service_stopping(void);

/* Ends the admin port and the log. Last. */
void service_end(void);

/* Logs err as the reason why the process does not start, and ends it with status 1, at once: other
 * threads may be running by now, in libraries that the cleanup of exit() takes apart. Never
 * returns. */
_Noreturn void service_refuse(const struct error *err);

#endif
