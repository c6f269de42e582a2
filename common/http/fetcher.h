/* Reads from providers: GETs for read-backs and previews. Hardened like the sender and without a
 * gate, as a read changes nothing. It retries nothing: whoever reads decides when to read again. */
#ifndef HOLDFAST_FETCHER_H
#define HOLDFAST_FETCHER_H

#include "common/base/error.h"
#include "common/http/answer.h"
#include "common/http/fill.h"
#include "common/http/loop.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fetcher;

/* One GET or HEAD. The owner keeps it, and `filled`, until `done` gets it back. */
struct fetch {
    /* Set by the owner. */
    const struct filled *filled;
    int64_t timeout_ms;                /* for a connection, and again for the answer */
    void (*done)(struct fetch *fetch); /* on a fetcher thread; may submit the next fetch */
    void *owner;

    /* Set by the fetcher, read in done and after. */
    struct answer answer; /* the owner frees it (answer_free) */
    bool complete;        /* a whole answer with its end; else `cause` says why not */
    char cause[256];
    int64_t finished_at_us; /* wall clock */

    /* Only the fetcher's. */
    struct transfer transfer;
};

struct fetcher_config {
    unsigned threads;
    size_t slots; /* reads at a time, over all threads */
    int64_t connect_timeout_ms;
    size_t answer_max;   /* what is kept of a body */
    const char *ca_file; /* NULL: the system's */
};

struct fetcher *fetcher_start(const struct fetcher_config *config, struct error *err);
/* Any thread. False when every slot is taken or the fetcher is stopping: the fetch stays the
 * caller's. */
bool fetcher_submit(struct fetcher *fetcher, struct fetch *fetch);
size_t fetcher_room(struct fetcher *fetcher);
/* `done` has been called for every fetch when it returns. Frees the fetcher. */
void fetcher_stop(struct fetcher *fetcher, int64_t drain_ms);

#endif
