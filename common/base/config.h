/* Configuration: environment variables, all from one alphabetical table in config.c (name, default,
 * unit, least, most, sentence). An unknown HOLDFAST_ name or a bad value refuses the start. */
#ifndef HOLDFAST_CONFIG_H
#define HOLDFAST_CONFIG_H

#include "common/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Reads and checks the whole environment once, in main, before any thread. On false, err names the
 * variable, what it holds that is wrong, and what it may be. */
bool config_load(struct error *err);

/* Values by name; the name must stand in the table (else must() fails: a programming error). */
int64_t config_int(const char *name);
bool config_bool(const char *name); /* on/off, true/false, 1/0 */
const char *config_text(const char *name);

/* The rungs of HOLDFAST_READBACK_SCHEDULE in milliseconds: at least 1, at most 32. */
size_t config_durations(const char *name, int64_t *out_ms, size_t max);

/* Whether host:port (port always given) is in HOLDFAST_DEV_DESTINATIONS (an entry without a port
 * allows every port of that host). */
bool config_dev_destination(const char *host, int port);

/* Prints the table for `holdfast config`: name, value now, default, unit, sentence. Values of
 * secret settings (URLs with a password) are masked. */
void config_print(FILE *out);

#endif
