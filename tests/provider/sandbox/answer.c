/* The answer to a request, before it becomes bytes. */
#include "tests/provider/sandbox/answer.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void answer_init(struct answer *answer)
{
    memset(answer, 0, sizeof(*answer));
    answer->status = 200;
    answer->type = "application/json";
    answer->outcome = OUTCOME_REFUSED;
    buf_init(&answer->headers, (size_t)64 << 10);
    buf_init(&answer->body, ANSWER_BODY_MAX);
}

void answer_free(struct answer *answer)
{
    buf_free(&answer->headers);
    buf_free(&answer->body);
}

void answer_header(struct answer *answer, const char *name, const char *value)
{
    buf_printf(&answer->headers, "%s: %s\r\n", name, value);
}

void answer_json(struct answer *answer, int status, json_t *body)
{
    char *text = json_dumps(body, JSON_COMPACT | JSON_ENCODE_ANY);
    answer->status = status;
    buf_reset(&answer->body);
    buf_puts(&answer->body, text ? text : "null");
    free(text);
    json_decref(body);
}

void answer_error(struct answer *answer, int status, const char *type, const char *code,
                  const char *param, const char *fmt, ...)
{
    char message[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof(message), fmt, args);
    va_end(args);
    json_t *text = json_string(message);
    json_t *error = json_pack("{s:s,s:o}", "type", type, "message",
                              text ? text : json_string("the request holds invalid UTF-8"));
    if (code)
        json_object_set_new(error, "code", json_string(code));
    if (param)
        json_object_set_new(error, "param", json_string(param));
    answer_json(answer, status, json_pack("{s:o}", "error", error));
}

const char *status_reason(int status)
{
    static const struct {
        int status;
        const char *reason;
    } reasons[] = {
        {100, "Continue"},
        {102, "Processing"},
        {103, "Early Hints"},
        {200, "OK"},
        {201, "Created"},
        {202, "Accepted"},
        {204, "No Content"},
        {301, "Moved Permanently"},
        {302, "Found"},
        {303, "See Other"},
        {304, "Not Modified"},
        {307, "Temporary Redirect"},
        {308, "Permanent Redirect"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {402, "Payment Required"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {413, "Content Too Large"},
        {422, "Unprocessable Content"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {502, "Bad Gateway"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
    };
    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
        if (reasons[i].status == status)
            return reasons[i].reason;
    return "Status";
}

/* Whether an answer of this status has a body at all (RFC 9112, 6.3). */
static bool status_has_body(int status)
{
    return status >= 200 && status != 204 && status != 304;
}

void answer_put_head(const struct answer *answer, bool keep_alive, struct buf *out)
{
    bool has_body = status_has_body(answer->status);
    buf_printf(out, "HTTP/1.1 %d %s\r\n", answer->status, status_reason(answer->status));
    if (has_body && answer->type)
        buf_printf(out, "Content-Type: %s\r\n", answer->type);
    if (has_body && !answer->framed)
        buf_printf(out, "Content-Length: %zu\r\n", answer->body.len);
    buf_put(out, answer->headers.data, answer->headers.len);
    buf_puts(out, keep_alive || answer->status < 200 ? "\r\n" : "Connection: close\r\n\r\n");
}

void answer_put(const struct answer *answer, bool keep_alive, struct buf *out)
{
    answer_put_head(answer, keep_alive, out);
    if (status_has_body(answer->status) && !answer->head_only)
        buf_put(out, answer->body.data, answer->body.len);
}
