/* Turns a JSON Schema document into nodes and rules. Whatever it does not know, it refuses: a
 * keyword that is quietly ignored is a check that its author believes in and nobody makes. */
#include "common/base/schema_internal.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIALECT "https://json-schema.org/draft/2020-12/schema"

struct compiler {
    struct schema *schema;
    struct schema_references references;
    size_t patterns_size; /* bytes of compiled patterns so far */
    struct error *err;
};

/* One keyword while it is compiled. */
struct site {
    struct compiler *c;
    struct schema_rule *rule;
    const char *base;                 /* the URI that references here are relative to */
    const struct schema_place *place; /* of the keyword */
};

static struct schema_node *node_compile(struct compiler *c, const json_t *value, const char *under,
                                        const char *base, const struct schema_place *place);

static bool refuse(struct compiler *c, const struct schema_place *place, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static bool refuse(struct compiler *c, const struct schema_place *place, const char *fmt, ...)
{
    char where[sizeof(c->err->place)];
    char text[sizeof(c->err->text)];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    return error_set_at(c->err, ERROR_INVALID, schema_place_write(place, where, sizeof(where)),
                        "%s", text);
}

static bool out_of_memory(struct compiler *c)
{
    return error_set(c->err, ERROR_MEMORY, "no memory to compile the schema");
}

/* --- sub-schemas --- */

static bool branches_new(const struct site *site, size_t count)
{
    site->rule->branches = calloc(count ? count : 1, sizeof(*site->rule->branches));
    return site->rule->branches || out_of_memory(site->c);
}

/* Compiles the next branch of a rule; the caller has made room and filled in what selects it. */
static bool branch_compile(const struct site *site, const json_t *value,
                           const struct schema_place *place)
{
    struct schema_rule *rule = site->rule;
    struct schema_branch *branch = &rule->branches[rule->branch_count++];
    branch->node = node_compile(site->c, value, rule->name, site->base, place);
    return branch->node != NULL;
}

static bool compile_schema(const struct site *site)
{
    return branches_new(site, 1) && branch_compile(site, site->rule->value, site->place);
}

static bool compile_schema_list(const struct site *site)
{
    const json_t *list = site->rule->value;
    if (!json_is_array(list) || json_array_size(list) == 0)
        return refuse(site->c, site->place, "%s must be a list of schemas, not empty",
                      site->rule->name);
    if (!branches_new(site, json_array_size(list)))
        return false;
    for (size_t i = 0; i < json_array_size(list); i++) {
        struct schema_place item = {.up = site->place, .index = i};
        if (!branch_compile(site, json_array_get(list, i), &item))
            return false;
    }
    return true;
}

static bool compile_pattern_text(const struct site *site, const char *text, size_t len,
                                 const struct schema_place *place, struct schema_pattern **out)
{
    char why[128];
    *out = schema_pattern_compile(text, len, why, sizeof(why));
    if (!*out && !*why)
        return out_of_memory(site->c);
    if (!*out)
        return refuse(site->c, place, "the regular expression is refused: %s", why);
    site->c->patterns_size += (*out)->size;
    if (site->c->patterns_size > SCHEMA_PATTERNS_SIZE_MAX)
        return refuse(site->c, place, "the regular expressions together are too large");
    return true;
}

static bool compile_map(const struct site *site, bool patterns)
{
    const json_t *map = site->rule->value;
    if (!json_is_object(map))
        return refuse(site->c, site->place, "%s must be an object of schemas", site->rule->name);
    if (!branches_new(site, json_object_size(map)))
        return false;
    const char *name;
    size_t len;
    json_t *value;
    json_object_keylen_foreach((json_t *)map, name, len, value)
    {
        struct schema_place member = {.up = site->place, .name = name, .name_len = len};
        struct schema_branch *branch = &site->rule->branches[site->rule->branch_count];
        branch->name = name;
        branch->name_len = len;
        if (patterns && !compile_pattern_text(site, name, len, &member, &branch->pattern))
            return false;
        if (!branch_compile(site, value, &member))
            return false;
    }
    return true;
}

static bool compile_schema_map(const struct site *site)
{
    return compile_map(site, false);
}

static bool compile_pattern_map(const struct site *site)
{
    return compile_map(site, true);
}

static int branch_compare(const void *left, const void *right)
{
    const struct schema_branch *a = left;
    const struct schema_branch *b = right;
    return schema_name_compare(a->name, a->name_len, b->name, b->name_len);
}

static bool compile_properties(const struct site *site)
{
    if (!compile_map(site, false))
        return false;
    qsort(site->rule->branches, site->rule->branch_count, sizeof(*site->rule->branches),
          branch_compare);
    return true;
}

static bool compile_reference(const struct site *site)
{
    if (!branches_new(site, 1))
        return false;
    site->rule->branch_count = 1; /* its node is known once all places are */
    return schema_references_add_ref(&site->c->references, site->rule, site->base, site->place,
                                     site->c->err);
}

/* --- assertions --- */

static bool compile_one_type(const struct site *site, const json_t *name)
{
    static const struct {
        const char *name;
        enum schema_type type;
    } types[] = {
        {"null", SCHEMA_TYPE_NULL},       {"boolean", SCHEMA_TYPE_BOOLEAN},
        {"integer", SCHEMA_TYPE_INTEGER}, {"number", SCHEMA_TYPE_NUMBER},
        {"string", SCHEMA_TYPE_STRING},   {"object", SCHEMA_TYPE_OBJECT},
        {"array", SCHEMA_TYPE_ARRAY},
    };
    struct schema_rule *rule = site->rule;
    const char *text = json_string_value(name);
    for (size_t i = 0; text && i < sizeof(types) / sizeof(types[0]); i++) {
        if (strcmp(types[i].name, text) != 0 || (rule->types & types[i].type))
            continue;
        rule->types |= types[i].type;
        size_t used = strlen(rule->want);
        snprintf(rule->want + used, sizeof(rule->want) - used, "%s%s", used ? " or " : "", text);
        return true;
    }
    return refuse(site->c, site->place, "type must be one of JSON's type names, or a list of them");
}

static bool compile_type(const struct site *site)
{
    const json_t *value = site->rule->value;
    if (!json_is_array(value) || json_array_size(value) == 0)
        return compile_one_type(site, value);
    for (size_t i = 0; i < json_array_size(value); i++)
        if (!compile_one_type(site, json_array_get(value, i)))
            return false;
    return true;
}

/* Spells out a value that is wanted, or `otherwise` where that would be long. */
static void want_write(struct schema_rule *rule, const char *otherwise)
{
    size_t size =
        json_dumpb(rule->value, rule->want, sizeof(rule->want) - 1, JSON_ENCODE_ANY | JSON_COMPACT);
    if (size == 0 || size >= sizeof(rule->want))
        snprintf(rule->want, sizeof(rule->want), "%s", otherwise);
    else
        rule->want[size] = '\0';
}

static bool compile_const(const struct site *site)
{
    want_write(site->rule, "the value that the schema names");
    return true;
}

static bool compile_enum(const struct site *site)
{
    if (!json_is_array(site->rule->value))
        return refuse(site->c, site->place, "enum must be a list of values");
    want_write(site->rule, "the values that the schema lists");
    return true;
}

static bool compile_number(const struct site *site)
{
    return json_is_number(site->rule->value) ||
           refuse(site->c, site->place, "%s must be a number", site->rule->name);
}

static bool compile_divisor(const struct site *site)
{
    return (json_is_number(site->rule->value) && json_number_value(site->rule->value) > 0) ||
           refuse(site->c, site->place, "multipleOf must be a number above 0");
}

static bool compile_count(const struct site *site)
{
    const json_t *value = site->rule->value;
    if (!json_is_number(value) || !schema_number_is_integer(value) ||
        json_number_value(value) < 0 || json_number_value(value) > (double)JSON_EXACT_MAX)
        return refuse(site->c, site->place, "%s must be an integer, 0 or above", site->rule->name);
    site->rule->limit = (size_t)json_number_value(value);
    return true;
}

static bool compile_flag(const struct site *site)
{
    return json_is_boolean(site->rule->value) ||
           refuse(site->c, site->place, "%s must be true or false", site->rule->name);
}

static bool compile_pattern(const struct site *site)
{
    const json_t *value = site->rule->value;
    if (!json_is_string(value))
        return refuse(site->c, site->place, "pattern must be a string");
    return compile_pattern_text(site, json_string_value(value), json_string_length(value),
                                site->place, &site->rule->pattern);
}

static bool names_check(const struct site *site, const json_t *names,
                        const struct schema_place *place)
{
    size_t first, second;
    int64_t work = INT64_MAX;
    bool sound = json_is_array(names);
    for (size_t i = 0; sound && i < json_array_size(names); i++)
        sound = json_is_string(json_array_get(names, i));
    enum schema_unique unique =
        sound ? schema_items_unique(names, &work, &first, &second) : SCHEMA_TWICE;
    if (unique == SCHEMA_UNIQUE_NO_MEMORY)
        return out_of_memory(site->c);
    return unique == SCHEMA_UNIQUE || refuse(site->c, place, "must be a list of names, each once");
}

static bool compile_names(const struct site *site)
{
    return names_check(site, site->rule->value, site->place);
}

static bool compile_name_map(const struct site *site)
{
    const json_t *map = site->rule->value;
    if (!json_is_object(map))
        return refuse(site->c, site->place, "%s must be an object", site->rule->name);
    const char *name;
    size_t len;
    json_t *names;
    json_object_keylen_foreach((json_t *)map, name, len, names)
    {
        struct schema_place member = {.up = site->place, .name = name, .name_len = len};
        if (!names_check(site, names, &member))
            return false;
    }
    return true;
}

/* --- what is accepted and asserts nothing --- */

static bool compile_anything(const struct site *site)
{
    (void)site;
    return true;
}

static bool compile_text(const struct site *site)
{
    return json_is_string(site->rule->value) ||
           refuse(site->c, site->place, "%s must be a string", site->rule->name);
}

static bool compile_list(const struct site *site)
{
    return json_is_array(site->rule->value) ||
           refuse(site->c, site->place, "%s must be a list", site->rule->name);
}

static bool compile_dialect(const struct site *site)
{
    const char *text = json_string_value(site->rule->value);
    return (text && (strcmp(text, DIALECT) == 0 || strcmp(text, DIALECT "#") == 0)) ||
           refuse(site->c, site->place, "$schema may only be " DIALECT);
}

/* --- nodes --- */

struct form {
    const char *name;
    enum schema_keyword keyword;
    bool (*compile)(const struct site *site);
};

/* Every keyword there is, in the order in which rules are checked. */
static const struct form forms[] = {
    {"$id", KEYWORD_ANNOTATION, compile_text}, /* $id and $anchor: node_name */
    {"$anchor", KEYWORD_ANNOTATION, compile_text},
    {"$schema", KEYWORD_ANNOTATION, compile_dialect},
    {"$comment", KEYWORD_ANNOTATION, compile_text},
    {"$defs", KEYWORD_DEFINITIONS, compile_schema_map},
    {"definitions", KEYWORD_DEFINITIONS, compile_schema_map}, /* the older name of $defs */
    {"title", KEYWORD_ANNOTATION, compile_text},
    {"description", KEYWORD_ANNOTATION, compile_text},
    {"default", KEYWORD_ANNOTATION, compile_anything},
    {"deprecated", KEYWORD_ANNOTATION, compile_flag},
    {"readOnly", KEYWORD_ANNOTATION, compile_flag},
    {"writeOnly", KEYWORD_ANNOTATION, compile_flag},
    {"examples", KEYWORD_ANNOTATION, compile_list},
    {"format", KEYWORD_ANNOTATION, compile_text},
    {"contentEncoding", KEYWORD_ANNOTATION, compile_text},
    {"contentMediaType", KEYWORD_ANNOTATION, compile_text},
    {"contentSchema", KEYWORD_DEFINITIONS, compile_schema},
    {"type", KEYWORD_TYPE, compile_type},
    {"const", KEYWORD_CONST, compile_const},
    {"enum", KEYWORD_ENUM, compile_enum},
    {"minimum", KEYWORD_MINIMUM, compile_number},
    {"exclusiveMinimum", KEYWORD_EXCLUSIVE_MINIMUM, compile_number},
    {"maximum", KEYWORD_MAXIMUM, compile_number},
    {"exclusiveMaximum", KEYWORD_EXCLUSIVE_MAXIMUM, compile_number},
    {"multipleOf", KEYWORD_MULTIPLE_OF, compile_divisor},
    {"minLength", KEYWORD_MIN_LENGTH, compile_count},
    {"maxLength", KEYWORD_MAX_LENGTH, compile_count},
    {"pattern", KEYWORD_PATTERN, compile_pattern},
    {"minItems", KEYWORD_MIN_ITEMS, compile_count},
    {"maxItems", KEYWORD_MAX_ITEMS, compile_count},
    {"uniqueItems", KEYWORD_UNIQUE_ITEMS, compile_flag},
    {"minProperties", KEYWORD_MIN_PROPERTIES, compile_count},
    {"maxProperties", KEYWORD_MAX_PROPERTIES, compile_count},
    {"required", KEYWORD_REQUIRED, compile_names},
    {"dependentRequired", KEYWORD_DEPENDENT_REQUIRED, compile_name_map},
    {"propertyNames", KEYWORD_PROPERTY_NAMES, compile_schema},
    {"properties", KEYWORD_PROPERTIES, compile_properties},
    {"patternProperties", KEYWORD_PATTERN_PROPERTIES, compile_pattern_map},
    {"additionalProperties", KEYWORD_ADDITIONAL_PROPERTIES, compile_schema},
    {"prefixItems", KEYWORD_PREFIX_ITEMS, compile_schema_list},
    {"items", KEYWORD_ITEMS, compile_schema},
    {"minContains", KEYWORD_MIN_CONTAINS, compile_count},
    {"maxContains", KEYWORD_MAX_CONTAINS, compile_count},
    {"contains", KEYWORD_CONTAINS, compile_schema},
    {"$ref", KEYWORD_REF, compile_reference},
    {"allOf", KEYWORD_ALL_OF, compile_schema_list},
    {"anyOf", KEYWORD_ANY_OF, compile_schema_list},
    {"oneOf", KEYWORD_ONE_OF, compile_schema_list},
    {"not", KEYWORD_NOT, compile_schema},
    {"if", KEYWORD_IF, compile_schema},
    {"then", KEYWORD_THEN, compile_schema},
    {"else", KEYWORD_ELSE, compile_schema},
    {"dependentSchemas", KEYWORD_DEPENDENT_SCHEMAS, compile_schema_map},
    {"unevaluatedProperties", KEYWORD_UNEVALUATED_PROPERTIES, compile_schema},
    {"unevaluatedItems", KEYWORD_UNEVALUATED_ITEMS, compile_schema},
};
#define FORM_COUNT (sizeof(forms) / sizeof(forms[0]))

static const struct form *form_find(const char *name, size_t len)
{
    for (size_t i = 0; i < FORM_COUNT; i++)
        if (strlen(forms[i].name) == len && memcmp(forms[i].name, name, len) == 0)
            return &forms[i];
    return NULL;
}

static void rule_free(struct schema_rule *rule)
{
    for (size_t i = 0; i < rule->branch_count; i++)
        schema_pattern_free(rule->branches[i].pattern);
    free(rule->branches);
    schema_pattern_free(rule->pattern);
}

/* Refuses unknown keywords and makes room for the rules of the known ones. */
static bool node_prepare(struct compiler *c, struct schema_node *node, const json_t *value,
                         const struct schema_place *place)
{
    size_t rules = 0;
    const char *name;
    size_t len;
    json_t *member;
    json_object_keylen_foreach((json_t *)value, name, len, member)
    {
        const struct form *form = form_find(name, len);
        struct schema_place here = {.up = place, .name = name, .name_len = len};
        if (!form)
            return refuse(c, &here, "\"%.*s\" is not a keyword that is supported",
                          schema_text_fit(name, len, 64), name);
        rules += form->keyword < KEYWORD_RULES;
    }
    node->rules = calloc(rules ? rules : 1, sizeof(*node->rules));
    return node->rules || out_of_memory(c);
}

/* `$id` and `$anchor`. Returns the base URI from here on down. */
static const char *node_name(struct compiler *c, const struct schema_node *node,
                             const json_t *value, const char *base,
                             const struct schema_place *place)
{
    const json_t *id = json_object_get(value, "$id");
    const json_t *anchor = json_object_get(value, "$anchor");
    struct schema_place id_place = {.up = place, .name = "$id", .name_len = strlen("$id")};
    struct schema_place anchor_place = {
        .up = place, .name = "$anchor", .name_len = strlen("$anchor")};
    if (id)
        base = schema_references_add_id(&c->references, id, base, place, &id_place, c->err);
    if (base && anchor &&
        !schema_references_add_anchor(&c->references, anchor, base, node->index, &anchor_place,
                                      c->err))
        return NULL;
    return base;
}

static bool node_compile_keywords(struct compiler *c, struct schema_node *node, const json_t *value,
                                  const char *base, const struct schema_place *place)
{
    for (size_t i = 0; i < FORM_COUNT; i++) {
        const json_t *member = json_object_get(value, forms[i].name);
        if (!member)
            continue;
        struct schema_place here = {
            .up = place, .name = forms[i].name, .name_len = strlen(forms[i].name)};
        bool lasts = forms[i].keyword < KEYWORD_RULES;
        struct schema_rule scratch = {0};
        struct schema_rule *rule = lasts ? &node->rules[node->rule_count++] : &scratch;
        rule->keyword = forms[i].keyword;
        rule->name = forms[i].name;
        rule->value = member;
        struct site site = {.c = c, .rule = rule, .base = base, .place = &here};
        bool done = forms[i].compile(&site);
        rule_free(&scratch);
        if (!done)
            return false;
        if (rule->keyword == KEYWORD_UNEVALUATED_PROPERTIES ||
            rule->keyword == KEYWORD_UNEVALUATED_ITEMS)
            node->unevaluated = true;
    }
    return true;
}

/* A new node in schema->nodes, which owns it. */
static struct schema_node *node_new(struct compiler *c, const struct schema_place *place)
{
    struct schema *schema = c->schema;
    if (schema->node_count == SCHEMA_NODES_MAX) {
        error_set(c->err, ERROR_TOO_LARGE, "the schema holds more than %d schemas",
                  SCHEMA_NODES_MAX);
        return NULL;
    }
    struct schema_node *node = calloc(1, sizeof(*node));
    if (!node) {
        out_of_memory(c);
        return NULL;
    }
    node->index = schema->node_count;
    schema->nodes[schema->node_count++] = node;
    if (!schema_references_add_node(&c->references, place, node->index, c->err))
        return NULL;
    return node;
}

static struct schema_node *node_compile(struct compiler *c, const json_t *value, const char *under,
                                        const char *base, const struct schema_place *place)
{
    struct schema_node *node = node_new(c, place);
    if (!node)
        return NULL;
    node->under = under;
    if (json_is_boolean(value)) {
        node->kind = json_is_true(value) ? NODE_TRUE : NODE_FALSE;
        return node;
    }
    if (!json_is_object(value)) {
        refuse(c, place, "a schema must be an object, true or false");
        return NULL;
    }
    if (!node_prepare(c, node, value, place))
        return NULL;
    base = node_name(c, node, value, base, place);
    if (!base || !node_compile_keywords(c, node, value, base, place))
        return NULL;
    return node;
}

/* --- documents --- */

/* Counts the values of a document, which bounds all that follows. */
static bool document_measure(struct compiler *c, const json_t *value, int depth, size_t *count)
{
    if (depth > JSON_DEPTH_MAX)
        return error_set(c->err, ERROR_TOO_LARGE, "the schema is nested more than %d deep",
                         JSON_DEPTH_MAX);
    if (++*count > SCHEMA_VALUES_MAX)
        return error_set(c->err, ERROR_TOO_LARGE, "the schema holds more than %d values",
                         SCHEMA_VALUES_MAX);
    for (size_t i = 0; i < json_array_size(value); i++)
        if (!document_measure(c, json_array_get(value, i), depth + 1, count))
            return false;
    const char *name;
    json_t *member;
    json_object_foreach((json_t *)value, name, member)
    {
        if (!document_measure(c, member, depth + 1, count))
            return false;
    }
    return true;
}

static bool schema_build(struct compiler *c, const json_t *document)
{
    size_t count = 0;
    if (!document_measure(c, document, 0, &count))
        return false;
    struct schema *schema = c->schema;
    schema->document = json_deep_copy(document);
    schema->nodes = calloc(count, sizeof(struct schema_node *)); /* a schema is a value */
    if (!schema->document || !schema->nodes || !schema_references_init(&c->references))
        return out_of_memory(c);
    return node_compile(c, schema->document, "", "", NULL) &&
           schema_references_resolve(&c->references, schema, c->err);
}

struct schema *schema_compile(const json_t *document, struct error *err)
{
    struct compiler c = {.schema = calloc(1, sizeof(struct schema)), .err = err};
    if (!c.schema) {
        out_of_memory(&c);
        return NULL;
    }
    bool built = schema_build(&c, document);
    schema_references_free(&c.references);
    if (built)
        return c.schema;
    schema_free(c.schema);
    return NULL;
}

void schema_free(struct schema *schema)
{
    if (!schema)
        return;
    for (size_t i = 0; i < schema->node_count; i++) {
        struct schema_node *node = schema->nodes[i];
        for (size_t j = 0; j < node->rule_count; j++)
            rule_free(&node->rules[j]);
        free(node->rules);
        free(node);
    }
    free(schema->nodes);
    json_decref(schema->document);
    free(schema);
}

const struct schema_rule *schema_node_rule(const struct schema_node *node,
                                           enum schema_keyword keyword)
{
    for (size_t i = 0; i < node->rule_count; i++)
        if (node->rules[i].keyword == keyword)
            return &node->rules[i];
    return NULL;
}
