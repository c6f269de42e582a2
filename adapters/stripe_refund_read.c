/* The read-back of stripe.refund. Stripe has no search for refunds, so all refunds of the payment
 * are listed, page by page, and those that carry the effect id are ours. Where the id of the refund
 * is known it is read first, and the list then says whether there is a second one. */
#include "adapters/shared.h"
#include "adapters/stripe_refund.h"

#include <stdio.h>
#include <string.h>

#define NOT_FOUND_SENTENCE                                                                         \
    "The read-back did not find this operation. That does not prove the write failed, so the "     \
    "outcome stays unknown."

/* Members of read->state: "by_id" while the refund itself is being read, "ours" the one record that
 * is ours, "second" the id of another that is ours too, "cursor" where the last page ended. */

/* ---- records ---- */

static enum refund_standing standing_of(const char *status)
{
    if (strcmp(status, "succeeded") == 0)
        return REFUND_FINAL;
    if (strcmp(status, "failed") == 0 || strcmp(status, "canceled") == 0)
        return REFUND_FAILED;
    return REFUND_NOT_FINAL;
}

static const char *status_of(const json_t *object)
{
    static const char *const known[] = {"succeeded", "failed", "canceled", "pending",
                                        "requires_action"};
    const char *status = json_string_value(json_object_get(object, "status"));
    for (size_t i = 0; status && i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(status, known[i]) == 0)
            return known[i];
    return status ? "of an unknown status" : "without a status";
}

bool refund_record_read(const json_t *value, struct refund_record *out)
{
    const json_t *metadata = json_object_get(value, "metadata");
    *out = (struct refund_record){
        .object = value,
        .id = json_string_value(json_object_get(value, "id")),
        .status = status_of(value),
        .tag = json_string_value(json_object_get(metadata, STRIPE_TAG)),
    };
    out->standing = standing_of(out->status);
    return stripe_id_valid(out->id);
}

/* A member that is an id, also where Stripe was asked to expand it. */
static const char *reference(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    return json_string_value(json_is_object(value) ? json_object_get(value, "id") : value);
}

static bool same_text(const char *a, const char *b)
{
    return a && b && strcmp(a, b) == 0;
}

/* The member in which a record contradicts what was asked for, or NULL. */
static const char *contradiction(const struct refund *refund, const json_t *object)
{
    const json_t *amount = json_object_get(object, "amount");
    if (refund->has_amount &&
        (!json_is_integer(amount) || json_integer_value(amount) != refund->amount))
        return "amount";
    if (!same_text(json_string_value(json_object_get(object, "currency")), refund->currency))
        return "currency";
    if (!same_text(reference(object, refund->target_name), refund->target))
        return refund->target_name;
    return NULL;
}

/* ---- requests ---- */

/* Makes the request the next one to send. */
static void next_set(struct read_back *read, struct request *request, struct error *err)
{
    if (request && !request_check(request, err)) {
        request_free(request);
        request = NULL;
    }
    if (request)
        read_back_conclude(read, READ_NEXT, "%s", "");
    else
        read_back_conclude(read, READ_UNUSABLE, "The read-back can't be made: %s.", err->text);
    read->next = request; /* the read-back owns it */
}

static void put_literal(struct request *request, const char *text)
{
    request_put_literal(request, PLACE_URL, text, strlen(text));
}

static void next_by_id(const struct refund *refund, const char *id, struct read_back *read)
{
    struct error err = {0};
    struct request *request = stripe_request_begin(refund, "GET", BODY_NONE, &err);
    if (request) {
        put_literal(request, "/");
        request_put_text(request, PLACE_URL, id, strlen(id));
    }
    next_set(read, request, &err);
}

/* The page after `cursor` (NULL: the first). */
static void next_page(const struct refund *refund, const char *cursor, struct read_back *read)
{
    struct error err = {0};
    if (read->requests >= READ_PAGES_MAX) {
        read_back_conclude(read, READ_UNUSABLE,
                           "The payment has more refunds than %d pages hold; a person must look.",
                           READ_PAGES_MAX);
        return;
    }
    struct request *request = stripe_request_begin(refund, "GET", BODY_NONE, &err);
    if (request) {
        put_literal(request, "?");
        put_literal(request, refund->target_name);
        put_literal(request, "=");
        request_put_text(request, PLACE_URL, refund->target, strlen(refund->target));
        put_literal(request, "&limit=100");
        if (cursor) {
            put_literal(request, "&starting_after=");
            request_put_text(request, PLACE_URL, cursor, strlen(cursor));
        }
    }
    next_set(read, request, &err);
}

/* ---- verdicts ---- */

static void record_judge(const struct refund *refund, const json_t *object, struct read_back *read)
{
    struct refund_record record;
    refund_record_read(object, &record); /* it was one when it was kept */
    const char *differs = contradiction(refund, object);
    snprintf(read->object_id, sizeof(read->object_id), "%s", record.id);
    if (differs)
        read_back_conclude(
            read, READ_CONFLICT,
            "The provider's refund %.200s carries this effect, but its %s is not what"
            " was asked for.",
            record.id, differs);
    else if (record.standing == REFUND_NOT_FINAL)
        read_back_conclude(read, READ_NOT_FINAL,
                           "The provider's refund %.200s is %s: not final yet.", record.id,
                           record.status);
    else if (record.standing == REFUND_FAILED)
        read_back_conclude(read, READ_PROVIDER_FAILED, "The provider's refund %.200s is %s.",
                           record.id, record.status);
    else
        read_back_conclude(read, READ_MATCH,
                           "The provider's refund %.200s is succeeded and agrees in %scurrency and"
                           " %s.",
                           record.id, refund->has_amount ? "amount, " : "", refund->target_name);
}

/* Everything has been read. */
static void verdict(const struct refund *refund, struct read_back *read)
{
    const json_t *ours = json_object_get(read->state, "ours");
    const char *second = json_string_value(json_object_get(read->state, "second"));
    const char *first = json_string_value(json_object_get(ours, "id"));
    if (second)
        read_back_conclude(read, READ_CONFLICT,
                           "The provider has two refunds for this effect: %.120s and %.120s.",
                           first, second);
    else if (ours)
        record_judge(refund, ours, read);
    else
        read_back_conclude(read, READ_NOT_FOUND, NOT_FOUND_SENTENCE);
}

/* Keeps a record that is ours: the first whole, of a second one the id. */
static bool ours_keep(struct read_back *read, const struct refund_record *record)
{
    json_t *ours = json_object_get(read->state, "ours");
    const char *known = json_string_value(json_object_get(ours, "id"));
    if (!known || strcmp(known, record->id) == 0)
        return json_object_set(read->state, "ours", (json_t *)record->object) == 0;
    return json_object_set_new(read->state, "second", json_string(record->id)) == 0;
}

static void shape_refuse(struct read_back *read)
{
    read_back_conclude(read, READ_UNUSABLE,
                       "The answer to the read-back does not have the shape of Stripe's records.");
}

static void memory_refuse(struct read_back *read)
{
    read_back_conclude(read, READ_UNUSABLE, "The read-back ran out of memory.");
}

/* ---- answers ---- */

/* The refund whose id an answer to the write gave. One that is not final needs no list. */
static void record_take(const struct read_back_facts *facts, const struct refund *refund,
                        const char *effect_id, const json_t *body, struct read_back *read)
{
    struct refund_record record;
    if (!refund_record_read(body, &record) || strcmp(record.id, facts->object_id) != 0) {
        shape_refuse(read);
    } else if (record.tag && strcmp(record.tag, effect_id) != 0) {
        snprintf(read->object_id, sizeof(read->object_id), "%s", record.id);
        read_back_conclude(read, READ_CONFLICT,
                           "The provider's refund %.200s carries another effect.", record.id);
    } else if (record.standing == REFUND_NOT_FINAL) {
        record_judge(refund, body, read);
    } else if (!ours_keep(read, &record)) {
        memory_refuse(read);
    } else {
        next_page(refund, NULL, read);
    }
}

/* Keeps what is ours in a page; *last is the id of its last item. False when it is no page. */
static bool page_scan(const json_t *data, const char *effect_id, struct read_back *read,
                      const char **last)
{
    for (size_t i = 0; i < json_array_size(data); i++) {
        struct refund_record record;
        if (!refund_record_read(json_array_get(data, i), &record))
            return false;
        *last = record.id;
        if (same_text(record.tag, effect_id) && !ours_keep(read, &record))
            return false;
    }
    return json_is_array(data);
}

static void page_take(const struct refund *refund, const char *effect_id, const json_t *body,
                      struct read_back *read)
{
    const char *last = NULL;
    const json_t *more = json_object_get(body, "has_more");
    const char *cursor = json_string_value(json_object_get(read->state, "cursor"));
    if (!json_is_boolean(more) ||
        !page_scan(json_object_get(body, "data"), effect_id, read, &last)) {
        shape_refuse(read);
    } else if (!json_is_true(more)) {
        verdict(refund, read);
    } else if (!last || same_text(last, cursor)) {
        shape_refuse(read); /* more was promised, and there is no way to it */
    } else if (json_object_set_new(read->state, "cursor", json_string(last)) != 0) {
        memory_refuse(read);
    } else {
        next_page(refund, last, read);
    }
}

/* An answer that says the thing is not there. Some stand-ins say so of a list, too. */
static void absence_take(const struct refund *refund, bool by_id, struct read_back *read)
{
    if (by_id)
        next_page(refund, NULL, read);
    else
        verdict(refund, read);
}

void stripe_read_back_answer(const struct read_back_facts *facts, const struct answer *answer,
                             const char *transport, struct read_back *read)
{
    char effect_id[ULID_PREFIXED_SIZE];
    struct error err = {0};
    struct refund refund;
    if (!read_back_take(read, answer, transport, 0))
        return;
    if (!refund_read(facts->action.definition, facts->input, &refund, &err)) {
        read_back_conclude(read, READ_IMPOSSIBLE, "The read-back can't be made: %s.", err.text);
        return;
    }
    ulid_format_prefixed("eff", &facts->effect, effect_id);
    bool by_id = json_is_true(json_object_get(read->state, "by_id"));
    if (json_object_set_new(read->state, "by_id", json_false()) != 0) {
        memory_refuse(read);
        return;
    }
    if (answer->status == 404 || answer->status == 410) {
        absence_take(&refund, by_id, read);
        return;
    }
    json_t *body = answer_json(answer);
    if (by_id)
        record_take(facts, &refund, effect_id, body, read);
    else
        page_take(&refund, effect_id, body, read);
    json_decref(body);
}

void stripe_read_back_start(const struct read_back_facts *facts, struct read_back *read)
{
    struct error err = {0};
    struct refund refund;
    bool by_id = stripe_id_valid(facts->object_id);
    if (!refund_read(facts->action.definition, facts->input, &refund, &err)) {
        read_back_conclude(read, READ_IMPOSSIBLE, "The read-back can't be made: %s.", err.text);
        return;
    }
    read->state = json_object();
    if (!read->state ||
        json_object_set_new(read->state, "by_id", by_id ? json_true() : json_false()) != 0)
        memory_refuse(read);
    else if (by_id)
        next_by_id(&refund, facts->object_id, read);
    else
        next_page(&refund, NULL, read);
}
