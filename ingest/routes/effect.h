/* What the files of the effect routes share. */
#ifndef HOLDFAST_ROUTES_EFFECT_H
#define HOLDFAST_ROUTES_EFFECT_H

#include "common/effect.h"
#include "ingest/routes/document.h"

/* What decides whether a caller may act on an effect or invocation. */
struct effect_facts {
    struct ulid id;
    char action_name[256];
    char agent_id[201];
    struct ulid requested_by;
    bool governed;
    char adapter[64];
    bool has_impact;
    char dimension[33];
    char unit[33];
};

/* Reads the facts of the effect (prefix "eff", governed only) or invocation (prefix "inv") that the
 * path names, of the caller's environment, and checks that the key is not held to other actions.
 * False: answered. */
bool effect_facts_read(struct route_worker *worker, struct call *call, const char *prefix,
                       struct effect_facts *out);

/* Answers with the effect or invocation (invocations.c) as it is now. */
enum route_result effect_answer(struct route_worker *worker, struct call *call,
                                const struct ulid *id);
enum route_result invocation_answer(struct route_worker *worker, struct call *call,
                                    const struct ulid *id);

/* 409 EFFECT_SETTLED, EFFECT_IN_FLIGHT or EFFECT_NOT_SENT for the effect that the path names. */
enum route_result effect_settled_refuse(struct call *call);
enum route_result effect_in_flight_refuse(struct call *call);
enum route_result effect_not_sent_refuse(struct call *call);

/* Whether the caller may decide about this effect: its key did not make the call, nor did another
 * of its agent. False: answered 403 with `code`. */
bool effect_is_of_another(struct call *call, const struct effect_facts *facts, const char *code);

/* What a resolution says, read from its body: false with err. A reason of blanks is none; a partial
 * effect is none, possible, confirmed or NULL. */
bool resolution_outcome_read(const json_t *body, enum outcome *out, struct error *err);
bool resolution_reason_read(const json_t *body, const char *name, const char **out,
                            struct error *err);
bool resolution_partial_read(const json_t *body, const char **out, struct error *err);

/* effect_reconcile.c, effect_replay.c, effect_resolve.c */
enum route_result effect_reconcile_handle(struct route_worker *worker, struct call *call);
enum route_result effect_note_handle(struct route_worker *worker, struct call *call);
enum route_result effect_resolve_handle(struct route_worker *worker, struct call *call);
enum route_result effect_replay_handle(struct route_worker *worker, struct call *call);
enum route_result invocation_resolve_handle(struct route_worker *worker, struct call *call);

#endif
