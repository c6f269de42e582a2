/* Replies in Redis: how a value looks, and the four things that are done with it. */
#include "common/cache/cache.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/metrics.h"
#include "common/cache/link.h"

#include <inttypes.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A value: "1:", the revision in 19 decimal digits (so that they compare as text), the 32 bytes of
 * the request hash, the body. */
#define VALUE_FORMAT "1:%019" PRId64
#define VALUE_REVISION_AT 2
#define VALUE_HASH_AT 21
#define VALUE_BODY_AT (VALUE_HASH_AT + SHA256_SIZE)

#define PUT_CHUNK_MAX 256             /* puts in one exchange */
#define PUT_CHUNK_BYTES (1024 * 1024) /* a chunk ends past this */
#define COMMANDS_MAX                                                                               \
    (4 * 1024 * 1024) /* bytes of one exchange: a chunk and one more put, by EVAL */

static const char PUT_SCRIPT[] =
    "local old = redis.call('GETRANGE', KEYS[1], 0, 20) "
    "if string.sub(old, 1, 2) == '1:' and string.sub(old, 3) >= ARGV[1] then return 0 end "
    "redis.call('SET', KEYS[1], ARGV[2], 'EX', ARGV[3]) "
    "return 1";

struct cache {
    bool off; /* no URL */
    int timeout_ms;
    struct link link;
    char script_sha[2 * SHA_DIGEST_LENGTH + 1];
    struct buf commands; /* reused by every call */
    struct metric *hits;
    struct metric *misses;
    struct metric *unknown;
    struct metric *failed_puts;
};

static void metrics_make(struct cache *c)
{
    static const char name[] = "holdfast_cache_lookups_total";
    static const char help[] = "Keys looked up in Redis, by what it said.";
    c->hits = metric_counter(name, "answer=\"hit\"", help);
    c->misses = metric_counter(name, "answer=\"miss\"", help);
    c->unknown = metric_counter(name, "answer=\"unknown\"", help);
    c->failed_puts = metric_counter("holdfast_cache_puts_failed_total", "",
                                    "Replies that Redis was not seen to keep.");
}

struct cache *cache_new(const char *url, int timeout_ms, struct error *err)
{
    struct redis_url parsed = {0};
    unsigned char sha[SHA_DIGEST_LENGTH];
    must(timeout_ms > 0);
    if (url[0] && !redis_url_parse(url, &parsed, err))
        return NULL;
    struct cache *c = calloc(1, sizeof(*c));
    must(c);
    c->off = !url[0];
    c->timeout_ms = timeout_ms;
    link_init(&c->link, &parsed);
    buf_init(&c->commands, COMMANDS_MAX);
    SHA1((const unsigned char *)PUT_SCRIPT, sizeof(PUT_SCRIPT) - 1, sha);
    crypto_hex(sha, sizeof(sha), c->script_sha);
    metrics_make(c);
    return c;
}

void cache_free(struct cache *c)
{
    if (!c)
        return;
    link_close(&c->link);
    buf_free(&c->commands);
    free(c);
}

static int64_t deadline(const struct cache *c)
{
    return clock_boot_ms() + c->timeout_ms;
}

static bool is_error(const redisReply *reply, const char *prefix)
{
    return reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, prefix, strlen(prefix)) == 0;
}

/* One exchange of c->commands; an error reply that speaks of trouble counts as none. */
static bool call(struct cache *c, size_t count, redisReply **replies, int64_t deadline_ms)
{
    if (c->off || !link_exchange(&c->link, &c->commands, count, replies, deadline_ms))
        return false;
    for (size_t i = 0; i < count; i++) {
        const redisReply *reply = replies[i];
        if (reply->type != REDIS_REPLY_ERROR || is_error(reply, "NOSCRIPT") ||
            is_error(reply, "WRONGTYPE"))
            continue; /* about a key or a script, not about the server */
        log_event(LOG_WARN, "redis_error", "text=%s", reply->str);
        for (size_t j = 0; j < count; j++)
            freeReplyObject(replies[j]);
        link_trouble(&c->link);
        return false;
    }
    return true;
}

/* False: not a value of ours, which is as good as none. */
static bool value_read(const redisReply *value, struct cache_reply *out)
{
    char digits[VALUE_HASH_AT - VALUE_REVISION_AT + 1];
    if (value->type != REDIS_REPLY_STRING || value->len < VALUE_BODY_AT ||
        memcmp(value->str, "1:", 2) != 0)
        return false;
    memcpy(digits, value->str + VALUE_REVISION_AT, sizeof(digits) - 1);
    digits[sizeof(digits) - 1] = '\0';
    if (strspn(digits, "0123456789") != sizeof(digits) - 1)
        return false;
    out->body_len = value->len - VALUE_BODY_AT;
    out->body = malloc(out->body_len + 1);
    if (!out->body)
        return false;
    memcpy(out->body, value->str + VALUE_BODY_AT, out->body_len);
    out->body[out->body_len] = '\0';
    memcpy(out->request_hash, value->str + VALUE_HASH_AT, SHA256_SIZE);
    out->revision = strtoll(digits, NULL, 10);
    out->found = true;
    return true;
}

static void values_read(struct cache *c, const redisReply *values, struct cache_reply *replies)
{
    size_t found = 0;
    for (size_t i = 0; i < values->elements; i++)
        found += value_read(values->element[i], &replies[i]);
    metric_add(c->hits, (int64_t)found);
    metric_add(c->misses, (int64_t)(values->elements - found));
}

bool cache_get_many(struct cache *c, const char *const *keys, size_t count,
                    struct cache_reply *replies)
{
    redisReply *values;
    memset(replies, 0, count * sizeof(*replies));
    if (count == 0)
        return true;
    buf_reset(&c->commands);
    link_put_command(&c->commands, (int)count + 1);
    link_put_text(&c->commands, "MGET");
    for (size_t i = 0; i < count; i++)
        link_put_text(&c->commands, keys[i]);
    if (!call(c, 1, &values, deadline(c))) {
        metric_add(c->unknown, (int64_t)count);
        return false;
    }
    bool ok = values->type == REDIS_REPLY_ARRAY && values->elements == count;
    if (ok)
        values_read(c, values, replies);
    else
        link_trouble(&c->link); /* that is no Redis */
    freeReplyObject(values);
    return ok;
}

void cache_reply_free(struct cache_reply *reply)
{
    free(reply->body);
    *reply = (struct cache_reply){0};
}

/* The put script by its hash, or in full. */
static void put_write(struct cache *c, const struct cache_put *put, bool in_full)
{
    struct buf *out = &c->commands;
    char head[VALUE_HASH_AT + 1];
    char ttl[16];
    must(put->revision >= 0 && put->ttl_s > 0);
    snprintf(head, sizeof(head), VALUE_FORMAT, put->revision);
    snprintf(ttl, sizeof(ttl), "%d", put->ttl_s);
    link_put_command(out, 7);
    link_put_text(out, in_full ? "EVAL" : "EVALSHA");
    link_put_text(out, in_full ? PUT_SCRIPT : c->script_sha);
    link_put_text(out, "1");
    link_put_text(out, put->key);
    link_put_text(out, head + VALUE_REVISION_AT);
    buf_printf(out, "$%zu\r\n%s", VALUE_BODY_AT + put->body_len, head);
    buf_put(out, put->request_hash, SHA256_SIZE);
    buf_put(out, put->body, put->body_len);
    buf_puts(out, "\r\n");
    link_put_text(out, ttl);
}

/* Frees the replies to puts. After a restart or SCRIPT FLUSH Redis does not know the script: those
 * that it refused for that are sent again. False: not all are done. */
static bool put_answers(struct cache *c, const struct cache_put *const *puts, size_t count,
                        redisReply **replies, int64_t deadline_ms)
{
    size_t again = 0;
    bool ok = true;
    buf_reset(&c->commands);
    for (size_t i = 0; i < count; i++) {
        if (is_error(replies[i], "NOSCRIPT"))
            put_write(c, puts[i], again++ == 0); /* the first teaches it for the others */
        else
            ok = ok && replies[i]->type != REDIS_REPLY_ERROR;
        freeReplyObject(replies[i]);
    }
    if (again == 0)
        return ok;
    if (!call(c, again, replies, deadline_ms))
        return false;
    for (size_t i = 0; i < again; i++) {
        ok = ok && replies[i]->type != REDIS_REPLY_ERROR;
        freeReplyObject(replies[i]);
    }
    return ok;
}

static bool put_chunk(struct cache *c, const struct cache_put *const *puts, size_t count,
                      int64_t deadline_ms)
{
    redisReply *replies[PUT_CHUNK_MAX];
    bool ok = count == 0 || (call(c, count, replies, deadline_ms) &&
                             put_answers(c, puts, count, replies, deadline_ms));
    if (!ok)
        metric_add(c->failed_puts, (int64_t)count);
    buf_reset(&c->commands);
    return ok;
}

bool cache_put_many(struct cache *c, const struct cache_put *puts, size_t count)
{
    const struct cache_put *chunk[PUT_CHUNK_MAX];
    size_t chunked = 0;
    int64_t deadline_ms = deadline(c);
    bool ok = true;
    buf_reset(&c->commands);
    for (size_t i = 0; i < count && ok; i++) {
        if (puts[i].body_len > CACHE_BODY_MAX)
            continue;
        put_write(c, &puts[i], false);
        chunk[chunked++] = &puts[i];
        if (chunked == PUT_CHUNK_MAX || c->commands.len >= PUT_CHUNK_BYTES) {
            ok = put_chunk(c, chunk, chunked, deadline_ms);
            chunked = 0;
        }
    }
    return ok && put_chunk(c, chunk, chunked, deadline_ms);
}

bool cache_put_reply(struct cache *c, const char *key, int64_t revision,
                     const uint8_t request_hash[SHA256_SIZE], const char *body, size_t body_len,
                     int ttl_s)
{
    struct cache_put put = {key, revision, request_hash, body, body_len, ttl_s};
    return cache_put_many(c, &put, 1);
}

/* A command whose reply matters only in being no error. */
static bool simple_call(struct cache *c, const char *command, const char *arg)
{
    redisReply *reply;
    buf_reset(&c->commands);
    link_put_command(&c->commands, arg ? 2 : 1);
    link_put_text(&c->commands, command);
    if (arg)
        link_put_text(&c->commands, arg);
    if (!call(c, 1, &reply, deadline(c)))
        return false;
    freeReplyObject(reply);
    return true;
}

bool cache_drop(struct cache *c, const char *key)
{
    return simple_call(c, "DEL", key);
}

bool cache_ping(struct cache *c)
{
    return simple_call(c, "PING", NULL);
}

bool cache_ready(void *opaque, char *reason, size_t size)
{
    struct cache *c = opaque;
    if (c->off || atomic_load(&c->link.up))
        return true;
    snprintf(reason, size, "redis does not answer");
    return false;
}
