/* What is kept under idempotency keys: the parameters, and the answer to give again. */
#include "tests/provider/sandbox/replies.h"

#include <stdlib.h>
#include <string.h>

static struct table replies;

static void reply_free(struct table_entry *entry)
{
    struct reply *reply = (struct reply *)entry;
    free(reply->body);
    free(reply);
}

void replies_init(size_t keep)
{
    table_init(&replies, keep, reply_free);
}

void replies_reset(void)
{
    table_clear(&replies);
}

struct reply *reply_find(const char *key)
{
    return (struct reply *)table_find(&replies, key);
}

void reply_keep(const char *key, const uint8_t params[32], int status, const char *body)
{
    if (key == NULL)
        return;
    struct reply *reply = reply_find(key);
    if (reply == NULL) {
        reply = must_calloc(sizeof(*reply));
        memcpy(reply->params, params, sizeof(reply->params));
        table_add(&replies, &reply->entry, key);
    }
    reply->status = status;
    free(reply->body);
    reply->body = must_strdup(body ? body : "");
}

void reply_forget(const char *key)
{
    struct reply *reply = reply_find(key);
    if (reply)
        table_remove(&replies, &reply->entry);
}

void reply_set_in_flight(const char *key, bool in_flight)
{
    struct reply *reply = reply_find(key);
    if (reply)
        reply->in_flight = in_flight;
}
