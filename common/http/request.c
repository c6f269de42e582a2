/* Building and judging prepared requests. */
#include "common/http/request.h"

#include "common/http/escape.h"
#include "common/http/guard.h"
#include "common/http/request_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool parts_grow(struct parts *parts)
{
    if (parts->count == REQUEST_PARTS_MAX)
        return false;
    size_t room = parts->room ? parts->room * 2 : 4;
    struct part *items = realloc(parts->items, room * sizeof(*items));
    if (!items)
        return false;
    parts->items = items;
    parts->room = room;
    return true;
}

bool parts_add(struct parts *parts, enum part_kind kind, const char *text, size_t len, size_t max)
{
    if (kind == PART_LITERAL && len == 0)
        return true;
    struct part *last = parts->count ? &parts->items[parts->count - 1] : NULL;
    if (kind == PART_LITERAL && last && last->kind == PART_LITERAL)
        return buf_put(&last->text, text, len);
    if (parts->count == parts->room && !parts_grow(parts))
        return false;
    struct part *part = &parts->items[parts->count];
    part->kind = kind;
    buf_init(&part->text, max);
    parts->count++;
    return buf_put(&part->text, text, len);
}

void parts_free(struct parts *parts)
{
    for (size_t i = 0; i < parts->count; i++)
        buf_free(&parts->items[i].text);
    free(parts->items);
    *parts = (struct parts){0};
}

bool secret_name_valid(const char *name, size_t len)
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.";
    return len > 0 && len <= SECRET_NAME_MAX && strlen(name) == len && strspn(name, allowed) == len;
}

bool header_name_valid(const char *name)
{
    static const char token[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                "!#$%&'*+-.^_`|~";
    /* They belong to the connection, change how the request is framed, or how the answer is coded.
     */
    static const char *const reserved[] = {"Host",
                                           "Content-Length",
                                           "Transfer-Encoding",
                                           "Connection",
                                           "Keep-Alive",
                                           "TE",
                                           "Trailer",
                                           "Upgrade",
                                           "Expect",
                                           "Accept-Encoding",
                                           "Proxy-Authorization",
                                           "Proxy-Connection"};
    size_t len = strlen(name);
    if (len == 0 || len > REQUEST_HEADER_NAME_MAX || strspn(name, token) != len)
        return false;
    for (size_t i = 0; i < sizeof(reserved) / sizeof(reserved[0]); i++)
        if (strcasecmp(name, reserved[i]) == 0)
            return false;
    return true;
}

bool method_valid(const char *method)
{
    static const char *const methods[] = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"};
    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++)
        if (strcmp(method, methods[i]) == 0)
            return true;
    return false;
}

/* Splits "host[:port]" or "[v6][:port]"; the port is left alone when there is none. */
static bool authority_split(struct request *request, const char *text, size_t len)
{
    bool bracket = len > 0 && text[0] == '[';
    const char *host = bracket ? text + 1 : text;
    const char *end = text + len;
    const char *host_end = bracket ? memchr(text, ']', len) : memchr(text, ':', len);
    if (!host_end && bracket)
        return false;
    if (!host_end)
        host_end = end;
    size_t host_len = (size_t)(host_end - host);
    if (host_len == 0 || host_len >= sizeof(request->host))
        return false;
    for (size_t i = 0; i < host_len; i++)
        request->host[i] = (char)(host[i] >= 'A' && host[i] <= 'Z' ? host[i] + 32 : host[i]);
    request->host[host_len] = '\0';
    if (bracket != (strchr(request->host, ':') != NULL))
        return false;
    const char *rest = bracket ? host_end + 1 : host_end;
    if (rest == end)
        return true;
    size_t digits = (size_t)(end - rest) - 1;
    if (*rest != ':' || digits < 1 || digits > 5 || strspn(rest + 1, "0123456789") < digits)
        return false;
    request->port = atoi(rest + 1);
    return true;
}

static bool base_parse(struct request *request, const char *base, struct error *err)
{
    request->https = strncasecmp(base, "https://", 8) == 0;
    if (!request->https && strncasecmp(base, "http://", 7) != 0)
        return error_set_at(err, ERROR_INVALID, "url", "the URL must start with https://");
    request->port = request->https ? 443 : 80;
    const char *authority = base + (request->https ? 8 : 7);
    size_t len = strcspn(authority, "/?#\\");
    const char *path = authority + len;
    if (strpbrk(path, "?#"))
        return error_set_at(err, ERROR_INVALID, "url",
                            "the URL's base must have no query and no fragment");
    if (!authority_split(request, authority, len))
        return error_set_at(err, ERROR_INVALID, "url",
                            "the URL must be https://host, perhaps with a port, without a user");
    if (!guard_destination(request->https, request->host, request->port, err))
        return false;
    size_t path_len = strlen(path);
    if (path_len > 0 && path[path_len - 1] == '/')
        path_len--;
    request_put_literal(request, PLACE_URL, path, path_len);
    return true;
}

struct request *request_new(const char *method, const char *base, enum body_format format,
                            struct error *err)
{
    struct request *request = calloc(1, sizeof(*request));
    if (!request) {
        error_set(err, ERROR_MEMORY, "out of memory for a request");
        return NULL;
    }
    request->format = format;
    if (!method_valid(method)) {
        error_set_at(err, ERROR_INVALID, "method",
                     "the method must be GET, HEAD, POST, PUT, PATCH or DELETE");
        goto fail;
    }
    snprintf(request->method, sizeof(request->method), "%s", method);
    if (!base_parse(request, base, err))
        goto fail;
    return request;
fail:
    request_free(request);
    return NULL;
}

void request_free(struct request *request)
{
    if (!request)
        return;
    parts_free(&request->url);
    parts_free(&request->body);
    for (size_t i = 0; i < request->header_count; i++)
        parts_free(&request->headers[i].value);
    free(request);
}

static const char *place_name(const struct request *request, enum place place)
{
    if (place == PLACE_URL)
        return "url";
    if (place == PLACE_BODY)
        return "body";
    return request->header_count ? request->headers[request->header_count - 1].name : "headers";
}

/* Keeps the first failure of a chain of puts. */
static void request_fail(struct request *request, enum place place, enum error_code code,
                         const char *text)
{
    if (request->failure.code == ERROR_NONE)
        error_set_at(&request->failure, code, place_name(request, place), "%s", text);
}

static struct parts *parts_at(struct request *request, enum place place, size_t *max)
{
    if (place == PLACE_URL) {
        *max = REQUEST_URL_MAX;
        return &request->url;
    }
    if (place == PLACE_BODY) {
        *max = REQUEST_BODY_MAX;
        return &request->body;
    }
    *max = REQUEST_HEADER_VALUE_MAX;
    return request->header_count ? &request->headers[request->header_count - 1].value : NULL;
}

static void request_put(struct request *request, enum place place, enum part_kind kind,
                        const char *text, size_t len)
{
    if (request->failure.code != ERROR_NONE)
        return;
    size_t max;
    struct parts *parts = parts_at(request, place, &max);
    if (!parts) {
        request_fail(request, place, ERROR_INTERNAL, "a value was put before its header");
        return;
    }
    if (place == PLACE_BODY && request->format == BODY_NONE) {
        request_fail(request, place, ERROR_INVALID, "a request of this kind has no body");
        return;
    }
    bool slash = place == PLACE_URL && parts->count == 0 &&
                 !(kind == PART_LITERAL && (len == 0 || text[0] == '/'));
    if ((slash && !parts_add(parts, PART_LITERAL, "/", 1, max)) ||
        !parts_add(parts, kind, text, len, max))
        request_fail(request, place, ERROR_TOO_LARGE, "the request is too large here");
}

void request_put_header(struct request *request, const char *name)
{
    if (request->failure.code != ERROR_NONE)
        return;
    if (!header_name_valid(name)) {
        error_set_at(&request->failure, ERROR_INVALID, "headers",
                     "a header's name is not a token or belongs to the connection");
        return;
    }
    if (request->header_count == REQUEST_HEADERS_MAX) {
        error_set_at(&request->failure, ERROR_TOO_LARGE, "headers", "more than %d headers",
                     REQUEST_HEADERS_MAX);
        return;
    }
    struct request_header *header = &request->headers[request->header_count++];
    snprintf(header->name, sizeof(header->name), "%s", name);
}

void request_put_literal(struct request *request, enum place place, const char *text, size_t len)
{
    if (!text_is_utf8(text, len))
        request_fail(request, place, ERROR_INVALID, "the text is not valid UTF-8");
    else
        request_put(request, place, PART_LITERAL, text, len);
}

/* Whether the URL so far is still in its path: no literal has opened the query. */
static bool in_path(const struct request *request)
{
    for (size_t i = 0; i < request->url.count; i++) {
        const struct part *part = &request->url.items[i];
        if (part->kind == PART_LITERAL && strchr(part->text.data, '?'))
            return false;
    }
    return true;
}

void request_put_text(struct request *request, enum place place, const char *text, size_t len)
{
    if (place == PLACE_URL && len == 0 && in_path(request)) {
        request_fail(request, place, ERROR_INVALID, "a value in the path is empty");
        return;
    }
    struct buf escaped;
    buf_init(&escaped, REQUEST_BODY_MAX);
    if (escape_put(&escaped, place, request->format, text, len))
        request_put(request, place, PART_LITERAL, escaped.data ? escaped.data : "", escaped.len);
    else if (escaped.failed)
        request_fail(request, place, ERROR_TOO_LARGE, "the request is too large here");
    else
        request_fail(request, place, ERROR_INVALID,
                     "a value holds a control character or is not valid UTF-8");
    buf_free(&escaped);
}

void request_put_secret(struct request *request, enum place place, const char *name)
{
    if (secret_name_valid(name, strlen(name)))
        request_put(request, place, PART_SECRET, name, strlen(name));
    else
        request_fail(request, place, ERROR_INVALID, "a secret's name is not valid");
}

void request_put_effect_id(struct request *request, enum place place)
{
    request_put(request, place, PART_EFFECT_ID, "", 0);
}

void request_put_provider_key(struct request *request, enum place place)
{
    request_put(request, place, PART_PROVIDER_KEY, "", 0);
}

char *request_destination(const struct request *request, char *out, size_t size)
{
    bool v6 = strchr(request->host, ':') != NULL;
    snprintf(out, size, v6 ? "[%s]:%d" : "%s:%d", request->host, request->port);
    return out;
}
