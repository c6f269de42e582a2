/* Settled replies in Redis, so that a repeated call needs no database. Redis only ever answers what
 * Postgres has settled, never admits anything, and may lose everything at any time. */
#ifndef HOLDFAST_REPLIES_H
#define HOLDFAST_REPLIES_H

#include "ingest/accept.h"

/* One connection; belongs to one thread. NULL with err only for a bad HOLDFAST_REDIS_URL; a Redis
 * that is away, or none, is no error. */
struct replies;
struct replies *replies_new(struct error *err);
void replies_free(struct replies *replies);

/* Asks for all calls in one round trip. A call whose key has a reply to this very request becomes
 * VERDICT_KEPT; all others are left as they are. */
void replies_ask(struct replies *replies, struct accept_call **calls, size_t count);

/* A settled reply to be kept. `revision` rises with everything that may still change it: a lower
 * one never replaces a higher one. Borrowed until replies_keep returns. */
struct reply {
    int environment;
    const uint8_t *key_hash;     /* SHA256_SIZE */
    const uint8_t *request_hash; /* SHA256_SIZE */
    int revision;
    bool may_be_confirmed; /* soon, without anybody telling us: kept for a few seconds only */
    const char *doc;
    size_t doc_len;
};
#define REPLIES_KEEP_MAX 512
void replies_keep(struct replies *replies, const struct reply *list, size_t count);

#endif
