/* Asks the database twice a second whether it is there, on a thread and a connection of its own:
 * what a process' readiness says about Postgres. */
#ifndef HOLDFAST_STORE_PROBE_H
#define HOLDFAST_STORE_PROBE_H

#include "common/base/error.h"

/* Connects once. False with err only when the database refuses this program for good (ERROR_DENIED:
 * unsafe settings, or a schema of another version); one that is away now is waited for. Registers
 * the ready check "postgres". Call in main, once. */
bool store_probe_start(struct error *err);
void store_probe_stop(void);

#endif
