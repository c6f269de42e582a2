/* The routes of policy files: plan, apply exactly what was planned, and try it on cases. */
#include "common/base/json.h"
#include "ingest/policy/evaluate.h"
#include "ingest/policy/file.h"
#include "ingest/routes/document.h"
#include "ingest/routes/parse.h"

#include <stdlib.h>
#include <string.h>

#define NOTE_MAX 2000
#define CASES_MAX 500
#define CASE_NAME_MAX 200
#define DIGEST_MAX 128

static enum route_result json_answer(struct call *call, json_t *value)
{
    char *text = value != NULL ? json_dumps(value, JSON_COMPACT) : NULL;
    must(text != NULL);
    call_data(call, 200, text);
    free(text);
    json_decref(value);
    return ROUTE_ANSWERED;
}

/* The body with its source. NULL: answered. */
static json_t *source_read(struct call *call, const char *const *members, const char **source)
{
    struct error err = {0};
    json_t *body = body_read(call, false, members);
    if (body == NULL || json_field_text(body, "source", true, 1, POLICY_SOURCE_MAX, source, &err))
        return body;
    error_answer(call, &err);
    json_decref(body);
    return NULL;
}

/* The first thing that is wrong with a file, as a 400 that names all of them. */
static enum route_result plan_refused(struct call *call, const struct policy_plan *plan)
{
    const json_t *first = json_array_get(plan->errors, 0);
    json_t *details =
        json_pack("{s:O, s:O}", "place", json_object_get(first, "place"), "errors", plan->errors);
    char *text = details != NULL ? json_dumps(details, JSON_COMPACT) : NULL;
    must(text != NULL);
    call_error(call, 400, "VALIDATION_ERROR", text, "%s: %s",
               json_string_value(json_object_get(first, "place")),
               json_string_value(json_object_get(first, "message")));
    free(text);
    json_decref(details);
    return ROUTE_ANSWERED;
}

/* ---- plan ---- */

static enum route_result plan_handle(struct route_worker *worker, struct call *call)
{
    static const char *const members[] = {"source", NULL};
    const char *source = NULL;
    struct policy_plan plan;
    struct error err = {0};
    enum route_result result = ROUTE_ANSWERED;
    json_t *body = source_read(call, members, &source);
    if (body == NULL)
        return result;
    if (policy_plan_make(worker->store, call->principal->environment, source, &plan, &err))
        result = json_answer(call, policy_plan_show(&plan));
    else
        result = error_answer(call, &err);
    policy_plan_free(&plan);
    json_decref(body);
    return result;
}

/* ---- apply ---- */

static enum route_result plan_apply(struct route_worker *worker, struct call *call,
                                    const struct policy_plan *plan, const char *digest,
                                    const struct policy_change *change)
{
    struct error err = {0};
    if (json_array_size(plan->errors) > 0)
        return plan_refused(call, plan);
    if (strcmp(plan->digest, digest) != 0) {
        call_error(call, 409, "STALE_PLAN", NULL,
                   "the file or the environment's policies are not what was planned. Nothing was "
                   "changed. Plan the file again, review what it would change now, and apply that "
                   "digest.");
        return ROUTE_ANSWERED;
    }
    if (!policy_plan_apply(worker->store, plan, change, &err))
        return error_answer(call, &err);
    json_t *shown = policy_plan_show(plan);
    must(json_object_set_new(shown, "applied", json_true()) == 0);
    return json_answer(call, shown);
}

static enum route_result apply_handle(struct route_worker *worker, struct call *call)
{
    static const char *const members[] = {"source", "digest", "changeNote", NULL};
    const char *source = NULL, *digest = NULL;
    struct policy_change change = {.call = call, .from_file = true};
    struct policy_plan plan = {0};
    struct error err = {0};
    enum route_result result;
    json_t *body = source_read(call, members, &source);
    if (body == NULL)
        return ROUTE_ANSWERED;
    bool ok = json_field_text(body, "digest", true, 1, DIGEST_MAX, &digest, &err) &&
              json_field_text(body, "changeNote", false, 0, NOTE_MAX, &change.note, &err) &&
              policies_lock(worker->store, call->principal->environment, &err) &&
              policy_plan_make(worker->store, call->principal->environment, source, &plan, &err);
    result = ok ? plan_apply(worker, call, &plan, digest, &change) : error_answer(call, &err);
    policy_plan_free(&plan);
    json_decref(body);
    return result;
}

/* ---- test ---- */

/* The member of an answer that an expectation is about, as it must be to be met. */
static bool expected_met(const json_t *actual, const char *name, const json_t *expected)
{
    const json_t *is = json_object_get(actual, name);
    if (strcmp(name, "policy") == 0 && json_is_object(is))
        is = json_object_get(is, "name");
    return is != NULL && json_equal(is, expected);
}

static bool expectation_check(const json_t *expect, struct error *err)
{
    static const char *const members[] = {"effect", "requiresApproval", "requiredApprovals",
                                          "policy", NULL};
    enum policy_effect effect;
    const json_t *word = json_is_object(expect) ? json_object_get(expect, "effect") : expect;
    if (json_is_object(expect) && json_object_size(expect) > 0) {
        if (!json_only_members(expect, members, err))
            return error_place_under(err, "/expect");
        if (word == NULL)
            return true;
    }
    return (json_is_string(word) && policy_effect_parse(json_string_value(word), &effect)) ||
           error_set_at(err, ERROR_INVALID, "/expect",
                        "must be none, require_approval, auto_approve or auto_deny, or an object "
                        "with effect, requiresApproval, requiredApprovals or policy (a name)");
}

static bool expectation_met(const json_t *expect, const json_t *actual)
{
    const char *name;
    json_t *value;
    if (json_is_string(expect))
        return expected_met(actual, "effect", expect);
    json_object_foreach((json_t *)expect, name, value)
    {
        if (!expected_met(actual, name, value))
            return false;
    }
    return true;
}

/* A case without what only cases have. */
static json_t *case_request(const json_t *one, const char **name, struct error *err)
{
    static const char *const members[] = {"name",   "expect", "kind",    "actionName", "agentId",
                                          "userId", "tags",   "payload", "amount",     NULL};
    if (!json_is_object(one)) {
        error_set_at(err, ERROR_INVALID, "", "must be an object");
        return NULL;
    }
    if (!json_only_members(one, members, err) ||
        !json_field_text(one, "name", false, 1, CASE_NAME_MAX, name, err) ||
        !expectation_check(json_object_get(one, "expect"), err))
        return NULL;
    json_t *request = json_copy((json_t *)one);
    must(request != NULL);
    json_object_del(request, "name");
    json_object_del(request, "expect");
    return request;
}

struct trial {
    struct route_worker *worker;
    struct call *call;
    struct policy **policies;
    size_t count;
    int failed;
};

/* {"name", "passed", "expected", "actual", "error"}. */
static json_t *case_run(struct trial *trial, const json_t *one)
{
    const char *name = NULL;
    char told[sizeof((struct error *)0)->place + sizeof((struct error *)0)->text + 4];
    struct error err = {0};
    json_t *request = case_request(one, &name, &err);
    json_t *actual = request != NULL ? evaluation_run(trial->worker->store, trial->call->principal,
                                                      trial->policies, trial->count, request, &err)
                                     : NULL;
    json_t *expect = json_object_get(one, "expect");
    bool passed = actual != NULL && expectation_met(expect, actual);
    trial->failed += !passed;
    snprintf(told, sizeof told, "%s: %s", err.place, err.text);
    json_t *result =
        json_pack("{s:s?, s:b, s:O?, s:o?, s:s?}", "name", name, "passed", passed, "expected",
                  expect, "actual", actual, "error", actual == NULL ? told : NULL);
    must(result != NULL);
    json_decref(request);
    return result;
}

/* The list of cases, a reference; NULL with err. */
static json_t *cases_read(const json_t *body, struct error *err)
{
    json_t *given = json_object_get(body, "cases");
    json_t *parsed = NULL;
    if (json_is_string(given)) {
        parsed = policy_text_parse(json_string_value(given), json_string_length(given), err);
        if (parsed == NULL) {
            error_place_under(err, "/cases ");
            return NULL;
        }
        given = json_is_object(parsed) ? json_object_get(parsed, "cases") : parsed;
    }
    if (!json_is_array(given) || json_array_size(given) > CASES_MAX) {
        error_set_at(err, ERROR_INVALID, "/cases", "must be a list of at most %d cases", CASES_MAX);
        given = NULL;
    }
    json_incref(given);
    json_decref(parsed);
    return given;
}

static enum route_result cases_run(struct route_worker *worker, struct call *call,
                                   const struct policy_plan *plan, const json_t *cases)
{
    size_t room = plan->count + plan->kept_count + 1;
    struct trial trial = {
        .worker = worker, .call = call, .policies = calloc(room, sizeof *trial.policies)};
    json_t *results = json_array();
    must(trial.policies != NULL && results != NULL);
    trial.count = policy_plan_result(plan, trial.policies);
    for (size_t i = 0; i < json_array_size(cases); i++)
        must(json_array_append_new(results, case_run(&trial, json_array_get(cases, i))) == 0);
    for (size_t i = 0; i < trial.count; i++)
        policy_free(trial.policies[i]);
    free(trial.policies);
    return json_answer(call, json_pack("{s:b, s:i, s:i, s:s, s:o}", "passed", trial.failed == 0,
                                       "total", (int)json_array_size(cases), "failed", trial.failed,
                                       "digest", plan->digest, "results", results));
}

static enum route_result test_handle(struct route_worker *worker, struct call *call)
{
    static const char *const members[] = {"source", "cases", NULL};
    const char *source = NULL;
    struct policy_plan plan = {0};
    struct error err = {0};
    enum route_result result;
    json_t *body = source_read(call, members, &source);
    if (body == NULL)
        return ROUTE_ANSWERED;
    json_t *cases = cases_read(body, &err);
    if (cases == NULL ||
        !policy_plan_make(worker->store, call->principal->environment, source, &plan, &err))
        result = error_answer(call, &err);
    else if (json_array_size(plan.errors) > 0)
        result = plan_refused(call, &plan);
    else
        result = cases_run(worker, call, &plan, cases);
    policy_plan_free(&plan);
    json_decref(cases);
    json_decref(body);
    return result;
}

const struct route routes_policy_files[] = {
    {"POST", "/api/v2/approval-policies/files/plan", SCOPE_POLICIES_READ, false, plan_handle},
    {"POST", "/api/v2/approval-policies/files/apply", SCOPE_POLICIES_WRITE, true, apply_handle},
    {"POST", "/api/v2/approval-policies/files/test", SCOPE_POLICIES_READ, false, test_handle},
    {0}};
