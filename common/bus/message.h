/* The messages between the parts: small JSON objects with a version, references only, never the
 * only copy of anything. What is decoded came from outside: strict, bounded, an error value at
 * worst. */
#ifndef HOLDFAST_BUS_MESSAGE_H
#define HOLDFAST_BUS_MESSAGE_H

#include "common/base/buf.h"
#include "common/base/error.h"
#include "common/base/ulid.h"
#include "common/bus/bus.h"

#define MESSAGE_MAX 1024             /* bytes of one message as JSON */
#define MESSAGE_DESTINATION_SIZE 264 /* a host name of 253, a colon, a port, NUL */
#define MESSAGE_NO_REPLY (-1)        /* nobody waits */

/* effects: claim this and send it. */
struct effect_message {
    struct ulid effect;
    int64_t environment;
    int64_t seq;                                /* 1: the dispatch; more: a replay */
    char destination[MESSAGE_DESTINATION_SIZE]; /* host:port, whose free slot it needs */
    int32_t reply; /* partition of the outcomes topic, or MESSAGE_NO_REPLY */
};

enum read_purpose {
    READ_UNKNOWN, /* what became of an unknown */
    READ_CONFIRM, /* a succeeded one, for its grade */
    READ_DEMAND,  /* somebody waits for it */
    READ_PURPOSE_COUNT
};

/* reconcile: read the provider about this. */
struct reconcile_message {
    struct ulid effect;
    int64_t environment;
    enum read_purpose purpose;
    int32_t reply;
};

enum outcome_what {
    WHAT_SETTLED, /* succeeded or failed */
    WHAT_UNKNOWN,
    WHAT_PENDING, /* the provider says "not final yet" */
    WHAT_REFUSED,
    WHAT_EXPIRED,
    WHAT_CONFIRMED,
    WHAT_CONFLICT,
    WHAT_READ, /* a read was done and changed nothing */
    WHAT_COUNT
};

/* outcomes: look at this effect again. */
struct outcome_message {
    struct ulid effect;
    int64_t environment;
    enum outcome_what what;
};

const char *read_purpose_name(enum read_purpose purpose);
const char *outcome_what_name(enum outcome_what what);

/* Append one message as JSON. False: it did not fit or memory is out. */
bool effect_message_encode(const struct effect_message *message, struct buf *out);
bool reconcile_message_encode(const struct reconcile_message *message, struct buf *out);
bool outcome_message_encode(const struct outcome_message *message, struct buf *out);

/* Read one. text may be NULL (a null payload). False with err (ERROR_INVALID), *out undefined. */
bool effect_message_decode(const char *text, size_t len, struct effect_message *out,
                           struct error *err);
bool reconcile_message_decode(const char *text, size_t len, struct reconcile_message *out,
                              struct error *err);
bool outcome_message_decode(const char *text, size_t len, struct outcome_message *out,
                            struct error *err);

/* The dead letter of an unreadable message: {"v":1,"topic","partition","offset","key","payload",
 * "payloadBytes","reason"}; payload is base64 of at most its first 64 KiB, payloadBytes is how long
 * it was; key and payload are null when there was none. */
bool message_put_dead_letter(struct buf *out, const char *topic, const struct bus_message *message,
                             const char *reason);

#endif
