/* The envelope of every answer, and what handlers read of a request besides its body. */
#include "ingest/call.h"

#include "common/base/json.h"
#include "common/base/log.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#define REPLY_MAX_BYTES ((size_t)32 << 20)
#define MESSAGE_MAX_BYTES 1024

static void reply_begin(struct call *call, int status)
{
    if (call->reply.max == 0)
        buf_init(&call->reply, REPLY_MAX_BYTES);
    buf_reset(&call->reply);
    call->status = status;
    call->retry_after_s = -1;
}

void call_data(struct call *call, int status, const char *data_json)
{
    reply_begin(call, status);
    buf_puts(&call->reply, "{\"success\":true,\"data\":");
    buf_puts(&call->reply, data_json);
    buf_puts(&call->reply, "}");
}

void call_list(struct call *call, const char *items_json, int64_t limit, int64_t offset,
               int64_t total)
{
    char total_text[24] = "null";
    if (total >= 0)
        snprintf(total_text, sizeof total_text, "%" PRId64, total);
    reply_begin(call, 200);
    buf_puts(&call->reply, "{\"success\":true,\"data\":");
    buf_puts(&call->reply, items_json);
    buf_printf(&call->reply,
               ",\"pagination\":{\"limit\":%" PRId64 ",\"offset\":%" PRId64 ",\"total\":%s}}",
               limit, offset, total_text);
}

void call_error(struct call *call, int status, const char *code, const char *details_json,
                const char *fmt, ...)
{
    char message[MESSAGE_MAX_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    reply_begin(call, status);
    call->replay_header = NULL;
    buf_printf(&call->reply, "{\"success\":false,\"error\":{\"code\":\"%s\",\"message\":", code);
    json_put_string(&call->reply, message, strlen(message));
    buf_puts(&call->reply, ",\"details\":");
    buf_puts(&call->reply, details_json != NULL ? details_json : "{}");
    buf_puts(&call->reply, "}}");
}

void call_recorded(struct call *call, int status, const char *reply)
{
    reply_begin(call, status);
    buf_puts(&call->reply, reply);
}

/* The sentence with the place in front of it, as far as there is one. */
static void error_tell(struct call *call, int status, const char *code, const struct error *err)
{
    struct buf details;
    buf_init(&details, 1024);
    buf_puts(&details, "{\"place\":");
    json_put_string(&details, err->place, strlen(err->place));
    buf_puts(&details, "}");
    if (err->place[0] != '\0')
        call_error(call, status, code, details.data, "%s: %s", err->place, err->text);
    else
        call_error(call, status, code, NULL, "%s", err->text);
    buf_free(&details);
}

void call_error_value(struct call *call, const struct error *err)
{
    switch (err->code) {
    case ERROR_INVALID:
        error_tell(call, 400, "VALIDATION_ERROR", err);
        return;
    case ERROR_NOT_FOUND:
        call_error(call, 404, "NOT_FOUND", NULL, "%s", err->text);
        return;
    case ERROR_CONFLICT:
        call_error(call, 409, "CONFLICT", NULL, "%s", err->text);
        return;
    case ERROR_DENIED:
        call_error(call, 403, "AUTHORIZATION_ERROR", NULL, "%s", err->text);
        return;
    case ERROR_TOO_LARGE:
        call_error(call, 413, "PAYLOAD_TOO_LARGE", NULL, "%s", err->text);
        return;
    case ERROR_UNAVAILABLE:
    case ERROR_DOUBTFUL:
        log_error(LOG_WARN, "request_unavailable", err);
        call_error(call, 503, "SERVICE_UNAVAILABLE", NULL,
                   "Holdfast cannot reach its database now. Send the same request again with the "
                   "same Idempotency-Key.");
        call->retry_after_s = 1;
        return;
    default:
        log_error(LOG_ERROR, "request_failed", err);
        call_error(call, 500, "INTERNAL_ERROR", NULL,
                   "Holdfast failed on this request; its log has the reason under %s.",
                   call->request_id);
    }
}

bool principal_may_use(const struct principal *principal, const char *action_name)
{
    if (principal->actions == NULL)
        return true;
    for (char **name = principal->actions; *name != NULL; name++)
        if (strcmp(*name, action_name) == 0)
            return true;
    return false;
}

char *principal_actions_list(const struct principal *principal)
{
    struct buf list;
    buf_init(&list, SIZE_MAX);
    for (char **name = principal->actions; name != NULL && *name != NULL; name++)
        buf_printf(&list, "%s%s", name == principal->actions ? "" : ",", *name);
    char *text = principal->actions != NULL ? buf_take(&list, NULL) : NULL;
    must(principal->actions == NULL || text != NULL);
    return text;
}
