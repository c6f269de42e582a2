/* The steps that every read-back takes, whichever adapter makes it. */
#include "adapters/shared.h"
#include "common/base/clock.h"

#include <curl/curl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define RETRY_AFTER_MAX_S 86400

void read_back_free(struct read_back *read)
{
    request_free(read->next);
    json_decref(read->state);
    *read = (struct read_back){0};
}

void read_back_conclude(struct read_back *read, enum read_what what, const char *fmt, ...)
{
    va_list args;
    request_free(read->next);
    read->next = NULL;
    read->what = what;
    va_start(args, fmt);
    vsnprintf(read->text, sizeof(read->text), fmt, args);
    va_end(args);
}

/* Copies a header's value as text; empty when it is absent or too long to be sound. */
static void header_copy(const struct answer *answer, const char *name, char *out, size_t size)
{
    size_t len = 0;
    const char *value = answer_header(answer, name, &len);
    if (!value || len >= size)
        len = 0;
    if (len > 0)
        memcpy(out, value, len);
    out[len] = '\0';
}

/* Seconds, or a date, which is read against the provider's own clock where it sent it. */
static int64_t retry_after_ms(const struct answer *answer)
{
    char text[64], date[64];
    header_copy(answer, "Retry-After", text, sizeof(text));
    size_t digits = strspn(text, "0123456789");
    int64_t seconds = 0;
    if (digits > 0 && text[digits] == '\0') {
        seconds = digits > 9 ? RETRY_AFTER_MAX_S : strtol(text, NULL, 10);
    } else if (text[0]) {
        header_copy(answer, "Date", date, sizeof(date));
        time_t from = date[0] ? curl_getdate(date, NULL) : (time_t)-1;
        time_t until = curl_getdate(text, NULL);
        if (from == (time_t)-1)
            from = (time_t)(clock_wall_ms() / 1000);
        if (until != (time_t)-1 && until > from)
            seconds = until - from;
    }
    return 1000 * (seconds > RETRY_AFTER_MAX_S ? RETRY_AFTER_MAX_S : seconds);
}

static bool is_html(const struct answer *answer)
{
    char type[128];
    header_copy(answer, "Content-Type", type, sizeof(type));
    return strncasecmp(type, "text/html", 9) == 0 ||
           strncasecmp(type, "application/xhtml", 17) == 0;
}

static bool status_judged(int status, int expected)
{
    return (status >= 200 && status <= 299) || status == 404 || status == 410 || status == expected;
}

bool read_back_take(struct read_back *read, const struct answer *answer, const char *transport,
                    int expected)
{
    read->retry_after_ms = 0;
    request_free(read->next);
    read->next = NULL;
    if (!answer || answer->status == 0)
        read_back_conclude(read, READ_UNUSABLE, "The read-back got no answer%s%.200s.",
                           transport ? ": " : "", transport ? transport : "");
    else if (!status_judged(answer->status, expected))
        read_back_conclude(read, READ_UNUSABLE, "The read-back got no usable answer: HTTP %d.",
                           answer->status);
    else if (!answer_complete(answer))
        read_back_conclude(read, READ_UNUSABLE, "The answer to the read-back was cut short.");
    else if (answer->body_truncated)
        read_back_conclude(read, READ_UNUSABLE, "The answer to the read-back was too large.");
    else if (is_html(answer))
        read_back_conclude(read, READ_UNUSABLE,
                           "The read-back got an HTML page (HTTP %d), not the provider's record.",
                           answer->status);
    else
        return true;
    if (answer)
        read->retry_after_ms = retry_after_ms(answer);
    return false;
}

json_t *answer_json(const struct answer *answer)
{
    if (answer->body.len == 0)
        return NULL;
    return json_loadb(answer->body.data, answer->body.len, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES,
                      NULL);
}
