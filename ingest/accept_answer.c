/* What becomes of a call once it is decided: published and parked, parked with those that wait
 * already, or refused with a sentence that a model can act on. */
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/metrics.h"
#include "common/bus/publish.h"
#include "common/transition.h"
#include "ingest/accept.h"
#include "ingest/grants.h"
#include "ingest/waiters.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The reference goes out after COMMIT. When it can't, the scheduler publishes it later. It has no
 * key: any partition will do, and librdkafka then puts what is sent together into one of them. */
static void accepted_publish(const struct accept_call *a, int environment,
                             struct producer *producer, int32_t reply)
{
    struct effect_message message = {
        .effect = a->effect, .environment = environment, .seq = 1, .reply = reply};
    char id[ULID_PREFIXED_SIZE];
    struct error err = {0};
    snprintf(message.destination, sizeof message.destination, "%s", a->destination);
    if (effect_publish(producer, &message, NULL, &err))
        return;
    metric_add(metric_counter("holdfast_publish_failures_total", "",
                              "Accepted effects that the scheduler has to publish."),
               1);
    log_event(LOG_DEBUG, "publish_failed", "effect=%s reason=%s",
              ulid_format_prefixed("eff", &a->effect, id), err.text);
}

/* The call is parked before anything can happen to its effect that it would miss. What waits for an
 * approval, or was denied, is known already and not for the dispatchers. */
static void accepted_go_on(struct accept_call *a, struct producer *producer, int32_t reply)
{
    struct call *call = a->call;
    int environment = call->principal->environment;
    int64_t deadline_ms = call->arrived_ms + a->wait_ms;
    bool open = a->gate == GATE_OPEN;
    if (a->gate == GATE_DENIED)
        transition_made(&a->effect, STAGE_AWAITING_APPROVAL, STAGE_REJECTED, OUTCOME_NOT_DISPATCHED,
                        REASON_DENIED, "policy");
    waiters_add(&a->effect, call, WAIT_FIRST, deadline_ms, a->wait_ms == 0 || !open);
    call = NULL; /* answered by whoever finds it there */
    if (open)
        accepted_publish(a, environment, producer, reply);
}

static void duplicate_go_on(struct accept_call *a, enum wait_kind kind)
{
    a->call->replay_header = "current-state";
    waiters_add(&a->effect, a->call, kind, a->call->arrived_ms + a->wait_ms, true);
}

/* {"invocationId","effectId"} of what the verdict is about, with one more member when `name` is
 * given. */
static char *details_make(const struct accept_call *a, const char *name, const char *value)
{
    char inv[ULID_PREFIXED_SIZE], eff[ULID_PREFIXED_SIZE];
    struct buf out;
    buf_init(&out, 2048);
    buf_printf(&out, "{\"invocationId\":\"%s\"", ulid_format_prefixed("inv", &a->effect, inv));
    if (a->action != NULL && a->action->governed)
        buf_printf(&out, ",\"effectId\":\"%s\"", ulid_format_prefixed("eff", &a->effect, eff));
    if (name != NULL) {
        buf_printf(&out, ",\"%s\":", name);
        json_put_string(&out, value, strlen(value));
    }
    buf_puts(&out, "}");
    return buf_take(&out, NULL);
}

static void key_reuse_tell(struct accept_call *a)
{
    char inv[ULID_PREFIXED_SIZE];
    char *details = details_make(a, NULL, NULL);
    call_error(a->call, 409, "idempotency_key_reuse", details,
               "This Idempotency-Key belongs to invocation %s, which was another request. Nothing "
               "was stored. Use a new key for a new request; send the same request with the same "
               "key to learn what became of it.",
               ulid_format_prefixed("inv", &a->effect, inv));
    free(details);
}

static void operation_reuse_tell(struct accept_call *a)
{
    char inv[ULID_PREFIXED_SIZE], eff[ULID_PREFIXED_SIZE];
    char *details = details_make(a, "outcome", a->detail);
    ulid_format_prefixed("inv", &a->effect, inv);
    ulid_format_prefixed("eff", &a->effect, eff);
    if (strcmp(a->detail, "unknown") == 0)
        call_error(a->call, 409, "operation_key_reuse", details,
                   "The operation is held by effect %s of invocation %s, whose outcome is unknown: "
                   "the provider may have applied it. Nothing was stored. Do not send it again in "
                   "another form; inspect the effect.",
                   eff, inv);
    else
        call_error(
            a->call, 409, "operation_key_reuse", details,
            "The operation is held by invocation %s (outcome %s), which had another input or "
            "is not what retryOf names. Nothing was stored. Read that invocation; use another "
            "operation key for another operation.",
            inv, a->detail);
    free(details);
}

static char *reason_details(const struct accept_call *a)
{
    struct buf details;
    buf_init(&details, 1024);
    buf_puts(&details, "{\"reason\":");
    json_put_string(&details, a->detail, strlen(a->detail));
    buf_puts(&details, "}");
    return details.data;
}

static void compensates_refused_tell(struct accept_call *a)
{
    char eff[ULID_PREFIXED_SIZE];
    char *details = reason_details(a);
    call_error(a->call, 409, "COMPENSATION_REFUSED", details,
               "Effect %s cannot be compensated: %s. Nothing was stored.",
               ulid_format_prefixed("eff", &a->compensates, eff), a->detail);
    free(details);
}

static void retry_refused_tell(struct accept_call *a)
{
    char inv[ULID_PREFIXED_SIZE];
    char *details = reason_details(a);
    call_error(a->call, 409, "RETRY_REFUSED", details,
               "Invocation %s cannot be retried: %s. Nothing was stored.",
               ulid_format_prefixed("inv", &a->retry_of, inv), a->detail);
    free(details);
}

static void part_halted_tell(struct accept_call *a)
{
    bool action = strncmp(a->detail, "action ", 7) == 0;
    struct buf details;
    buf_init(&details, 2048);
    buf_printf(&details, "{\"%s\":", action ? "action" : "destination");
    const char *name = a->detail + strcspn(a->detail, " ") + 1;
    json_put_string(&details, name, strlen(name));
    buf_puts(&details, "}");
    call_error(a->call, 409, action ? "ACTION_HALTED" : "DESTINATION_HALTED", details.data,
               "The %s is halted. Nothing was stored and nothing will be sent. Stop, and ask an "
               "operator.",
               a->detail);
    buf_free(&details);
}

/* "minute 12 60": of 60 calls a minute none is left for 12 seconds. */
static void over_budget_tell(struct accept_call *a)
{
    char period[16] = "";
    long long seconds = 1, most = 0;
    char details[96];
    must(sscanf(a->detail, "%15s %lld %lld", period, &seconds, &most) == 3);
    seconds = seconds > 1 ? seconds : 1;
    snprintf(details, sizeof details, "{\"period\":\"%s\",\"limit\":%lld,\"retryAfter\":%lld}",
             period, most, seconds);
    call_error(a->call, 429, "RATE_LIMIT_EXCEEDED", details,
               "This API key may make %lld new calls a %s and has made them. Nothing was stored. "
               "Send the same request with the same Idempotency-Key in %lld seconds.",
               most, period, seconds);
    a->call->retry_after_s = (int)seconds;
}

static void failure_tell(struct accept_call *a)
{
    struct error *err = &a->failure;
    if (err->code == ERROR_INVALID) {
        log_error(LOG_WARN, "accept_refused",
                  err); /* what the database says is not for the caller */
        error_set_at(err, ERROR_INVALID, "", "the request holds a value that cannot be stored");
    } else if (err->code == ERROR_CONFLICT) {
        err->code = ERROR_INTERNAL; /* accept_batch answers about conflicts, it never raises one */
    }
    call_error_value(a->call, err);
}

/* Parks or answers one call; frees nothing. */
static void one_deliver(struct accept_call *a, struct producer *producer, int32_t reply)
{
    bool found = a->verdict == VERDICT_ACCEPTED || a->verdict == VERDICT_KEY_SAME ||
                 a->verdict == VERDICT_OPERATION_SAME;
    if (a->claim != NULL && found) {
        grants_ask(a);
        return;
    }
    switch (a->verdict) {
    case VERDICT_ACCEPTED:
        accepted_go_on(a, producer, reply);
        return;
    case VERDICT_KEY_SAME:
        duplicate_go_on(a, WAIT_DUPLICATE);
        return;
    case VERDICT_OPERATION_SAME:
        duplicate_go_on(a, WAIT_OPERATION);
        return;
    case VERDICT_KEPT:
        call_data(a->call, 200, a->kept);
        a->call->replay_header = "current-state";
        break;
    case VERDICT_KEY_REUSE:
        key_reuse_tell(a);
        break;
    case VERDICT_OPERATION_REUSE:
        operation_reuse_tell(a);
        break;
    case VERDICT_HALTED:
        call_error(
            a->call, 409, "ENVIRONMENT_HALTED", NULL,
            "The environment %s is halted. Nothing was stored and nothing will be sent. Stop, "
            "and ask an operator.",
            a->call->principal->environment_name);
        break;
    case VERDICT_PART_HALTED:
        part_halted_tell(a);
        break;
    case VERDICT_OVER_BUDGET:
        over_budget_tell(a);
        break;
    case VERDICT_RETRY_REFUSED:
        retry_refused_tell(a);
        break;
    case VERDICT_COMPENSATES_REFUSED:
        compensates_refused_tell(a);
        break;
    case VERDICT_NONE:
        failure_tell(a);
        break;
    }
    call_finish(a->call);
}

void accept_deliver(struct accept_call *a, struct producer *producer, int32_t reply)
{
    struct accept_call *follower = a->same;
    /* Those that came with the same key are told what the first one is told, as duplicates of it.
     */
    while (follower != NULL) {
        struct accept_call *next = follower->same;
        follower->verdict = a->verdict == VERDICT_ACCEPTED ? VERDICT_KEY_SAME : a->verdict;
        follower->effect = a->effect;
        follower->failure = a->failure;
        memcpy(follower->detail, a->detail, sizeof follower->detail);
        follower->kept = a->kept != NULL ? strdup(a->kept) : NULL;
        one_deliver(follower, producer, reply);
        accept_call_free(follower);
        follower = next;
    }
    one_deliver(a, producer, reply);
    accept_call_free(a);
}
