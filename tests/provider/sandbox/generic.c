/* A provider of anything, for declared actions: what is written to a path can be read there. It
 * heeds no idempotency key, so each write that arrives is applied. */
#include "tests/provider/sandbox/generic.h"

#include "tests/provider/sandbox/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIST_LIMIT_MAX 1000
#define OBJECTS_MAX 50000
#define OBJECT_BODY_MAX ((size_t)64 << 10) /* of a larger write, only the id is remembered */

struct object {
    struct table_entry entry; /* its name is the collection's path, "/" and the id */
    size_t collection_len;
    json_t *body;
    int64_t hidden_reads;
};

static struct table objects;
static uint64_t id_next;

static void object_free(struct table_entry *entry)
{
    struct object *object = (struct object *)entry;
    json_decref(object->body);
    free(object);
}

void generic_init(size_t keep)
{
    table_init(&objects, keep < OBJECTS_MAX ? keep : OBJECTS_MAX, object_free);
}

void generic_reset(void)
{
    table_clear(&objects);
}

static bool object_read(struct object *object)
{
    if (object->hidden_reads == 0)
        return true;
    object->hidden_reads--;
    return false;
}

/* The members that the write brings; a new reference. */
static json_t *members_read(const struct request *r, const struct facts *facts)
{
    if (r->body.len > OBJECT_BODY_MAX)
        return json_object();
    json_t *members = json_is_object(facts->json) ? json_deep_copy(facts->json) : json_object();
    for (size_t i = 0; i < facts->form.count; i++)
        json_object_set_new(members, facts->form.pairs[i].name,
                            json_string(facts->form.pairs[i].value));
    if (facts->effect && json_object_get(members, "holdfast_effect") == NULL)
        json_object_set_new(members, "holdfast_effect", json_string(facts->effect));
    return members;
}

static void members_twist(json_t *members, const struct fault *fault)
{
    if (fault && fault->kind == FAULT_STATUS_FIELD)
        json_object_set_new(members, "status",
                            fault->value ? json_string(fault->value) : json_null());
    if (fault && fault->kind == FAULT_WRONG_AMOUNT) {
        json_int_t amount = json_integer_value(json_object_get(members, "amount"));
        json_object_set_new(members, "amount",
                            json_integer(fault->amount ? fault->amount : amount + 1));
    }
    if (fault && fault->kind == FAULT_WRONG_CURRENCY)
        json_object_set_new(members, "currency", json_string(fault->value ? fault->value : "eur"));
}

/* A new object of a collection; id NULL gives it the next one. */
static struct object *object_new(const char *collection, size_t len, const char *id)
{
    char own[32];
    char *name = must_calloc(len + strlen(id ? id : "") + sizeof(own) + 2);
    snprintf(own, sizeof(own), "obj_%llu", (unsigned long long)++id_next);
    sprintf(name, "%.*s/%s", (int)len, collection, id ? id : own);
    struct object *object = must_calloc(sizeof(*object));
    object->collection_len = len;
    object->body = json_pack("{s:s,s:b}", "id", id ? id : own, "ok", true);
    table_add(&objects, &object->entry, name);
    free(name);
    return object;
}

static void object_merge(struct object *object, json_t *members)
{
    const char *name;
    json_t *value;
    json_object_foreach(members, name, value)
    {
        if (strcmp(name, "id") != 0 && strcmp(name, "ok") != 0)
            json_object_set(object->body, name, value);
    }
}

/* Where "/generic/orders/7" names an object: the length of "/generic/orders"; else 0. */
static size_t item_collection_length(const char *path)
{
    const char *slash = strrchr(path, '/');
    size_t len = (size_t)(slash - path);
    return len >= strlen(GENERIC_PREFIX) && slash[1] ? len : 0;
}

/* The object that a write is about: the one at the path, else a new one; PUT and PATCH name its id.
 */
static struct object *object_target(const struct request *r)
{
    struct object *object = (struct object *)table_find(&objects, r->path);
    bool names_id = strcmp(r->method, "PUT") == 0 || strcmp(r->method, "PATCH") == 0;
    size_t len = item_collection_length(r->path);
    if (object || (names_id && len)) {
        if (object == NULL)
            object = object_new(r->path, len, r->path + len + 1);
        else if (strcmp(r->method, "PUT") == 0) {
            json_t *id = json_incref(json_object_get(object->body, "id"));
            json_decref(object->body);
            object->body = json_pack("{s:o,s:b}", "id", id, "ok", true);
        }
        return object;
    }
    return object_new(r->path, strlen(r->path), NULL);
}

static void generic_write(const struct request *r, const struct facts *facts,
                          const struct fault *fault, struct answer *answer)
{
    json_t *members = members_read(r, facts);
    members_twist(members, fault);
    int times = fault && fault->kind == FAULT_DOUBLE ? 2 : 1;
    for (answer->applied = 0; answer->applied < times; answer->applied++) {
        struct object *object = object_target(r);
        object_merge(object, members);
        object->hidden_reads = fault && fault->kind == FAULT_LAG ? fault->reads : 0;
        if (answer->applied == 0)
            answer_json(answer, 200, json_incref(object->body));
    }
    answer->outcome = OUTCOME_APPLIED;
    json_decref(members);
}

static void generic_delete(const struct request *r, struct answer *answer)
{
    struct table_entry *entry = table_find(&objects, r->path);
    json_t *id = json_string(strrchr(r->path, '/') + 1);
    if (entry)
        table_remove(&objects, entry);
    answer_json(
        answer, 200,
        json_pack("{s:o,s:b,s:b}", "id", id ? id : json_null(), "ok", true, "deleted", true));
    answer->outcome = OUTCOME_APPLIED;
    answer->applied = 1;
}

static bool value_is(const json_t *value, const char *text)
{
    if (json_is_string(value))
        return strcmp(json_string_value(value), text) == 0;
    char *dump = value ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    bool same = dump && strcmp(dump, text) == 0;
    free(dump);
    return same;
}

static bool object_selected(const struct object *object, const struct form *query)
{
    for (size_t i = 0; i < query->count; i++) {
        const char *name = query->pairs[i].name;
        if (strcmp(name, "limit") != 0 && strcmp(name, "starting_after") != 0 &&
            !value_is(json_object_get(object->body, name), query->pairs[i].value))
            return false;
    }
    return true;
}

/* The first entry of a page: the newest, or the one before `starting_after`. */
static struct table_entry *page_start(const struct request *r, const char *after)
{
    if (after == NULL)
        return objects.newest;
    char *name = must_calloc(strlen(r->path) + strlen(after) + 2);
    sprintf(name, "%s/%s", r->path, after);
    struct table_entry *entry = table_find(&objects, name);
    free(name);
    return entry ? entry->older : NULL;
}

static void generic_list(const struct request *r, const struct facts *facts, struct answer *answer)
{
    const char *limit_text = form_get(&facts->query, "limit");
    size_t limit = limit_text ? (size_t)strtoul(limit_text, NULL, 10) : 100;
    limit = limit < LIST_LIMIT_MAX ? limit : LIST_LIMIT_MAX;
    size_t len = strlen(r->path);
    json_t *data = json_array();
    bool more = false;
    struct table_entry *entry = page_start(r, form_get(&facts->query, "starting_after"));
    for (; entry && !more; entry = entry->older) {
        struct object *object = (struct object *)entry;
        if (object->collection_len != len || memcmp(entry->name, r->path, len) != 0 ||
            !object_selected(object, &facts->query) || !object_read(object))
            continue;
        more = json_array_size(data) == limit;
        if (!more)
            json_array_append(data, object->body);
    }
    answer_json(answer, 200,
                json_pack("{s:s,s:o,s:b}", "object", "list", "data", data, "has_more", more));
}

/* Whether a path that names no object is that of a list: of all collections the top ones always
 * are, others once something was put into them or a filter is given. */
static bool path_is_collection(const struct request *r)
{
    size_t len = strlen(r->path);
    if (item_collection_length(r->path) == 0 || *r->query)
        return true;
    for (struct table_entry *entry = objects.newest; entry; entry = entry->older)
        if (((struct object *)entry)->collection_len == len &&
            memcmp(entry->name, r->path, len) == 0)
            return true;
    return false;
}

static void generic_read(const struct request *r, const struct facts *facts,
                         const struct fault *fault, struct answer *answer)
{
    struct object *object = (struct object *)table_find(&objects, r->path);
    bool hidden = fault && fault->kind == FAULT_LAG;
    if (object && !hidden && object_read(object))
        answer_json(answer, 200, json_incref(object->body));
    else if (object || !path_is_collection(r))
        answer_error(answer, 404, "not_found", NULL, NULL, "There is nothing at %s.", r->path);
    else if (hidden)
        answer_json(answer, 200,
                    json_pack("{s:s,s:[],s:b}", "object", "list", "data", "has_more", false));
    else
        generic_list(r, facts, answer);
}

void generic_handle(const struct request *r, const struct facts *facts, const struct fault *fault,
                    struct answer *answer)
{
    if (!facts->write)
        generic_read(r, facts, fault, answer);
    else if (strcmp(r->method, "DELETE") == 0)
        generic_delete(r, answer);
    else
        generic_write(r, facts, fault, answer);
}
