/* Where `$ref` leads: collects every place of a schema document that a reference can name (JSON
 * pointers, `$id`, `$anchor`), then ties the references. Nothing is ever fetched. */
#include "common/base/schema_internal.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POINTER_MAX 4096  /* bytes of the JSON pointer of a schema */
#define URI_MAX 2048      /* resolved */
#define URI_TEXT_MAX 1024 /* as written in $id, $anchor or $ref */

/* Keywords whose schemas look at the same value as the schema that holds them. */
static bool keyword_in_place(enum schema_keyword keyword)
{
    switch (keyword) {
    case KEYWORD_REF:
    case KEYWORD_ALL_OF:
    case KEYWORD_ANY_OF:
    case KEYWORD_ONE_OF:
    case KEYWORD_NOT:
    case KEYWORD_IF:
    case KEYWORD_THEN:
    case KEYWORD_ELSE:
    case KEYWORD_DEPENDENT_SCHEMAS:
        return true;
    default:
        return false;
    }
}

bool schema_references_init(struct schema_references *references)
{
    *references = (struct schema_references){
        .pointers = json_object(), .resources = json_object(), .anchors = json_object()};
    /* A document without a root $id is known by the empty URI. */
    return references->pointers && references->anchors &&
           json_object_set_new(references->resources, "", json_string("")) == 0;
}

void schema_references_free(struct schema_references *references)
{
    json_decref(references->pointers);
    json_decref(references->resources);
    json_decref(references->anchors);
    for (size_t i = 0; i < references->base_count; i++)
        free(references->bases[i]);
    free(references->bases);
    for (size_t i = 0; i < references->pending_count; i++)
        free(references->pending[i].place);
    free(references->pending);
    *references = (struct schema_references){0};
}

/* The pointer of a place as a string of its own; NULL when memory is out. */
static char *place_text(const struct schema_place *place)
{
    struct buf out;
    buf_init(&out, SIZE_MAX); /* schema_references_add_node keeps it short */
    schema_place_put(place, &out);
    return buf_take(&out, NULL);
}

static bool refuse(const struct schema_place *place, struct error *err, const char *why)
{
    char where[sizeof(err->place)];
    return error_set_at(err, ERROR_INVALID, schema_place_write(place, where, sizeof(where)), "%s",
                        why);
}

static bool out_of_memory(struct error *err)
{
    return error_set(err, ERROR_MEMORY, "no memory to compile the schema");
}

bool schema_references_add_node(struct schema_references *references,
                                const struct schema_place *place, size_t index, struct error *err)
{
    size_t size = 0; /* with every character escaped */
    for (const struct schema_place *at = place; at; at = at->up)
        size += at->name ? 2 * at->name_len + 1 : 21;
    if (size > POINTER_MAX)
        return error_set(err, ERROR_TOO_LARGE,
                         "the JSON pointer to a schema inside would be longer than %d bytes",
                         POINTER_MAX);
    char *pointer = place_text(place);
    json_t *value = json_integer((json_int_t)index);
    bool done = pointer && json_object_set_new_nocheck(references->pointers, pointer, value) == 0;
    free(pointer);
    return done || out_of_memory(err);
}

/* --- URIs, RFC 3986 section 5 --- */

struct uri {
    const char *scheme; /* with its ':' */
    size_t scheme_len;
    const char *authority; /* with its "//" */
    size_t authority_len;
    const char *path;
    size_t path_len;
    const char *query; /* with its '?' */
    size_t query_len;
};

/* Splits a URI reference up to its fragment. */
static struct uri uri_split(const char *text)
{
    struct uri uri = {.scheme = text};
    const char *end = text + strcspn(text, "#");
    size_t scheme = strcspn(text, ":/?#");
    if (text[scheme] == ':' && isalpha((unsigned char)text[0]))
        uri.scheme_len = scheme + 1;
    uri.authority = text + uri.scheme_len;
    if (strncmp(uri.authority, "//", 2) == 0)
        uri.authority_len = 2 + strcspn(uri.authority + 2, "/?#");
    uri.path = uri.authority + uri.authority_len;
    uri.path_len = strcspn(uri.path, "?#");
    uri.query = uri.path + uri.path_len;
    uri.query_len = (size_t)(end - uri.query);
    return uri;
}

/* Puts a path without its "." and ".." segments. */
static void path_put(struct buf *out, const char *path, size_t len)
{
    size_t start = out->len;
    const char *end = path + len;
    while (path < end) {
        const char *slash = memchr(path + 1, '/', (size_t)(end - path - 1));
        const char *next = slash ? slash : end;
        const char *segment = path + (*path == '/');
        size_t segment_len = (size_t)(next - segment);
        bool dot = segment_len == 1 && segment[0] == '.';
        bool dots = segment_len == 2 && segment[0] == '.' && segment[1] == '.';
        if (dots)
            while (out->len > start && out->data[--out->len] != '/')
                ;
        if (!dot && !dots)
            buf_put(out, path, (size_t)(next - path));
        else if (next == end)
            buf_puts(out, "/");
        path = next;
    }
}

/* Resolves `reference` (its fragment left away) against `base`. Owned by the caller; NULL with
 * err. */
static char *uri_resolve(const char *base, const char *reference, struct error *err)
{
    if (strlen(base) + strlen(reference) > URI_MAX) {
        error_set(err, ERROR_TOO_LARGE, "a URI in the schema is longer than %d bytes", URI_MAX);
        return NULL;
    }
    struct uri r = uri_split(reference);
    struct uri b = uri_split(base);
    bool same_document = !r.scheme_len && !r.authority_len && !r.path_len && !r.query_len;
    struct buf path, out;
    buf_init(&path, SIZE_MAX);
    buf_init(&out, SIZE_MAX);
    if (r.scheme_len || same_document) {
        struct uri whole = r.scheme_len ? r : b;
        buf_put(&out, whole.scheme, (size_t)(whole.query + whole.query_len - whole.scheme));
        goto done;
    }
    buf_put(&out, b.scheme, b.scheme_len);
    const struct uri *host = r.authority_len ? &r : &b;
    buf_put(&out, host->authority, host->authority_len);
    if (!r.authority_len && r.path_len && r.path[0] != '/') {
        size_t keep = b.path_len;
        while (keep && b.path[keep - 1] != '/')
            keep--;
        buf_put(&path, b.path, keep);
        if (!keep && b.authority_len)
            buf_puts(&path, "/");
    } else if (!r.authority_len && !r.path_len) {
        buf_put(&path, b.path, b.path_len);
    }
    buf_put(&path, r.path, r.path_len);
    if (path.len)
        path_put(&out, path.data, path.len);
    buf_put(&out, r.query, r.query_len);
done:
    out.failed |= path.failed;
    buf_free(&path);
    char *uri = buf_take(&out, NULL);
    if (!uri)
        out_of_memory(err);
    return uri;
}

/* --- what can be named --- */

const char *schema_references_add_id(struct schema_references *references, const json_t *id,
                                     const char *base, const struct schema_place *schema,
                                     const struct schema_place *keyword, struct error *err)
{
    const char *text = json_string_value(id);
    if (!text || !*text || text[strcspn(text, "#")] || strlen(text) != json_string_length(id)) {
        refuse(keyword, err, "$id must be a URI reference without a fragment");
        return NULL;
    }
    if (strlen(text) > URI_TEXT_MAX) {
        refuse(keyword, err, "$id is longer than 1024 bytes");
        return NULL;
    }
    char *pointer = place_text(schema);
    char *uri = uri_resolve(base, text, err);
    char **grown = realloc(references->bases, (references->base_count + 1) * sizeof(*grown));
    if (grown)
        references->bases = grown;
    if (!uri)
        goto fail;
    if (!pointer || !grown) {
        out_of_memory(err);
        goto fail;
    }
    if (json_object_get(references->resources, uri)) {
        refuse(keyword, err, "$id is used twice");
        goto fail;
    }
    if (json_object_set_new_nocheck(references->resources, uri, json_string_nocheck(pointer)) !=
        0) {
        out_of_memory(err);
        goto fail;
    }
    free(pointer);
    references->bases[references->base_count++] = uri;
    return uri;
fail:
    free(pointer);
    free(uri);
    return NULL;
}

static bool anchor_valid(const char *text)
{
    if (!text || !(isalpha((unsigned char)*text) || *text == '_'))
        return false;
    while (isalnum((unsigned char)*text) || (*text && strchr("-._", *text)))
        text++;
    return *text == '\0';
}

/* "URI#anchor"; owned by the caller, NULL when memory is out. */
static char *anchor_key(const char *base, const char *anchor)
{
    struct buf key;
    buf_init(&key, SIZE_MAX); /* both parts are short */
    buf_printf(&key, "%s#%s", base, anchor);
    return buf_take(&key, NULL);
}

bool schema_references_add_anchor(struct schema_references *references, const json_t *anchor,
                                  const char *base, size_t index,
                                  const struct schema_place *keyword, struct error *err)
{
    const char *text = json_string_value(anchor);
    if (!anchor_valid(text) || strlen(text) > URI_TEXT_MAX)
        return refuse(keyword, err, "$anchor must be letters, digits, -, . and _");
    char *key = anchor_key(base, text);
    if (!key)
        return out_of_memory(err);
    bool twice = json_object_get(references->anchors, key) != NULL;
    bool done =
        json_object_set_new_nocheck(references->anchors, key, json_integer((json_int_t)index)) == 0;
    free(key);
    if (twice)
        return refuse(keyword, err, "$anchor is used twice");
    return done || out_of_memory(err);
}

bool schema_references_add_ref(struct schema_references *references, struct schema_rule *rule,
                               const char *base, const struct schema_place *keyword,
                               struct error *err)
{
    const char *text = json_string_value(rule->value);
    if (!text || strlen(text) != json_string_length(rule->value) || strlen(text) > URI_TEXT_MAX)
        return refuse(keyword, err, "$ref must be a URI reference");
    struct schema_pending *grown =
        realloc(references->pending, (references->pending_count + 1) * sizeof(*grown));
    if (!grown)
        return out_of_memory(err);
    references->pending = grown;
    char *place = place_text(keyword);
    if (!place)
        return out_of_memory(err);
    grown[references->pending_count++] =
        (struct schema_pending){.rule = rule, .base = base, .place = place};
    return true;
}

/* --- where references lead --- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)tolower((unsigned char)c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool percent_decode(const char *text, struct buf *out)
{
    for (; *text; text++) {
        char c = *text;
        if (c == '%') {
            int high = hex_digit(text[1]);
            int low = high < 0 ? -1 : hex_digit(text[2]);
            if (low < 0 || (high == 0 && low == 0))
                return false;
            c = (char)(high * 16 + low);
            text += 2;
        }
        buf_put(out, &c, 1);
    }
    return buf_put(out, "", 0);
}

/* Finds the index of the node that a resolved URI and a fragment name; NULL when the document has
 * none. False: no memory. */
static bool target_find(const struct schema_references *references, const char *uri,
                        const char *fragment, const json_t **index)
{
    struct buf key;
    buf_init(&key, SIZE_MAX); /* the parts are short */
    if (*fragment && *fragment != '/') {
        buf_printf(&key, "%s#", uri);
        if (percent_decode(fragment, &key))
            *index = json_object_get(references->anchors, key.data);
    } else {
        const char *root = json_string_value(json_object_get(references->resources, uri));
        if (root && buf_puts(&key, root) && percent_decode(fragment, &key))
            *index = json_object_get(references->pointers, key.data);
    }
    bool done = !key.failed;
    buf_free(&key);
    return done;
}

static bool pending_resolve(const struct schema_references *references,
                            const struct schema_pending *pending, const struct schema *schema,
                            struct error *err)
{
    const char *text = json_string_value(pending->rule->value);
    const char *hash = strchr(text, '#');
    char *uri = uri_resolve(pending->base, text, err);
    if (!uri)
        return false;
    const json_t *target = NULL;
    bool found = target_find(references, uri, hash ? hash + 1 : "", &target);
    free(uri);
    if (!found)
        return out_of_memory(err);
    if (!target) {
        char where[sizeof(err->place)];
        schema_pointer_cut(pending->place, strlen(pending->place), where, sizeof(where));
        return error_set_at(err, ERROR_INVALID, where,
                            "$ref must lead to a schema inside this document");
    }
    pending->rule->branches[0].node = schema->nodes[json_integer_value(target)];
    return true;
}

/* --- loops --- */

enum colour { WHITE, GREY, BLACK };

static bool loop_refuse(const struct schema_references *references, const struct schema_node *node,
                        const struct schema_rule *rule, struct error *err)
{
    char where[sizeof(err->place)] = "";
    struct buf place;
    buf_init(&place, SIZE_MAX);
    const char *pointer;
    json_t *index;
    json_object_foreach(references->pointers, pointer, index)
    {
        if ((size_t)json_integer_value(index) == node->index)
            buf_printf(&place, "%s/%s", pointer, rule->name);
    }
    schema_pointer_cut(place.data, place.len, where, sizeof(where));
    buf_free(&place);
    return error_set_at(err, ERROR_INVALID, where,
                        "the schema leads back to itself without a step into the value");
}

/* Depth first over the schemas that look at the same value; recursion is bounded by the number of
 * schemas, SCHEMA_NODES_MAX. */
static bool loop_search(const struct schema_references *references, const struct schema_node *node,
                        unsigned char *colours, struct error *err)
{
    colours[node->index] = GREY;
    for (size_t i = 0; i < node->rule_count; i++) {
        const struct schema_rule *rule = &node->rules[i];
        for (size_t j = 0; keyword_in_place(rule->keyword) && j < rule->branch_count; j++) {
            const struct schema_node *next = rule->branches[j].node;
            if (colours[next->index] == GREY)
                return loop_refuse(references, node, rule, err);
            if (colours[next->index] == WHITE && !loop_search(references, next, colours, err))
                return false;
        }
    }
    colours[node->index] = BLACK;
    return true;
}

bool schema_references_resolve(struct schema_references *references, struct schema *schema,
                               struct error *err)
{
    for (size_t i = 0; i < references->pending_count; i++)
        if (!pending_resolve(references, &references->pending[i], schema, err))
            return false;
    unsigned char *colours = calloc(schema->node_count, 1);
    if (!colours)
        return out_of_memory(err);
    bool sound = true;
    for (size_t i = 0; i < schema->node_count && sound; i++)
        if (colours[i] == WHITE)
            sound = loop_search(references, schema->nodes[i], colours, err);
    free(colours);
    return sound;
}
