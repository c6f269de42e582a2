/* The state table, and the log line and count of each move. */
#include "common/transition.h"

#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/metrics.h"

#include <pthread.h>
#include <stddef.h>
#include <stdio.h>

#define BY(mover) (1u << (mover))

struct move {
    enum stage from, to;
    unsigned movers;
};

static const struct move moves[] = {
    {STAGE_AWAITING_APPROVAL, STAGE_READY, BY(MOVER_INGEST)},
    {STAGE_AWAITING_APPROVAL, STAGE_REJECTED, BY(MOVER_INGEST) | BY(MOVER_SWEEP)},
    {STAGE_READY, STAGE_DISPATCHING, BY(MOVER_DISPATCHER)},
    {STAGE_READY, STAGE_REJECTED, BY(MOVER_DISPATCHER) | BY(MOVER_INGEST) | BY(MOVER_SWEEP)},
    {STAGE_DISPATCHING, STAGE_RECONCILING,
     BY(MOVER_DISPATCHER) | BY(MOVER_SWEEP) | BY(MOVER_RECONCILER)},
    {STAGE_DISPATCHING, STAGE_SETTLED,
     BY(MOVER_DISPATCHER) | BY(MOVER_PERSON) | BY(MOVER_RECONCILER)},
    {STAGE_RECONCILING, STAGE_SETTLED,
     BY(MOVER_RECONCILER) | BY(MOVER_DISPATCHER) | BY(MOVER_PERSON)},
};

static const struct move *move_find(enum stage from, enum stage to)
{
    for (size_t i = 0; i < sizeof moves / sizeof *moves; i++)
        if (moves[i].from == from && moves[i].to == to)
            return &moves[i];
    return NULL;
}

bool transition_allowed(enum stage from, enum stage to)
{
    return move_find(from, to) != NULL;
}

bool transition_mover_allowed(enum stage from, enum stage to, enum mover mover)
{
    const struct move *move = move_find(from, to);
    return move != NULL && (move->movers & BY(mover)) != 0;
}

/* One series a move and outcome, made when first needed. */
static struct metric *transition_metric(enum stage from, enum stage to, enum outcome outcome)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct metric *made[STAGE_COUNT][STAGE_COUNT][OUTCOME_COUNT];
    pthread_mutex_lock(&lock);
    struct metric **slot = &made[from][to][outcome];
    if (*slot == NULL) {
        char labels[128];
        snprintf(labels, sizeof labels, "from=\"%s\",to=\"%s\",outcome=\"%s\"", stage_name(from),
                 stage_name(to), outcome_name(outcome));
        *slot = metric_counter("holdfast_transitions_total", labels, "Moves of effects.");
    }
    struct metric *found = *slot;
    pthread_mutex_unlock(&lock);
    return found;
}

void transition_made(const struct ulid *effect, enum stage from, enum stage to,
                     enum outcome outcome, enum settle_reason reason, const char *by)
{
    char id[ULID_PREFIXED_SIZE];
    must(transition_allowed(from, to));
    metric_add(transition_metric(from, to, outcome), 1);
    log_event(outcome == OUTCOME_UNKNOWN ? LOG_WARN : LOG_DEBUG, "effect_moved",
              "effect=%s from=%s to=%s outcome=%s reason=%s by=%s",
              ulid_format_prefixed("eff", effect, id), stage_name(from), stage_name(to),
              outcome_name(outcome), settle_reason_name(reason), by);
}
