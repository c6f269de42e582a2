/* What a person says about an effect: notes, and the settlement that nobody but a person can make.
 */
#include "common/base/json.h"
#include "common/base/money.h"
#include "common/settle.h"
#include "ingest/audit.h"
#include "ingest/routes/effect.h"
#include "ingest/routes/parse.h"

#include <string.h>

#define NOTE_MAX 4000
#define REASON_MAX 4000
#define REFERENCE_MAX 500

/* What a resolve says, borrowed from its body. */
struct resolution {
    enum outcome outcome;
    const char *reason;
    const char *partial_effect;
    const char *external_reference;
    int64_t consumed; /* -1: what was held */
};

/* ---- who may ---- */

/* The key that made the call, and every key of its agent, may not say how it ended. */
static bool resolver_is_another(struct call *call, const struct effect_facts *facts)
{
    if (ulid_compare(&facts->requested_by, &call->principal->key_id) != 0 &&
        strcmp(facts->agent_id, call->principal->agent_id) != 0)
        return true;
    call_error(call, 403, "SELF_RESOLUTION_REFUSED", NULL,
               "%s was requested by this key or by another key of the same agent: nobody resolves "
               "a call of its own",
               call->segments[0]);
    return false;
}

/* ---- notes ---- */

static enum route_result effect_note(struct route_worker *worker, struct call *call,
                                     const struct effect_facts *facts, const char *note)
{
    static const char sql[] = "insert into evidence (effect_id, at, kind, text, by) "
                              "values ($1, hf_now(), 'note', $2, $3)";
    char by[ULID_PREFIXED_SIZE];
    struct error err = {0};
    struct store_param params[] = {
        store_uuid(&facts->id), store_text(note),
        store_text(ulid_format_prefixed("key", &call->principal->key_id, by))};
    PGresult *r = store_query(worker->store, sql, params, 3, true, &err);
    PQclear(r);
    if (r == NULL || !audit_write(worker->store, call, "effect.note", call->segments[0],
                                  json_pack("{s:s}", "note", note), &err))
        return error_answer(call, &err);
    return effect_answer(worker, call, &facts->id);
}

enum route_result effect_note_handle(struct route_worker *worker, struct call *call)
{
    static const char *const members[] = {"note", NULL};
    const char *note = NULL;
    struct effect_facts facts;
    struct error err = {0};
    enum route_result result = ROUTE_ANSWERED;
    json_t *body = body_read(call, false, members);
    if (body != NULL && !json_field_text(body, "note", true, 1, NOTE_MAX, &note, &err))
        result = error_answer(call, &err);
    else if (body != NULL && effect_facts_read(worker, call, "eff", &facts))
        result = effect_note(worker, call, &facts, note);
    json_decref(body);
    return result;
}

/* ---- reading a resolution ---- */

static bool outcome_read(const json_t *body, enum outcome *out, struct error *err)
{
    const char *text = NULL;
    if (!json_field_text(body, "outcome", true, 1, 32, &text, err))
        return false;
    *out = strcmp(text, "succeeded") == 0 ? OUTCOME_SUCCEEDED
           : strcmp(text, "failed") == 0  ? OUTCOME_FAILED
                                          : OUTCOME_UNKNOWN;
    return *out != OUTCOME_UNKNOWN ||
           error_set_at(err, ERROR_INVALID, "/outcome", "must be succeeded or failed");
}

/* A reason of blanks is none. */
static bool reason_read(const json_t *body, const char *name, const char **out, struct error *err)
{
    char place[32];
    snprintf(place, sizeof place, "/%s", name);
    return json_field_text(body, name, true, 1, REASON_MAX, out, err) &&
           ((*out)[strspn(*out, " \t\r\n")] != '\0' ||
            error_set_at(err, ERROR_INVALID, place, "must say something"));
}

static bool partial_read(const json_t *body, const char **out, struct error *err)
{
    const char *text = NULL;
    if (!json_field_text(body, "partialEffect", false, 1, 32, &text, err))
        return false;
    *out = text;
    return text == NULL || strcmp(text, "none") == 0 || strcmp(text, "possible") == 0 ||
           strcmp(text, "confirmed") == 0 ||
           error_set_at(err, ERROR_INVALID, "/partialEffect",
                        "must be none, possible or confirmed");
}

/* One impact as it really was, in the effect's own dimension and unit. */
static bool actual_item_read(const json_t *item, const struct effect_facts *facts, int64_t *out,
                             struct error *err)
{
    static const char *const members[] = {"dimension", "unit", "amount", NULL};
    const char *dimension = NULL;
    const char *unit = NULL;
    if (!json_is_object(item))
        return error_set_at(err, ERROR_INVALID, "/actualImpact/0", "must be an object");
    if (!json_only_members(item, members, err) ||
        !json_field_text(item, "dimension", true, 1, 32, &dimension, err) ||
        !json_field_text(item, "unit", false, 1, 32, &unit, err))
        return error_place_under(err, "/actualImpact/0");
    if (!facts->has_impact || strcmp(dimension, facts->dimension) != 0)
        return error_set_at(err, ERROR_INVALID, "/actualImpact/0/dimension",
                            "is not the dimension of the effect's impact");
    if (unit != NULL && strcasecmp(unit, facts->unit) != 0)
        return error_set_at(err, ERROR_INVALID, "/actualImpact/0/unit",
                            "is not the unit of the effect's impact, %s", facts->unit);
    return json_amount(json_object_get(item, "amount"), "/actualImpact/0/amount", 0, MONEY_MAX, out,
                       err);
}

static bool actual_read(const json_t *body, const struct effect_facts *facts,
                        struct resolution *out, struct error *err)
{
    const json_t *list = json_object_get(body, "actualImpact");
    out->consumed = -1;
    if (list == NULL || json_is_null(list) || (json_is_array(list) && json_array_size(list) == 0))
        return true;
    if (json_array_size(list) != 1)
        return error_set_at(err, ERROR_INVALID, "/actualImpact",
                            "must be a list of at most one impact");
    if (out->outcome != OUTCOME_SUCCEEDED)
        return error_set_at(err, ERROR_INVALID, "/actualImpact",
                            "goes with outcome succeeded only: failed releases what is held");
    return actual_item_read(json_array_get(list, 0), facts, &out->consumed, err);
}

static bool resolution_read(const json_t *body, const struct effect_facts *facts,
                            const char *reason_name, struct resolution *out, struct error *err)
{
    return outcome_read(body, &out->outcome, err) &&
           reason_read(body, reason_name, &out->reason, err) &&
           partial_read(body, &out->partial_effect, err) &&
           json_field_text(body, "externalReference", false, 1, REFERENCE_MAX,
                           &out->external_reference, err) &&
           actual_read(body, facts, out, err);
}

/* ---- settling ---- */

/* Not where a person could settle it: already settled, or not sent yet. */
static enum route_result wrong_stage_refuse(struct route_worker *worker, struct call *call,
                                            const struct ulid *id)
{
    static const char sql[] = "select 1 from open_effects where id = $1";
    struct error err = {0};
    struct store_param params[] = {store_uuid(id)};
    PGresult *r = store_query(worker->store, sql, params, 1, true, &err);
    bool open = r != NULL && PQntuples(r) == 1;
    PQclear(r);
    if (r == NULL)
        return error_answer(call, &err);
    return open ? effect_not_sent_refuse(call) : effect_settled_refuse(call);
}

static bool resolution_settle(struct route_worker *worker, const struct call *call,
                              const struct ulid *id, const struct resolution *told,
                              enum settle_result *result, struct error *err)
{
    char by[ULID_PREFIXED_SIZE];
    struct settle_item item = {.effect = *id,
                               .kind = SETTLE_MANUAL,
                               .outcome = told->outcome,
                               .reason = REASON_MANUAL,
                               .error = told->outcome == OUTCOME_FAILED ? told->reason : NULL,
                               .evidence = told->reason,
                               .consumed = told->consumed,
                               .external_reference = told->external_reference,
                               .partial_effect = told->partial_effect,
                               .by = ulid_format_prefixed("key", &call->principal->key_id, by)};
    bool ok = settle_in_transaction(worker->store, &item, err);
    *result = item.result;
    return ok;
}

/* Settles, writes the audit row, and says what became of it; the answer itself is the caller's.
 * False: answered. */
static bool resolution_apply(struct route_worker *worker, struct call *call, const char *act,
                             const struct ulid *id, const struct resolution *told,
                             const json_t *body)
{
    struct error err = {0};
    enum settle_result result;
    if (!resolution_settle(worker, call, id, told, &result, &err)) {
        error_answer(call, &err);
        return false;
    }
    if (result == SETTLE_IN_FLIGHT) {
        effect_in_flight_refuse(call);
        return false;
    }
    if (result != SETTLE_SETTLED) {
        wrong_stage_refuse(worker, call, id);
        return false;
    }
    if (audit_write(worker->store, call, act, call->segments[0], json_incref((json_t *)body), &err))
        return true;
    error_answer(call, &err);
    return false;
}

/* The common part of both routes. False: answered. */
static bool resolve_run(struct route_worker *worker, struct call *call, const char *act,
                        const char *const *members, const char *reason_name,
                        struct effect_facts *facts, const char *prefix)
{
    struct resolution told = {0};
    struct error err = {0};
    bool applied = false;
    json_t *body = body_read(call, false, members);
    if (body == NULL)
        return false;
    if (effect_facts_read(worker, call, prefix, facts) && resolver_is_another(call, facts)) {
        if (resolution_read(body, facts, reason_name, &told, &err))
            applied = resolution_apply(worker, call, act, &facts->id, &told, body);
        else
            error_answer(call, &err);
    }
    json_decref(body);
    return applied;
}

enum route_result effect_resolve_handle(struct route_worker *worker, struct call *call)
{
    static const char *const members[] = {
        "outcome", "reason", "partialEffect", "actualImpact", "externalReference", NULL};
    struct effect_facts facts;
    if (!resolve_run(worker, call, "effect.resolve", members, "reason", &facts, "eff"))
        return ROUTE_ANSWERED;
    return effect_answer(worker, call, &facts.id);
}

enum route_result invocation_resolve_handle(struct route_worker *worker, struct call *call)
{
    static const char *const members[] = {"outcome", "evidence", "externalReference", NULL};
    struct effect_facts facts;
    if (!resolve_run(worker, call, "invocation.resolve", members, "evidence", &facts, "inv"))
        return ROUTE_ANSWERED;
    return invocation_answer(worker, call, &facts.id);
}
