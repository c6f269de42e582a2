/* Error values, and the assertion that stays on in release builds. */
#include "common/base/error.h"

#include "common/base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static void error_fill(struct error *err, enum error_code code, const char *place, const char *fmt,
                       va_list args)
{
    if (!err)
        return;
    err->code = code;
    snprintf(err->place, sizeof(err->place), "%s", place ? place : "");
    vsnprintf(err->text, sizeof(err->text), fmt, args);
}

bool error_set(struct error *err, enum error_code code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    error_fill(err, code, NULL, fmt, args);
    va_end(args);
    return false;
}

bool error_set_at(struct error *err, enum error_code code, const char *place, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    error_fill(err, code, place, fmt, args);
    va_end(args);
    return false;
}

const char *error_code_name(enum error_code code)
{
    switch (code) {
    case ERROR_NONE:
        return "none";
    case ERROR_INVALID:
        return "invalid";
    case ERROR_NOT_FOUND:
        return "not_found";
    case ERROR_CONFLICT:
        return "conflict";
    case ERROR_DENIED:
        return "denied";
    case ERROR_TOO_LARGE:
        return "too_large";
    case ERROR_UNAVAILABLE:
        return "unavailable";
    case ERROR_DOUBTFUL:
        return "doubtful";
    case ERROR_MEMORY:
        return "memory";
    case ERROR_INTERNAL:
        return "internal";
    }
    return "internal";
}

_Noreturn void must_failed(const char *cond, const char *file, int line)
{
    log_event(LOG_ERROR, "must_failed", "cond=%s file=%s line=%d", cond, file, line);
    abort();
}
