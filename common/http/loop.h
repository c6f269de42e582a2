/* Threads that carry HTTP requests to providers and answers back, each a libcurl multi loop with
 * its own connections. It is a carrier: it decides nothing about effects, sends each transfer's
 * request at most once whatever libcurl would like to do, and asks the owner just before the first
 * byte leaves. */
#ifndef HOLDFAST_LOOP_H
#define HOLDFAST_LOOP_H

#include "common/base/error.h"
#include "common/http/answer.h"
#include "common/http/fill.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct transfer;

/* Asked on the loop's thread at the moment the first byte would leave. False: nothing leaves and
 * the transfer ends (`begun` stays false). It must not block for long and never gets asked twice.
 */
typedef bool (*transfer_begin)(struct transfer *transfer, int64_t now_boot_us);
/* Told once, on the loop's thread, when the transfer ended; from then on it is the owner's again
 * (it may be freed or submitted anew inside). */
typedef void (*transfer_done)(struct transfer *transfer);

struct transfer {
    /* The owner's, before loop_submit. */
    const struct filled *filled;
    struct answer *answer; /* initialised */
    int64_t begin_by_ms;   /* boot clock: not begun by then, it is given up */
    int64_t timeout_ms;    /* for the whole answer, from the moment it begins */
    transfer_begin begin;  /* NULL is only for GET and HEAD: always begins */
    transfer_done done;
    void *owner;

    /* The loop's, read in done. */
    bool begun;            /* the request was let go: bytes of it may have left */
    bool ok;               /* libcurl reached the end of the answer without an error */
    bool resend_refused;   /* libcurl wanted to send it again after its connection died */
    int64_t begun_boot_us; /* 0 when it never began */
    int64_t finished_boot_us;
    unsigned moves;  /* kept-alive connections given up because something was to read */
    char cause[256]; /* why it ended without a whole answer, "" when ok */

    /* Only the loop's. */
    struct transfer *next;
};

struct loop_config {
    const char *name;           /* of the threads; at most 12 characters */
    unsigned threads;           /* 1 to 64 */
    size_t slots;               /* transfers at a time, over all threads */
    int64_t connect_timeout_ms; /* name, TCP and TLS */
    const char *ca_file;        /* trusted roots, NULL for the system's */
};

struct loop;

struct loop *loop_start(const struct loop_config *config, struct error *err);
/* Any thread. False when every slot is taken or the loop is stopping: the transfer stays the
 * caller's. */
bool loop_submit(struct loop *loop, struct transfer *transfer);
size_t loop_room(struct loop *loop); /* slots free at this moment */
/* Takes nothing more, lets what runs run for at most drain_ms, ends the rest, and joins the
 * threads. Every transfer's done has been called when it returns. Frees the loop. */
void loop_stop(struct loop *loop, int64_t drain_ms);

#endif
