/* The routes of approvals: asking for one, the inbox, waiting for a decision, and deciding. */
#include "common/base/clock.h"
#include "common/base/config.h"
#include "common/base/json.h"
#include "common/transition.h"
#include "ingest/approval_wait.h"
#include "ingest/audit.h"
#include "ingest/config_watch.h"
#include "ingest/policy/set.h"
#include "ingest/publish.h"
#include "ingest/routes/document.h"
#include "ingest/routes/parse.h"

#include <stdlib.h>
#include <string.h>

#define TITLE_MAX 300
#define DESCRIPTION_MAX 4000
#define NOTE_MAX 2000
#define REFERENCE_MAX 200
#define EXPIRES_MAX_S (31 * 86400)
#define WAIT_MAX_S 55 /* a longer wait is cut to this */
#define PAGE_STANDARD 50
#define CANONICAL_FACTOR 6

static bool approval_id_read(struct call *call, struct ulid *id)
{
    if (ulid_parse_prefixed("apr", call->segments[0], id))
        return true;
    document_missing(call, "approval", call->segments[0]);
    return false;
}

static enum route_result approval_answer(struct route_worker *worker, struct call *call, int status,
                                         const struct ulid *id)
{
    static const char sql[] = "select approval_json(p)::text from approvals p "
                              "where p.id = $1 and p.environment_id = $2::int";
    char environment[24];
    struct store_param params[] = {store_uuid(id),
                                   store_int(call->principal->environment, environment)};
    return document_answer(worker, call, status, sql, params, 2, "approval",
                           call->segments[0] != NULL ? call->segments[0] : "");
}

/* ---- asking ---- */

/* What a request says, borrowed from its body. */
struct asked {
    const char *title, *description, *run_id, *parent_span_id;
    json_t *payload; /* a reference */
    int64_t expires_s;
};

static bool asked_read(json_t *body, struct asked *out, struct error *err)
{
    json_t *payload = json_object_get(body, "payload");
    *out = (struct asked){.expires_s = config_int("HOLDFAST_APPROVAL_EXPIRES_S")};
    if (!json_field_text(body, "title", true, 1, TITLE_MAX, &out->title, err) ||
        !json_field_text(body, "description", false, 0, DESCRIPTION_MAX, &out->description, err) ||
        !json_field_int(body, "expiresInSeconds", false, 1, EXPIRES_MAX_S, &out->expires_s, err) ||
        !json_field_text(body, "runId", false, 1, REFERENCE_MAX, &out->run_id, err) ||
        !json_field_text(body, "parentSpanId", false, 1, REFERENCE_MAX, &out->parent_span_id, err))
        return false;
    if (out->title[strspn(out->title, " \t\r\n")] == '\0')
        return error_set_at(err, ERROR_INVALID, "/title", "must say something");
    if (payload != NULL && !json_is_null(payload) && !json_is_object(payload))
        return error_set_at(err, ERROR_INVALID, "/payload", "must be an object");
    out->payload = json_is_object(payload) ? json_incref(payload) : json_object();
    must(out->payload != NULL);
    return true;
}

/* What the policies make of it; the id and version of the one that decided are copied. */
struct asked_gate {
    enum policy_effect effect;
    struct ulid policy; /* zero: none */
    int version;
    int required;
};

static bool asked_gate_decide(struct route_worker *worker, const struct call *call,
                              const struct asked *asked, struct asked_gate *out, struct error *err)
{
    const struct principal *principal = call->principal;
    struct policy_request request = {.custom = true,
                                     .input = asked->payload,
                                     .agent = principal->agent_id,
                                     .user =
                                         principal->user_id[0] != '\0' ? principal->user_id : NULL,
                                     .tags = principal->tags};
    struct policy_decision decision;
    struct policy_set *set = policy_set_load(worker->store, principal->environment, err);
    if (set == NULL)
        return false;
    policy_decide(set->policies, set->count, &request, &decision);
    *out = (struct asked_gate){.effect = decision.effect,
                               .required = decision.required > 0 ? decision.required : 1};
    if (decision.policy != NULL) {
        out->policy = decision.policy->id;
        out->version = decision.policy->version;
    }
    policy_set_release(set);
    return true;
}

static bool approval_insert(struct route_worker *worker, const struct call *call,
                            const struct ulid *id, const struct asked *asked,
                            const struct asked_gate *gate, const char *payload, struct error *err)
{
    static const char sql[] =
        "insert into approvals (id, environment_id, title, description, payload, payload_hash, "
        "required_approvals, policy_id, policy_version, requested_by, agent_id, run_id, "
        "parent_span_id, created_at, expires_at, status, decision_origin, decided_at, closed_at) "
        "select $1, $2::int, $3, $4, $5, sha256(convert_to($5, 'UTF8')), $6::int, $7, $8::int, $9, "
        "$10, $11, $12, hf_now(), hf_now() + make_interval(secs => $13::int), "
        "$14::text::approval_status, case when $14 <> 'pending' then 'policy' end, "
        "case when $14 <> 'pending' then hf_now() end, "
        "case when $14 <> 'pending' then hf_now() end";
    bool by_policy = !ulid_is_zero(&gate->policy);
    const char *status = gate->effect == POLICY_AUTO_APPROVE ? "approved"
                         : gate->effect == POLICY_AUTO_DENY  ? "denied"
                                                             : "pending";
    char numbers[4][24];
    struct store_param params[] = {store_uuid(id),
                                   store_int(call->principal->environment, numbers[0]),
                                   store_text(asked->title),
                                   store_text(asked->description),
                                   store_text(payload),
                                   store_int(gate->required, numbers[1]),
                                   store_uuid(by_policy ? &gate->policy : NULL),
                                   by_policy ? store_int(gate->version, numbers[2])
                                             : store_text(NULL),
                                   store_uuid(&call->principal->key_id),
                                   store_text(call->principal->agent_id),
                                   store_text(asked->run_id),
                                   store_text(asked->parent_span_id),
                                   store_int(asked->expires_s, numbers[3]),
                                   store_text(status)};
    PGresult *r = store_query(worker->store, sql, params, 14, true, err);
    PQclear(r);
    return r != NULL;
}

static enum route_result approval_ask(struct route_worker *worker, struct call *call,
                                      const struct asked *asked)
{
    struct asked_gate gate;
    struct error err = {0};
    struct ulid id;
    struct buf payload;
    ulid_new(&id, database_now_ms());
    buf_init(&payload, call->body.len * CANONICAL_FACTOR + 64);
    bool ok = json_canonical(asked->payload, &payload) ||
              error_set(&err, ERROR_TOO_LARGE, "the payload is too large");
    ok = ok && asked_gate_decide(worker, call, asked, &gate, &err) &&
         approval_insert(worker, call, &id, asked, &gate, payload.data, &err);
    buf_free(&payload);
    return ok ? approval_answer(worker, call, 201, &id) : error_answer(call, &err);
}

static enum route_result approval_request_handle(struct route_worker *worker, struct call *call)
{
    static const char *const members[] = {"title", "description",  "payload", "expiresInSeconds",
                                          "runId", "parentSpanId", NULL};
    struct asked asked = {0};
    struct error err = {0};
    enum route_result result = ROUTE_ANSWERED;
    json_t *body = body_read(call, false, members);
    if (body != NULL)
        result = asked_read(body, &asked, &err) ? approval_ask(worker, call, &asked)
                                                : error_answer(call, &err);
    json_decref(asked.payload);
    json_decref(body);
    return result;
}

/* ---- reading ---- */

static enum route_result approvals_list_handle(struct route_worker *worker, struct call *call)
{
    static const char *const statuses[] = {"pending", "approved", "denied", "expired", NULL};
    static const char *const origins[] = {"human",     "policy",    "system",
                                          "assistant", "automated", NULL};
#define ROWS                                                                                       \
    "select p.* from approvals p where p.environment_id = $1::int "                                \
    "and ($2::text is null or p.status = $2::text::approval_status) "                              \
    "and ($3::text is null or p.decision_origin = $3 "                                             \
    "or ($3 = 'automated' and p.decision_origin in ('policy', 'system')))"
    static const char sql[] =
        "with page as (" ROWS " order by p.id desc limit $4::bigint offset $5::bigint) "
        "select (select coalesce(json_agg(approval_json(p) order by p.id desc), '[]')::text "
        "from approvals p where p.id in (select id from page)), "
        "(select nullif(count(*), 10001) from (" ROWS " limit 10001) c)";
#undef ROWS
    const char *status = NULL, *origin = NULL;
    int64_t limit, offset;
    char numbers[3][24];
    if (!query_page(call, PAGE_STANDARD, &limit, &offset) ||
        !query_word(call, "status", statuses, &status) ||
        !query_word(call, "decisionOrigin", origins, &origin))
        return ROUTE_ANSWERED;
    struct store_param params[] = {store_int(call->principal->environment, numbers[0]),
                                   store_text(status), store_text(origin),
                                   store_int(limit, numbers[1]), store_int(offset, numbers[2])};
    return page_answer(worker, call, sql, params, 5, limit, offset);
}

/* Whether the approval is there and undecided. False with the call answered. */
static bool approval_pending(struct route_worker *worker, struct call *call, const struct ulid *id,
                             bool *pending)
{
    static const char sql[] = "select p.status = 'pending' from approvals p "
                              "where p.id = $1 and p.environment_id = $2::int";
    char environment[24];
    struct error err = {0};
    struct store_param params[] = {store_uuid(id),
                                   store_int(call->principal->environment, environment)};
    PGresult *r = store_query(worker->store, sql, params, 2, true, &err);
    bool found = r != NULL && PQntuples(r) == 1;
    if (found)
        *pending = row_bool(r, 0, 0);
    else if (r != NULL)
        document_missing(call, "approval", call->segments[0]);
    else
        error_answer(call, &err);
    PQclear(r);
    return found;
}

static enum route_result approval_get_handle(struct route_worker *worker, struct call *call)
{
    struct ulid id;
    int64_t wait_s = 0;
    bool pending = false;
    if (!query_int(call, "waitSeconds", 0, 86400, &wait_s) || !approval_id_read(call, &id))
        return ROUTE_ANSWERED;
    if (wait_s > WAIT_MAX_S)
        wait_s = WAIT_MAX_S;
    if (wait_s > 0 && !approval_pending(worker, call, &id, &pending))
        return ROUTE_ANSWERED;
    /* When too many wait already, this one is told at once that it is still pending. */
    if (pending && approval_wait_add(&id, call, call->arrived_ms + wait_s * 1000))
        return ROUTE_PARKED;
    return approval_answer(worker, call, 200, &id);
}

/* ---- deciding ---- */

/* A key that is held to some actions has no word on the others. False: answered. */
static bool decider_may(struct route_worker *worker, struct call *call, const struct ulid *id)
{
    static const char sql[] = "select coalesce(p.action_name, '') from approvals p "
                              "where p.id = $1 and p.environment_id = $2::int";
    char environment[24];
    struct error err = {0};
    struct store_param params[] = {store_uuid(id),
                                   store_int(call->principal->environment, environment)};
    PGresult *r = store_query(worker->store, sql, params, 2, true, &err);
    bool found = r != NULL && PQntuples(r) == 1;
    bool may = found && (row_text(r, 0, 0)[0] == '\0' ||
                         principal_may_use(call->principal, row_text(r, 0, 0)));
    if (found && !may)
        call_error(call, 403, "AUTHORIZATION_ERROR", NULL,
                   "this API key is held to other actions than %s", row_text(r, 0, 0));
    else if (r == NULL)
        error_answer(call, &err);
    else if (!found)
        document_missing(call, "approval", call->segments[0]);
    PQclear(r);
    return may;
}

static enum route_result decision_refused(struct call *call, const char *verdict,
                                          const char *detail)
{
    char details[64];
    const char *id = call->segments[0];
    if (strcmp(verdict, "own") == 0) {
        call_error(call, 403, "SELF_APPROVAL_REFUSED", NULL,
                   "%s was requested by this key or by another key of the same agent: nobody "
                   "decides what it asked for. Another person has to.",
                   id);
    } else if (strcmp(verdict, "decided") == 0) {
        snprintf(details, sizeof details, "{\"status\":\"%s\"}", detail);
        call_error(call, 409, "APPROVAL_DECIDED", details,
                   "%s is %s already: what was decided stays. Read it to see by whom.", id, detail);
    } else if (strcmp(verdict, "expired") == 0) {
        call_error(call, 409, "APPROVAL_EXPIRED", NULL,
                   "%s has expired: it can neither be approved nor denied. The request has to be "
                   "made again.",
                   id);
    } else if (strcmp(verdict, "said") == 0) {
        call_error(call, 409, "APPROVAL_ALREADY_COUNTED", NULL,
                   "Agent %s has had its word on %s: each counts once. Another person has to "
                   "decide.",
                   call->principal->agent_id, id);
    } else {
        document_missing(call, "approval", id);
    }
    return ROUTE_ANSWERED;
}

/* After the COMMIT: the move is said, and an approved effect goes to the dispatchers. */
struct decided {
    struct effect_message approved;
    bool ready;
    char by[ULID_PREFIXED_SIZE];
};

static void decision_committed(void *what)
{
    const struct decided *decided = what;
    if (!decided->ready) {
        transition_made(&decided->approved.effect, STAGE_AWAITING_APPROVAL, STAGE_REJECTED,
                        OUTCOME_NOT_DISPATCHED, REASON_DENIED, decided->by);
        return;
    }
    transition_made(&decided->approved.effect, STAGE_AWAITING_APPROVAL, STAGE_READY,
                    OUTCOME_PENDING, REASON_NONE, decided->by);
    publish_effect(&decided->approved);
}

static void decision_remember(struct call *call, const PGresult *r)
{
    const char *verdict = row_text(r, 0, 0);
    if (row_null(r, 0, 2) || strcmp(verdict, "counted") == 0)
        return;
    struct decided *decided = calloc(1, sizeof *decided);
    must(decided != NULL);
    row_uuid(r, 0, 2, &decided->approved.effect);
    decided->approved.environment = call->principal->environment;
    decided->approved.seq = 1;
    decided->ready = strcmp(verdict, "approved") == 0;
    if (decided->ready)
        snprintf(decided->approved.destination, sizeof decided->approved.destination, "%s",
                 row_text(r, 0, 3));
    ulid_format_prefixed("key", &call->principal->key_id, decided->by);
    call->committed = decision_committed;
    call->committed_what = decided;
}

static enum route_result decision_make(struct route_worker *worker, struct call *call,
                                       const struct ulid *id, const char *decision,
                                       const char *note)
{
    static const char sql[] = "select verdict, detail, effect_id, destination "
                              "from approval_decide($1, $2::int, $3, $4, $5, $6)";
    char environment[24];
    struct error err = {0};
    struct store_param params[] = {store_uuid(id),
                                   store_int(call->principal->environment, environment),
                                   store_uuid(&call->principal->key_id),
                                   store_text(call->principal->agent_id),
                                   store_text(decision),
                                   store_text(note)};
    PGresult *r = store_query(worker->store, sql, params, 6, true, &err);
    if (r == NULL)
        return error_answer(call, &err);
    const char *verdict = row_text(r, 0, 0);
    enum route_result result = ROUTE_ANSWERED;
    bool done = strcmp(verdict, "approved") == 0 || strcmp(verdict, "counted") == 0 ||
                strcmp(verdict, "denied") == 0;
    if (!done) {
        result = decision_refused(call, verdict, row_text(r, 0, 1));
    } else if (!audit_write(worker->store, call,
                            decision[0] == 'a' ? "approval.approve" : "approval.deny",
                            call->segments[0],
                            json_pack("{s:s, s:s?}", "verdict", verdict, "note", note), &err)) {
        result = error_answer(call, &err);
    } else {
        decision_remember(call, r);
        result = approval_answer(worker, call, 200, id);
    }
    PQclear(r);
    return result;
}

static enum route_result decision_handle(struct route_worker *worker, struct call *call,
                                         const char *decision)
{
    static const char *const members[] = {"note", NULL};
    const char *note = NULL;
    struct error err = {0};
    struct ulid id;
    enum route_result result = ROUTE_ANSWERED;
    json_t *body = body_read(call, true, members);
    if (body != NULL && !json_field_text(body, "note", false, 0, NOTE_MAX, &note, &err))
        result = error_answer(call, &err);
    else if (body != NULL && approval_id_read(call, &id) && decider_may(worker, call, &id))
        result = decision_make(worker, call, &id, decision,
                               note != NULL && note[0] != '\0' ? note : NULL);
    json_decref(body);
    return result;
}

static enum route_result approval_approve_handle(struct route_worker *worker, struct call *call)
{
    return decision_handle(worker, call, "approve");
}

static enum route_result approval_deny_handle(struct route_worker *worker, struct call *call)
{
    return decision_handle(worker, call, "deny");
}

const struct route routes_approvals[] = {
    {"GET", "/api/v2/approvals", SCOPE_APPROVALS_READ, false, approvals_list_handle},
    {"POST", "/api/v2/approvals", SCOPE_APPROVALS_REQUEST, true, approval_request_handle},
    {"GET", "/api/v2/approvals/{id}", SCOPE_APPROVALS_READ, false, approval_get_handle},
    {"POST", "/api/v2/approvals/{id}/approve", SCOPE_APPROVALS_DECIDE, true,
     approval_approve_handle},
    {"POST", "/api/v2/approvals/{id}/deny", SCOPE_APPROVALS_DECIDE, true, approval_deny_handle},
    {0}};
