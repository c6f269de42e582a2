/* A validation under way: its budget, its first error, and the limits that end it. */
#include "common/base/schema_run.h"

#include <stdarg.h>
#include <stdio.h>

bool schema_run_fail(struct schema_run *run, const struct schema_place *place, const char *fmt, ...)
{
    if (run->quiet || run->stopped || !run->err)
        return false;
    char where[sizeof(run->err->place)];
    char text[sizeof(run->err->text)];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    return error_set_at(run->err, ERROR_INVALID, schema_place_write(place, where, sizeof(where)),
                        "%s", text);
}

bool schema_run_stop(struct schema_run *run, const struct schema_place *place, enum error_code code,
                     const char *why)
{
    char where[sizeof(run->err->place)];
    if (!run->stopped)
        error_set_at(run->err, code, schema_place_write(place, where, sizeof(where)), "%s", why);
    run->stopped = true;
    return false;
}

bool schema_run_goes_on(struct schema_run *run, const struct schema_place *place)
{
    if (run->work < 0)
        return schema_run_stop(run, place, ERROR_TOO_LARGE,
                               "the value takes too many steps to check against the schema");
    return !run->stopped;
}

bool schema_run_charge(struct schema_run *run, const struct schema_place *place, size_t steps)
{
    run->work -= (int64_t)steps;
    return schema_run_goes_on(run, place);
}

bool schema_run_matches(struct schema_run *run, const struct schema_pattern *pattern,
                        const char *text, size_t len, const struct schema_place *place)
{
    if (!schema_run_goes_on(run, place))
        return false;
    switch (schema_pattern_match(&run->matcher, pattern, text, len)) {
    case SCHEMA_MATCH:
        return true;
    case SCHEMA_MISS:
        return false;
    case SCHEMA_GAVE_UP:
        return schema_run_stop(run, place, ERROR_TOO_LARGE,
                               "the regular expression takes too many steps on this value");
    default:
        return schema_run_stop(run, place, ERROR_MEMORY, "no memory to validate");
    }
}
