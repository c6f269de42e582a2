/* Clocks. Deadlines inside a process use the boot-time clock, which runs on through a suspend and
 * never steps. Times that machines must agree on come from the database, never from here. */
#ifndef HOLDFAST_CLOCK_H
#define HOLDFAST_CLOCK_H

#include <stddef.h>
#include <stdint.h>

int64_t clock_boot_ms(void); /* CLOCK_BOOTTIME */
int64_t clock_boot_us(void);
int64_t clock_wall_ms(void); /* CLOCK_REALTIME, Unix epoch: for log lines, ULIDs and evidence */
int64_t clock_wall_us(void);
/* "2026-11-30T20:23:05.123Z" of a Unix time in microseconds; size >= 25. Returns out. */
char *clock_format_us(int64_t unix_us, char *out, size_t size);

#endif
