/* Turns an answer into bytes and an end, as a fault wants them. */
#include "tests/provider/sandbox/shape.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define HANG_MS_DEFAULT 600000
#define DRIP_MS_DEFAULT 20

static const char garbage[] = "\x16\x03\x01\x02SSH-2.0-nothing like HTTP\r\n\xff\xfe\r\n\r\n";
static const char html[] = "<!DOCTYPE html>\n<html><head><title>Please sign in</title></head>"
                           "<body><h1>Please sign in</h1></body></html>\n";

static void shape_headers(const struct fault *fault, struct answer *answer)
{
    const char *name;
    json_t *value;
    json_object_foreach(fault->headers, name, value)
    {
        answer_header(answer, name, json_string_value(value));
        if (strcasecmp(name, "Content-Type") == 0)
            answer->type = NULL;
        if (strcasecmp(name, "Content-Length") == 0 || strcasecmp(name, "Transfer-Encoding") == 0)
            answer->framed = true;
    }
}

static void shape_body(const struct fault *fault, struct answer *answer)
{
    buf_reset(&answer->body);
    for (int64_t i = 0; i < fault->body_repeat; i++)
        buf_put(&answer->body, fault->body.data, fault->body.len);
}

/* The error that Stripe gives with a status, where the rule brings no body. */
static void shape_default_error(const struct fault *fault, struct answer *answer)
{
    if (fault->status == 402)
        answer_error(answer, 402, "card_error", "card_declined", NULL, "Your card was declined.");
    else if (fault->status == 409)
        answer_error(answer, 409, "idempotency_error", "idempotency_key_in_use", NULL,
                     "There is currently another in-progress request using this Idempotent Key.");
    else if (fault->status == 429)
        answer_error(answer, 429, "invalid_request_error", "rate_limit", NULL,
                     "Too many requests hit the API too quickly.");
    else
        answer_error(answer, fault->status,
                     fault->status >= 500 ? "api_error" : "invalid_request_error", NULL, NULL, "%s",
                     status_reason(fault->status));
}

void shape_answer(const struct fault *fault, struct answer *answer)
{
    switch (fault->kind) {
    case FAULT_STATUS:
        if (fault->status >= 400 && !fault->has_body)
            shape_default_error(fault, answer);
        else if (fault->status >= 300 && !fault->has_body)
            buf_reset(&answer->body);
        break;
    case FAULT_HTML:
        answer->type = "text/html; charset=utf-8";
        buf_reset(&answer->body);
        buf_puts(&answer->body, html);
        break;
    case FAULT_EMPTY_LIST:
        buf_reset(&answer->body);
        buf_puts(&answer->body, "{\"object\":\"list\",\"data\":[],\"has_more\":false}");
        break;
    case FAULT_EARLY_200:
        buf_puts(&answer->body, "{\"id\":\"early\",\"ok\":true,\"status\":\"succeeded\"}");
        break;
    case FAULT_BODY_RAW:
        break;
    default:
        return;
    }
    answer->status = fault->status;
    if (fault->has_body)
        shape_body(fault, answer);
    shape_headers(fault, answer);
}

/* Everything up to `bytes` bytes after the first `skip` ones; half of the rest when bytes is -1. */
static void cut(struct buf *out, size_t skip, int64_t bytes)
{
    size_t rest = out->len - skip;
    size_t keep = bytes < 0 ? rest / 2 : (size_t)bytes;
    if (keep < rest)
        out->len = skip + keep;
}

static void shape_chunks(const struct fault *fault, struct answer *answer, struct buf *out)
{
    const struct buf *body = &answer->body;
    answer->framed = true;
    answer_header(answer, "Transfer-Encoding", "chunked");
    answer_put_head(answer, true, out);
    buf_printf(out, "%zx\r\n", body->len);
    size_t start = out->len;
    buf_put(out, body->data, body->len);
    if (fault->last_chunk_only)
        buf_puts(out, "\r\n");
    else
        cut(out, start, fault->bytes);
}

static void shape_stale(const struct fault *fault, struct stale_plan *plan)
{
    plan->set = true;
    plan->mode = fault->mode;
    plan->rst = fault->rst;
    plan->apply = fault->apply;
    plan->ms = fault->ms < 0 ? 0 : fault->ms;
    buf_put(&plan->bytes, fault->body.data, fault->body.len);
}

/* The kinds that give no answer; out->end says how they end. */
static bool shape_no_answer(const struct fault *fault, struct sending *out)
{
    switch (fault->kind) {
    case FAULT_DROP:
        return true;
    case FAULT_RESET:
    case FAULT_RESET_EARLY:
        out->end = END_RST;
        return true;
    case FAULT_HANG:
        out->end = END_HOLD;
        out->hold_ms = fault->ms < 0 ? HANG_MS_DEFAULT : fault->ms;
        return true;
    case FAULT_GARBAGE:
        buf_put(&out->bytes, garbage, sizeof(garbage) - 1);
        return true;
    case FAULT_RAW:
        for (int64_t i = 0; i < fault->body_repeat; i++)
            buf_put(&out->bytes, fault->body.data, fault->body.len);
        return true;
    default:
        return false;
    }
}

/* The kinds that break off in the answer. */
static bool shape_cut_answer(const struct fault *fault, struct answer *answer, struct buf *out)
{
    switch (fault->kind) {
    case FAULT_TRUNCATE_HEAD:
        answer_put_head(answer, true, out);
        cut(out, 0, fault->bytes);
        return true;
    case FAULT_TRUNCATE_BODY:
        answer_put(answer, true, out);
        cut(out, request_head_length(out->data, out->len), fault->bytes);
        return true;
    case FAULT_TRUNCATE_CHUNK:
        shape_chunks(fault, answer, out);
        return true;
    default:
        return false;
    }
}

bool shape_bytes(const struct fault *fault, struct answer *answer, bool keep_alive,
                 struct sending *out)
{
    static const struct fault none = {.kind = FAULT_DELAY};
    fault = fault ? fault : &none;
    out->delay_ms = fault->delay_ms;
    out->end = fault->rst ? END_RST : END_FIN;
    if (shape_no_answer(fault, out))
        return false;
    if (shape_cut_answer(fault, answer, &out->bytes))
        return true;
    bool keep = keep_alive && fault->kind != FAULT_EARLY_200;
    if (fault->kind == FAULT_STALE_KEEPALIVE)
        shape_stale(fault, &out->stale);
    else
        keep = keep && !fault->close;
    if (fault->kind == FAULT_DRIP)
        out->drip_ms = fault->ms < 1 ? DRIP_MS_DEFAULT : fault->ms;
    answer_put(answer, keep, &out->bytes);
    /* After a 1xx the true answer would have to follow; the connection ends instead. */
    if (keep && answer->status >= 200)
        out->end = END_KEEP;
    return true;
}
