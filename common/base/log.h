/* One JSON object a line on stderr: {"at","level","part","event",...}. No secret and no input value
 * ever goes into one. Thread-safe: a line is one write(2). */
#ifndef HOLDFAST_LOG_H
#define HOLDFAST_LOG_H

#include "common/base/error.h"

#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

/* `part` is the process name, as "dispatcher-1"; kept as a pointer. Lines below `least` are left
 * out. */
void log_init(const char *part, enum log_level least);

/* The level of "debug", "info", "warn" or "error"; false for any other word. */
bool log_level_parse(const char *name, enum log_level *out);

/* Fields follow the event as a format string of `key=%spec` pairs with their values, for example
 *   log_event(LOG_WARN, "claim_retry", "effect=%s tries=%d", id, tries);
 * Keys are literal words; every value ends at the next ` key=` of the FORMAT (not of the value), so
 * a value may hold blanks. Values from %d %ld %lld %zu %u %PRId64 become JSON numbers, all else
 * strings (escaped, cut at 512 bytes). */
void log_event(enum log_level level, const char *event, const char *fields, ...)
    __attribute__((format(printf, 3, 4)));

/* Logs an error value under the event name, with its code, place and text. */
void log_error(enum log_level level, const char *event, const struct error *err);

#endif
