/* The state table, and the one place where a move is logged and counted. The database holds the
 * same table (stage_may_move) and refuses everything else. */
#ifndef HOLDFAST_TRANSITION_H
#define HOLDFAST_TRANSITION_H

#include "common/effect.h"

/* Whether the table has the move. */
bool transition_allowed(enum stage from, enum stage to);
/* Whether that mover may make it. */
bool transition_mover_allowed(enum stage from, enum stage to, enum mover mover);

/* Says that the database made a move: one log line with the effect id and one count
 * (holdfast_transitions_total{from,to,outcome}). must() fails on a move the table lacks. */
void transition_made(const struct ulid *effect, enum stage from, enum stage to,
                     enum outcome outcome, enum settle_reason reason, const char *by);

#endif
