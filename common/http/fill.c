/* Turns a prepared request into the bytes that will be sent. */
#include "common/http/fill.h"

#include "common/base/config.h"
#include "common/http/escape.h"
#include "common/http/guard.h"
#include "common/http/request_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* What the parts of one request are filled from. */
struct source {
    const struct request *request;
    const char *effect_id;
    const char *provider_key;
    secret_lookup lookup;
    void *opaque;
    struct filled *filled;
};

bool host_allowed(const char *host, const char *entry)
{
    if (entry[0] != '.')
        return strcasecmp(host, entry) == 0;
    size_t host_len = strlen(host), entry_len = strlen(entry);
    return host_len > entry_len && strcasecmp(host + host_len - entry_len, entry) == 0;
}

static bool hosts_allow(const struct secret_value *secret, const char *host)
{
    if (!secret->allowed_hosts)
        return true;
    for (size_t i = 0; i < secret->allowed_host_count; i++)
        if (host_allowed(host, secret->allowed_hosts[i]))
            return true;
    return false;
}

static const char *place_word(enum place place)
{
    return place == PLACE_URL ? "url" : place == PLACE_HEADER ? "header" : "body";
}

/* Notes the version that was used; a request that saw two versions of one secret is refused. */
static bool secret_note(struct filled *filled, const char *name, int64_t version, struct error *err)
{
    for (size_t i = 0; i < filled->secret_count; i++) {
        if (strcmp(filled->secrets[i].name, name) != 0)
            continue;
        return filled->secrets[i].version == version ||
               error_set_at(err, ERROR_CONFLICT, name, "secret %s changed while it was used", name);
    }
    if (filled->secret_count == SECRETS_PER_REQUEST_MAX)
        return error_set(err, ERROR_TOO_LARGE, "more than %d secrets in one request",
                         SECRETS_PER_REQUEST_MAX);
    struct secret_used *used = &filled->secrets[filled->secret_count++];
    snprintf(used->name, sizeof(used->name), "%s", name);
    used->version = version;
    return true;
}

static bool put_value(struct buf *out, enum place place, enum body_format format, const char *what,
                      const char *value, size_t len, struct error *err)
{
    if (place != PLACE_BODY && text_has_control(value, len))
        return error_set_at(err, ERROR_INVALID, what,
                            "%s holds a control character and can't stand in a %s", what,
                            place_word(place));
    if (place == PLACE_URL && len == 0)
        return error_set_at(err, ERROR_INVALID, what, "%s is empty and can't stand in a URL", what);
    if (escape_put(out, place, format, value, len))
        return true;
    if (out->failed)
        return error_set_at(err, ERROR_TOO_LARGE, what, "with %s the request is too large", what);
    return error_set_at(err, ERROR_INVALID, what, "%s is not valid UTF-8", what);
}

/* A secret that could not be found in the answer is not sent. */
static bool secret_mask(struct filled *filled, const char *name, const struct secret_value *secret,
                        struct error *err)
{
    if (!filled->mask)
        filled->mask = mask_new();
    return (filled->mask && mask_add(filled->mask, name, secret->value, secret->len)) ||
           error_set(err, ERROR_MEMORY, "out of memory for a request");
}

static bool put_secret(struct source *source, enum place place, const char *name, struct buf *out,
                       struct error *err)
{
    struct secret_value secret = {0};
    if (!source->lookup)
        return error_set_at(err, ERROR_NOT_FOUND, name, "there is no secret %s", name);
    if (!source->lookup(source->opaque, name, &secret, err))
        return false;
    if (!hosts_allow(&secret, source->request->host))
        return error_set_at(err, ERROR_DENIED, name, "secret %s is not allowed to go to %s", name,
                            source->request->host);
    if (secret.allowed_placements && !(secret.allowed_placements & (unsigned)place))
        return error_set_at(err, ERROR_DENIED, name, "secret %s is not allowed in a %s", name,
                            place_word(place));
    return secret_note(source->filled, name, secret.version, err) &&
           secret_mask(source->filled, name, &secret, err) &&
           put_value(out, place, source->request->format, name, secret.value, secret.len, err);
}

static bool put_part(struct source *source, enum place place, const struct part *part,
                     struct buf *out, struct error *err)
{
    const char *what = "the effect id", *value = source->effect_id;
    switch (part->kind) {
    case PART_LITERAL:
        return buf_put(out, part->text.data, part->text.len) ||
               error_set(err, ERROR_TOO_LARGE, "the filled request is too large");
    case PART_SECRET:
        return put_secret(source, place, part->text.data, out, err);
    case PART_EFFECT_ID:
        break;
    case PART_PROVIDER_KEY:
        what = "the provider key";
        value = source->provider_key;
        break;
    }
    if (!value)
        return error_set(err, ERROR_INTERNAL, "the request needs %s and none was given", what);
    return put_value(out, place, source->request->format, what, value, strlen(value), err);
}

static bool put_parts(struct source *source, enum place place, const struct parts *parts,
                      struct buf *out, struct error *err)
{
    for (size_t i = 0; i < parts->count; i++)
        if (!put_part(source, place, &parts->items[i], out, err))
            return false;
    return !out->failed || error_set(err, ERROR_TOO_LARGE, "the filled request is too large");
}

static bool fill_url(struct source *source, struct error *err)
{
    const struct request *request = source->request;
    struct buf *url = &source->filled->url;
    char destination[264];
    buf_init(url, REQUEST_URL_MAX * 2);
    buf_printf(url, "%s://%s", request->https ? "https" : "http",
               request_destination(request, destination, sizeof(destination)));
    size_t start = url->len;
    if (!put_parts(source, PLACE_URL, &request->url, url, err))
        return false;
    if (url->len == start)
        buf_puts(url, "/");
    const char *why = "the filled request is too large";
    if (url->failed || !url_valid(url->data + start, url->len - start, &why))
        return error_set_at(err, ERROR_INVALID, "url", "%s", why);
    return true;
}

static bool fill_header(struct source *source, const struct request_header *header,
                        struct error *err)
{
    struct buf *line = &source->filled->headers[source->filled->header_count++];
    buf_init(line, REQUEST_HEADER_NAME_MAX + 2 + REQUEST_HEADER_VALUE_MAX * 2);
    buf_printf(line, "%s: ", header->name);
    size_t start = line->len;
    if (!put_parts(source, PLACE_HEADER, &header->value, line, err))
        return false;
    if (line->data[start + strspn(line->data + start, " ")] != '\0')
        return true;
    /* libcurl takes "Name:" for "leave this header out", and "Name;" for an empty value. */
    buf_reset(line);
    return buf_printf(line, "%s;", header->name) || error_set(err, ERROR_MEMORY, "out of memory");
}

static bool fill_all(struct source *source, struct error *err)
{
    const struct request *request = source->request;
    struct filled *filled = source->filled;
    if (!request_check(request, err) ||
        !guard_destination(request->https, request->host, request->port, err))
        return false;
    memcpy(filled->method, request->method, sizeof(filled->method));
    memcpy(filled->host, request->host, sizeof(filled->host));
    filled->https = request->https;
    filled->port = request->port;
    filled->dev_destination = config_dev_destination(request->host, request->port);
    if (!fill_url(source, err))
        return false;
    for (size_t i = 0; i < request->header_count; i++)
        if (!fill_header(source, &request->headers[i], err))
            return false;
    filled->has_body = request->format != BODY_NONE;
    buf_init(&filled->body, REQUEST_BODY_MAX * 2);
    return put_parts(source, PLACE_BODY, &request->body, &filled->body, err);
}

struct filled *request_fill(const struct request *request, const char *effect_id,
                            const char *provider_key, secret_lookup lookup, void *opaque,
                            struct error *err)
{
    struct filled *filled = calloc(1, sizeof(*filled));
    if (!filled) {
        error_set(err, ERROR_MEMORY, "out of memory for a request");
        return NULL;
    }
    struct source source = {request, effect_id, provider_key, lookup, opaque, filled};
    if (!fill_all(&source, err)) {
        filled_free(filled);
        return NULL;
    }
    return filled;
}

void filled_free(struct filled *filled)
{
    if (!filled)
        return;
    buf_wipe(&filled->url);
    for (size_t i = 0; i < filled->header_count; i++)
        buf_wipe(&filled->headers[i]);
    buf_wipe(&filled->body);
    mask_free(filled->mask);
    free(filled);
}
