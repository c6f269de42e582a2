/* The routes of effects: the list, one of them, and what may be done about one. */
#include "common/effect.h"
#include "ingest/routes/effect.h"
#include "ingest/routes/parse.h"

#include <stdlib.h>
#include <string.h>

#define PAGE_STANDARD 50
#define OLDER_MOST_S 3155760000LL /* 100 years */

/* ---- the list ---- */

struct effects_filter {
    const char *action, *outcome, *stage, *grade, *adapter, *order, *conflict; /* NULL: any */
    bool unresolved;
    int64_t older_s; /* -1: of any age */
    int64_t limit, offset;
};

static bool listed(const char *word, const char *const *words)
{
    for (; word != NULL && *words != NULL; words++)
        if (strcmp(word, *words) == 0)
            return true;
    return false;
}

/* Whether only open effects can pass, so that the small table of those is enough. */
static bool filter_wants_open(const struct effects_filter *filter)
{
    static const char *const outcomes[] = {"pending", "unknown", NULL};
    static const char *const stages[] = {"awaiting_approval", "ready", "dispatching", "reconciling",
                                         NULL};
    return filter->unresolved || listed(filter->outcome, outcomes) ||
           listed(filter->stage, stages) || listed(filter->grade, outcomes);
}

static bool filter_read(struct call *call, struct effects_filter *out)
{
    static const char *const outcomes[] = {"not_dispatched", "pending", "succeeded",
                                           "failed",         "unknown", NULL};
    static const char *const stages[] = {
        "awaiting_approval", "ready", "dispatching", "reconciling", "settled", "rejected", NULL};
    static const char *const grades[] = {"confirmed", "acknowledged", "unknown", "failed",
                                         "refused",   "denied",       "pending", NULL};
    static const char *const orders[] = {"age", NULL};
    static const char *const flags[] = {"true", "false", NULL};
    *out = (struct effects_filter){.action = call_query(call, "action"),
                                   .adapter = call_query(call, "provider"),
                                   .older_s = -1};
    if (!query_word(call, "outcome", outcomes, &out->outcome) ||
        !query_word(call, "stage", stages, &out->stage) ||
        !query_word(call, "grade", grades, &out->grade) ||
        !query_word(call, "order", orders, &out->order) ||
        !query_word(call, "conflict", flags, &out->conflict) ||
        !query_bool(call, "unresolved", &out->unresolved) ||
        !query_int(call, "olderThan", 0, OLDER_MOST_S, &out->older_s))
        return false;
    return query_page(call, PAGE_STANDARD, &out->limit, &out->offset);
}

/* unresolved is the word for outcome unknown; beside another outcome nothing is left. */
static const char *filter_outcome(const struct effects_filter *filter)
{
    return filter->unresolved ? "unknown" : filter->outcome;
}

static bool filter_is_empty(const struct effects_filter *filter)
{
    return filter->unresolved && filter->outcome != NULL && strcmp(filter->outcome, "unknown") != 0;
}

static enum route_result effects_list_handle(struct route_worker *worker, struct call *call)
{
    static const char sql[] =
        "select docs, total from effects_page($1::int, $2::bool, $3, $4::text::effect_outcome, "
        "$5::text::effect_stage, $6, $7, $8::bigint, $9::bool, $10::bigint, $11::bigint, "
        "string_to_array($12, ','), $13::text::bool)";
    char numbers[4][24];
    struct effects_filter filter;
    if (!filter_read(call, &filter))
        return ROUTE_ANSWERED;
    if (filter_is_empty(&filter)) {
        call_list(call, "[]", filter.limit, filter.offset, 0);
        return ROUTE_ANSWERED;
    }
    char *held_to = principal_actions_list(call->principal);
    struct store_param params[] = {store_int(call->principal->environment, numbers[0]),
                                   store_text(filter_wants_open(&filter) ? "true" : "false"),
                                   store_text(filter.action),
                                   store_text(filter_outcome(&filter)),
                                   store_text(filter.stage),
                                   store_text(filter.grade),
                                   store_text(filter.adapter),
                                   filter.older_s >= 0 ? store_int(filter.older_s, numbers[1])
                                                       : store_text(NULL),
                                   store_text(filter.order != NULL ? "true" : "false"),
                                   store_int(filter.limit, numbers[2]),
                                   store_int(filter.offset, numbers[3]),
                                   store_text(held_to),
                                   store_text(filter.conflict)};
    enum route_result result =
        page_answer(worker, call, sql, params, 13, filter.limit, filter.offset);
    free(held_to);
    return result;
}

/* ---- one ---- */

enum route_result effect_answer(struct route_worker *worker, struct call *call,
                                const struct ulid *id)
{
    static const char sql[] =
        "select j.doc from effects e cross join lateral effect_json(array[e.id]) j "
        "where e.id = $1 and e.environment_id = $2::int "
        "and ($3::text is null or e.action_name = any (string_to_array($3, ',')))";
    char number[24];
    char *held_to = principal_actions_list(call->principal);
    struct store_param params[] = {store_uuid(id), store_int(call->principal->environment, number),
                                   store_text(held_to)};
    enum route_result result =
        document_answer(worker, call, 200, sql, params, 3, "effect", call->segments[0]);
    free(held_to);
    return result;
}

static enum route_result effect_get_handle(struct route_worker *worker, struct call *call)
{
    struct ulid id;
    if (!ulid_parse_prefixed("eff", call->segments[0], &id))
        return document_missing(call, "effect", call->segments[0]);
    return effect_answer(worker, call, &id);
}

/* ---- what an act on one needs to know ---- */

static void facts_take(const PGresult *r, struct effect_facts *out)
{
    snprintf(out->action_name, sizeof out->action_name, "%s", row_text(r, 0, 0));
    snprintf(out->agent_id, sizeof out->agent_id, "%s", row_text(r, 0, 1));
    row_uuid(r, 0, 2, &out->requested_by);
    out->governed = row_bool(r, 0, 3);
    snprintf(out->adapter, sizeof out->adapter, "%s", row_text(r, 0, 6));
    out->has_impact = !row_null(r, 0, 4);
    if (out->has_impact) {
        snprintf(out->dimension, sizeof out->dimension, "%s", row_text(r, 0, 4));
        snprintf(out->unit, sizeof out->unit, "%s", row_text(r, 0, 5));
    }
}

bool effect_facts_read(struct route_worker *worker, struct call *call, const char *prefix,
                       struct effect_facts *out)
{
    static const char sql[] = "select action_name, agent_id, requested_by, governed, "
                              "impact_dimension, impact_unit, adapter "
                              "from effects where id = $1 and environment_id = $2::int";
    char number[24];
    struct error err = {0};
    bool as_effect = strcmp(prefix, "eff") == 0;
    const char *kind = as_effect ? "effect" : "invocation";
    *out = (struct effect_facts){0};
    if (!ulid_parse_prefixed(prefix, call->segments[0], &out->id)) {
        document_missing(call, kind, call->segments[0]);
        return false;
    }
    struct store_param params[] = {store_uuid(&out->id),
                                   store_int(call->principal->environment, number)};
    PGresult *r = store_query(worker->store, sql, params, 2, true, &err);
    if (r == NULL) {
        error_answer(call, &err);
        return false;
    }
    bool found = PQntuples(r) == 1;
    if (found)
        facts_take(r, out);
    PQclear(r);
    if (!found || (as_effect && !out->governed)) {
        document_missing(call, kind, call->segments[0]);
        return false;
    }
    if (principal_may_use(call->principal, out->action_name))
        return true;
    call_error(call, 403, "AUTHORIZATION_ERROR", NULL,
               "this API key is held to other actions than that of this %s", kind);
    return false;
}

/* ---- refusals ---- */

enum route_result effect_settled_refuse(struct call *call)
{
    call_error(call, 409, "EFFECT_SETTLED", NULL,
               "%s is settled already, and what is settled never moves. Read it for its outcome.",
               call->segments[0]);
    return ROUTE_ANSWERED;
}

enum route_result effect_in_flight_refuse(struct call *call)
{
    call_error(call, 409, "EFFECT_IN_FLIGHT", NULL,
               "The write of %s is in flight: the provider may still answer it. Ask again when its "
               "time is over.",
               call->segments[0]);
    return ROUTE_ANSWERED;
}

enum route_result effect_not_sent_refuse(struct call *call)
{
    call_error(call, 409, "EFFECT_NOT_SENT", NULL,
               "%s has not been sent: there is nothing to look for at the provider. Cancel it "
               "instead if it should not be sent.",
               call->segments[0]);
    return ROUTE_ANSWERED;
}

bool effect_is_of_another(struct call *call, const struct effect_facts *facts, const char *code)
{
    if (ulid_compare(&facts->requested_by, &call->principal->key_id) != 0 &&
        strcmp(facts->agent_id, call->principal->agent_id) != 0)
        return true;
    call_error(call, 403, code, NULL,
               "%s was requested by this key or by another key of the same agent: nobody decides "
               "about a call of its own",
               call->segments[0]);
    return false;
}

const struct route routes_effects[] = {
    {"GET", "/api/v2/actions/effects", SCOPE_ACTIONS_READ, false, effects_list_handle},
    {"GET", "/api/v2/actions/effects/{id}", SCOPE_ACTIONS_READ, false, effect_get_handle},
    {"POST", "/api/v2/actions/effects/{id}/reconcile", SCOPE_ACTIONS_READ, false,
     effect_reconcile_handle},
    {"POST", "/api/v2/actions/effects/{id}/notes", SCOPE_ACTIONS_RESOLVE, true, effect_note_handle},
    {"POST", "/api/v2/actions/effects/{id}/resolve", SCOPE_ACTIONS_RESOLVE, true,
     effect_resolve_handle},
    {"POST", "/api/v2/actions/effects/{id}/replay", SCOPE_ACTIONS_RESOLVE, true,
     effect_replay_handle},
    {"POST", "/api/v2/actions/invocations/{id}/resolve", SCOPE_ACTIONS_RESOLVE, true,
     invocation_resolve_handle},
    {0}};
