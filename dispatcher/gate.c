/* The gate. */
#include "dispatcher/gate.h"

#include <stddef.h>

void send_record_init(struct send_record *record, const struct ulid *effect, int seq,
                      int64_t send_by_ms)
{
    *record = (struct send_record){.effect = *effect, .seq = seq, .send_by_ms = send_by_ms};
}

bool gate_pass(struct send_record *record, int64_t now_boot_us, int64_t now_wall_us)
{
    /* The first question decides for ever; a refusal is as final as a passage. */
    if (atomic_fetch_add(&record->asked, 1) != 0)
        return false;
    if (now_boot_us / 1000 >= record->send_by_ms) {
        record->state = GATE_LATE;
        return false;
    }
    if (record->before_open && !record->before_open(record, record->before_open_opaque)) {
        record->state = GATE_HELD;
        return false;
    }
    record->opened_boot_us = now_boot_us;
    record->opened_wall_us = now_wall_us;
    record->state = GATE_OPENED;
    return true;
}

bool gate_opened(const struct send_record *record)
{
    return record->state == GATE_OPENED;
}

const char *gate_cause(const struct send_record *record)
{
    if (record->state == GATE_LATE)
        return "its time to leave had passed when a connection was ready";
    if (record->state == GATE_HELD)
        return "the send journal could not be written";
    return NULL;
}
