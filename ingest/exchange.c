/* One request as libmicrohttpd shows it, turned into a call; and the call's answer turned back. */
#include "ingest/exchange.h"

#include "common/base/clock.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define KEY_MAX_BYTES 255
#define WAIT_MAX_S 600
#define DISCARD_MAX_BYTES                                                                          \
    ((size_t)16 << 20) /* read past the limit, so that a client sees its 413 */
#define BODIES_MAX_BYTES ((size_t)512 << 20) /* of all requests being read or handled */

static _Atomic size_t bodies_bytes;

/* ---- query string ---- */

static enum MHD_Result query_add(void *opaque, enum MHD_ValueKind kind, const char *name,
                                 const char *value)
{
    struct http_exchange *x = opaque;
    (void)kind;
    if (x->query_count == QUERY_MAX) {
        call_error(&x->call, 400, "VALIDATION_ERROR", NULL,
                   "the query string has more than %d parameters", QUERY_MAX);
        return MHD_NO;
    }
    struct query_value *q = &x->query[x->query_count++];
    q->name = strdup(name);
    q->value = strdup(value != NULL ? value : "");
    must(q->name != NULL && q->value != NULL);
    if (percent_decode(q->name) && percent_decode(q->value))
        return MHD_YES;
    call_error(&x->call, 400, "VALIDATION_ERROR", NULL, "the query string holds a bad escape");
    return MHD_NO;
}

const char *call_query(const struct call *call, const char *name)
{
    const struct http_exchange *x = call->exchange;
    for (int i = 0; i < x->query_count; i++)
        if (strcmp(x->query[i].name, name) == 0)
            return x->query[i].value;
    return NULL;
}

/* ---- headers ---- */

const char *call_header(const struct call *call, const char *name)
{
    return MHD_lookup_connection_value(call->exchange->connection, MHD_HEADER_KIND, name);
}

struct header_count {
    const char *name;
    int count;
};

static enum MHD_Result header_count_one(void *opaque, enum MHD_ValueKind kind, const char *name,
                                        const char *value)
{
    struct header_count *counts = opaque;
    (void)kind;
    (void)value;
    for (; counts->name != NULL; counts++)
        if (strcasecmp(counts->name, name) == 0)
            counts->count++;
    return MHD_YES;
}

/* Headers that must not come twice: two parties could each go by another one. */
static bool headers_check(struct http_exchange *x)
{
    struct header_count counts[] = {
        {"Authorization", 0}, {"Idempotency-Key", 0}, {"Prefer", 0}, {NULL, 0}};
    MHD_get_connection_values(x->connection, MHD_HEADER_KIND, header_count_one, counts);
    for (struct header_count *c = counts; c->name != NULL; c++) {
        if (c->count > 1) {
            call_error(&x->call, 400, "VALIDATION_ERROR", NULL, "the header %s comes twice",
                       c->name);
            return false;
        }
    }
    return true;
}

/* ---- where the body ends ---- */

static bool name_is_token(const char *name, size_t len)
{
    static const char others[] = "!#$%&'*+-.^_`|~";
    for (size_t i = 0; i < len; i++)
        if (name[i] == '\0' || (!isalnum((unsigned char)name[i]) && !strchr(others, name[i])))
            return false;
    return len > 0;
}

static bool value_is_plain(const char *value, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (((unsigned char)value[i] < 0x20 && value[i] != '\t') || value[i] == 0x7f)
            return false;
    return true;
}

static bool length_is_plain(const char *value, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (value[i] < '0' || value[i] > '9')
            return false;
    return len >= 1 && len <= 18;
}

static enum MHD_Result header_frames(void *opaque, enum MHD_ValueKind kind, const char *name,
                                     size_t name_len, const char *value, size_t value_len)
{
    struct http_exchange *x = opaque;
    bool ok = name_is_token(name, name_len) && value_is_plain(value, value_len);
    (void)kind;
    if (ok && strcasecmp(name, "Content-Length") == 0)
        ok = length_is_plain(value, value_len) && x->framings++ == 0;
    else if (ok && strcasecmp(name, "Transfer-Encoding") == 0)
        ok = strcasecmp(value, "chunked") == 0 && x->framings++ == 0;
    x->unframed = x->unframed || !ok;
    return ok ? MHD_YES : MHD_NO;
}

/* One header at most says where the body ends, in the one way that everybody reads alike. Else what
 * follows could be another request to us and a body to whoever stands before us, so the answer is
 * the last one on its connection. */
static bool framing_check(struct http_exchange *x)
{
    MHD_get_connection_values_n(x->connection, MHD_HEADER_KIND, header_frames, x);
    if (x->unframed)
        call_error(&x->call, 400, "VALIDATION_ERROR", NULL,
                   "the request's headers do not say plainly where its body ends");
    return !x->unframed;
}

static bool key_read(struct http_exchange *x)
{
    const char *key = call_header(&x->call, "Idempotency-Key");
    if (key == NULL)
        return true;
    size_t len = 0;
    while (key[len] > 0x20 && key[len] < 0x7f)
        len++;
    if (key[len] != '\0' || len == 0 || len > KEY_MAX_BYTES) {
        call_error(&x->call, 400, "VALIDATION_ERROR", "{\"place\":\"Idempotency-Key\"}",
                   "Idempotency-Key must be 1 to %d visible ASCII characters without blanks",
                   KEY_MAX_BYTES);
        return false;
    }
    x->call.idempotency_key = strdup(key);
    must(x->call.idempotency_key != NULL);
    return true;
}

/* "wait=N" among the preferences, in milliseconds; -1 when it is not there. What can't be read is
 * no preference (RFC 7240). */
static int wait_read(const char *prefer)
{
    while (prefer != NULL && *prefer != '\0') {
        prefer += strspn(prefer, " \t,;");
        if (strncasecmp(prefer, "wait=", 5) == 0 && prefer[5] >= '0' && prefer[5] <= '9') {
            long seconds = strtol(prefer + 5, NULL, 10);
            return (int)(seconds > WAIT_MAX_S ? WAIT_MAX_S : seconds) * 1000;
        }
        prefer += strcspn(prefer, " \t,;");
    }
    return -1;
}

/* ---- beginning and end ---- */

static bool route_read(struct http_exchange *x, const char *raw_path)
{
    struct call *call = &x->call;
    struct error err = {0};
    if (!path_read(raw_path, &x->path, &err)) {
        call_error_value(call, &err);
        return false;
    }
    route_find(call->method, &x->path, &x->match);
    call->route = x->match.route;
    memcpy(call->segments, x->match.captured, sizeof call->segments);
    if (call->route != NULL)
        return true;
    if (x->match.allow[0] == '\0') {
        call_error(call, 404, "NOT_FOUND", NULL, "there is no such path in this API");
        return false;
    }
    call_error(call, 405, "METHOD_NOT_ALLOWED", NULL, "this path takes %s", x->match.allow);
    call->allow_header = x->match.allow;
    return false;
}

struct http_exchange *exchange_new(struct MHD_Connection *connection, const char *raw_path,
                                   const char *method, const struct exchange_limits *limits)
{
    struct http_exchange *x = calloc(1, sizeof *x);
    struct ulid id;
    must(x != NULL);
    struct call *call = &x->call;
    x->connection = connection;
    call->exchange = x;
    call->arrived_ms = clock_boot_ms();
    call->retry_after_s = -1;
    ulid_new(&id, clock_wall_ms());
    ulid_format_prefixed("req", &id, call->request_id);
    buf_init(&call->body, limits->body_max);
    snprintf(call->method, sizeof call->method, "%s", method);
    call->path = strdup(raw_path);
    must(call->path != NULL);
    if (!framing_check(x) || !headers_check(x) || !key_read(x) || !route_read(x, raw_path))
        return x;
    call->wait_ms = wait_read(call_header(call, "Prefer"));
    MHD_get_connection_values(connection, MHD_GET_ARGUMENT_KIND, query_add, x);
    return x;
}

static void body_drop(struct http_exchange *x)
{
    buf_wipe(&x->call.body); /* it may hold a secret's value */
    atomic_fetch_sub(&bodies_bytes, x->body_reserved);
    x->body_reserved = 0;
}

void exchange_free(struct http_exchange *x)
{
    struct call *call = &x->call;
    body_drop(x);
    for (int i = 0; i < x->query_count; i++) {
        free(x->query[i].name);
        free(x->query[i].value);
    }
    path_free(&x->path);
    buf_free(&call->reply);
    free(call->committed_what);
    free(call->idempotency_key);
    free(call->path);
    free(x);
}

/* ---- body ---- */

bool exchange_too_long(const struct http_exchange *x, const struct exchange_limits *limits)
{
    const char *announced = call_header(&x->call, "Content-Length");
    return announced != NULL &&
           strtoull(announced, NULL, 10) > limits->body_max + DISCARD_MAX_BYTES;
}

static void body_keep(struct http_exchange *x, const char *bytes, size_t len, size_t max)
{
    struct call *call = &x->call;
    if (call->body.len + len > max) {
        call_error(call, 413, "PAYLOAD_TOO_LARGE", NULL,
                   "the body is larger than the %zu bytes that are taken; nothing was stored", max);
        body_drop(x);
        return;
    }
    if (atomic_fetch_add(&bodies_bytes, len) + len > BODIES_MAX_BYTES) {
        atomic_fetch_sub(&bodies_bytes, len);
        call_error(call, 503, "SERVICE_UNAVAILABLE", NULL,
                   "too many requests are being read; nothing was stored, send this one again with "
                   "the same Idempotency-Key");
        call->retry_after_s = 1;
        body_drop(x);
        return;
    }
    x->body_reserved += len;
    must(buf_put(&call->body, bytes, len));
}

bool exchange_take_body(struct http_exchange *x, const char *bytes, size_t len,
                        const struct exchange_limits *limits)
{
    x->body_seen += len;
    if (x->body_seen > limits->body_max + DISCARD_MAX_BYTES ||
        clock_boot_ms() - x->call.arrived_ms > limits->read_max_ms)
        return false;
    if (x->call.status == 0)
        body_keep(x, bytes, len, limits->body_max);
    return true;
}

/* ---- answer ---- */

static void header_add_number(struct MHD_Response *response, const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    MHD_add_response_header(response, name, text);
}

enum MHD_Result exchange_send(struct http_exchange *x, bool close_connection)
{
    struct call *call = &x->call;
    size_t len;
    if (call->reply.failed || call->status == 0)
        call_error(call, 500, "INTERNAL_ERROR", NULL, "the answer could not be built");
    char *data = buf_take(&call->reply, &len);
    if (data == NULL)
        return MHD_NO;
    struct MHD_Response *response =
        MHD_create_response_from_buffer(len, data, MHD_RESPMEM_MUST_FREE);
    if (response == NULL) {
        free(data);
        return MHD_NO;
    }
    data = NULL; /* the response's now */
    MHD_add_response_header(response, "Content-Type", "application/json");
    MHD_add_response_header(response, "Cache-Control", "no-store");
    MHD_add_response_header(response, "X-Request-Id", call->request_id);
    if (call->replay_header != NULL)
        MHD_add_response_header(response, "X-Idempotent-Replay", call->replay_header);
    if (call->allow_header != NULL)
        MHD_add_response_header(response, "Allow", call->allow_header);
    if (call->status == 401)
        MHD_add_response_header(response, "WWW-Authenticate", "Bearer");
    if (call->retry_after_s >= 0)
        header_add_number(response, "Retry-After", call->retry_after_s);
    if (close_connection || x->unframed)
        MHD_add_response_header(response, "Connection", "close");
    enum MHD_Result result = MHD_queue_response(x->connection, (unsigned)call->status, response);
    MHD_destroy_response(response);
    return result;
}
