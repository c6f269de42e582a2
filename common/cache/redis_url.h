/* Inside of common/cache: the parts of a Redis URL. */
#ifndef HOLDFAST_CACHE_REDIS_URL_H
#define HOLDFAST_CACHE_REDIS_URL_H

#include "common/base/error.h"

#include <stdbool.h>

struct redis_url {
    char user[128]; /* "": the default user */
    char password[512];
    char host[256];
    char port[8];
    int database;
};

/* redis://[[user]:password@]host[:port][/database]; host may be [IPv6]. False with err, which does
 * not hold the URL, since that may hold a password. */
bool redis_url_parse(const char *text, struct redis_url *out, struct error *err);

#endif
