/* What a worker outside the fleet says of an effect that it was given the right to perform: how it
 * ended.
 *
 * Only the agent that was granted it may say so. complete and unknown are heard at any time: a late
 * word may still settle an unknown, and one that contradicts what is settled marks the effect.
 * failed is heard only while the lease lasts: later the effect is unknown, and a failure reported
 * then proves no more than silence. */
#include "common/base/json.h"
#include "common/base/money.h"
#include "common/settle.h"
#include "ingest/audit.h"
#include "ingest/routes/effect.h"
#include "ingest/routes/parse.h"

#include <stdlib.h>
#include <string.h>

enum { REASON_MAX_BYTES = 4000, REFERENCE_MAX_BYTES = 500 };
#define RESULT_MAX_BYTES ((size_t)64 << 10)

static const char claim_sql[] =
    "select claim_json(e.id) from effects e where e.id = $1 and e.environment_id = "
    "$2::int and e.external";

static enum route_result claim_answer(struct route_worker *worker, struct call *call,
                                      const struct ulid *id)
{
    char number[24];
    struct store_param params[] = {store_uuid(id), store_int(call->principal->environment, number)};
    return document_answer(worker, call, 200, claim_sql, params, 2, "claim", call->segments[0]);
}

/* ---- who may speak ---- */

struct claim_facts {
    struct ulid id;
    bool granted;
    bool ours; /* granted to the caller's agent */
};

static bool claim_find(struct route_worker *worker, struct call *call, struct claim_facts *out)
{
    static const char sql[] =
        "select g.effect_id is not null, coalesce(g.agent_id = $3, false), "
        "e.action_name from effects e left join grants g on g.effect_id = e.id "
        "where e.id = $1 and e.environment_id = $2::int and e.external";
    char number[24];
    struct error err = {0};
    if (!ulid_parse_prefixed("clm", call->segments[0], &out->id)) {
        document_missing(call, "claim", call->segments[0]);
        return false;
    }
    struct store_param params[] = {store_uuid(&out->id),
                                   store_int(call->principal->environment, number),
                                   store_text(call->principal->agent_id)};
    PGresult *r = store_query(worker->store, sql, params, 3, true, &err);
    bool found =
        r != NULL && PQntuples(r) == 1 && principal_may_use(call->principal, row_text(r, 0, 2));
    if (found) {
        out->granted = row_bool(r, 0, 0);
        out->ours = row_bool(r, 0, 1);
    } else if (r == NULL) {
        error_answer(call, &err);
    } else {
        document_missing(call, "claim", call->segments[0]);
    }
    PQclear(r);
    return found;
}

static bool claim_ours(struct route_worker *worker, struct call *call, struct claim_facts *out)
{
    if (!claim_find(worker, call, out))
        return false;
    if (!out->granted)
        call_error(call, 409, "CLAIM_NOT_GRANTED", NULL,
                   "claim %s was never granted: nothing may have been performed under it",
                   call->segments[0]);
    else if (!out->ours)
        call_error(call, 403, "AUTHORIZATION_ERROR", NULL,
                   "claim %s was granted to another agent; only that one reports how it ended",
                   call->segments[0]);
    return out->granted && out->ours;
}

/* ---- what is said ---- */

struct report {
    enum outcome outcome;
    const char *text;      /* reason or evidence; NULL: none */
    const char *reference; /* or NULL */
    char *result;          /* JSON text, or NULL; owned */
    int64_t consumed;      /* -1: what was held */
};

static bool result_read(const json_t *body, struct report *out, struct error *err)
{
    const json_t *result = json_object_get(body, "result");
    if (result == NULL || json_is_null(result))
        return true;
    out->result = json_dumps(result, JSON_COMPACT | JSON_ENCODE_ANY);
    return (out->result != NULL && strlen(out->result) <= RESULT_MAX_BYTES) ||
           error_set_at(err, ERROR_INVALID, "/result", "is longer than %zu bytes",
                        RESULT_MAX_BYTES);
}

static bool amount_read(const json_t *body, struct report *out, struct error *err)
{
    const json_t *amount = json_object_get(body, "actualAmount");
    return amount == NULL || json_is_null(amount) ||
           json_amount(amount, "/actualAmount", 0, MONEY_MAX, &out->consumed, err);
}

static bool report_read(const json_t *body, struct report *out, struct error *err)
{
    bool complete = out->outcome == OUTCOME_SUCCEEDED;
    return json_field_text(body, complete ? "evidence" : "reason", out->outcome == OUTCOME_FAILED,
                           1, REASON_MAX_BYTES, &out->text, err) &&
           json_field_text(body, "externalReference", false, 1, REFERENCE_MAX_BYTES,
                           &out->reference, err) &&
           result_read(body, out, err) && amount_read(body, out, err);
}

/* ---- settling ---- */

static void evidence_make(const struct call *call, const struct report *report, struct buf *out)
{
    static const char *const words[] = {[OUTCOME_SUCCEEDED] = "performed it",
                                        [OUTCOME_FAILED] = "failed to",
                                        [OUTCOME_UNKNOWN] = "does not know how it ended"};
    buf_init(out, REASON_MAX_BYTES + 1024);
    buf_printf(out, "The worker %s reported that it %s", call->principal->agent_id,
               words[report->outcome]);
    if (report->text != NULL)
        buf_printf(out, ": %s", report->text);
}

static enum route_result report_refuse(struct call *call, enum settle_result result)
{
    if (result == SETTLE_LEASE_ENDED)
        call_error(call, 409, "LEASE_ENDED", NULL,
                   "the lease of claim %s has ended: the effect is unknown, and a failure reported "
                   "now proves "
                   "nothing. A person, or what the provider shows, settles it",
                   call->segments[0]);
    else if (result == SETTLE_LATE)
        call_error(call, 409, "EFFECT_SETTLED", NULL, "claim %s was settled before",
                   call->segments[0]);
    else
        call_error(call, 409, "CLAIM_NOT_GRANTED", NULL,
                   "claim %s is not where a report could settle it", call->segments[0]);
    return ROUTE_ANSWERED;
}

static enum route_result report_settle(struct route_worker *worker, struct call *call,
                                       const struct claim_facts *facts, const struct report *report)
{
    char by[ULID_PREFIXED_SIZE];
    struct buf evidence;
    struct error err = {0};
    evidence_make(call, report, &evidence);
    struct settle_item item = {.effect = facts->id,
                               .kind = SETTLE_WORKER,
                               .seq = 1,
                               .outcome = report->outcome,
                               .reason = report->outcome == OUTCOME_UNKNOWN ? REASON_NONE
                                                                            : REASON_WORKER_REPORT,
                               .response = report->result,
                               .response_len = report->result != NULL ? strlen(report->result) : 0,
                               .error = report->outcome == OUTCOME_FAILED ? report->text : NULL,
                               .evidence = evidence.data,
                               .consumed = report->consumed,
                               .external_reference = report->reference,
                               .by = ulid_format_prefixed("key", &call->principal->key_id, by)};
    bool ok = !evidence.failed && settle_in_transaction(worker->store, &item, &err);
    buf_free(&evidence);
    if (!ok)
        return error_answer(call, &err);
    if (item.result == SETTLE_SETTLED || item.result == SETTLE_UNKNOWN ||
        item.result == SETTLE_EVIDENCE || item.result == SETTLE_CONFLICT)
        return claim_answer(worker, call, &facts->id);
    return report_refuse(call, item.result);
}

static enum route_result report_handle(struct route_worker *worker, struct call *call,
                                       enum outcome outcome, const char *const *members)
{
    struct claim_facts facts = {0};
    struct report report = {.outcome = outcome, .consumed = -1};
    struct error err = {0};
    enum route_result result = ROUTE_ANSWERED;
    json_t *body = body_read(call, outcome != OUTCOME_FAILED, members);
    if (body != NULL && claim_ours(worker, call, &facts)) {
        if (report_read(body, &report, &err))
            result = report_settle(worker, call, &facts, &report);
        else
            result = error_answer(call, &err);
    }
    free(report.result);
    json_decref(body);
    return result;
}

static enum route_result complete_handle(struct route_worker *worker, struct call *call)
{
    static const char *const members[] = {"result", "evidence", "externalReference", "actualAmount",
                                          NULL};
    return report_handle(worker, call, OUTCOME_SUCCEEDED, members);
}

static enum route_result failed_handle(struct route_worker *worker, struct call *call)
{
    static const char *const members[] = {"reason", "result", "externalReference", NULL};
    return report_handle(worker, call, OUTCOME_FAILED, members);
}

static enum route_result unknown_handle(struct route_worker *worker, struct call *call)
{
    static const char *const members[] = {"reason", "externalReference", NULL};
    return report_handle(worker, call, OUTCOME_UNKNOWN, members);
}

static enum route_result claim_get_handle(struct route_worker *worker, struct call *call)
{
    struct claim_facts facts;
    return claim_find(worker, call, &facts) ? claim_answer(worker, call, &facts.id)
                                            : ROUTE_ANSWERED;
}

const struct route routes_claims[] = {
    {"GET", "/api/v2/claims/{id}", SCOPE_ACTIONS_READ, false, claim_get_handle},
    {"POST", "/api/v2/claims/{id}/complete", SCOPE_ACTIONS_INVOKE, true, complete_handle},
    {"POST", "/api/v2/claims/{id}/failed", SCOPE_ACTIONS_INVOKE, true, failed_handle},
    {"POST", "/api/v2/claims/{id}/unknown", SCOPE_ACTIONS_INVOKE, true, unknown_handle},
    {0},
};
