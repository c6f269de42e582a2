/* The "template" adapter: an action that its author declares as one HTTP call (urlTemplate, method,
 * headers, bodyTemplate), with impact and verify where it is governed. */
#include "adapters/declared.h"

#include "adapters/impact.h"
#include "adapters/path.h"
#include "adapters/shared.h"
#include "adapters/verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define BASE_MAX 300 /* "https://", a host of at most 253, a port */

/* The member, or NULL when it is absent or null. */
static const json_t *member(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    return json_is_null(value) ? NULL : value;
}

/* ---- the URL ---- */

/* Splits "https://host:port/path" before the path. The host is fixed: no template before it ends.
 */
static bool url_split(const char *url, const char *place, char base[BASE_MAX], const char **rest,
                      struct error *err)
{
    const char *scheme_end = strstr(url, "://");
    size_t len = scheme_end ? (size_t)(scheme_end + 3 - url) : 0;
    if (scheme_end)
        len += strcspn(scheme_end + 3, "/?#\\");
    if (len == 0 || len >= BASE_MAX)
        return error_set_at(err, ERROR_INVALID, place, "must be a URL such as https://host/path");
    if (memchr(url, '{', len))
        return error_set_at(err, ERROR_INVALID, place,
                            "the scheme, host and port must be fixed: no template may stand there");
    memcpy(base, url, len);
    base[len] = '\0';
    *rest = url + len;
    return true;
}

/* A single brace is no URL character: most likely "{id}" was meant as "{{input.id}}". */
static bool url_braces_check(const struct template *template, const char *place, struct error *err)
{
    for (size_t i = 0; i < template->count; i++) {
        const struct template_part *part = &template->parts[i];
        if (part->kind == TEMPLATE_TEXT &&
            (memchr(part->text, '{', part->len) || memchr(part->text, '}', part->len)))
            return error_set_at(err, ERROR_INVALID, place,
                                "a single { or } can't stand in a URL; write {{input.PATH}}");
    }
    return true;
}

/* Begins a request to a URL template. `place` is where the template stands in the definition. */
static struct request *url_begin(const char *method, const char *url, const char *place,
                                 enum body_format format, unsigned allowed,
                                 const struct template_values *values, struct error *err)
{
    char base[BASE_MAX];
    const char *rest = NULL;
    struct template template;
    if (!url_split(url, place, base, &rest, err) ||
        !template_parse(rest, allowed, place, &template, err) ||
        !url_braces_check(&template, place, err))
        return NULL;
    struct request *request = request_new(method, base, format, err);
    if (!request) {
        if (err && strcmp(err->place, "url") == 0)
            snprintf(err->place, sizeof(err->place), "%s", place);
        return NULL;
    }
    if (!template_put(&template, values, PLACE_URL, request, err)) {
        request_free(request);
        return NULL;
    }
    return request;
}

/* ---- headers ---- */

static const json_t *header_find(const json_t *headers, const char *name)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)headers, key, value)
    {
        if (strcasecmp(key, name) == 0)
            return value;
    }
    return NULL;
}

/* What a read-back leaves away: it has no body, is no write, and must not be made conditional. */
static bool header_is_for_write(const char *name)
{
    return strcasecmp(name, "Content-Type") == 0 || strcasecmp(name, "Idempotency-Key") == 0 ||
           strncasecmp(name, "If-", 3) == 0;
}

static bool header_put(const char *name, const json_t *value, const struct template_values *values,
                       struct request *request, struct error *err)
{
    char place[sizeof(err->place)];
    struct template template;
    snprintf(place, sizeof(place), "/headers/%s", name);
    if (!json_is_string(value))
        return error_set_at(err, ERROR_INVALID, place, "must be a string");
    if (!template_parse(json_string_value(value), TEMPLATE_IN_WRITE, place, &template, err))
        return false;
    bool fixed =
        template.count == 0 || (template.count == 1 && template.parts[0].kind == TEMPLATE_TEXT);
    if (!fixed && strcasecmp(name, "Content-Type") == 0)
        return error_set_at(err, ERROR_INVALID, place, "must be fixed: no template may stand here");
    request_put_header(request, name);
    if (request->failure.code != ERROR_NONE)
        return error_set_at(err, request->failure.code, place, "%s", request->failure.text);
    return template_put(&template, values, PLACE_HEADER, request, err);
}

static bool headers_put(const json_t *headers, bool for_read_back,
                        const struct template_values *values, struct request *request,
                        struct error *err)
{
    const char **names;
    size_t count;
    if (!headers)
        return true;
    if (!json_is_object(headers))
        return error_set_at(err, ERROR_INVALID, "/headers", "must be an object of strings");
    if (!names_sorted(headers, &names, &count, err))
        return false;
    bool ok = true;
    for (size_t i = 0; ok && i < count; i++)
        if (!for_read_back || !header_is_for_write(names[i]))
            ok = header_put(names[i], json_object_get(headers, names[i]), values, request, err);
    free(names);
    return ok;
}

/* What every write carries unless its author said otherwise. */
static void headers_put_defaults(const json_t *headers, struct request *request)
{
    const char *type = body_content_type(request->format);
    bool reads = strcmp(request->method, "GET") == 0 || strcmp(request->method, "HEAD") == 0;
    if (type && !header_find(headers, "Content-Type")) {
        request_put_header(request, "Content-Type");
        request_put_literal(request, PLACE_HEADER, type, strlen(type));
    }
    if (!reads && !header_find(headers, "Idempotency-Key")) {
        request_put_header(request, "Idempotency-Key");
        request_put_provider_key(request, PLACE_HEADER);
    }
}

/* ---- the write ---- */

/* The method in upper case; POST when none is declared. */
static bool method_read(const json_t *definition, char out[8], struct error *err)
{
    const json_t *value = member(definition, "method");
    const char *text = value ? json_string_value(value) : "POST";
    size_t len = text ? strlen(text) : 0;
    if (len == 0 || len >= 8)
        return error_set_at(err, ERROR_INVALID, "/method",
                            "must be GET, HEAD, POST, PUT, PATCH or DELETE");
    for (size_t i = 0; i <= len; i++)
        out[i] = (char)(text[i] >= 'a' && text[i] <= 'z' ? text[i] - 32 : text[i]);
    return true;
}

/* Turns the places that requests know into those of the definition (in a trial) or of the input. */
static bool request_finish(const struct request *request, const char *url_place, bool trial,
                           struct error *err)
{
    struct error cause = {0};
    if (request_check(request, &cause))
        return true;
    char place[sizeof(cause.place)];
    if (!trial)
        snprintf(place, sizeof(place), "/input");
    else if (strcmp(cause.place, "url") == 0)
        snprintf(place, sizeof(place), "%s", url_place);
    else if (strcmp(cause.place, "body") == 0)
        snprintf(place, sizeof(place), "/bodyTemplate");
    else
        snprintf(place, sizeof(place), "/headers/%.100s", cause.place);
    return error_set_at(err, cause.code, place, "the request can't be made: %s", cause.text);
}

/* Builds the write. With values that are a trial, this is the check of the whole definition. */
static struct request *write_build(const json_t *definition, const struct template_values *values,
                                   struct error *err)
{
    char method[8];
    enum body_format format;
    const json_t *headers = member(definition, "headers");
    const json_t *body = member(definition, "bodyTemplate");
    const char *url = json_string_value(member(definition, "urlTemplate"));
    const char *type = json_string_value(header_find(headers, "Content-Type"));
    if (!url) {
        error_set_at(err, ERROR_INVALID, "/urlTemplate", "must be a URL such as https://host/path");
        return NULL;
    }
    if (!method_read(definition, method, err) || !body_format_choose(body, type, &format, err))
        return NULL;
    struct request *request =
        url_begin(method, url, "/urlTemplate", format, TEMPLATE_IN_WRITE, values, err);
    if (!request) {
        if (err && strcmp(err->place, "method") == 0)
            snprintf(err->place, sizeof(err->place), "/method");
        return NULL;
    }
    bool ok = headers_put(headers, false, values, request, err);
    if (ok)
        headers_put_defaults(headers, request);
    ok = ok && (!body || body_put(body, values, request, err)) &&
         request_finish(request, "/urlTemplate", values->input_trial, err);
    if (!ok) {
        request_free(request);
        return NULL;
    }
    return request;
}

/* ---- the read-back ---- */

static struct request *read_build(const json_t *definition, const struct template_values *values,
                                  struct error *err)
{
    const json_t *verify = member(definition, "verify");
    const char *url = json_string_value(json_object_get(verify, "url"));
    if (!url) {
        error_set_at(err, ERROR_INVALID, "/verify", "The action declares no read-back.");
        return NULL;
    }
    struct request *request =
        url_begin("GET", url, "/verify/url", BODY_NONE, TEMPLATE_IN_READ, values, err);
    if (!request)
        return NULL;
    if (!headers_put(member(definition, "headers"), true, values, request, err) ||
        !request_finish(request, "/verify/url", values->input_trial, err) ||
        !verify_ready(verify, values, err)) {
        request_free(request);
        return NULL;
    }
    return request;
}

/* Whether a read-back of this input can be made once an answer is there. False with err only for
 * what is not the input's fault. */
static bool read_back_possible(const json_t *definition, const json_t *input, bool *possible,
                               struct error *err)
{
    struct error cause = {0};
    struct template_values values = {.input = input, .response_trial = true};
    *possible = false;
    if (!member(definition, "verify"))
        return true;
    struct request *request = read_build(definition, &values, &cause);
    *possible = request != NULL;
    request_free(request);
    if (!*possible && cause.code == ERROR_MEMORY) {
        *err = cause;
        return false;
    }
    return true;
}

/* ---- the table ---- */

static bool same_destination(const struct request *a, const struct request *b)
{
    return a->https == b->https && a->port == b->port && strcmp(a->host, b->host) == 0;
}

static bool declared_verify_check(const json_t *definition, const struct request *write,
                                  struct error *err)
{
    const json_t *verify = member(definition, "verify");
    struct template_values trial = {.input_trial = true, .response_trial = true};
    if (!verify)
        return true;
    if (!verify_check(verify, err))
        return false;
    struct request *read = read_build(definition, &trial, err);
    if (!read)
        return false;
    bool ok = same_destination(write, read) ||
              error_set_at(err, ERROR_INVALID, "/verify/url",
                           "must be on the scheme, host and port of urlTemplate");
    request_free(read);
    return ok;
}

static bool declared_check(const json_t *definition, struct error *err)
{
    struct template_values trial = {.input_trial = true};
    const json_t *impact = member(definition, "impact");
    const json_t *governed = member(definition, "governed");
    if (member(definition, "adapter"))
        return error_set_at(err, ERROR_INVALID, "/adapter",
                            "an action has either an adapter or a urlTemplate");
    if (governed && !json_is_boolean(governed))
        return error_set_at(err, ERROR_INVALID, "/governed", "must be true or false");
    if ((impact && !impact_check(impact, err)) || !effect_key_check(definition, err))
        return false;
    struct request *write = write_build(definition, &trial, err);
    bool ok = write && declared_verify_check(definition, write, err);
    request_free(write);
    return ok;
}

static bool declared_governed(const json_t *definition)
{
    return member(definition, "impact") || member(definition, "verify") ||
           json_is_true(json_object_get(definition, "governed"));
}

/* Appends a part of the path; false once the query begins. */
static bool resource_put(struct buf *out, const struct part *part)
{
    if (part->kind == PART_SECRET)
        return buf_printf(out, "{%s}", part->text.data);
    if (part->kind != PART_LITERAL)
        return buf_puts(out, "{effect.id}");
    size_t len = strcspn(part->text.data, "?");
    return buf_put(out, part->text.data, len) && len == part->text.len;
}

/* "api.example.com/v1/orders/7": host, the port where it is not the scheme's own, and path. What
 * does not fit is cut off, which a comparison by prefix bears. */
static bool resource_write(const struct request *request, struct impact *impact, struct error *err)
{
    struct buf resource;
    buf_init(&resource, REQUEST_URL_MAX * 2);
    buf_puts(&resource, request->host);
    if (request->port != (request->https ? 443 : 80))
        buf_printf(&resource, ":%d", request->port);
    for (size_t i = 0; i < request->url.count; i++)
        if (!resource_put(&resource, &request->url.items[i]))
            break;
    bool ok = !resource.failed;
    if (ok)
        snprintf(impact->resource, sizeof(impact->resource), "%.*s",
                 (int)sizeof(impact->resource) - 1, resource.data);
    buf_free(&resource);
    return ok || error_set(err, ERROR_MEMORY, "out of memory for a resource's name");
}

static bool declared_prepare(const struct adapter_action *action, const json_t *input,
                             struct prepared *out, struct error *err)
{
    struct template_values values = {.input = input};
    const json_t *impact = member(action->definition, "impact");
    *out = (struct prepared){0};
    if (impact && !impact_evaluate(impact, input, &out->impact, err))
        return false;
    out->request = write_build(action->definition, &values, err);
    if (!out->request)
        return false;
    if (!resource_write(out->request, &out->impact, err) ||
        !read_back_possible(action->definition, input, &out->has_read_back, err)) {
        prepared_free(out);
        return false;
    }
    return true;
}

/* Nothing is declared about the body of a 2xx, so the status is its whole meaning. */
static void declared_read_answer(const struct adapter_action *action, const json_t *input,
                                 const struct answer *answer, struct answer_meaning *out)
{
    (void)action;
    (void)input;
    (void)answer;
    *out = (struct answer_meaning){.what = MEANING_SUCCEEDED};
}

static void declared_read_back_start(const struct read_back_facts *facts, struct read_back *read)
{
    struct error err = {0};
    struct template_values values = {.input = facts->input, .response = facts->response};
    struct request *request = read_build(facts->action.definition, &values, &err);
    bool is_sentence = !request && err.text[0] >= 'A' && err.text[0] <= 'Z';
    read_back_conclude(read, request ? READ_NEXT : READ_IMPOSSIBLE,
                       request || is_sentence ? "%s" : "The read-back can't be made: %s.",
                       err.text);
    read->next = request; /* the read-back owns it */
}

static void declared_read_back_answer(const struct read_back_facts *facts,
                                      const struct answer *answer, const char *transport,
                                      struct read_back *read)
{
    char effect_id[ULID_PREFIXED_SIZE];
    struct verify_values values = {
        {.input = facts->input, .response = facts->response},
        ulid_format_prefixed("eff", &facts->effect, effect_id),
    };
    verify_judge(json_object_get(facts->action.definition, "verify"), &values, answer, transport,
                 read);
}

/* No replay: what a provider does with a repeated key is not declared. */
const struct adapter declared_adapter = {
    .type = "template",
    .check = declared_check,
    .governed = declared_governed,
    .prepare = declared_prepare,
    .read_answer = declared_read_answer,
    .read_back_start = declared_read_back_start,
    .read_back_answer = declared_read_back_answer,
    .replay_window_s = 0,
};
