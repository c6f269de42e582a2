/* What a request says about itself: whose key, which effect, which payment intent. */
#include "tests/provider/sandbox/facts.h"

#include <string.h>

static const char *first(const char *a, const char *b)
{
    return a ? a : b;
}

static const char *json_text(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

/* Counters are kept under these names, so an absurdly long one is none. */
static const char *usable(const char *name)
{
    return name && strlen(name) <= FACTS_NAME_MAX ? name : NULL;
}

static void facts_read_form(struct facts *facts, const struct form *form)
{
    facts->effect = first(facts->effect, form_get(form, "metadata[holdfast_effect]"));
    facts->effect = first(facts->effect, form_get(form, "holdfast_effect"));
    facts->intent = first(facts->intent, form_get(form, "payment_intent"));
    facts->intent = first(facts->intent, form_get(form, "charge"));
}

static void facts_read_json(struct facts *facts, const json_t *body)
{
    facts->effect = first(facts->effect, json_text(body, "holdfast_effect"));
    facts->effect =
        first(facts->effect, json_text(json_object_get(body, "metadata"), "holdfast_effect"));
    facts->intent = first(facts->intent, json_text(body, "payment_intent"));
}

void facts_read_head(struct facts *facts, const struct request *r)
{
    memset(facts, 0, sizeof(*facts));
    facts->write = request_is_write(r);
    facts->key = request_header(r, "Idempotency-Key");
    facts->effect = request_header(r, "X-Holdfast-Effect");
    form_parse(&facts->query, r->query, strlen(r->query), true);
    facts_read_form(facts, &facts->query);
}

void facts_read(struct facts *facts, const struct request *r, bool whole)
{
    facts_read_head(facts, r);
    facts->whole = whole;
    if (r->body.len == 0)
        return;
    const char *type = request_header(r, "Content-Type");
    bool is_form = type && strstr(type, "form-urlencoded");
    if (is_form) {
        form_parse(&facts->form, r->body.data, r->body.len, whole);
        facts_read_form(facts, &facts->form);
    } else {
        facts->json = json_loadb(r->body.data, r->body.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        facts_read_json(facts, facts->json);
    }
    facts->key = usable(facts->key);
    facts->effect = usable(facts->effect);
    facts->intent = usable(facts->intent);
}

void facts_free(struct facts *facts)
{
    form_free(&facts->query);
    form_free(&facts->form);
    json_decref(facts->json);
}
