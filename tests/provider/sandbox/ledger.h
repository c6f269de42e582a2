/* What arrived: one record per request, in order, and counters per key, effect and intent. The
 * records are a ring (LEDGER_RECORDS_MAX, LEDGER_BYTES_MAX); the totals are never forgotten. */
#ifndef SANDBOX_LEDGER_H
#define SANDBOX_LEDGER_H

#include "tests/provider/sandbox/facts.h"
#include "tests/provider/sandbox/request.h"

#include <jansson.h>
#include <stdint.h>

#define LEDGER_RECORDS_MAX 20000
#define LEDGER_BYTES_MAX ((size_t)32 << 20)
#define LEDGER_BODY_KEPT ((size_t)8 << 10) /* of each body; its hash is over all of it */

enum outcome {
    OUTCOME_READ,     /* a read, whatever it was answered */
    OUTCOME_APPLIED,  /* something was created, changed or deleted */
    OUTCOME_REPLAYED, /* the recorded answer was given again */
    OUTCOME_REFUSED,  /* a whole write that did nothing */
    OUTCOME_PARTIAL,  /* a write of which not all came, or was read */
    OUTCOME_UNREAD    /* it came, and the connection was closed on it unread */
};

struct ledger_entry {
    uint64_t connection;
    enum outcome outcome;
    int applied;       /* objects made or changed */
    int status;        /* of the answer; 0: none was given */
    const char *fault; /* the rule's kind, or NULL */
};

/* `keep` is the most names kept per counter table. */
void ledger_init(size_t keep);
void ledger_reset(void); /* sequence numbers go on */
void ledger_add(const struct request *r, const struct facts *facts,
                const struct ledger_entry *entry);
void ledger_connection_opened(void);

/* New references. The names may be NULL; the first given one selects. */
json_t *ledger_counts(const char *key, const char *effect, const char *intent);
json_t *ledger_records(uint64_t since, size_t limit);

#endif
