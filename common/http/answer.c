/* Collects an answer line by line, and judges it. */
#include "common/http/answer.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

void answer_init(struct answer *answer, size_t body_max)
{
    *answer = (struct answer){.promised = -1};
    buf_init(&answer->head, ANSWER_HEAD_MAX);
    buf_init(&answer->body, body_max);
}

void answer_reset(struct answer *answer)
{
    size_t body_max = answer->body.max;
    bool bodiless = answer->bodiless;
    answer_free(answer);
    answer_init(answer, body_max);
    answer->bodiless = bodiless;
}

void answer_free(struct answer *answer)
{
    buf_free(&answer->head);
    buf_free(&answer->body);
}

/* "HTTP/1.0 200" or "HTTP/1.1 200", then a blank or the line's end. libcurl itself reads more forms
 * than that ("HTTP 200", "HTTP/1.1 2000"); those prove nothing. 0: not a status line. */
static int status_parse(const char *line, size_t len)
{
    if (len < 13 || memcmp(line, "HTTP/1.", 7) != 0 || (line[7] != '0' && line[7] != '1') ||
        line[8] != ' ')
        return 0;
    if (!isdigit((unsigned char)line[9]) || !isdigit((unsigned char)line[10]) ||
        !isdigit((unsigned char)line[11]) || !strchr(" \r\n", line[12]) || line[12] == '\0')
        return 0;
    int status = (line[9] - '0') * 100 + (line[10] - '0') * 10 + (line[11] - '0');
    return status >= 100 && status <= 599 ? status : 0;
}

static void head_begin(struct answer *answer, const char *line, size_t len, bool upload_complete)
{
    int status = status_parse(line, len);
    if (status == 0 || answer->head_now != 0) {
        answer->malformed = true;
        return;
    }
    answer->head_now = status;
    if (status < 200) {
        answer->informational++;
        return;
    }
    answer->status = status;
    answer->upload_complete = upload_complete;
}

static void head_end(struct answer *answer)
{
    if (answer->head_now >= 200)
        answer->head_complete = true;
    answer->head_now = 0;
}

/* Splits "Name: value" and cuts the blanks around the value. */
static const char *line_value(const char *line, size_t len, const char *name, size_t *value_len)
{
    size_t name_len = strlen(name);
    if (len <= name_len || strncasecmp(line, name, name_len) != 0 || line[name_len] != ':')
        return NULL;
    const char *value = line + name_len + 1, *end = line + len;
    while (value < end && isspace((unsigned char)*value))
        value++;
    while (end > value && isspace((unsigned char)end[-1]))
        end--;
    *value_len = (size_t)(end - value);
    return value;
}

/* Two lengths that differ, or one that is not a plain number, leave the body's end in doubt. */
static void length_take(struct answer *answer, const char *value, size_t len)
{
    int64_t length = 0;
    bool valid = len >= 1 && len <= 18;
    for (size_t i = 0; valid && i < len; i++) {
        valid = isdigit((unsigned char)value[i]);
        length = length * 10 + (value[i] - '0');
    }
    if (!valid || (answer->promised >= 0 && answer->promised != length))
        answer->malformed = true;
    else
        answer->promised = length;
}

/* Chunks, last and once, and not beside a length: else two parties could see the body end at two
 * places, and the answer may be another's. */
static void encoding_take(struct answer *answer, const char *value, size_t len)
{
    bool last = len >= 7 && strncasecmp(value + len - 7, "chunked", 7) == 0 &&
                (len == 7 || strchr(", \t", value[len - 8]) != NULL);
    if (!last || answer->chunked)
        answer->malformed = true;
    answer->chunked = answer->chunked || last;
}

static void header_take(struct answer *answer, const char *line, size_t len)
{
    size_t value_len;
    const char *value = line_value(line, len, "Content-Length", &value_len);
    if (value)
        length_take(answer, value, value_len);
    value = line_value(line, len, "Transfer-Encoding", &value_len);
    if (value)
        encoding_take(answer, value, value_len);
    answer->malformed = answer->malformed || (answer->chunked && answer->promised >= 0);
    if (answer->head_truncated || answer->head.len + len > answer->head.max)
        answer->head_truncated = true;
    else
        buf_put(&answer->head, line, len);
}

void answer_take_line(struct answer *answer, const char *line, size_t len, bool upload_complete)
{
    if (answer->head_complete)
        return; /* the trailer of a chunked body: nothing in it counts */
    if (len == 0)
        return;
    if (len >= 5 && memcmp(line, "HTTP/", 5) == 0)
        head_begin(answer, line, len, upload_complete);
    else if (answer->head_now == 0)
        answer->malformed = true;
    else if (line[0] == '\r' || line[0] == '\n')
        head_end(answer);
    else if (answer->head_now >= 200)
        header_take(answer, line, len);
}

void answer_take_body(struct answer *answer, const char *bytes, size_t len)
{
    answer->body_bytes += (int64_t)len;
    size_t room = answer->body.max - answer->body.len;
    size_t keep = len < room ? len : room;
    if (keep < len)
        answer->body_truncated = true;
    buf_put(&answer->body, bytes, keep);
}

void answer_finish(struct answer *answer, bool ok)
{
    bool whole = ok && answer->head_complete && !answer->malformed && !answer->body.failed;
    bool bodiless = answer->bodiless || answer->status == 204 || answer->status == 304;
    if (!bodiless && !answer->chunked && answer->promised >= 0)
        whole = whole && answer->body_bytes == answer->promised;
    answer->body_complete = whole;
}

bool answer_complete(const struct answer *answer)
{
    return answer->head_complete && answer->body_complete && !answer->malformed;
}

const char *answer_header(const struct answer *answer, const char *name, size_t *len)
{
    const char *line = answer->head.data, *end = line + answer->head.len;
    while (line && line < end) {
        const char *next = memchr(line, '\n', (size_t)(end - line));
        next = next ? next + 1 : end;
        const char *value = line_value(line, (size_t)(next - line), name, len);
        if (value)
            return value;
        line = next;
    }
    return NULL;
}

const char *send_result_name(enum send_result result)
{
    static const char *const names[] = {"never_left", "success", "refused", "unknown"};
    return names[result];
}

/* Why an answer that is not whole proves nothing. */
static void incomplete_say(const struct answer *answer, const char *cause, char *text, size_t size)
{
    const char *why = cause ? cause : "the connection ended";
    if (answer->malformed)
        snprintf(text, size, "The provider's answer is not valid HTTP.");
    else if (answer->status == 0 && answer->informational > 0)
        snprintf(text, size, "Only an interim 1xx answer came after the request was sent: %s.",
                 why);
    else if (answer->status == 0)
        snprintf(text, size, "No answer came after the request was sent: %s.", why);
    else if (!answer->head_complete)
        snprintf(text, size, "The head of the answer (HTTP %d) was cut off: %s.", answer->status,
                 why);
    else if (answer->promised >= 0 && answer->body_bytes == answer->promised)
        snprintf(text, size, "HTTP %d came, but the request had not been sent to its end: %s.",
                 answer->status, why);
    else if (answer->promised >= 0 && !answer->chunked)
        snprintf(text, size,
                 "The body of the answer (HTTP %d) was cut off at %lld of %lld bytes: %s.",
                 answer->status, (long long)answer->body_bytes, (long long)answer->promised, why);
    else
        snprintf(text, size, "The body of the answer (HTTP %d) was cut off: %s.", answer->status,
                 why);
}

static enum send_result status_judge(const struct answer *answer, char *text, size_t size)
{
    int status = answer->status;
    if (status >= 200 && status <= 299 && answer->upload_complete) {
        snprintf(text, size, "The provider answered HTTP %d.", status);
        return SEND_SUCCESS;
    }
    if (status >= 400 && status <= 499 && status != 408 && status != 409) {
        snprintf(text, size, "The provider refused the request with HTTP %d.", status);
        return SEND_REFUSED;
    }
    if (status >= 200 && status <= 299)
        snprintf(text, size, "HTTP %d came before the whole request had been sent.", status);
    else if (status >= 300 && status <= 399)
        snprintf(text, size, "The provider answered with a redirect (HTTP %d), not followed.",
                 status);
    else
        snprintf(text, size, "The provider answered HTTP %d, which does not say what happened.",
                 status);
    return SEND_UNKNOWN;
}

enum send_result answer_classify(const struct answer *answer, const struct answer_facts *facts,
                                 char *evidence, size_t size)
{
    if (!facts->left) {
        snprintf(evidence, size, "The request never left: %s.",
                 facts->cause ? facts->cause : "no connection was made");
        return SEND_NEVER_LEFT;
    }
    if (facts->dropped && answer->status != 0) {
        snprintf(evidence, size, "Fault drill: the answer was dropped after the send.");
        return SEND_UNKNOWN;
    }
    if (answer_complete(answer))
        return status_judge(answer, evidence, size);
    incomplete_say(answer, facts->cause, evidence, size);
    return SEND_UNKNOWN;
}
