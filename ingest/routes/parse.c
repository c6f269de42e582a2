/* Bodies and query strings of the resource routes. */
#include "ingest/routes/parse.h"

#include "common/base/json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define OFFSET_MOST 1000000

json_t *body_read(struct call *call, bool optional, const char *const *members)
{
    struct error err = {0};
    bool empty = optional && call->body.len == 0;
    const char *text = empty ? "{}" : call->body.data;
    size_t len = empty ? 2 : call->body.len;
    json_t *body = json_parse_object(text != NULL ? text : "", len, &err);
    if (body != NULL && json_only_members(body, members, &err))
        return body;
    json_decref(body);
    call_error_value(call, &err);
    return NULL;
}

static bool query_refuse(struct call *call, const char *name, const char *sentence)
{
    char details[96];
    snprintf(details, sizeof details, "{\"place\":\"%s\"}", name);
    call_error(call, 400, "VALIDATION_ERROR", details, "%s %s", name, sentence);
    return false;
}

bool query_int(struct call *call, const char *name, int64_t least, int64_t most, int64_t *out)
{
    const char *text = call_query(call, name);
    if (text == NULL)
        return true;
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (*text >= '0' && *text <= '9' && *end == '\0' && errno == 0 && value >= least &&
        value <= most) {
        *out = value;
        return true;
    }
    char sentence[96];
    snprintf(sentence, sizeof sentence, "must be a number from %" PRId64 " to %" PRId64, least,
             most);
    return query_refuse(call, name, sentence);
}

bool query_bool(struct call *call, const char *name, bool *out)
{
    static const char *const words[] = {"true", "false", NULL};
    const char *word = NULL;
    if (!query_word(call, name, words, &word))
        return false;
    if (word != NULL)
        *out = word == words[0];
    return true;
}

bool query_word(struct call *call, const char *name, const char *const *words, const char **out)
{
    const char *text = call_query(call, name);
    if (text == NULL)
        return true;
    for (size_t i = 0; words[i] != NULL; i++) {
        if (strcmp(words[i], text) == 0) {
            *out = words[i];
            return true;
        }
    }
    char sentence[256] = "must be one of";
    for (size_t i = 0; words[i] != NULL; i++) {
        size_t len = strlen(sentence);
        snprintf(sentence + len, sizeof sentence - len, " %s", words[i]);
    }
    return query_refuse(call, name, sentence);
}

bool query_page(struct call *call, int64_t standard, int64_t *limit, int64_t *offset)
{
    *limit = standard;
    *offset = 0;
    return query_int(call, "limit", 1, PAGE_MOST, limit) &&
           query_int(call, "offset", 0, OFFSET_MOST, offset);
}

bool error_place_under(struct error *err, const char *prefix)
{
    char place[sizeof err->place];
    snprintf(place, sizeof place, "%s%.*s", prefix, (int)(sizeof place - 1 - strlen(prefix)),
             err->place);
    memcpy(err->place, place, sizeof place);
    return false;
}

static bool listed_before(const json_t *list, size_t index)
{
    const char *text = json_string_value(json_array_get(list, index));
    for (size_t i = 0; i < index; i++)
        if (strcmp(json_string_value(json_array_get(list, i)), text) == 0)
            return true;
    return false;
}

bool field_text_list(const json_t *list, const char *name, size_t count_most, size_t len_most,
                     bool (*valid)(const char *text), const char *what, struct error *err)
{
    char place[sizeof err->place];
    size_t count = json_array_size(list);
    snprintf(place, sizeof place, "/%s", name);
    if (!json_is_array(list) || count == 0 || count > count_most)
        return error_set_at(err, ERROR_INVALID, place, "must be a list of 1 to %zu strings",
                            count_most);
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_array_get(list, i);
        const char *text = json_string_value(item);
        size_t len = json_string_length(item);
        snprintf(place, sizeof place, "/%s/%zu", name, i);
        if (text == NULL || len == 0 || len > len_most || (valid != NULL && !valid(text)))
            return error_set_at(err, ERROR_INVALID, place, "must be %s", what);
        if (listed_before(list, i))
            return error_set_at(err, ERROR_INVALID, place, "is in the list already");
    }
    return true;
}
