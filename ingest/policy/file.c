/* Planning policy files. The digest is over what the file says and over the versions of all
 * policies that there are, so any change in between makes the plan stale. */
#include "ingest/policy/file.h"

#include "common/base/json.h"
#include "common/base/yaml.h"
#include "ingest/routes/parse.h"

#include <stdlib.h>
#include <string.h>

#define DIGEST_TEXT_MAX ((size_t)16 << 20)
#define ERRORS_MAX 50

/* ---- reading the text ---- */

json_t *policy_text_parse(const char *text, size_t len, struct error *err)
{
    size_t at = strspn(text, " \t\r\n");
    return text[at] == '{' || text[at] == '[' ? json_parse_strict(text, len, err)
                                              : yaml_parse(text, len, err);
}

static void error_add(struct policy_plan *plan, const struct error *err)
{
    if (json_array_size(plan->errors) < ERRORS_MAX)
        must(json_array_append_new(plan->errors, json_pack("{s:s, s:s}", "place", err->place,
                                                           "message", err->text)) == 0);
}

/* The list of policies in the file, borrowed; NULL with err. */
static json_t *file_policies(const json_t *root, struct error *err)
{
    static const char *const members[] = {"version", "policies", NULL};
    int64_t version = 1;
    json_t *list = json_object_get(root, "policies");
    if (!json_is_object(root))
        error_set_at(err, ERROR_INVALID, "", "the file must be an object with policies");
    else if (json_only_members(root, members, err) &&
             json_field_int(root, "version", false, 1, 1, &version, err) &&
             (!json_is_array(list) || json_array_size(list) > POLICIES_MAX))
        error_set_at(err, ERROR_INVALID, "/policies", "must be a list of at most %d policies",
                     POLICIES_MAX);
    return err->code == ERROR_NONE ? list : NULL;
}

static json_t *entry_read(const json_t *entry, struct error *err)
{
    if (!json_is_object(entry)) {
        error_set_at(err, ERROR_INVALID, "", "must be an object");
        return NULL;
    }
    if (json_object_get(entry, "condition") != NULL) {
        error_set_at(err, ERROR_INVALID, "/condition",
                     "is not part of this version: say it as conditions, a JSON Schema");
        return NULL;
    }
    return json_only_members(entry, policy_members, err) ? policy_definition_make(NULL, entry, err)
                                                         : NULL;
}

static const char *definition_name(const json_t *definition)
{
    return json_string_value(json_object_get(definition, "name"));
}

static bool name_planned(const struct policy_plan *plan, const char *name)
{
    for (size_t i = 0; i < plan->count; i++)
        if (strcmp(definition_name(plan->items[i].after), name) == 0)
            return true;
    return false;
}

static void entries_read(const json_t *list, struct policy_plan *plan)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        char prefix[32];
        struct error err = {0};
        json_t *definition = entry_read(json_array_get(list, i), &err);
        snprintf(prefix, sizeof prefix, "/policies/%zu", i);
        if (definition != NULL && name_planned(plan, definition_name(definition)))
            error_set_at(&err, ERROR_INVALID, "/name", "another policy of the file has this name");
        if (err.code == ERROR_NONE) {
            plan->items[plan->count++] = (struct planned){.after = definition};
            continue;
        }
        json_decref(definition);
        error_place_under(&err, prefix);
        error_add(plan, &err);
    }
}

static void source_read(const char *source, struct policy_plan *plan)
{
    struct error err = {0};
    json_t *root = policy_text_parse(source, strlen(source), &err);
    const json_t *list = root != NULL ? file_policies(root, &err) : NULL;
    if (list != NULL)
        entries_read(list, plan);
    else
        error_add(plan, &err);
    json_decref(root);
}

/* ---- against what there is ---- */

static struct planned *planned_of(struct policy_plan *plan, size_t entries, const char *name)
{
    for (size_t i = 0; i < entries; i++)
        if (strcmp(definition_name(plan->items[i].after), name) == 0)
            return &plan->items[i];
    return NULL;
}

/* One policy that is there: the file changes it, keeps it, deletes it or has nothing to do with it.
 */
static void stored_place(struct policy_plan *plan, size_t entries, const struct planned *stored,
                         bool from_file)
{
    struct planned *item = planned_of(plan, entries, definition_name(stored->before));
    if (item != NULL) {
        bool same = from_file && json_equal(item->after, stored->before);
        item->what = same ? PLANNED_UNCHANGED : PLANNED_UPDATE;
        item->id = stored->id;
        item->version = stored->version;
        item->before = stored->before;
        return;
    }
    struct planned *to = from_file ? &plan->items[plan->count++] : &plan->kept[plan->kept_count++];
    *to = *stored;
    to->what = from_file ? PLANNED_DELETE : PLANNED_UNCHANGED;
}

static PGresult *stored_read(struct store *store, int environment, struct error *err)
{
    static const char sql[] =
        "select p.id, p.version, p.from_file, v.definition::text from approval_policies p "
        "join approval_policy_versions v on v.policy_id = p.id and v.version = p.version "
        "where p.environment_id = $1::int and p.deleted_at is null order by p.id";
    char number[24];
    struct store_param params[] = {store_int(environment, number)};
    return store_query(store, sql, params, 1, true, err);
}

static void rows_place(struct policy_plan *plan, const PGresult *r)
{
    size_t entries = plan->count;
    for (int row = 0; row < PQntuples(r); row++) {
        struct planned stored = {.version = (int)row_int(r, row, 1),
                                 .before = json_loads(row_text(r, row, 3), 0, NULL)};
        row_uuid(r, row, 0, &stored.id);
        must(stored.before != NULL); /* the column's type is json */
        stored_place(plan, entries, &stored, row_bool(r, row, 2));
    }
}

static void room_check(struct policy_plan *plan)
{
    size_t count = plan->kept_count;
    struct error err = {0};
    for (size_t i = 0; i < plan->count; i++)
        count += plan->items[i].what != PLANNED_DELETE;
    if (count <= POLICIES_MAX)
        return;
    error_set_at(&err, ERROR_INVALID, "/policies",
                 "would leave the environment with %zu policies of at most %d", count,
                 POLICIES_MAX);
    error_add(plan, &err);
}

static void digest_make(struct policy_plan *plan, int environment, const PGresult *r)
{
    uint8_t hash[SHA256_SIZE];
    struct buf text;
    json_t *after = json_array(), *state = json_array();
    for (size_t i = 0; i < plan->count; i++)
        if (plan->items[i].after != NULL)
            json_array_append(after, plan->items[i].after);
    for (int row = 0; row < PQntuples(r); row++) {
        struct ulid id;
        char shown[ULID_PREFIXED_SIZE];
        row_uuid(r, row, 0, &id);
        json_array_append_new(state,
                              json_pack("[s, I, b]", ulid_format_prefixed("pol", &id, shown),
                                        (json_int_t)row_int(r, row, 1), (int)row_bool(r, row, 2)));
    }
    json_t *whole =
        json_pack("{s:i, s:o, s:o}", "environment", environment, "file", after, "state", state);
    buf_init(&text, DIGEST_TEXT_MAX);
    must(whole != NULL && json_canonical(whole, &text));
    crypto_sha256(text.data, text.len, hash);
    crypto_hex(hash, sizeof hash, plan->digest);
    buf_free(&text);
    json_decref(whole);
}

bool policy_plan_make(struct store *store, int environment, const char *source,
                      struct policy_plan *plan, struct error *err)
{
    *plan = (struct policy_plan){.errors = json_array()};
    PGresult *r = stored_read(store, environment, err);
    if (r == NULL)
        return false;
    size_t rows = (size_t)PQntuples(r);
    plan->items = calloc(POLICIES_MAX + rows, sizeof *plan->items);
    plan->kept = calloc(rows + 1, sizeof *plan->kept);
    must(plan->errors != NULL && plan->items != NULL && plan->kept != NULL);
    source_read(source, plan);
    rows_place(plan, r);
    room_check(plan);
    digest_make(plan, environment, r);
    PQclear(r);
    return true;
}

static void planned_free(struct planned *items, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        json_decref(items[i].before);
        json_decref(items[i].after);
    }
    free(items);
}

void policy_plan_free(struct policy_plan *plan)
{
    planned_free(plan->items, plan->count);
    planned_free(plan->kept, plan->kept_count);
    json_decref(plan->errors);
    *plan = (struct policy_plan){0};
}

/* ---- showing ---- */

static const char *const what_names[] = {"create", "update", "delete", "unchanged"};

/* The members in which two definitions differ. */
static json_t *fields_changed(const json_t *before, const json_t *after)
{
    json_t *fields = json_array();
    for (size_t i = 0; policy_members[i] != NULL; i++) {
        const json_t *had = json_object_get(before, policy_members[i]);
        const json_t *has = json_object_get(after, policy_members[i]);
        if (had != has && (had == NULL || has == NULL || !json_equal(had, has)))
            json_array_append_new(fields, json_string(policy_members[i]));
    }
    return fields;
}

static json_t *planned_show(const struct planned *item)
{
    char id[ULID_PREFIXED_SIZE];
    const json_t *named = item->after != NULL ? item->after : item->before;
    return json_pack("{s:s, s:s, s:s?, s:i, s:o, s:O?, s:O?}", "action", what_names[item->what],
                     "name", definition_name(named), "id",
                     item->version > 0 ? ulid_format_prefixed("pol", &item->id, id) : NULL,
                     "version", item->version, "fields", fields_changed(item->before, item->after),
                     "before", item->before, "after", item->after);
}

json_t *policy_plan_show(const struct policy_plan *plan)
{
    int counts[4] = {0};
    bool valid = json_array_size(plan->errors) == 0;
    json_t *changes = json_array();
    for (size_t i = 0; valid && i < plan->count; i++) {
        counts[plan->items[i].what]++;
        json_array_append_new(changes, planned_show(&plan->items[i]));
    }
    json_t *shown = json_pack("{s:s?, s:b, s:o, s:O, s:{s:i, s:i, s:i, s:i}}", "digest",
                              valid ? plan->digest : NULL, "valid", valid, "changes", changes,
                              "errors", plan->errors, "summary", "create", counts[PLANNED_CREATE],
                              "update", counts[PLANNED_UPDATE], "delete", counts[PLANNED_DELETE],
                              "unchanged", counts[PLANNED_UNCHANGED]);
    must(shown != NULL);
    return shown;
}

/* ---- applying ---- */

static bool planned_apply(struct store *store, const struct planned *item,
                          const struct policy_change *change, struct error *err)
{
    struct ulid id;
    switch (item->what) {
    case PLANNED_CREATE:
        return policy_create(store, change, item->after, &id, err);
    case PLANNED_UPDATE:
        return policy_edit(store, change, &item->id, item->version, item->after, err);
    case PLANNED_DELETE:
        return policy_delete(store, change, &item->id, item->version, item->before, err);
    case PLANNED_UNCHANGED:
        break;
    }
    return true;
}

bool policy_plan_apply(struct store *store, const struct policy_plan *plan,
                       const struct policy_change *change, struct error *err)
{
    for (size_t i = 0; i < plan->count; i++)
        if (!planned_apply(store, &plan->items[i], change, err))
            return false;
    return true;
}

/* What is not stored yet is the youngest, in the order of the file. */
static void place_give(struct policy *policy, size_t index)
{
    memset(policy->id.bytes, 0xff, sizeof policy->id.bytes);
    policy->id.bytes[14] = (uint8_t)(index >> 8);
    policy->id.bytes[15] = (uint8_t)index;
}

size_t policy_plan_result(const struct policy_plan *plan, struct policy **out)
{
    size_t count = 0;
    for (size_t i = 0; i < plan->count + plan->kept_count; i++) {
        const struct planned *item =
            i < plan->count ? &plan->items[i] : &plan->kept[i - plan->count];
        const json_t *definition = i < plan->count ? item->after : item->before;
        if (definition == NULL)
            continue;
        struct policy *policy = policy_compile(definition, &item->id, item->version, NULL);
        must(policy != NULL); /* it was compiled before */
        if (item->version == 0)
            place_give(policy, i);
        out[count++] = policy;
    }
    qsort(out, count, sizeof *out, policy_compare);
    return count;
}
