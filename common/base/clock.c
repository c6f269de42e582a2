/* The clocks of one machine, and the text form of a time. */
#include "common/base/clock.h"

#include "common/base/error.h"

#include <stdio.h>
#include <time.h>

#define US_PER_S 1000000LL

static int64_t clock_read_us(clockid_t id)
{
    struct timespec ts;
    must(clock_gettime(id, &ts) == 0);
    return (int64_t)ts.tv_sec * US_PER_S + ts.tv_nsec / 1000;
}

int64_t clock_boot_us(void)
{
    return clock_read_us(CLOCK_BOOTTIME);
}

int64_t clock_boot_ms(void)
{
    return clock_boot_us() / 1000;
}

int64_t clock_wall_us(void)
{
    return clock_read_us(CLOCK_REALTIME);
}

int64_t clock_wall_ms(void)
{
    return clock_wall_us() / 1000;
}

char *clock_format_us(int64_t unix_us, char *out, size_t size)
{
    int64_t us = unix_us % US_PER_S;
    if (us < 0)
        us += US_PER_S;
    time_t seconds = (time_t)((unix_us - us) / US_PER_S);
    struct tm tm;
    char day_time[64];
    must(gmtime_r(&seconds, &tm));
    must(strftime(day_time, sizeof(day_time), "%Y-%m-%dT%H:%M:%S", &tm) > 0);
    snprintf(out, size, "%s.%03dZ", day_time, (int)(us / 1000));
    return out;
}
