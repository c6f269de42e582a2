/* One request and its answer: what is done, what is recorded, and which bytes go back how. */
#ifndef SANDBOX_EXCHANGE_H
#define SANDBOX_EXCHANGE_H

#include "common/base/buf.h"
#include "tests/provider/sandbox/fault.h"
#include "tests/provider/sandbox/request.h"

#include <stdbool.h>
#include <stdint.h>

enum sending_end {
    END_KEEP, /* the connection is kept for the next request */
    END_FIN,
    END_RST,
    END_HOLD /* nothing more is sent until the client goes or hold_ms have passed; then as FIN */
};

/* What happens to a kept connection after the answer. */
struct stale_plan {
    bool set;
    enum stale_mode mode;
    bool rst;
    bool apply;
    int64_t ms;
    struct buf bytes; /* sent unasked when it goes idle */
};

struct sending {
    struct buf bytes;
    int64_t delay_ms; /* before the first byte */
    int64_t drip_ms;  /* between single bytes; 0: all at once */
    enum sending_end end;
    int64_t hold_ms;
    struct stale_plan stale;
    char *in_flight_key; /* in flight until the sending is over */
};

void sending_init(struct sending *sending);
/* The sending is over, however it ended: the key is no longer in flight, the memory is freed. */
void sending_over(struct sending *sending);

/* After the head: true when a rule decides already, and the body is not to be read. */
bool exchange_early(const struct request *r, uint64_t connection, struct sending *out);
/* After the body. `stale` is the plan that the connection's last answer left, which this request
 * meets. */
void exchange_whole(const struct request *r, uint64_t connection, const struct stale_plan *stale,
                    struct sending *out);
/* The request can't be read on: it is recorded as partial and answered with that status. */
void exchange_refuse(const struct request *r, uint64_t connection, int status, struct sending *out);
/* Bytes of a request that never became whole, or (unread) that were left unread. r is NULL where
 * not even the head was whole: then it stands in `bytes`. */
void exchange_broken(const struct request *r, const char *bytes, size_t len, uint64_t connection,
                     bool unread);
#endif
