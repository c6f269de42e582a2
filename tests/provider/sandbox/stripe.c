/* Stripe's refund calls, as far as a refund and its read-back need them: authorisation, idempotency
 * keys, parameters, pages, and errors in Stripe's form. */
#include "tests/provider/sandbox/stripe.h"

#include "common/base/money.h"
#include "tests/provider/sandbox/refunds.h"
#include "tests/provider/sandbox/replies.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define REFUNDS_PATH "/v1/refunds"
#define INTENTS_PATH "/v1/payment_intents/"
#define BAD_REQUEST "invalid_request_error"

static const char *path_id(const struct request *r, const char *prefix)
{
    size_t len = strlen(prefix);
    return strncmp(r->path, prefix, len) == 0 && r->path[len] ? r->path + len : NULL;
}

bool stripe_is_create(const struct request *r)
{
    return strcmp(r->method, "POST") == 0 && strcmp(r->path, REFUNDS_PATH) == 0;
}

static bool stripe_authorized(const struct request *r)
{
    const char *value = request_header(r, "Authorization");
    return value && strncmp(value, "Bearer sk_test_", 15) == 0 && value[15];
}

const struct fault *stripe_magic(const struct request *r, const struct facts *facts)
{
    if (!stripe_is_create(r) || !stripe_authorized(r) || reply_find(facts->key))
        return NULL;
    if (fault_magic(facts->intent, true) == NULL)
        return NULL;
    struct intent *intent = intent_touch(facts->intent);
    bool first = !intent->magic_used;
    intent->magic_used = true;
    return fault_magic(facts->intent, first);
}

void stripe_facts_complete(const struct request *r, struct facts *facts)
{
    const struct refund *refund = refund_find(path_id(r, REFUNDS_PATH "/"));
    if (refund == NULL)
        return;
    if (facts->intent == NULL)
        facts->intent = refund->payment_intent ? refund->payment_intent : refund->charge;
    if (facts->effect == NULL)
        facts->effect = refund->effect;
}

static bool text_is(const char *text, const char *word)
{
    return text && strcmp(text, word) == 0;
}

static bool parameter_known(const char *name)
{
    static const char *const names[] = {
        "amount",          "charge", "currency", "instructions_email",
        "payment_intent",  "reason", "expand",   "refund_application_fee",
        "reverse_transfer"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return strncmp(name, "metadata[", 9) == 0 || strncmp(name, "expand[", 7) == 0;
}

static bool parameters_check(const struct form *form, struct answer *answer)
{
    for (size_t i = 0; i < form->count; i++) {
        const char *name = form->pairs[i].name;
        if (!parameter_known(name)) {
            answer_error(answer, 400, BAD_REQUEST, "parameter_unknown", name,
                         "Received unknown parameter: %s", name);
            return false;
        }
        if (strncmp(name, "metadata[", 9) == 0 &&
            (strlen(name) > 50 || strlen(form->pairs[i].value) > 500)) {
            answer_error(answer, 400, BAD_REQUEST, NULL, "metadata",
                         "Metadata names have up to 40 characters, values up to 500.");
            return false;
        }
    }
    return true;
}

static bool source_read(const struct facts *facts, struct refund_draft *draft,
                        struct answer *answer)
{
    draft->payment_intent = form_get(&facts->form, "payment_intent");
    draft->charge = form_get(&facts->form, "charge");
    const char *source = draft->payment_intent ? draft->payment_intent : draft->charge;
    if (source && *source && strlen(source) <= 255)
        return true;
    answer_error(answer, 400, BAD_REQUEST, "parameter_missing", "payment_intent",
                 "One of the following params should be provided: payment_intent or charge.");
    return false;
}

static bool amount_read(const struct facts *facts, int64_t remaining, struct refund_draft *draft,
                        struct answer *answer)
{
    const char *text = form_get(&facts->form, "amount");
    char *end = NULL;
    errno = 0;
    draft->amount = text && isdigit((unsigned char)*text) ? strtoll(text, &end, 10) : remaining;
    if ((text && (end == NULL || *end != '\0')) || errno || draft->amount > MONEY_MAX) {
        answer_error(answer, 400, BAD_REQUEST, "parameter_invalid_integer", "amount",
                     "Invalid integer: %s", text);
        return false;
    }
    if (draft->amount < 1) {
        bool refunded = text == NULL && remaining == 0;
        answer_error(answer, 400, BAD_REQUEST,
                     refunded ? "charge_already_refunded" : "parameter_invalid_integer", "amount",
                     refunded ? "It has already been refunded."
                              : "This value must be greater than or equal to 1.");
        return false;
    }
    if (remaining >= 0 && draft->amount > remaining) {
        answer_error(answer, 400, BAD_REQUEST,
                     remaining ? "amount_too_large" : "charge_already_refunded", "amount",
                     "Refund amount (%" PRId64 ") is greater than unrefunded amount (%" PRId64 ").",
                     draft->amount, remaining);
        return false;
    }
    return true;
}

/* The currency asked for, else the intent's, else usd; an intent that has one refuses another. */
static bool currency_read(const struct facts *facts, const struct intent *intent,
                          struct refund_draft *draft, struct answer *answer)
{
    const char *asked = form_get(&facts->form, "currency");
    const char *own = intent && intent->currency[0] ? intent->currency : NULL;
    draft->currency = asked ? asked : own ? own : "usd";
    if (money_currency_valid(draft->currency) && (!own || strcmp(own, draft->currency) == 0))
        return true;
    answer_error(answer, 400, BAD_REQUEST, NULL, "currency", "Invalid currency: %s",
                 draft->currency);
    return false;
}

static bool reason_read(const struct facts *facts, struct refund_draft *draft,
                        struct answer *answer)
{
    const char *reason = draft->reason = form_get(&facts->form, "reason");
    if (reason == NULL || text_is(reason, "duplicate") || text_is(reason, "fraudulent") ||
        text_is(reason, "requested_by_customer"))
        return true;
    answer_error(answer, 400, BAD_REQUEST, NULL, "reason", "Invalid reason: %s", reason);
    return false;
}

static bool draft_read(const struct facts *facts, struct refund_draft *draft, struct answer *answer)
{
    if (!parameters_check(&facts->form, answer) || !source_read(facts, draft, answer))
        return false;
    const struct intent *intent =
        intent_find(draft->payment_intent ? draft->payment_intent : draft->charge);
    int64_t remaining = intent ? intent_remaining(intent) : -1;
    draft->status = "succeeded";
    draft->effect = form_get(&facts->form, "metadata[holdfast_effect]");
    return amount_read(facts, remaining, draft, answer) &&
           currency_read(facts, intent, draft, answer) && reason_read(facts, draft, answer);
}

/* metadata[k]=v pairs as JSON text, which the caller frees. */
static char *metadata_text(const struct form *form)
{
    json_t *object = json_object();
    for (size_t i = 0; i < form->count; i++) {
        const char *name = form->pairs[i].name;
        size_t len = strlen(name);
        if (len <= 10 || strncmp(name, "metadata[", 9) != 0 || name[len - 1] != ']')
            continue;
        char *key = must_strndup(name + 9, len - 10);
        json_object_set_new(object, key, json_string(form->pairs[i].value));
        free(key);
    }
    char *text = json_dumps(object, JSON_COMPACT);
    json_decref(object);
    return text;
}

/* What a fault makes of the refund that was asked for. */
static void draft_twist(struct refund_draft *draft, const struct fault *fault)
{
    if (fault == NULL)
        return;
    if (fault->kind == FAULT_STATUS_FIELD)
        draft->status = fault->value;
    if (fault->kind == FAULT_LAG)
        draft->hidden_reads = fault->reads;
    if (fault->kind == FAULT_WRONG_AMOUNT)
        draft->amount = fault->amount ? fault->amount : draft->amount + 1;
    if (fault->kind == FAULT_WRONG_CURRENCY)
        draft->currency = fault->value                          ? fault->value
                          : strcmp(draft->currency, "eur") == 0 ? "usd"
                                                                : "eur";
}

/* True when the key decides the answer: it was used before. */
static bool key_answers(const struct facts *facts, const uint8_t params[32], struct answer *answer)
{
    if (facts->key && strlen(facts->key) > 255) {
        answer_error(answer, 400, BAD_REQUEST, NULL, NULL,
                     "Idempotency-Key may be at most 255 characters long.");
        return true;
    }
    const struct reply *reply = reply_find(facts->key);
    if (reply == NULL)
        return false;
    if (memcmp(reply->params, params, sizeof(reply->params)) != 0) {
        answer_error(answer, 400, "idempotency_error", NULL, NULL,
                     "Keys for idempotent requests can only be used with the same parameters they "
                     "were first used with. Try using a key other than '%s' if you meant to "
                     "execute a different request.",
                     facts->key);
    } else if (reply->in_flight) {
        answer_error(answer, 409, "idempotency_error", "idempotency_key_in_use", NULL,
                     "There is currently another in-progress request using this Idempotent Key.");
    } else {
        answer->status = reply->status;
        buf_puts(&answer->body, reply->body);
        answer_header(answer, "Idempotent-Replayed", "true");
        answer->outcome = OUTCOME_REPLAYED;
    }
    return true;
}

static void refund_create(const struct facts *facts, const struct fault *fault,
                          struct answer *answer)
{
    uint8_t params[32];
    struct refund_draft draft = {0};
    form_hash(&facts->form, params);
    if (facts->key && *facts->key)
        answer_header(answer, "Idempotency-Key", facts->key);
    if (key_answers(facts, params, answer) || !draft_read(facts, &draft, answer))
        return;
    draft_twist(&draft, fault);
    char *metadata = metadata_text(&facts->form);
    draft.metadata = metadata;
    refund_put(refund_new(&draft), &answer->body);
    answer->applied = 1;
    if (fault && fault->kind == FAULT_DOUBLE) {
        refund_new(&draft);
        answer->applied = 2;
    }
    answer->outcome = OUTCOME_APPLIED;
    reply_keep(facts->key, params, answer->status, answer->body.data);
    free(metadata);
}

static void missing_answer(struct answer *answer, const char *what, const char *id)
{
    answer_error(answer, 404, BAD_REQUEST, "resource_missing", "id", "No such %s: '%s'", what, id);
}

static void refund_get(const char *id, const struct fault *fault, struct answer *answer)
{
    struct refund *refund = refund_find(id);
    bool seen = refund && refund_read(refund) && !(fault && fault->kind == FAULT_LAG);
    if (seen)
        refund_put(refund, &answer->body);
    else
        missing_answer(answer, "refund", id);
}

/* Appends one page, newest first. */
static void page_put(struct refund *refund, bool of_intent, int64_t limit, struct buf *out)
{
    int64_t shown = 0;
    bool more = false;
    buf_puts(out, "{\"object\":\"list\",\"data\":[");
    for (; refund && !more; refund = refund_next(refund, of_intent)) {
        if (!refund_read(refund))
            continue;
        more = shown == limit;
        if (more)
            break;
        buf_puts(out, shown++ ? "," : "");
        refund_put(refund, out);
    }
    buf_printf(out, "],\"has_more\":%s,\"url\":\"" REFUNDS_PATH "\"}", more ? "true" : "false");
}

static void refund_list(const struct facts *facts, const struct fault *fault, struct answer *answer)
{
    const char *intent = form_get(&facts->query, "payment_intent");
    if (intent == NULL)
        intent = form_get(&facts->query, "charge");
    const char *limit_text = form_get(&facts->query, "limit");
    const char *after = form_get(&facts->query, "starting_after");
    int64_t limit = limit_text ? strtoll(limit_text, NULL, 10) : 10;
    if (limit < 1 || limit > 100) {
        answer_error(answer, 400, BAD_REQUEST, "parameter_invalid_integer", "limit",
                     "Limit must be between 1 and 100.");
        return;
    }
    struct refund *refund = refund_newest(intent);
    if (after) {
        refund = refund_find(after);
        if (refund == NULL) {
            answer_error(answer, 400, BAD_REQUEST, "resource_missing", "starting_after",
                         "No such refund: '%s'", after);
            return;
        }
        refund = refund_next(refund, intent != NULL);
    }
    if (fault && fault->kind == FAULT_LAG)
        refund = NULL;
    page_put(refund, intent != NULL, limit, &answer->body);
}

static void intent_get(const char *id, struct answer *answer)
{
    const struct intent *intent = intent_find(id);
    if (intent == NULL) {
        missing_answer(answer, "payment_intent", id);
        return;
    }
    json_int_t amount = intent->amount < 0 ? 0 : intent->amount;
    answer_json(answer, 200,
                json_pack("{s:s,s:s,s:I,s:I,s:s,s:s,s:b}", "id", id, "object", "payment_intent",
                          "amount", amount, "amount_received", amount, "currency",
                          intent->currency[0] ? intent->currency : "usd", "status", "succeeded",
                          "livemode", false));
}

static void request_id_put(struct answer *answer)
{
    static uint64_t number;
    buf_printf(&answer->headers, "Request-Id: req_%08" PRIu64 "\r\n", ++number);
}

void stripe_handle(const struct request *r, const struct facts *facts, const struct fault *fault,
                   struct answer *answer)
{
    const char *refund_id = path_id(r, REFUNDS_PATH "/");
    const char *intent_id = path_id(r, INTENTS_PATH);
    bool get = !facts->write;
    request_id_put(answer);
    if (!stripe_authorized(r))
        answer_error(answer, 401, BAD_REQUEST, NULL, NULL, "Invalid API Key provided.");
    else if (stripe_is_create(r))
        refund_create(facts, fault, answer);
    else if (get && strcmp(r->path, REFUNDS_PATH) == 0)
        refund_list(facts, fault, answer);
    else if (get && refund_id)
        refund_get(refund_id, fault, answer);
    else if (get && intent_id)
        intent_get(intent_id, answer);
    else
        answer_error(answer, 404, BAD_REQUEST, NULL, NULL, "Unrecognized request URL (%s: %s).",
                     r->method, r->path);
}
