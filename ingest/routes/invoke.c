/* POST /api/v2/actions/{ref}/invoke: reads the call, builds the request, hands both to accept. And
 * POST /api/v2/claims, the same for an effect that a worker outside the fleet will perform.
 *
 * A refusal that the configuration of today gives (the action is gone, disabled, has another
 * schema) must not hide what an earlier call with the same key has done. So before such a refusal
 * is told, the key is looked up, and if it is known, the call is answered as the duplicate that it
 * is. */
#include "common/base/config.h"
#include "common/base/json.h"
#include "ingest/accept.h"
#include "ingest/config_watch.h"
#include "ingest/gate.h"
#include "ingest/grants.h"

#include <stdlib.h>
#include <string.h>

enum { LEASE_STANDARD_S = 60, LEASE_MAX_S = 3600 };
enum { ID_MAX_BYTES = 200, OPERATION_MAX_BYTES = 255, DISPATCH_BEFORE_MAX_S = 31 * 86400 };
#define CANONICAL_FACTOR 6 /* how much longer canonical JSON can be than what it was read from */

/* One invoke being read. */
struct invoke {
    struct route_worker *worker;
    struct call *call;
    const char *ref; /* of the action: its name or id; in the call's path or in body */
    json_t *body;
    json_t *input;         /* in body, or an empty object of our own */
    struct buf same_body;  /* what counts for "the same request", canonical */
    struct accept_call *a; /* grows into the whole call; NULL once it is given away */
};

/* ---- the body ---- */

static bool refuse_value(struct invoke *in, const struct error *err)
{
    call_error_value(in->call, err);
    return false;
}

static bool text_keep(struct invoke *in, const char *name, size_t most, char **out)
{
    const char *text = NULL;
    struct error err = {0};
    if (!json_field_text(in->body, name, false, 1, most, &text, &err))
        return refuse_value(in, &err);
    *out = text != NULL ? strdup(text) : NULL;
    must(text == NULL || *out != NULL);
    return true;
}

static bool operation_read(struct invoke *in)
{
    struct error err = {0};
    if (!text_keep(in, "operationKey", OPERATION_MAX_BYTES, &in->a->operation))
        return false;
    for (const char *c = in->a->operation; c != NULL && *c != '\0'; c++) {
        if (*c > 0x20 && *c < 0x7f)
            continue;
        error_set_at(&err, ERROR_INVALID, "/operationKey",
                     "must be visible ASCII characters without blanks");
        return refuse_value(in, &err);
    }
    return true;
}

static bool retry_read(struct invoke *in)
{
    const char *text = NULL;
    struct error err = {0};
    if (!json_field_text(in->body, "retryOf", false, 1, ID_MAX_BYTES, &text, &err))
        return refuse_value(in, &err);
    if (text == NULL || ulid_parse_prefixed("inv", text, &in->a->retry_of))
        return true;
    error_set_at(&err, ERROR_INVALID, "/retryOf", "must be the id of an invocation (inv_...)");
    return refuse_value(in, &err);
}

static bool compensates_read(struct invoke *in)
{
    const char *text = NULL;
    struct error err = {0};
    if (!json_field_text(in->body, "compensates", false, 1, ID_MAX_BYTES, &text, &err))
        return refuse_value(in, &err);
    if (text == NULL || ulid_parse_prefixed("eff", text, &in->a->compensates))
        return true;
    error_set_at(&err, ERROR_INVALID, "/compensates", "must be the id of an effect (eff_...)");
    return refuse_value(in, &err);
}

static bool dispatch_before_read(struct invoke *in)
{
    int64_t seconds = config_int("HOLDFAST_DISPATCH_BEFORE_S");
    struct error err = {0};
    if (!json_field_int(in->body, "dispatchBeforeSeconds", false, 1, DISPATCH_BEFORE_MAX_S,
                        &seconds, &err))
        return refuse_value(in, &err);
    in->a->dispatch_before_s = (int)seconds;
    return true;
}

static bool input_read(struct invoke *in)
{
    struct error err = {0};
    json_t *input = json_object_get(in->body, "input");
    in->input = input != NULL && !json_is_null(input) ? json_incref(input) : json_object();
    must(in->input != NULL);
    if (json_is_object(in->input))
        return true;
    error_set_at(&err, ERROR_INVALID, "/input", "must be an object");
    return refuse_value(in, &err);
}

/* What this build does not do yet is refused, never ignored. */
static bool features_check(struct invoke *in)
{
    static const char *const missing[] = {"previewId", "dependsOn"};
    for (size_t i = 0; i < sizeof missing / sizeof *missing; i++) {
        const json_t *value = json_object_get(in->body, missing[i]);
        if (value == NULL || json_is_null(value))
            continue;
        call_error(in->call, 402, "FEATURE_NOT_AVAILABLE", NULL,
                   "%s is not available in this version of Holdfast; nothing was stored",
                   missing[i]);
        return false;
    }
    return true;
}

/* The body without what may differ between two sendings of one request. */
static bool same_body_make(struct invoke *in)
{
    json_t *copy = json_copy(in->body); /* shallow */
    must(copy != NULL);
    json_object_del(copy, "runId");
    json_object_del(copy, "parentSpanId");
    json_object_del(copy, "holder"); /* of a claim: who asks, not what for */
    json_object_del(copy, "leaseSeconds");
    buf_init(&in->same_body, in->call->body.len * CANONICAL_FACTOR + 64);
    bool ok = json_canonical(copy, &in->same_body);
    json_decref(copy);
    if (!ok)
        call_error(in->call, 413, "PAYLOAD_TOO_LARGE", NULL, "the body is too large");
    return ok;
}

static bool body_read(struct invoke *in, const char *const *members)
{
    struct call *call = in->call;
    struct error err = {0};
    if (call->idempotency_key == NULL) {
        error_set_at(&err, ERROR_INVALID, "Idempotency-Key",
                     "is required: send a header of that name that is new for each new request and "
                     "the same when one is sent again");
        return refuse_value(in, &err);
    }
    in->body =
        json_parse_object(call->body.data != NULL ? call->body.data : "", call->body.len, &err);
    if (in->body == NULL || !json_only_members(in->body, members, &err))
        return refuse_value(in, &err);
    return input_read(in) && text_keep(in, "runId", ID_MAX_BYTES, &in->a->run_id) &&
           text_keep(in, "parentSpanId", ID_MAX_BYTES, &in->a->parent_span_id) &&
           operation_read(in) && retry_read(in) && compensates_read(in) &&
           dispatch_before_read(in) && features_check(in) && same_body_make(in);
}

/* ---- hashes ---- */

static void body_hash_make(const struct invoke *in, const struct ulid *action,
                           uint8_t hash[SHA256_SIZE])
{
    struct crypto_part parts[] = {{action->bytes, sizeof action->bytes},
                                  {in->same_body.data, in->same_body.len}};
    crypto_sha256_parts(parts, 2, hash);
}

static void key_hash_make(struct invoke *in)
{
    const char *key = in->call->idempotency_key;
    crypto_sha256(key, strlen(key), in->a->key_hash);
}

/* ---- the action ---- */

static bool action_find(struct invoke *in)
{
    struct error err = {0};
    struct call *call = in->call;
    in->a->action = action_get(in->worker->store, call->principal->environment, in->ref, &err);
    return in->a->action != NULL || refuse_value(in, &err);
}

static bool action_allowed(struct invoke *in)
{
    if (principal_may_use(in->call->principal, in->a->action->name))
        return true;
    call_error(in->call, 403, "AUTHORIZATION_ERROR", NULL,
               "this API key is held to other actions than %s", in->a->action->name);
    return false;
}

static bool action_usable(struct invoke *in)
{
    const struct action *action = in->a->action;
    if (!action->enabled) {
        call_error(in->call, 409, "ACTION_DISABLED", NULL,
                   "the action %s is disabled; nothing was stored", action->name);
        return false;
    }
    if (in->a->claim == NULL && strcmp(action->adapter->type, "external") == 0) {
        call_error(
            in->call, 409, "CLAIM_REQUIRED", NULL,
            "the action %s is performed outside Holdfast: ask POST /api/v2/claims for the right to "
            "perform it; nothing was stored",
            action->name);
        return false;
    }
    return true;
}

static bool input_check(struct invoke *in)
{
    struct error err = {0}, at = {0};
    if (in->a->action->schema == NULL || schema_validate(in->a->action->schema, in->input, &err))
        return true;
    char place[sizeof err.place + 8];
    snprintf(place, sizeof place, "/input%s", err.place);
    /* A value that is too much work to check is the caller's to change, like one that does not fit.
     */
    error_set_at(&at, err.code == ERROR_TOO_LARGE ? ERROR_INVALID : err.code, place, "%s",
                 err.text);
    return refuse_value(in, &at);
}

/* The operation that the caller names, else the one that the action's template gives. */
static bool operation_make(struct invoke *in)
{
    struct accept_call *a = in->a;
    struct error err = {0};
    if (a->operation == NULL && a->action->effect_key != NULL &&
        !effect_key_expand(a->action->effect_key, in->input, &a->operation, &err))
        return refuse_value(in, &err);
    if (a->operation != NULL)
        crypto_sha256(a->operation, strlen(a->operation), a->operation_hash);
    return true;
}

/* A claim without an operation would guard nothing: the next worker's would be another. */
static bool operation_named(struct invoke *in)
{
    struct error err = {0};
    if (in->a->claim == NULL || in->a->operation != NULL || !ulid_is_zero(&in->a->retry_of))
        return true;
    error_set_at(
        &err, ERROR_INVALID, "/operationKey",
        "is required: it names the operation that is to happen once, such as refund:order-1234");
    return refuse_value(in, &err);
}

static bool input_make(struct invoke *in)
{
    struct accept_call *a = in->a;
    buf_init(&a->input, in->call->body.len * CANONICAL_FACTOR + 64);
    if (!json_canonical(in->input, &a->input)) {
        call_error(in->call, 413, "PAYLOAD_TOO_LARGE", NULL, "the input is too large");
        return false;
    }
    struct crypto_part parts[] = {{a->action->name, strlen(a->action->name)},
                                  {a->input.data, a->input.len}};
    crypto_sha256_parts(parts, 2, a->input_hash);
    body_hash_make(in, &a->action->id, a->body_hash);
    return true;
}

/* ---- the request ---- */

static bool name_listed(const char *list, const char *name, size_t len)
{
    while (list != NULL && *list != '\0') {
        size_t item = strcspn(list, ",");
        if (item == len && memcmp(list, name, len) == 0)
            return true;
        list += item + (list[item] == ',');
    }
    return false;
}

static void secrets_of_parts(const struct parts *parts, struct buf *out)
{
    for (size_t i = 0; i < parts->count; i++) {
        const struct part *part = &parts->items[i];
        if (part->kind != PART_SECRET || name_listed(out->data, part->text.data, part->text.len))
            continue;
        if (out->len > 0)
            buf_puts(out, ",");
        buf_put(out, part->text.data, part->text.len);
    }
}

/* The secrets that the request has slots for, each once, in the order of the slots. */
static char *secrets_of(const struct request *request)
{
    struct buf out;
    buf_init(&out, (size_t)REQUEST_PARTS_MAX * (SECRET_NAME_MAX + 1) * 4);
    buf_puts(&out, "");
    secrets_of_parts(&request->url, &out);
    for (size_t i = 0; i < request->header_count; i++)
        secrets_of_parts(&request->headers[i].value, &out);
    secrets_of_parts(&request->body, &out);
    return buf_take(&out, NULL);
}

static bool prepared_take(struct invoke *in, const struct prepared *prepared)
{
    struct accept_call *a = in->a;
    buf_init(&a->request, REQUEST_ENCODED_MAX);
    a->impact = prepared->impact;
    if (prepared->request == NULL) { /* a worker outside makes its own */
        snprintf(a->destination, sizeof a->destination, "%s", a->action->adapter->type);
        a->secrets = strdup("");
        must(a->secrets != NULL);
        buf_puts(&a->request, "");
        request_hash("", 0, a->request_hash);
        return true;
    }
    a->secrets = secrets_of(prepared->request);
    if (!request_encode(prepared->request, &a->request) || a->secrets == NULL) {
        call_error(in->call, 413, "PAYLOAD_TOO_LARGE", NULL,
                   "the request that this input makes is too large");
        return false;
    }
    request_hash(a->request.data, a->request.len, a->request_hash);
    request_destination(prepared->request, a->destination, sizeof a->destination);
    a->has_read_back = prepared->has_read_back;
    a->fault_drill = prepared->fault_drill;
    return true;
}

static bool request_make(struct invoke *in)
{
    const struct action *action = in->a->action;
    struct adapter_action adapter_action = {
        .name = action->name, .version = action->version, .definition = action->definition};
    struct prepared prepared = {0};
    struct error err = {0};
    bool ok = action->adapter->prepare(&adapter_action, in->input, &prepared, &err)
                  ? prepared_take(in, &prepared)
                  : refuse_value(in, &err);
    prepared_free(&prepared);
    return ok;
}

/* What the policies say. */
static bool gate_make(struct invoke *in)
{
    struct error err = {0};
    return gate_decide(in->worker->store, in->a, in->input, &err) || refuse_value(in, &err);
}

static void ids_make(struct invoke *in)
{
    char eff[ULID_PREFIXED_SIZE];
    ulid_new(&in->a->id, database_now_ms());
    snprintf(in->a->provider_key, sizeof in->a->provider_key, "holdfast-%s",
             ulid_format_prefixed("eff", &in->a->id, eff));
}

/* ---- the ways out ---- */

/* Whether an earlier call has the key: then the verdict is about that. False with the call answered
 * when that can't be learnt, or with the refusal as it is when the key is new. */
static bool key_known(struct invoke *in)
{
    static const char sql[] = "select k.effect_id, k.request_hash, e.action_id, e.action_name "
                              "from keys k join effects e on e.id = k.effect_id "
                              "where k.environment_id = $1::int and k.key_hash = $2";
    char environment[24];
    struct error err = {0};
    uint8_t hash[SHA256_SIZE];
    struct ulid action;
    struct store_param params[] = {store_int(in->call->principal->environment, environment),
                                   store_bytes(in->a->key_hash, SHA256_SIZE)};
    PGresult *r = store_query(in->worker->store, sql, params, 2, true, &err);
    if (r == NULL)
        return refuse_value(in, &err);
    bool known = PQntuples(r) == 1 && principal_may_use(in->call->principal, row_text(r, 0, 3));
    if (known) {
        row_uuid(r, 0, 0, &in->a->effect);
        row_uuid(r, 0, 2, &action);
        body_hash_make(in, &action, hash);
        char act[ULID_PREFIXED_SIZE];
        bool same_action = strcmp(in->ref, row_text(r, 0, 3)) == 0 ||
                           strcmp(in->ref, ulid_format_prefixed("act", &action, act)) == 0;
        bool same = same_action && memcmp(row_bytes(r, 0, 1, NULL), hash, SHA256_SIZE) == 0;
        in->a->verdict = same ? VERDICT_KEY_SAME : VERDICT_KEY_REUSE;
    }
    PQclear(r);
    return known;
}

static enum route_result invoke_refused(struct invoke *in)
{
    if (in->call->status >= 500 || !key_known(in))
        return ROUTE_ANSWERED;
    accept_deliver(in->a, NULL, MESSAGE_NO_REPLY);
    in->a = NULL;
    return ROUTE_PARKED;
}

static enum route_result invoke_hand_over(struct invoke *in)
{
    if (accept_submit(in->a)) {
        in->a = NULL;
        return ROUTE_PARKED;
    }
    call_error(
        in->call, 503, "SERVICE_UNAVAILABLE", NULL,
        "Holdfast has too many calls waiting; nothing was stored, send the same request again "
        "with the same Idempotency-Key");
    in->call->retry_after_s = 1;
    return ROUTE_ANSWERED;
}

static int wait_of(const struct call *call)
{
    int most_ms = (int)config_int("HOLDFAST_INVOKE_WAIT_MS");
    return call->wait_ms >= 0 && call->wait_ms < most_ms ? call->wait_ms : most_ms;
}

static void invoke_begin(struct invoke *in)
{
    in->a = calloc(1, sizeof *in->a);
    must(in->a != NULL);
    in->a->call = in->call;
    in->a->wait_ms = wait_of(in->call);
}

static void invoke_end(struct invoke *in)
{
    buf_free(&in->same_body);
    json_decref(in->input);
    json_decref(in->body);
    accept_call_free(in->a);
}

/* The body is read, and the action known by name: on to accept. */
static enum route_result invoke_go_on(struct invoke *in)
{
    key_hash_make(in);
    if (!action_find(in))
        return invoke_refused(in);
    if (!action_allowed(in))
        return ROUTE_ANSWERED;
    ids_make(in);
    bool whole = action_usable(in) && input_check(in) && operation_make(in) &&
                 operation_named(in) && input_make(in) && request_make(in) && gate_make(in);
    return whole ? invoke_hand_over(in) : invoke_refused(in);
}

static enum route_result invoke_run(struct route_worker *worker, struct call *call)
{
    static const char *const members[] = {
        "input",     "runId",       "parentSpanId",          "retryOf", "operationKey", "previewId",
        "dependsOn", "compensates", "dispatchBeforeSeconds", NULL};
    struct invoke in = {.worker = worker, .call = call, .ref = call->segments[0]};
    invoke_begin(&in);
    enum route_result result = body_read(&in, members) ? invoke_go_on(&in) : ROUTE_ANSWERED;
    invoke_end(&in);
    return result;
}

/* ---- claims ---- */

static bool claim_read(struct invoke *in)
{
    const char *holder = NULL;
    int64_t lease_s = LEASE_STANDARD_S;
    struct error err = {0};
    if (!json_field_text(in->body, "action", true, 1, ID_MAX_BYTES, &in->ref, &err) ||
        !json_field_text(in->body, "holder", false, 1, CLAIM_HOLDER_MAX, &holder, &err) ||
        !json_field_int(in->body, "leaseSeconds", false, 1, LEASE_MAX_S, &lease_s, &err))
        return refuse_value(in, &err);
    snprintf(in->a->claim->holder, sizeof in->a->claim->holder, "%s", holder != NULL ? holder : "");
    in->a->claim->lease_ms = (int)lease_s * 1000;
    return true;
}

/* A worker need not name its asking: then each asking is another one, and the operation tells them
 * apart. */
static void claim_key_make(struct call *call)
{
    char id[ULID_PREFIXED_SIZE];
    struct ulid ulid;
    if (call->idempotency_key != NULL)
        return;
    ulid_new(&ulid, database_now_ms());
    call->idempotency_key = strdup(ulid_format_prefixed("clm", &ulid, id));
    must(call->idempotency_key != NULL);
}

static enum route_result claim_run(struct route_worker *worker, struct call *call)
{
    static const char *const members[] = {
        "action", "input",        "operationKey",          "retryOf", "runId", "parentSpanId",
        "holder", "leaseSeconds", "dispatchBeforeSeconds", NULL};
    struct invoke in = {.worker = worker, .call = call};
    invoke_begin(&in);
    in.a->claim = calloc(1, sizeof *in.a->claim);
    must(in.a->claim != NULL);
    claim_key_make(call);
    bool read = body_read(&in, members) && claim_read(&in);
    enum route_result result = read ? invoke_go_on(&in) : ROUTE_ANSWERED;
    invoke_end(&in);
    return result;
}

const struct route routes_invoke[] = {
    {"POST", "/api/v2/claims", SCOPE_ACTIONS_INVOKE, false, claim_run},
    {"POST", "/api/v2/actions/{ref}/invoke", SCOPE_ACTIONS_INVOKE, false, invoke_run},
    {0},
};
