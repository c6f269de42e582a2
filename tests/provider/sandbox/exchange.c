/* One request and its answer: what is done, what is recorded, and which bytes go back how. */
#include "tests/provider/sandbox/exchange.h"

#include "tests/provider/sandbox/answer.h"
#include "tests/provider/sandbox/control.h"
#include "tests/provider/sandbox/facts.h"
#include "tests/provider/sandbox/generic.h"
#include "tests/provider/sandbox/ledger.h"
#include "tests/provider/sandbox/replies.h"
#include "tests/provider/sandbox/shape.h"
#include "tests/provider/sandbox/stripe.h"

#include <stdlib.h>
#include <string.h>

void sending_init(struct sending *sending)
{
    memset(sending, 0, sizeof(*sending));
    buf_init(&sending->bytes, ANSWER_BODY_MAX + ((size_t)1 << 20));
    buf_init(&sending->stale.bytes, (size_t)1 << 20);
}

void sending_over(struct sending *sending)
{
    reply_set_in_flight(sending->in_flight_key, false);
    free(sending->in_flight_key);
    sending->in_flight_key = NULL;
    buf_free(&sending->bytes);
    buf_free(&sending->stale.bytes);
}

static bool is_control(const struct request *r)
{
    return strncmp(r->path, CONTROL_PATH, strlen(CONTROL_PATH)) == 0;
}

static void request_handle(const struct request *r, const struct facts *facts,
                           const struct fault *fault, struct answer *answer)
{
    if (strncmp(r->path, "/v1/", 4) == 0)
        stripe_handle(r, facts, fault, answer);
    else if (strncmp(r->path, GENERIC_PREFIX, strlen(GENERIC_PREFIX)) == 0)
        generic_handle(r, facts, fault, answer);
    else
        answer_error(answer, 404, "not_found", NULL, NULL, "There is nothing at %s.", r->path);
}

/* Keeps under the key what the rule says; the handler has kept the true answer already. */
static void fault_keep_reply(const struct facts *facts, const struct fault *fault,
                             const struct answer *answer)
{
    bool applied = answer->outcome == OUTCOME_APPLIED;
    if (applied && fault->record == RECORD_NONE)
        reply_forget(facts->key);
    if (fault->record == RECORD_SENT && (applied || (!fault->apply && !reply_find(facts->key)))) {
        uint8_t params[32];
        form_hash(&facts->form, params);
        reply_keep(facts->key, params, answer->status, answer->body.data);
    }
}

static void exchange_record(const struct request *r, const struct facts *facts,
                            const struct fault *fault, const struct answer *answer,
                            uint64_t connection, int status)
{
    struct ledger_entry entry = {.connection = connection,
                                 .outcome = answer->outcome,
                                 .applied = answer->applied,
                                 .status = status,
                                 .fault = fault ? fault_kind_name(fault->kind) : NULL};
    if (!facts->write)
        entry.outcome = OUTCOME_READ;
    ledger_add(r, facts, &entry);
}

/* Where the first answer takes its time, a second request with its key meets one in flight. */
static void exchange_mark_in_flight(const struct request *r, const struct facts *facts,
                                    const struct answer *answer, struct sending *out)
{
    bool takes_time = out->delay_ms > 0 || out->drip_ms > 0 || out->end == END_HOLD;
    if (!takes_time || answer->outcome != OUTCOME_APPLIED || !stripe_is_create(r) || !facts->key)
        return;
    reply_set_in_flight(facts->key, true);
    out->in_flight_key = must_strdup(facts->key);
}

static void exchange_control(const struct request *r, struct sending *out)
{
    struct answer answer;
    answer_init(&answer);
    control_handle(r, &answer);
    shape_bytes(NULL, &answer, r->keep_alive, out);
    answer_free(&answer);
}

static void exchange_provider(const struct request *r, const struct facts *facts,
                              const struct fault *fault, uint64_t connection, struct sending *out)
{
    struct answer answer;
    answer_init(&answer);
    if (fault == NULL || fault->apply)
        request_handle(r, facts, fault, &answer);
    if (fault) {
        shape_answer(fault, &answer);
        if (stripe_is_create(r))
            fault_keep_reply(facts, fault, &answer);
    }
    answer.head_only = strcmp(r->method, "HEAD") == 0;
    bool answered = shape_bytes(fault, &answer, r->keep_alive, out);
    exchange_record(r, facts, fault, &answer, connection, answered ? answer.status : 0);
    exchange_mark_in_flight(r, facts, &answer, out);
    answer_free(&answer);
}

void exchange_whole(const struct request *r, uint64_t connection, const struct stale_plan *stale,
                    struct sending *out)
{
    if (is_control(r)) {
        exchange_control(r, out);
        return;
    }
    struct facts facts;
    facts_read(&facts, r, true);
    stripe_facts_complete(r, &facts);
    struct fault stale_fault = {.kind = stale->rst ? FAULT_RESET : FAULT_DROP,
                                .apply = stale->apply,
                                .record = RECORD_APPLIED};
    const struct fault *fault = &stale_fault;
    if (!stale->set) {
        fault = fault_take(r, &facts, false);
        fault = fault ? fault : stripe_magic(r, &facts);
    }
    exchange_provider(r, &facts, fault, connection, out);
    facts_free(&facts);
}

/* Records what came of a request and gives that answer, or none where the fault gives none. */
static void exchange_partial(const struct request *r, const struct fault *fault,
                             struct answer *answer, uint64_t connection, struct sending *out)
{
    struct facts facts;
    facts_read(&facts, r, false);
    answer->outcome = OUTCOME_PARTIAL;
    bool answered = shape_bytes(fault, answer, false, out);
    exchange_record(r, &facts, fault, answer, connection, answered ? answer->status : 0);
    facts_free(&facts);
}

bool exchange_early(const struct request *r, uint64_t connection, struct sending *out)
{
    if (is_control(r))
        return false;
    struct facts facts;
    facts_read_head(&facts, r);
    const struct fault *fault = fault_take(r, &facts, true);
    facts_free(&facts);
    if (fault == NULL)
        return false;
    struct answer answer;
    answer_init(&answer);
    shape_answer(fault, &answer);
    exchange_partial(r, fault, &answer, connection, out);
    answer_free(&answer);
    return true;
}

void exchange_refuse(const struct request *r, uint64_t connection, int status, struct sending *out)
{
    struct answer answer;
    answer_init(&answer);
    answer_error(&answer, status, "invalid_request_error", NULL, NULL, "%s", status_reason(status));
    exchange_partial(r, NULL, &answer, connection, out);
    answer_free(&answer);
}

static void broken_record(const struct request *r, bool whole, uint64_t connection, bool unread)
{
    if (is_control(r))
        return;
    struct facts facts;
    facts_read(&facts, r, whole);
    struct answer answer = {.outcome = unread ? OUTCOME_UNREAD : OUTCOME_PARTIAL};
    exchange_record(r, &facts, NULL, &answer, connection, 0);
    facts_free(&facts);
}

void exchange_broken(const struct request *r, const char *bytes, size_t len, uint64_t connection,
                     bool unread)
{
    if (r) {
        broken_record(r, false, connection, unread);
        return;
    }
    bool ok;
    size_t used;
    size_t head_len = request_head_length(bytes, len);
    struct request *own = request_new(bytes, head_len ? head_len : len, &ok);
    bool whole = false;
    if (head_len && ok)
        whole = request_feed(own, bytes + head_len, len - head_len, &used) == REQUEST_WHOLE;
    broken_record(own, whole, connection, unread);
    request_free(own);
}
