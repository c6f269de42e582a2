/* Replies kept in Redis. It may lose everything at any time, be stopped, or answer late: every call
 * here ends within the time-out given at the beginning, and "don't know" is always a good answer.
 */
#ifndef HOLDFAST_CACHE_H
#define HOLDFAST_CACHE_H

#include "common/base/crypto.h"
#include "common/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CACHE_KEY_MAX 256           /* bytes of a key */
#define CACHE_BODY_MAX (256 * 1024) /* bytes of a body; longer ones are not kept */

/* One connection and what is known about it. For one thread, but for cache_ready. */
struct cache;

/* One kept reply. A caller gives room for it, and frees it with cache_reply_free. */
struct cache_reply {
    bool found; /* false: not there, or not known */
    int64_t revision;
    uint8_t request_hash[SHA256_SIZE];
    char *body; /* NUL-terminated */
    size_t body_len;
};

/* One reply to keep; all is borrowed. */
struct cache_put {
    const char *key;
    int64_t revision; /* >= 0; replaces only a lower one */
    const uint8_t *request_hash;
    const char *body;
    size_t body_len;
    int ttl_s; /* > 0 */
};

/* redis://[[user]:password@]host[:port][/database], with %XX in user and password. "" keeps nothing
 * and always answers "don't know". Connects with the first call; a server that is away is no error.
 * NULL with err for a bad URL. `timeout_ms` bounds each call that follows, whatever it has to do.
 */
struct cache *cache_new(const char *url, int timeout_ms, struct error *err);
void cache_free(struct cache *c);

/* Looks up count keys in one round trip and fills replies[0..count-1]. True: Redis answered; what
 * is not found is not there. False: don't know, nothing is found. After trouble Redis is left alone
 * for 250 ms, doubling to 5 s, in which every call answers "don't know" at once. */
bool cache_get_many(struct cache *c, const char *const *keys, size_t count,
                    struct cache_reply *replies);
void cache_reply_free(struct cache_reply *reply); /* not found afterwards */

/* Keeps count replies, pipelined. Where a key already holds this or a higher revision, that stays.
 * True: Redis has done all of it (what was too long to be kept aside). */
bool cache_put_many(struct cache *c, const struct cache_put *puts, size_t count);
bool cache_put_reply(struct cache *c, const char *key, int64_t revision,
                     const uint8_t request_hash[SHA256_SIZE], const char *body, size_t body_len,
                     int ttl_s);

/* Forgets a key. False: don't know. */
bool cache_drop(struct cache *c, const char *key);

/* Asks whether Redis answers, so that cache_ready is true to the moment where calls are rare. */
bool cache_ping(struct cache *c);
/* A ready_check for admin_http: whether the last call was answered. Any thread; opaque is the
 * cache. */
bool cache_ready(void *opaque, char *reason, size_t size);

#endif
