/* The calls under /_control by which a test sees what arrived and asks for misbehaviour. */
#include "tests/provider/sandbox/control.h"

#include "common/base/error.h"
#include "common/base/json.h"
#include "common/base/money.h"
#include "tests/provider/sandbox/fault.h"
#include "tests/provider/sandbox/form.h"
#include "tests/provider/sandbox/generic.h"
#include "tests/provider/sandbox/ledger.h"
#include "tests/provider/sandbox/refunds.h"
#include "tests/provider/sandbox/replies.h"

#include <stdlib.h>
#include <string.h>

#define RECORDS_LIMIT_DEFAULT 1000

/* What a control call works on; `id` is the rest of the path, "" when there is none. */
struct control {
    const char *id;
    struct form query;
    json_t *body; /* an object, or NULL */
};

typedef void (*control_call)(const struct control *call, struct answer *answer);

static void refuse(struct answer *answer, int status, const struct error *err)
{
    answer_error(answer, status, "invalid_request_error", NULL, err->place, "%s", err->text);
}

static void done(struct answer *answer)
{
    answer_json(answer, 200, json_pack("{s:b}", "ok", true));
}

static void not_found(struct answer *answer)
{
    struct error err = {0};
    error_set(&err, ERROR_NOT_FOUND, "there is no such thing to control");
    refuse(answer, 404, &err);
}

static void health_get(const struct control *call, struct answer *answer)
{
    (void)call;
    done(answer);
}

static void all_reset(const struct control *call, struct answer *answer)
{
    (void)call;
    ledger_reset();
    replies_reset();
    refunds_reset();
    generic_reset();
    fault_clear();
    done(answer);
}

static void counts_get(const struct control *call, struct answer *answer)
{
    answer_json(answer, 200,
                ledger_counts(form_get(&call->query, "key"), form_get(&call->query, "effect"),
                              form_get(&call->query, "intent")));
}

static void requests_get(const struct control *call, struct answer *answer)
{
    const char *since = form_get(&call->query, "since");
    const char *limit = form_get(&call->query, "limit");
    answer_json(answer, 200,
                ledger_records(since ? strtoull(since, NULL, 10) : 0,
                               limit ? strtoull(limit, NULL, 10) : RECORDS_LIMIT_DEFAULT));
}

static void faults_get(const struct control *call, struct answer *answer)
{
    (void)call;
    answer_json(answer, 200, json_pack("{s:o}", "data", fault_list()));
}

static void fault_post(const struct control *call, struct answer *answer)
{
    struct error err = {0};
    int64_t id = fault_add(call->body, &err);
    if (id)
        answer_json(answer, 201, json_pack("{s:I}", "id", (json_int_t)id));
    else
        refuse(answer, 400, &err);
}

static void fault_delete(const struct control *call, struct answer *answer)
{
    if (*call->id == '\0')
        fault_clear();
    else if (!fault_remove(strtoll(call->id, NULL, 10))) {
        not_found(answer);
        return;
    }
    done(answer);
}

static bool currency_read(const json_t *body, const char **currency, struct error *err)
{
    if (!json_field_text(body, "currency", false, 3, 3, currency, err))
        return false;
    return *currency == NULL || money_currency_valid(*currency) ||
           error_set_at(err, ERROR_INVALID, "/currency", "is three small letters");
}

static void intent_post(const struct control *call, struct answer *answer)
{
    static const char *const members[] = {"id", "currency", "amount", NULL};
    struct error err = {0};
    const char *id = NULL, *currency = NULL;
    int64_t amount = -1;
    if (!json_only_members(call->body, members, &err) ||
        !json_field_text(call->body, "id", true, 1, 255, &id, &err) ||
        !currency_read(call->body, &currency, &err) ||
        !json_field_int(call->body, "amount", false, 0, MONEY_MAX, &amount, &err)) {
        refuse(answer, 400, &err);
        return;
    }
    struct intent *intent = intent_touch(id);
    intent->amount = amount;
    if (currency)
        memcpy(intent->currency, currency, sizeof(intent->currency));
    done(answer);
}

static bool draft_read(const json_t *body, struct refund_draft *draft, struct error *err)
{
    static const char *const members[] = {"payment_intent", "amount",   "currency", "status",
                                          "reason",         "metadata", NULL};
    draft->currency = "usd";
    draft->status = "succeeded";
    return json_only_members(body, members, err) &&
           json_field_text(body, "payment_intent", true, 1, 255, &draft->payment_intent, err) &&
           json_field_int(body, "amount", true, 1, MONEY_MAX, &draft->amount, err) &&
           currency_read(body, &draft->currency, err) &&
           json_field_text(body, "status", false, 1, 40, &draft->status, err) &&
           json_field_text(body, "reason", false, 1, 40, &draft->reason, err);
}

/* A refund that nobody asked for over the wire: as if made in the provider's dashboard. */
static void refund_make(const struct control *call, struct answer *answer)
{
    struct error err = {0};
    struct refund_draft draft = {0};
    if (!draft_read(call->body, &draft, &err)) {
        refuse(answer, 400, &err);
        return;
    }
    json_t *metadata = json_object_get(call->body, "metadata");
    char *text = metadata ? json_dumps(metadata, JSON_COMPACT) : NULL;
    draft.metadata = text;
    draft.effect = json_string_value(json_object_get(metadata, "holdfast_effect"));
    refund_put(refund_new(&draft), &answer->body);
    free(text);
}

/* Replaces *text by the member's string, by NULL where it is null; left alone where it is absent.
 */
static void text_change(const json_t *body, const char *name, char **text)
{
    const json_t *value = json_object_get(body, name);
    if (value == NULL)
        return;
    free(*text);
    *text = must_strdup(json_string_value(value));
}

static void refund_change(const struct control *call, struct answer *answer)
{
    static const char *const members[] = {"status",   "failure_reason", "amount",
                                          "currency", "metadata",       NULL};
    struct error err = {0};
    struct refund *refund = refund_find(call->id);
    const char *currency = NULL;
    if (refund == NULL) {
        not_found(answer);
        return;
    }
    if (!json_only_members(call->body, members, &err) ||
        !json_field_int(call->body, "amount", false, 1, MONEY_MAX, &refund->amount, &err) ||
        !currency_read(call->body, &currency, &err)) {
        refuse(answer, 400, &err);
        return;
    }
    text_change(call->body, "status", &refund->status);
    text_change(call->body, "failure_reason", &refund->failure_reason);
    if (currency)
        memcpy(refund->currency, currency, sizeof(refund->currency));
    json_t *metadata = json_object_get(call->body, "metadata");
    if (metadata) {
        free(refund->metadata);
        refund->metadata = json_dumps(metadata, JSON_COMPACT);
    }
    refund_put(refund, &answer->body);
}

static const struct control_row {
    const char *method;
    const char *path; /* after /_control */
    bool with_id;     /* "/ID" follows */
    control_call call;
} rows[] = {
    {"GET", "", false, health_get},
    {"DELETE", "", false, all_reset},
    {"GET", "/counts", false, counts_get},
    {"GET", "/requests", false, requests_get},
    {"GET", "/faults", false, faults_get},
    {"POST", "/faults", false, fault_post},
    {"DELETE", "/faults", false, fault_delete},
    {"DELETE", "/faults", true, fault_delete},
    {"POST", "/intents", false, intent_post},
    {"POST", "/refunds", false, refund_make},
    {"POST", "/refunds", true, refund_change},
};

static const struct control_row *row_find(const struct request *r, const char **id)
{
    const char *path = r->path + strlen(CONTROL_PATH);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        size_t len = strlen(rows[i].path);
        if (strcmp(rows[i].method, r->method) != 0 || strncmp(path, rows[i].path, len) != 0)
            continue;
        bool with_id = path[len] == '/' && path[len + 1];
        *id = with_id ? path + len + 1 : "";
        if (with_id == rows[i].with_id && (with_id || path[len] == '\0'))
            return &rows[i];
    }
    return NULL;
}

void control_handle(const struct request *r, struct answer *answer)
{
    struct control call = {0};
    const struct control_row *row = row_find(r, &call.id);
    if (row == NULL) {
        not_found(answer);
        return;
    }
    form_parse(&call.query, r->query, strlen(r->query), true);
    if (r->body.len)
        call.body = json_loadb(r->body.data, r->body.len, 0, NULL);
    if (strcmp(r->method, "POST") == 0 && !json_is_object(call.body)) {
        struct error err = {0};
        error_set(&err, ERROR_INVALID, "the body is not a JSON object");
        refuse(answer, 400, &err);
    } else {
        row->call(&call, answer);
    }
    form_free(&call.query);
    json_decref(call.body);
}
