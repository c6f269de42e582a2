/* Inside of common/cache: one connection to Redis that never keeps its caller for longer than
 * agreed, and that leaves a server in trouble alone. */
#ifndef HOLDFAST_CACHE_LINK_H
#define HOLDFAST_CACHE_LINK_H

#include "common/base/buf.h"
#include "common/cache/lookup.h"
#include "common/cache/redis_url.h"

#include <hiredis/hiredis.h>
#include <stdatomic.h>

struct link {
    struct redis_url url;
    int fd; /* -1: not connected */
    redisReader *reader;
    struct lookup *lookup; /* NULL: no resolution in progress */
    int64_t retry_at_ms;   /* boot time before which nothing is tried; 0: no trouble */
    int backoff_ms;        /* of the next trouble */
    atomic_bool up;        /* the last exchange was answered */
};

void link_init(struct link *link, const struct redis_url *url);
void link_close(struct link *link); /* everything; link_init first to use it again */

/* Appends a command of `argc` arguments, each added by link_put_arg. */
void link_put_command(struct buf *out, int argc);
void link_put_arg(struct buf *out, const void *data, size_t len);
void link_put_text(struct buf *out, const char *text);

/* Sends the commands and receives one reply for each into replies[0..count-1], which the caller
 * frees with freeReplyObject; all by `deadline_ms` of the boot clock. False: don't know, nothing
 * was received, the connection is closed; at once while the server is left alone. Error replies are
 * replies. */
bool link_exchange(struct link *link, const struct buf *commands, size_t count,
                   redisReply **replies, int64_t deadline_ms);

/* A reply that shows a server in trouble (loading, read-only, out of memory): as if the connection
 * had failed, so that the next try looks the host up again. */
void link_trouble(struct link *link);

#endif
