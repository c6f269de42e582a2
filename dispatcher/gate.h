/* The one-shot gate: the only way out for a write. A record stands for one attempt (effect, seq);
 * its gate opens once at most, at the moment the first byte would leave, and never again for this
 * record, whatever asks. That it never opened is the only proof that a request never left. */
#ifndef HOLDFAST_GATE_H
#define HOLDFAST_GATE_H

#include "common/base/ulid.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct send_record;

/* Runs inside the first gate_pass, before the gate opens: the place for the journal's write. False
 * keeps the gate shut for good. Must not block. */
typedef bool (*gate_before_open)(struct send_record *record, void *opaque);

enum gate_state {
    GATE_NOT_ASKED,
    GATE_OPENED, /* bytes may have left */
    GATE_LATE,   /* asked at or after send_by: shut for good */
    GATE_HELD    /* before_open said no: shut for good */
};

struct send_record {
    struct ulid effect;
    int seq;
    int64_t send_by_ms;           /* boot clock: nothing leaves at or after this moment */
    gate_before_open before_open; /* NULL: nothing to do */
    void *before_open_opaque;

    /* Only gate_pass writes these, and nothing ever resets them. */
    atomic_uint asked; /* times */
    enum gate_state state;
    int64_t opened_boot_us; /* 0 while it is not open */
    int64_t opened_wall_us;
};

void send_record_init(struct send_record *record, const struct ulid *effect, int seq,
                      int64_t send_by_ms);

/* True exactly once in a record's life: for the first caller, in time, with before_open's consent.
 * The clock is read by the caller so that it can be injected. Any thread, though only the sender's
 * calls it. */
bool gate_pass(struct send_record *record, int64_t now_boot_us, int64_t now_wall_us);

/* Whether a byte may have left. Read it on the thread that asked, or after its transfer ended. */
bool gate_opened(const struct send_record *record);

/* Why it is shut, for evidence; NULL when it was never asked or is open. Static. */
const char *gate_cause(const struct send_record *record);

#endif
