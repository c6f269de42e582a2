/* The stored form of a prepared request: canonical JSON in which slots are objects, never text.
 *
 *   {"body":[...]|null,"format":"none|json|form|text","headers":[{"name":"...","value":[...]}],
 *    "host":"...","https":true,"method":"POST","port":443,"url":[...],"v":1}
 *
 * A list of parts holds strings (literal bytes) and the objects {"secret":"NAME"},
 * {"slot":"effect_id"} and {"slot":"provider_key"}. */
#include "common/base/json.h"
#include "common/http/escape.h"
#include "common/http/guard.h"
#include "common/http/request.h"
#include "common/http/request_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REQUEST_VERSION 1

static const char *const format_names[] = {"none", "json", "form", "text"};

static json_t *part_encode(const struct part *part)
{
    switch (part->kind) {
    case PART_LITERAL:
        return json_stringn(part->text.data, part->text.len);
    case PART_SECRET:
        return json_pack("{s:s}", "secret", part->text.data);
    case PART_EFFECT_ID:
        return json_pack("{s:s}", "slot", "effect_id");
    case PART_PROVIDER_KEY:
        return json_pack("{s:s}", "slot", "provider_key");
    }
    return NULL;
}

/* NULL when out of memory. */
static json_t *parts_encode(const struct parts *parts)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < parts->count; i++) {
        if (json_array_append_new(list, part_encode(&parts->items[i])) < 0) {
            json_decref(list);
            list = NULL;
        }
    }
    return list;
}

static json_t *headers_encode(const struct request *request)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < request->header_count; i++) {
        const struct request_header *header = &request->headers[i];
        json_t *item =
            json_pack("{s:s, s:o}", "name", header->name, "value", parts_encode(&header->value));
        if (json_array_append_new(list, item) < 0) {
            json_decref(list);
            list = NULL;
        }
    }
    return list;
}

bool request_encode(const struct request *request, struct buf *out)
{
    bool bodiless = request->format == BODY_NONE;
    json_t *document =
        json_pack("{s:o, s:s, s:o, s:s, s:b, s:s, s:i, s:o, s:i}", "body",
                  bodiless ? json_null() : parts_encode(&request->body), "format",
                  format_names[request->format], "headers", headers_encode(request), "host",
                  request->host, "https", (int)request->https, "method", request->method, "port",
                  request->port, "url", parts_encode(&request->url), "v", REQUEST_VERSION);
    bool ok = document && json_canonical(document, out);
    json_decref(document);
    return ok;
}

void request_hash(const char *encoded, size_t len, uint8_t hash[SHA256_SIZE])
{
    crypto_sha256(encoded, len, hash);
}

static bool slot_decode(const json_t *item, enum part_kind *kind, const char **text)
{
    static const char *const slot_members[] = {"slot", NULL};
    static const char *const secret_members[] = {"secret", NULL};
    const char *slot = json_string_value(json_object_get(item, "slot"));
    *text = json_string_value(json_object_get(item, "secret"));
    if (*text) {
        *kind = PART_SECRET;
        return json_only_members(item, secret_members, NULL) &&
               secret_name_valid(*text, strlen(*text));
    }
    *text = "";
    if (!slot || !json_only_members(item, slot_members, NULL))
        return false;
    *kind = strcmp(slot, "effect_id") == 0 ? PART_EFFECT_ID : PART_PROVIDER_KEY;
    return *kind == PART_EFFECT_ID || strcmp(slot, "provider_key") == 0;
}

static bool parts_decode(struct parts *parts, const json_t *list, size_t max)
{
    if (!json_is_array(list))
        return false;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        enum part_kind kind = PART_LITERAL;
        const char *text = json_string_value(item);
        size_t len = json_string_length(item);
        bool follows = parts->count > 0 && parts->items[parts->count - 1].kind == PART_LITERAL;
        if (text) {
            if (len == 0 || len > max ||
                follows) /* never written so: two encodings of one request */
                return false;
        } else {
            if (!slot_decode(item, &kind, &text))
                return false;
            len = strlen(text);
        }
        if (!parts_add(parts, kind, text, len, max))
            return false;
    }
    return true;
}

static bool headers_decode(struct request *request, const json_t *list)
{
    static const char *const members[] = {"name", "value", NULL};
    if (!json_is_array(list) || json_array_size(list) > REQUEST_HEADERS_MAX)
        return false;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        const char *name = json_string_value(json_object_get(item, "name"));
        if (!name || !json_only_members(item, members, NULL) || !header_name_valid(name))
            return false;
        struct request_header *header = &request->headers[request->header_count++];
        snprintf(header->name, sizeof(header->name), "%s", name);
        if (!parts_decode(&header->value, json_object_get(item, "value"), REQUEST_HEADER_VALUE_MAX))
            return false;
    }
    return true;
}

static bool format_decode(const char *name, enum body_format *out)
{
    for (size_t i = 0; i < sizeof(format_names) / sizeof(format_names[0]); i++)
        if (strcmp(name, format_names[i]) == 0) {
            *out = (enum body_format)i;
            return true;
        }
    return false;
}

/* Everything but the lists of parts. */
static bool line_decode(struct request *request, const json_t *document)
{
    const char *host = "", *method = "", *format = "";
    int64_t port = 0, version = 0;
    bool https = true;
    if (!json_field_text(document, "host", true, 1, sizeof(request->host) - 1, &host, NULL) ||
        !json_field_text(document, "method", true, 1, sizeof(request->method) - 1, &method, NULL) ||
        !json_field_text(document, "format", true, 1, 8, &format, NULL) ||
        !json_field_bool(document, "https", true, &https, NULL) ||
        !json_field_int(document, "port", true, 1, 65535, &port, NULL) ||
        !json_field_int(document, "v", true, REQUEST_VERSION, REQUEST_VERSION, &version, NULL))
        return false;
    snprintf(request->host, sizeof(request->host), "%s", host);
    snprintf(request->method, sizeof(request->method), "%s", method);
    request->port = (int)port;
    request->https = https;
    return guard_host_valid(host) && method_valid(method) &&
           format_decode(format, &request->format);
}

static bool document_decode(struct request *request, const json_t *document)
{
    static const char *const members[] = {"body",   "format", "headers", "host", "https",
                                          "method", "port",   "url",     "v",    NULL};
    const json_t *body = json_object_get(document, "body");
    if (!json_only_members(document, members, NULL) || !line_decode(request, document) ||
        !parts_decode(&request->url, json_object_get(document, "url"), REQUEST_URL_MAX) ||
        !headers_decode(request, json_object_get(document, "headers")))
        return false;
    if (request->format == BODY_NONE)
        return json_is_null(body);
    return parts_decode(&request->body, body, REQUEST_BODY_MAX);
}

struct request *request_decode(const char *bytes, size_t len, struct error *err)
{
    struct request *request = NULL;
    json_t *document = NULL;
    if (len > REQUEST_ENCODED_MAX) {
        error_set(err, ERROR_TOO_LARGE, "the stored request is larger than %u bytes",
                  REQUEST_ENCODED_MAX);
        return NULL;
    }
    document = json_parse_object(bytes, len, err);
    if (!document)
        return NULL;
    request = calloc(1, sizeof(*request));
    if (!request) {
        error_set(err, ERROR_MEMORY, "out of memory for a request");
        goto fail;
    }
    if (!document_decode(request, document)) {
        error_set(err, ERROR_INVALID, "the stored request does not have the form of one");
        goto fail;
    }
    if (!request_check(request, err))
        goto fail;
    json_decref(document);
    return request;
fail:
    json_decref(document);
    request_free(request);
    return NULL;
}
