/* Sends writes: the only file of the fleet that can. It takes claimed sends, carries each out
 * through its gate, and tells what is known afterwards. It neither claims nor settles. */
#ifndef HOLDFAST_SENDER_H
#define HOLDFAST_SENDER_H

#include "common/base/error.h"
#include "common/http/answer.h"
#include "common/http/fill.h"
#include "common/http/loop.h"
#include "dispatcher/gate.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sender;

/* One attempt to send. The owner keeps it, and `filled`, until on_done gets it back. */
struct send {
    /* Set by the owner. */
    struct send_record record; /* send_record_init */
    const struct filled *filled;
    int64_t timeout_ms; /* the provider's time for a whole answer, counted from the gate */
    bool drop_response_after_send; /* fault drill: treat the answer as lost */
    void *owner;

    /* Set by the sender, read in on_done and after. */
    struct answer answer; /* the owner frees it (answer_free); empty unless one came */
    enum send_result result;
    char evidence[384];     /* one sentence */
    int64_t sent_at_us;     /* wall clock when the gate opened, 0: never left */
    int64_t finished_at_us; /* wall clock */

    /* Only the sender's. */
    struct sender *sender;
    struct transfer transfer;
};

/* Runs on a sender thread; it hands the send on (to the settler's queue) and returns. */
typedef void (*send_done)(struct send *send, void *opaque);

struct sender_config {
    unsigned threads;
    size_t slots;               /* HOLDFAST_SEND_SLOTS: sends at a time, over all threads */
    int64_t connect_timeout_ms; /* name, TCP and TLS */
    size_t answer_max;          /* HOLDFAST_ANSWER_MAX_BYTES: what is kept of a body */
    const char *ca_file;        /* NULL: the system's */
    send_done on_done;
    void *opaque;
};

struct sender *sender_start(const struct sender_config *config, struct error *err);
/* Any thread. False when every slot is taken or the sender is stopping: the send stays the caller's
 * and its gate was not asked. */
bool sender_submit(struct sender *sender, struct send *send);
size_t sender_room(struct sender *sender); /* slots free at this moment */
/* Takes nothing more, lets what runs run for at most drain_ms, then ends the rest (never left, or
 * unknown). on_done has been called for every send when it returns. Frees the sender. */
void sender_stop(struct sender *sender, int64_t drain_ms);

#endif
