/* From libyaml's events to a JSON value, one event after another; nothing is ever expanded. */
#include "common/base/yaml.h"

#include "common/base/json.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <yaml.h>

/* A list or map that is being read, and the key that waits for its value. */
struct level {
    json_t *value; /* owned by the level above, or the root */
    char *key;     /* malloc'd; of a map: NULL while a key comes next */
};

struct reader {
    yaml_parser_t parser;
    struct level levels[JSON_DEPTH_MAX];
    int depth;
    json_t *root; /* owned */
    int nodes;
    struct error *err;
};

static bool refuse(const struct reader *r, const yaml_mark_t *at, const char *why)
{
    char place[64];
    snprintf(place, sizeof place, "line %zu column %zu", at->line + 1, at->column + 1);
    return error_set_at(r->err, ERROR_INVALID, place, "%s", why);
}

/* ---- plain scalars ---- */

static bool word_is(const char *text, const char *const *words)
{
    for (; *words != NULL; words++)
        if (strcasecmp(*words, text) == 0)
            return true;
    return false;
}

/* What some reader of YAML takes for a number. */
static bool looks_like_number(const char *text)
{
    static const char *const words[] = {".inf", "-.inf", "+.inf", ".nan", NULL};
    const char *at = text + (*text == '-' || *text == '+');
    bool digits = false;
    if (word_is(text, words))
        return true;
    if (at[0] == '0' && (at[1] == 'x' || at[1] == 'o' || at[1] == 'b'))
        return at[2] != '\0' && at[2 + strspn(at + 2, "0123456789abcdefABCDEF_")] == '\0';
    for (const char *c = at; *c != '\0'; c++) {
        digits = digits || (*c >= '0' && *c <= '9');
        bool exponent = (*c == 'e' || *c == 'E') && digits;
        if (exponent && (c[1] == '+' || c[1] == '-'))
            c++;
        else if (!exponent && strchr("0123456789_.:", *c) == NULL)
            return false;
    }
    return digits && strspn(at, "0123456789_:.") > 0 && strchr(at, '.') == strrchr(at, '.');
}

/* The value of a plain scalar; NULL with the reason told. */
static json_t *plain_read(const struct reader *r, const yaml_mark_t *at, const char *text,
                          size_t len)
{
    static const char *const nulls[] = {"null", "~", "", NULL};
    static const char *const yes[] = {"true", NULL};
    static const char *const no[] = {"false", NULL};
    static const char *const doubtful[] = {"yes", "no", "on", "off", "y", "n", NULL};
    struct error why = {0};
    if (word_is(text, nulls))
        return json_null();
    if (word_is(text, yes))
        return json_true();
    if (word_is(text, no))
        return json_false();
    if (word_is(text, doubtful)) {
        refuse(r, at, "write true or false, or quote it: readers disagree about yes, no, on, off");
        return NULL;
    }
    if (!looks_like_number(text))
        return json_stringn(text, len);
    json_t *number = json_parse_strict(text, len, &why);
    if (number == NULL)
        refuse(r, at, "is no number as JSON writes them: write it plainly, or quote it");
    return number;
}

static json_t *scalar_read(const struct reader *r, const yaml_event_t *event)
{
    const char *text = (const char *)event->data.scalar.value;
    size_t len = event->data.scalar.length;
    if (memchr(text, '\0', len) != NULL) {
        refuse(r, &event->start_mark, "holds a NUL");
        return NULL;
    }
    if (event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE)
        return plain_read(r, &event->start_mark, text, len);
    return json_stringn(text, len);
}

/* ---- building ---- */

/* Puts a value where it belongs; takes it. */
static bool value_put(struct reader *r, const yaml_mark_t *at, json_t *value)
{
    must(value != NULL);
    if (r->depth == 0) {
        r->root = value;
        return true;
    }
    struct level *level = &r->levels[r->depth - 1];
    if (json_is_array(level->value))
        return json_array_append_new(level->value, value) == 0;
    bool again = json_object_get(level->value, level->key) != NULL;
    bool ok = !again && json_object_set_new(level->value, level->key, value) == 0;
    if (again)
        json_decref(value);
    free(level->key);
    level->key = NULL;
    return ok || refuse(r, at, "this key stands in the map already");
}

static bool key_wanted(const struct reader *r)
{
    return r->depth > 0 && json_is_object(r->levels[r->depth - 1].value) &&
           r->levels[r->depth - 1].key == NULL;
}

static bool key_take(struct reader *r, const yaml_event_t *event)
{
    const char *text = (const char *)event->data.scalar.value;
    bool plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (plain && strcmp(text, "<<") == 0)
        return refuse(r, &event->start_mark, "merge keys are not taken");
    if (memchr(text, '\0', event->data.scalar.length) != NULL)
        return refuse(r, &event->start_mark, "holds a NUL");
    r->levels[r->depth - 1].key = strdup(text);
    must(r->levels[r->depth - 1].key != NULL);
    return true;
}

static bool scalar_take(struct reader *r, const yaml_event_t *event)
{
    if (event->data.scalar.anchor != NULL || event->data.scalar.tag != NULL)
        return refuse(r, &event->start_mark, "anchors and tags are not taken");
    if (key_wanted(r))
        return key_take(r, event);
    json_t *value = scalar_read(r, event);
    return value != NULL && value_put(r, &event->start_mark, value);
}

static bool collection_begin(struct reader *r, const yaml_mark_t *at, json_t *value, bool named)
{
    must(value != NULL);
    const char *why = named                        ? "anchors and tags are not taken"
                      : key_wanted(r)              ? "a key must be text"
                      : r->depth == JSON_DEPTH_MAX ? "is nested too deep"
                                                   : NULL;
    if (why != NULL) {
        json_decref(value);
        return refuse(r, at, why);
    }
    if (!value_put(r, at, value))
        return false;
    r->levels[r->depth++] = (struct level){.value = value};
    return true;
}

/* False: refused, or the end (*done). */
static bool event_take(struct reader *r, const yaml_event_t *event, bool *done)
{
    const yaml_mark_t *at = &event->start_mark;
    if (++r->nodes > YAML_NODES_MAX)
        return refuse(r, at, "the document has too many values");
    switch (event->type) {
    case YAML_ALIAS_EVENT:
        return refuse(r, at, "aliases are not taken");
    case YAML_SCALAR_EVENT:
        return scalar_take(r, event);
    case YAML_SEQUENCE_START_EVENT:
        return collection_begin(r, at, json_array(),
                                event->data.sequence_start.anchor != NULL ||
                                    event->data.sequence_start.tag != NULL);
    case YAML_MAPPING_START_EVENT:
        return collection_begin(r, at, json_object(),
                                event->data.mapping_start.anchor != NULL ||
                                    event->data.mapping_start.tag != NULL);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        r->depth--;
        return true;
    case YAML_DOCUMENT_START_EVENT:
        return r->root == NULL || refuse(r, at, "only one document is taken");
    case YAML_STREAM_END_EVENT:
        *done = true;
        return false;
    default:
        return true;
    }
}

static void events_read(struct reader *r)
{
    bool done = false, go_on = true;
    while (go_on) {
        yaml_event_t event;
        if (!yaml_parser_parse(&r->parser, &event)) {
            refuse(r, &r->parser.problem_mark,
                   r->parser.problem != NULL ? r->parser.problem : "can't be read as YAML");
            return;
        }
        go_on = event_take(r, &event, &done);
        yaml_event_delete(&event);
    }
    if (done && r->root == NULL)
        error_set_at(r->err, ERROR_INVALID, "line 1 column 1", "there is nothing in it");
}

json_t *yaml_parse(const char *text, size_t len, struct error *err)
{
    struct error why = {0};
    struct reader r = {.err = &why};
    must(yaml_parser_initialize(&r.parser));
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, len);
    events_read(&r);
    for (int i = 0; i < r.depth; i++)
        free(r.levels[i].key);
    yaml_parser_delete(&r.parser);
    if (why.code == ERROR_NONE)
        return r.root;
    json_decref(r.root);
    if (err != NULL)
        *err = why;
    return NULL;
}
