/* What a person says about an effect: notes, and the settlement that nobody but a person can make.
 */
#include "common/base/json.h"
#include "common/base/money.h"
#include "common/settle.h"
#include "ingest/answers.h"
#include "ingest/audit.h"
#include "ingest/routes/effect.h"
#include "ingest/routes/parse.h"

#include <stdlib.h>
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

bool resolution_outcome_read(const json_t *body, enum outcome *out, struct error *err)
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
bool resolution_reason_read(const json_t *body, const char *name, const char **out,
                            struct error *err)
{
    char place[32];
    snprintf(place, sizeof place, "/%s", name);
    return json_field_text(body, name, true, 1, REASON_MAX, out, err) &&
           ((*out)[strspn(*out, " \t\r\n")] != '\0' ||
            error_set_at(err, ERROR_INVALID, place, "must say something"));
}

bool resolution_partial_read(const json_t *body, const char **out, struct error *err)
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
    if (!actual_item_read(json_array_get(list, 0), facts, &out->consumed, err))
        return false;
    bool in_part = out->partial_effect != NULL && strcmp(out->partial_effect, "none") != 0;
    return out->outcome == OUTCOME_SUCCEEDED || in_part || out->consumed == 0 ||
           error_set_at(err, ERROR_INVALID, "/actualImpact",
                        "of a failure needs partialEffect possible or confirmed: otherwise nothing "
                        "of it happened");
}

static bool resolution_read(const json_t *body, const struct effect_facts *facts,
                            const char *reason_name, struct resolution *out, struct error *err)
{
    return resolution_outcome_read(body, &out->outcome, err) &&
           resolution_reason_read(body, reason_name, &out->reason, err) &&
           resolution_partial_read(body, &out->partial_effect, err) &&
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

/* Whether the limits that the effect holds can still count what is said to have happened. */
static bool consumption_fits(struct route_worker *worker, const struct ulid *id, int64_t consumed,
                             struct error *err)
{
    static const char sql[] = "select consumption_fits($1, $2::bigint)";
    char number[24];
    struct store_param params[] = {store_uuid(id), store_int(consumed, number)};
    if (consumed < 0)
        return true;
    PGresult *r = store_query(worker->store, sql, params, 2, true, err);
    bool fits = r != NULL && row_bool(r, 0, 0);
    PQclear(r);
    return fits || (r == NULL ? false
                              : error_set_at(err, ERROR_INVALID, "/actualImpact/0/amount",
                                             "is more than a limit of the effect can count"));
}

/* What is settled never moves. But where that was contradicted, a person says what is so: a fact of
 * its own, by which the limits and the grade go from then on. */
static bool correction_make(struct route_worker *worker, const struct call *call,
                            const struct ulid *id, const struct resolution *told, bool *made,
                            struct error *err)
{
    static const char sql[] = "select effect_correct($1, $2::text::effect_outcome, $3, "
                              "$4::bigint, $5, $6, $7)";
    char by[ULID_PREFIXED_SIZE], number[24];
    struct store_param params[] = {
        store_uuid(id),
        store_text(outcome_name(told->outcome)),
        store_text(told->reason),
        told->consumed >= 0 ? store_int(told->consumed, number) : store_text(NULL),
        store_text(told->partial_effect),
        store_text(told->external_reference),
        store_text(ulid_format_prefixed("key", &call->principal->key_id, by))};
    PGresult *r = store_query(worker->store, sql, params, 7, true, err);
    *made = r != NULL && row_bool(r, 0, 0);
    PQclear(r);
    return r != NULL;
}

static void refresh(void *what)
{
    answers_refresh(what);
}

/* A kept reply of the invocation is renewed once the correction is committed. */
static void refresh_later(struct call *call, const struct ulid *id)
{
    struct ulid *copy = malloc(sizeof *copy);
    must(copy != NULL);
    *copy = *id;
    call->committed = refresh;
    call->committed_what = copy;
}

/* Settles, or corrects, writes the audit row, and says what became of it; the answer itself is the
 * caller's. False: answered. */
static bool resolution_apply(struct route_worker *worker, struct call *call, const char *act,
                             const struct ulid *id, const struct resolution *told,
                             const json_t *body)
{
    struct error err = {0};
    enum settle_result result;
    bool corrected = false;
    if (!consumption_fits(worker, id, told->consumed, &err) ||
        !resolution_settle(worker, call, id, told, &result, &err) ||
        (result == SETTLE_WRONG_STAGE &&
         !correction_make(worker, call, id, told, &corrected, &err))) {
        error_answer(call, &err);
        return false;
    }
    if (result == SETTLE_IN_FLIGHT) {
        effect_in_flight_refuse(call);
        return false;
    }
    if (result != SETTLE_SETTLED && !corrected) {
        wrong_stage_refuse(worker, call, id);
        return false;
    }
    if (corrected)
        refresh_later(call, id);
    if (audit_write(worker->store, call, corrected ? "effect.correct" : act, call->segments[0],
                    json_incref((json_t *)body), &err))
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
    if (effect_facts_read(worker, call, prefix, facts) &&
        effect_is_of_another(call, facts, "SELF_RESOLUTION_REFUSED")) {
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
