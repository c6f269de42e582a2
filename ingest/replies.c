/* Which replies are asked for and kept, under which keys, and for how long. */
#include "ingest/replies.h"

#include "common/base/config.h"
#include "common/base/metrics.h"
#include "common/cache/cache.h"

#include <stdlib.h>
#include <string.h>

enum {
    REPLY_KEY_SIZE = 128,
    DOC_MAX_BYTES = 65536, /* a longer one is left to the database */
    CONFIRM_TTL_S = 5
};

struct replies {
    struct cache *cache;
    int ttl_s;
    struct metric *hits;
};

struct replies *replies_new(struct error *err)
{
    struct cache *cache = cache_new(config_text("HOLDFAST_REDIS_URL"),
                                    (int)config_int("HOLDFAST_REDIS_TIMEOUT_MS"), err);
    if (cache == NULL)
        return NULL;
    struct replies *replies = calloc(1, sizeof *replies);
    must(replies != NULL);
    replies->cache = cache;
    replies->ttl_s = (int)config_int("HOLDFAST_REPLY_TTL_S");
    replies->hits = metric_counter("holdfast_replies_kept_total", "", "Calls answered from Redis.");
    return replies;
}

void replies_free(struct replies *replies)
{
    if (replies == NULL)
        return;
    cache_free(replies->cache);
    free(replies);
}

static void reply_key(int environment, const uint8_t *key_hash, char out[REPLY_KEY_SIZE])
{
    int at = snprintf(out, REPLY_KEY_SIZE, "holdfast:reply:%d:", environment);
    crypto_hex(key_hash, SHA256_SIZE, out + at);
}

/* A reply answers a call when it is one to the same request. */
static void reply_take(struct replies *replies, struct cache_reply *reply, struct accept_call *a)
{
    if (!reply->found || a->claim != NULL ||
        memcmp(reply->request_hash, a->body_hash, SHA256_SIZE) != 0)
        return;
    a->kept = reply->body;
    reply->body = NULL; /* the call's now */
    a->verdict = VERDICT_KEPT;
    metric_add(replies->hits, 1);
}

void replies_ask(struct replies *replies, struct accept_call **calls, size_t count)
{
    char(*texts)[REPLY_KEY_SIZE] = calloc(count, sizeof *texts);
    const char **keys = calloc(count, sizeof *keys);
    struct cache_reply *found = calloc(count, sizeof *found);
    must(texts != NULL && keys != NULL && found != NULL);
    for (size_t i = 0; i < count; i++) {
        reply_key(calls[i]->call->principal->environment, calls[i]->key_hash, texts[i]);
        keys[i] = texts[i];
    }
    cache_get_many(replies->cache, keys, count, found);
    for (size_t i = 0; i < count; i++) {
        reply_take(replies, &found[i], calls[i]);
        cache_reply_free(&found[i]);
    }
    free(found);
    free(keys);
    free(texts);
}

void replies_keep(struct replies *replies, const struct reply *list, size_t count)
{
    char texts[REPLIES_KEEP_MAX][REPLY_KEY_SIZE];
    struct cache_put puts[REPLIES_KEEP_MAX];
    size_t used = 0;
    must(count <= REPLIES_KEEP_MAX);
    for (size_t i = 0; i < count; i++) {
        const struct reply *r = &list[i];
        bool brief = r->may_be_confirmed && replies->ttl_s > CONFIRM_TTL_S;
        if (r->doc_len > DOC_MAX_BYTES)
            continue;
        reply_key(r->environment, r->key_hash, texts[used]);
        puts[used] = (struct cache_put){.key = texts[used],
                                        .revision = r->revision,
                                        .request_hash = r->request_hash,
                                        .body = r->doc,
                                        .body_len = r->doc_len,
                                        .ttl_s = brief ? CONFIRM_TTL_S : replies->ttl_s};
        used++;
    }
    if (used > 0)
        cache_put_many(replies->cache, puts, used);
}
