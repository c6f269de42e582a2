/* The shape of a prepared request as a whole, whether it was just built or read back from storage.
 */
#include "common/http/escape.h"
#include "common/http/request.h"
#include "common/http/request_parts.h"

#include <string.h>
#include <strings.h>

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* "." or "..", also when dots are written %2e, as servers may decode before they resolve. */
static bool segment_is_dots(const char *segment, size_t len)
{
    size_t dots = 0;
    for (size_t i = 0; i < len; dots++) {
        if (segment[i] == '.')
            i++;
        else if (len - i >= 3 && strncasecmp(segment + i, "%2e", 3) == 0)
            i += 3;
        else
            return false;
    }
    return dots == 1 || dots == 2;
}

static bool path_has_dots(const char *path, size_t len)
{
    for (size_t at = 0; at < len;) {
        const char *slash = memchr(path + at, '/', len - at);
        size_t end = slash ? (size_t)(slash - path) : len;
        if (segment_is_dots(path + at, end - at))
            return true;
        at = end + 1;
    }
    return false;
}

bool url_valid(const char *url, size_t len, const char **why)
{
    *why = "the URL's path must start with /";
    if (len == 0 || url[0] != '/')
        return false;
    *why = "the URL holds a character that must be percent-encoded";
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)url[i];
        if (c <= ' ' || c >= 0x7f || strchr("#\\\"<>", c))
            return false;
        if (c == '%' && (len - i < 3 || hex_value(url[i + 1]) < 0 || hex_value(url[i + 2]) < 0))
            return false;
    }
    *why = "the URL's path holds a . or .. segment";
    const char *query = memchr(url, '?', len);
    return !path_has_dots(url, query ? (size_t)(query - url) : len);
}

static bool url_check(const struct request *request, struct error *err)
{
    struct buf url;
    buf_init(&url, REQUEST_URL_MAX);
    for (size_t i = 0; i < request->url.count; i++) {
        const struct part *part = &request->url.items[i];
        if (part->kind == PART_LITERAL)
            buf_put(&url, part->text.data, part->text.len);
        else
            buf_puts(&url, "x"); /* what fills the slot is judged when it is filled */
    }
    const char *why = "the URL is too long";
    bool ok = !url.failed;
    if (ok && url.len > 0) /* an empty path is sent as "/" */
        ok = url_valid(url.data, url.len, &why);
    buf_free(&url);
    return ok || error_set_at(err, ERROR_INVALID, "url", "%s", why);
}

static bool headers_check(const struct request *request, struct error *err)
{
    for (size_t i = 0; i < request->header_count; i++) {
        const struct request_header *header = &request->headers[i];
        for (size_t j = 0; j < i; j++)
            if (strcasecmp(request->headers[j].name, header->name) == 0)
                return error_set_at(err, ERROR_INVALID, header->name, "the header stands twice");
        for (size_t j = 0; j < header->value.count; j++) {
            const struct part *part = &header->value.items[j];
            if (part->kind == PART_LITERAL && text_has_control(part->text.data, part->text.len))
                return error_set_at(err, ERROR_INVALID, header->name,
                                    "the header's value holds a control character");
        }
    }
    return true;
}

/* A JSON slot is filled as the inside of a string, so it must stand between quotes. */
static bool json_slots_quoted(const struct parts *body)
{
    bool inside = false, escaped = false;
    for (size_t i = 0; i < body->count; i++) {
        const struct part *part = &body->items[i];
        if (part->kind != PART_LITERAL) {
            if (!inside || escaped)
                return false;
            continue;
        }
        for (size_t j = 0; j < part->text.len; j++) {
            char c = part->text.data[j];
            if (escaped)
                escaped = false;
            else if (inside && c == '\\')
                escaped = true;
            else if (c == '"')
                inside = !inside;
        }
    }
    return !inside;
}

static bool body_check(const struct request *request, struct error *err)
{
    bool reads = strcmp(request->method, "GET") == 0 || strcmp(request->method, "HEAD") == 0;
    if (reads && request->format != BODY_NONE)
        return error_set_at(err, ERROR_INVALID, "body", "a %s request has no body",
                            request->method);
    if (request->format == BODY_NONE && request->body.count > 0)
        return error_set_at(err, ERROR_INVALID, "body", "a request of this kind has no body");
    if (request->format == BODY_JSON && !json_slots_quoted(&request->body))
        return error_set_at(err, ERROR_INVALID, "body",
                            "a slot in a JSON body must stand inside a string");
    return true;
}

bool request_check(const struct request *request, struct error *err)
{
    if (request->failure.code != ERROR_NONE)
        return error_set_at(err, request->failure.code, request->failure.place, "%s",
                            request->failure.text);
    return url_check(request, err) && headers_check(request, err) && body_check(request, err);
}
