/* Knows whether what ingest has cached of the configuration is current: a thread listens for
 * changes and asks for the revision once a second. The same question tells how far the database's
 * clock is from ours, and whether the database is there at all. */
#ifndef HOLDFAST_CONFIG_WATCH_H
#define HOLDFAST_CONFIG_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void config_watch_start(void);
void config_watch_stop(void);

/* The revision seen last; 0 while it is not known or was not asked for successfully for some
 * seconds: then nothing cached may be used. Any thread. */
int64_t config_revision(void);

/* The database's clock, as Unix time. Before the first answer it is our own. Any thread. */
int64_t database_now_ms(void);

/* A ready_check: the database answered within the last seconds. */
bool config_watch_ready(void *opaque, char *reason, size_t size);

#endif
