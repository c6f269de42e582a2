/* The stripe.refund adapter: one refund of a payment intent or a charge, found again by the effect
 * id in its metadata. No Stripe-Version is sent: what is read here means the same in every version,
 * so the account keeps the one its owner has tested. */
#include "adapters/stripe_refund.h"

#include "adapters/shared.h"
#include "common/base/config.h"
#include "common/base/json.h"
#include "common/base/money.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STRIPE_BASE "https://api.stripe.com"
#define ID_MAX 180 /* "stripe/ACCOUNT/ID" must fit an impact's resource */
#define ACCOUNT_MAX 64
#define METADATA_MAX 49 /* Stripe's 50 less our own */
#define METADATA_NAME_MAX 40
#define METADATA_VALUE_MAX 500 /* characters */
#define REPLAY_WINDOW_S 86400  /* Stripe keeps keys for at least 24 hours */

/* ---- configuration ---- */

static bool one_of(const char *text, const char *const *words)
{
    for (; text && *words; words++)
        if (strcmp(text, *words) == 0)
            return true;
    return false;
}

static bool account_check(const char *account, struct error *err)
{
    size_t len = account ? strlen(account) : 0;
    return (len > 0 && len <= ACCOUNT_MAX && stripe_id_valid(account)) ||
           error_set_at(err, ERROR_INVALID, "/adapter/config/account",
                        "must name the account, such as acct_1032D82eZvKYlo2C");
}

/* Another base would be sent the credential, so only listed development destinations are taken. */
static bool base_check(const json_t *value, struct error *err)
{
    static const char place[] = "/adapter/config/baseUrl";
    const char *base = json_string_value(value);
    if (!value)
        return true;
    if (!base)
        return error_set_at(err, ERROR_INVALID, place, "must be a string");
    struct request *request = request_new("GET", base, BODY_NONE, err);
    if (!request) {
        if (err)
            snprintf(err->place, sizeof(err->place), "%s", place);
        return false;
    }
    bool listed = config_dev_destination(request->host, request->port);
    request_free(request);
    return listed || error_set_at(err, ERROR_INVALID, place,
                                  "is taken only for a host that HOLDFAST_DEV_DESTINATIONS lists");
}

static bool drill_check(const json_t *drill, const char *mode, struct error *err)
{
    static const char place[] = "/adapter/config/faultDrill";
    const char *text = json_string_value(drill);
    if (!drill)
        return true;
    if (!text || strcmp(text, "drop_response_after_send") != 0)
        return error_set_at(err, ERROR_INVALID, place, "must be drop_response_after_send");
    return strcmp(mode, "test") == 0 ||
           error_set_at(err, ERROR_INVALID, place, "is taken in mode test only");
}

static bool stripe_check(const json_t *definition, struct error *err)
{
    static const char *const members[] = {"account", "mode",       "currency",
                                          "baseUrl", "faultDrill", NULL};
    static const char *const modes[] = {"test", "live", NULL};
    if (!adapter_definition_check(definition, err))
        return false;
    const json_t *config = json_object_get(json_object_get(definition, "adapter"), "config");
    if (!json_only_members(config, members, err))
        return error_put_under(err, "/adapter/config");
    const char *mode = json_string_value(json_object_get(config, "mode"));
    if (!one_of(mode, modes))
        return error_set_at(err, ERROR_INVALID, "/adapter/config/mode", "must be test or live");
    const char *currency = json_string_value(json_object_get(config, "currency"));
    if (!currency || !money_currency_valid(currency))
        return error_set_at(err, ERROR_INVALID, "/adapter/config/currency",
                            "must be three lower-case letters, such as usd");
    return account_check(json_string_value(json_object_get(config, "account")), err) &&
           base_check(json_object_get(config, "baseUrl"), err) &&
           drill_check(json_object_get(config, "faultDrill"), mode, err);
}

static bool stripe_governed(const json_t *definition)
{
    (void)definition;
    return true;
}

/* ---- input ---- */

bool stripe_id_valid(const char *id)
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
    size_t len = id ? strlen(id) : 0;
    return len > 0 && len <= 255 && strspn(id, allowed) == len;
}

static bool config_read(const json_t *definition, struct refund *out, struct error *err)
{
    const json_t *adapter = json_object_get(definition, "adapter");
    const json_t *config = json_object_get(adapter, "config");
    const char *base = json_string_value(json_object_get(config, "baseUrl"));
    out->base = base ? base : STRIPE_BASE;
    out->account = json_string_value(json_object_get(config, "account"));
    out->currency = json_string_value(json_object_get(config, "currency"));
    out->secret = json_string_value(json_object_get(adapter, "credentialSecret"));
    out->fault_drill = json_object_get(config, "faultDrill") != NULL;
    return (out->account && out->currency && out->secret) ||
           error_set_at(err, ERROR_INTERNAL, "/adapter", "the stored action is not sound");
}

static bool target_read(const json_t *input, struct refund *out, struct error *err)
{
    const json_t *intent = json_object_get(input, "payment_intent");
    const json_t *charge = json_object_get(input, "charge");
    char place[32];
    if (!intent == !charge)
        return error_set_at(err, ERROR_INVALID, "/input/payment_intent",
                            "either payment_intent or charge must be given, and not both");
    out->target_name = intent ? "payment_intent" : "charge";
    out->target = json_string_value(intent ? intent : charge);
    snprintf(place, sizeof(place), "/input/%s", out->target_name);
    return (stripe_id_valid(out->target) && strlen(out->target) <= ID_MAX) ||
           error_set_at(err, ERROR_INVALID, place, "must be an id of letters, digits and _");
}

static bool amount_read(const json_t *input, struct refund *out, struct error *err)
{
    const json_t *amount = json_object_get(input, "amount");
    out->has_amount = amount != NULL;
    return !amount || json_amount(amount, "/input/amount", 1, MONEY_MAX, &out->amount, err);
}

static bool reason_read(const json_t *input, struct refund *out, struct error *err)
{
    static const char *const reasons[] = {"duplicate", "fraudulent", "requested_by_customer", NULL};
    const json_t *reason = json_object_get(input, "reason");
    out->reason = json_string_value(reason);
    return !reason || one_of(out->reason, reasons) ||
           error_set_at(err, ERROR_INVALID, "/input/reason",
                        "must be duplicate, fraudulent or requested_by_customer");
}

static size_t character_count(const char *text)
{
    size_t count = 0;
    for (; *text; text++)
        count += ((unsigned char)*text & 0xc0) != 0x80; /* not a continuation byte */
    return count;
}

static bool metadata_entry_check(const char *name, const json_t *value, struct error *err)
{
    char place[sizeof(err->place)];
    const char *text = json_string_value(value);
    snprintf(place, sizeof(place), "/input/metadata/%s", name);
    if (strcmp(name, STRIPE_TAG) == 0)
        return error_set_at(err, ERROR_INVALID, place, "is the mark by which the effect is found");
    if (!*name || character_count(name) > METADATA_NAME_MAX || strpbrk(name, "[]"))
        return error_set_at(err, ERROR_INVALID, place,
                            "its name must be 1 to %d characters without brackets",
                            METADATA_NAME_MAX);
    return (text && character_count(text) <= METADATA_VALUE_MAX) ||
           error_set_at(err, ERROR_INVALID, place, "must be a string of at most %d characters",
                        METADATA_VALUE_MAX);
}

static bool metadata_read(const json_t *input, struct refund *out, struct error *err)
{
    const char *name;
    json_t *value;
    out->metadata = json_object_get(input, "metadata");
    if (!out->metadata)
        return true;
    if (!json_is_object(out->metadata) || json_object_size(out->metadata) > METADATA_MAX)
        return error_set_at(err, ERROR_INVALID, "/input/metadata",
                            "must be an object of at most %d strings", METADATA_MAX);
    json_object_foreach((json_t *)out->metadata, name, value)
    {
        if (!metadata_entry_check(name, value, err))
            return false;
    }
    return true;
}

bool refund_read(const json_t *definition, const json_t *input, struct refund *out,
                 struct error *err)
{
    static const char *const members[] = {"payment_intent", "charge",   "amount",
                                          "reason",         "metadata", NULL};
    *out = (struct refund){0};
    if (!json_is_object(input))
        return error_set_at(err, ERROR_INVALID, "/input", "must be an object");
    if (!json_only_members(input, members, err))
        return error_put_under(err, "/input");
    return config_read(definition, out, err) && target_read(input, out, err) &&
           amount_read(input, out, err) && reason_read(input, out, err) &&
           metadata_read(input, out, err);
}

/* ---- the write ---- */

static void put_literal(struct request *request, enum place place, const char *text)
{
    request_put_literal(request, place, text, strlen(text));
}

struct request *stripe_request_begin(const struct refund *refund, const char *method,
                                     enum body_format format, struct error *err)
{
    struct request *request = request_new(method, refund->base, format, err);
    if (!request)
        return NULL;
    put_literal(request, PLACE_URL, "/v1/refunds");
    request_put_header(request, "Authorization");
    put_literal(request, PLACE_HEADER, "Bearer ");
    request_put_secret(request, PLACE_HEADER, refund->secret);
    return request;
}

static void field_put(struct request *request, const char *name, const char *text)
{
    put_literal(request, PLACE_BODY, name);
    put_literal(request, PLACE_BODY, "=");
    request_put_text(request, PLACE_BODY, text, strlen(text));
    put_literal(request, PLACE_BODY, "&");
}

static bool metadata_put(const struct refund *refund, struct request *request, struct error *err)
{
    const char **names;
    size_t count;
    if (!names_sorted(refund->metadata, &names, &count, err))
        return false;
    for (size_t i = 0; i < count; i++) {
        const char *text = json_string_value(json_object_get(refund->metadata, names[i]));
        put_literal(request, PLACE_BODY, "&metadata[");
        request_put_text(request, PLACE_BODY, names[i], strlen(names[i]));
        put_literal(request, PLACE_BODY, "]=");
        request_put_text(request, PLACE_BODY, text, strlen(text));
    }
    free(names);
    return true;
}

static bool body_put(const struct refund *refund, struct request *request, struct error *err)
{
    char amount[24];
    snprintf(amount, sizeof(amount), "%lld", (long long)refund->amount);
    if (refund->has_amount)
        field_put(request, "amount", amount);
    field_put(request, refund->target_name, refund->target);
    if (refund->reason)
        field_put(request, "reason", refund->reason);
    put_literal(request, PLACE_BODY, "metadata[" STRIPE_TAG "]=");
    request_put_effect_id(request, PLACE_BODY);
    return metadata_put(refund, request, err);
}

static struct request *write_build(const struct refund *refund, struct error *err)
{
    struct request *request = stripe_request_begin(refund, "POST", BODY_FORM, err);
    if (!request)
        return NULL;
    request_put_header(request, "Content-Type");
    put_literal(request, PLACE_HEADER, "application/x-www-form-urlencoded");
    request_put_header(request, "Idempotency-Key");
    request_put_provider_key(request, PLACE_HEADER);
    if (!body_put(refund, request, err) || !request_check(request, err)) {
        request_free(request);
        return NULL;
    }
    return request;
}

/* Without an amount Stripe refunds what is left, and how much that is we do not know. */
static void impact_fill(const struct refund *refund, struct impact *out)
{
    *out = (struct impact){
        .declared = true,
        .has_amount = refund->has_amount,
        .dimension = "money",
        .bound = "exact",
        .amount = refund->amount,
    };
    snprintf(out->unit, sizeof(out->unit), "%s", refund->currency);
    snprintf(out->resource, sizeof(out->resource), "stripe/%s/%s", refund->account, refund->target);
}

static bool stripe_prepare(const struct adapter_action *action, const json_t *input,
                           struct prepared *out, struct error *err)
{
    struct refund refund;
    *out = (struct prepared){0};
    if (!refund_read(action->definition, input, &refund, err))
        return false;
    out->request = write_build(&refund, err);
    if (!out->request)
        return false;
    impact_fill(&refund, &out->impact);
    out->has_read_back = true;
    out->fault_drill = refund.fault_drill;
    return true;
}

/* ---- the answer ---- */

/* A status that Stripe left null, or a word that we do not know, is taken as not final: the hold
 * stays until the record says more. A 2xx that is no refund at all is what the status line says:
 * success, which the read-back that follows confirms or contradicts. */
static void stripe_read_answer(const struct adapter_action *action, const json_t *input,
                               const struct answer *answer, struct answer_meaning *out)
{
    struct refund_record record;
    (void)action;
    (void)input;
    *out = (struct answer_meaning){.what = MEANING_SUCCEEDED};
    json_t *body = answer_json(answer);
    if (!refund_record_read(body, &record)) {
        snprintf(out->text, sizeof(out->text), "The provider's answer is not a refund.");
    } else {
        out->what = record.standing == REFUND_FINAL    ? MEANING_SUCCEEDED
                    : record.standing == REFUND_FAILED ? MEANING_FAILED
                                                       : MEANING_PENDING;
        snprintf(out->object_id, sizeof(out->object_id), "%s", record.id);
        snprintf(out->text, sizeof(out->text), "The provider says that the refund is %s.",
                 record.status);
    }
    json_decref(body);
}

const struct adapter stripe_refund_adapter = {
    .type = "stripe.refund",
    .check = stripe_check,
    .governed = stripe_governed,
    .prepare = stripe_prepare,
    .read_answer = stripe_read_answer,
    .read_back_start = stripe_read_back_start,
    .read_back_answer = stripe_read_back_answer,
    .replay_window_s = REPLAY_WINDOW_S,
};
