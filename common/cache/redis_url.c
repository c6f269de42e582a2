/* Reading redis:// URLs. */
#include "common/cache/redis_url.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DATABASE_MAX 65535

static int hex_value(char c)
{
    return isdigit((unsigned char)c) ? c - '0' : (tolower((unsigned char)c) - 'a') + 10;
}

/* Copies len bytes with %XX decoded. False: it does not fit, or a % stands alone or means NUL. */
static bool decode(const char *text, size_t len, char *out, size_t size)
{
    size_t used = 0;
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        if (c == '%') {
            if (i + 2 >= len || !isxdigit((unsigned char)text[i + 1]) ||
                !isxdigit((unsigned char)text[i + 2]))
                return false;
            c = (char)(hex_value(text[i + 1]) * 16 + hex_value(text[i + 2]));
            i += 2;
        }
        if (c == '\0' || used + 1 >= size)
            return false;
        out[used++] = c;
    }
    out[used] = '\0';
    return true;
}

/* A decimal number 0..most and nothing else. */
static bool number_read(const char *text, size_t len, int most, int *out)
{
    int value = 0;
    if (len == 0 || len > 5)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (!isdigit((unsigned char)text[i]))
            return false;
        value = value * 10 + (text[i] - '0');
    }
    *out = value;
    return value <= most;
}

static bool bad(struct error *err, const char *what)
{
    return error_set_at(err, ERROR_INVALID, "HOLDFAST_REDIS_URL", "the Redis URL %s", what);
}

/* "user:password", "password alone" is not a thing: it needs its colon. */
static bool credentials_read(const char *text, size_t len, struct redis_url *out, struct error *err)
{
    const char *colon = memchr(text, ':', len);
    if (!colon)
        return bad(err, "has a user and no password");
    size_t user_len = (size_t)(colon - text);
    if (!decode(text, user_len, out->user, sizeof(out->user)) ||
        !decode(colon + 1, len - user_len - 1, out->password, sizeof(out->password)))
        return bad(err, "has a user or password that can't be read");
    return true;
}

static bool host_read(const char *text, size_t len, struct redis_url *out, struct error *err)
{
    int port = 6379;
    const char *end = text + len;
    const char *host = text;
    const char *host_end = memchr(text, ':', len);
    if (len > 0 && *text == '[') {
        host++;
        host_end = memchr(text, ']', len);
        if (!host_end)
            return bad(err, "has an address without its ]");
    }
    const char *rest = host_end && *host_end == ']' ? host_end + 1 : host_end;
    if (!host_end)
        rest = host_end = end;
    size_t host_len = (size_t)(host_end - host);
    if (host_len == 0 || host_len >= sizeof(out->host))
        return bad(err, "has no host");
    if (rest < end && (*rest != ':' ||
                       !number_read(rest + 1, (size_t)(end - rest - 1), 65535, &port) || port == 0))
        return bad(err, "has a bad port");
    memcpy(out->host, host, host_len);
    out->host[host_len] = '\0';
    snprintf(out->port, sizeof(out->port), "%d", port);
    return true;
}

bool redis_url_parse(const char *text, struct redis_url *out, struct error *err)
{
    static const char scheme[] = "redis://";
    *out = (struct redis_url){0};
    if (strncmp(text, scheme, sizeof(scheme) - 1) != 0)
        return bad(err, "does not begin with redis://");
    text += sizeof(scheme) - 1;
    const char *slash = strchr(text, '/');
    const char *end = slash ? slash : text + strlen(text);
    const char *at = memrchr(text, '@', (size_t)(end - text));
    if (at) {
        if (!credentials_read(text, (size_t)(at - text), out, err))
            return false;
        text = at + 1;
    }
    if (slash && slash[1] &&
        !number_read(slash + 1, strlen(slash + 1), DATABASE_MAX, &out->database))
        return bad(err, "has a bad database number");
    return host_read(text, (size_t)(end - text), out, err);
}
