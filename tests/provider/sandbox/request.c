/* One HTTP/1.1 request, read from bytes as they come. */
#include "tests/provider/sandbox/request.h"

#include "tests/provider/sandbox/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

size_t request_head_length(const char *data, size_t len)
{
    const char *end = len ? memmem(data, len, "\r\n\r\n", 4) : NULL;
    return end ? (size_t)(end - data) + 4 : 0;
}

const char *request_header(const struct request *r, const char *name)
{
    for (size_t i = 0; i < r->header_count; i++)
        if (strcasecmp(r->headers[i].name, name) == 0)
            return r->headers[i].value;
    return NULL;
}

bool request_is_write(const struct request *r)
{
    return strcmp(r->method, "GET") != 0 && strcmp(r->method, "HEAD") != 0 &&
           strcmp(r->method, "OPTIONS") != 0;
}

/* "POST /v1/refunds HTTP/1.1", or what a cut one has of it. */
static bool request_line_parse(struct request *r, char *line)
{
    r->method = strsep(&line, " ");
    r->target = line ? strsep(&line, " ") : "";
    r->path = must_strdup(r->target);
    char *question = strchr(r->path, '?');
    r->query = "";
    if (question) {
        *question = '\0';
        r->query = question + 1;
    }
    if (line == NULL || strncmp(line, "HTTP/1.", 7) != 0)
        return false;
    r->keep_alive = strcmp(line, "HTTP/1.0") != 0;
    return true;
}

static bool header_line_parse(struct request *r, char *line)
{
    char *colon = strchr(line, ':');
    if (colon == NULL || colon == line || r->header_count == REQUEST_HEADERS_MAX)
        return false;
    *colon = '\0';
    char *value = colon + 1 + strspn(colon + 1, " \t");
    size_t len = strlen(value);
    while (len && (value[len - 1] == ' ' || value[len - 1] == '\t'))
        value[--len] = '\0';
    r->headers[r->header_count++] = (struct header){line, value};
    return strpbrk(value, "\r\n") == NULL;
}

static bool decimal_parse(const char *text, size_t *out)
{
    if (*text == '\0' || strspn(text, "0123456789") != strlen(text))
        return false;
    errno = 0;
    *out = strtoull(text, NULL, 10);
    return errno == 0;
}

/* How the body comes, from the headers. */
static bool request_framing_read(struct request *r)
{
    const char *connection = request_header(r, "Connection");
    if (connection && strcasecmp(connection, "close") == 0)
        r->keep_alive = false;
    const char *expect = request_header(r, "Expect");
    r->expects_continue = expect && strcasecmp(expect, "100-continue") == 0;
    const char *coding = request_header(r, "Transfer-Encoding");
    const char *length = request_header(r, "Content-Length");
    if (coding) {
        r->body_form = BODY_CHUNKED;
        return strcasecmp(coding, "chunked") == 0 && length == NULL;
    }
    if (length == NULL)
        return true;
    r->body_form = BODY_LENGTH;
    return decimal_parse(length, &r->body_left);
}

struct request *request_new(const char *head, size_t len, bool *ok)
{
    struct request *r = must_calloc(sizeof(*r));
    r->head = must_strndup(head, len);
    r->head_len = len;
    r->text = must_strndup(head, len);
    buf_init(&r->body, REQUEST_BODY_MAX);
    buf_init(&r->line, 4096);
    *ok = strlen(r->text) == len;
    char *line = r->text;
    char *end = strstr(line, "\r\n");
    if (end)
        *end = '\0';
    *ok = request_line_parse(r, line) && *ok;
    while (end) {
        line = end + 2;
        end = strstr(line, "\r\n");
        if (end == NULL || end == line)
            break;
        *end = '\0';
        *ok = header_line_parse(r, line) && *ok;
    }
    *ok = request_framing_read(r) && *ok;
    return r;
}

void request_free(struct request *r)
{
    if (r == NULL)
        return;
    buf_free(&r->body);
    buf_free(&r->line);
    free(r->path);
    free(r->text);
    free(r->head);
    free(r);
}

/* Takes bytes up to and with a line feed; true when the line is whole (its end cut off). */
static bool line_take(struct request *r, const char *data, size_t len, size_t *used)
{
    const char *feed = memchr(data, '\n', len);
    size_t take = feed ? (size_t)(feed - data) + 1 : len;
    buf_put(&r->line, data, take);
    *used += take;
    if (feed == NULL || r->line.failed)
        return false;
    r->line.data[strcspn(r->line.data, "\r\n")] = '\0';
    return true;
}

/* Takes body bytes that are due; true when none are left to come. */
static bool body_take(struct request *r, const char *data, size_t len, size_t *used)
{
    size_t take = len < r->body_left ? len : r->body_left;
    buf_put(&r->body, data, take);
    r->body_left -= take;
    *used += take;
    return r->body_left == 0;
}

static enum request_progress chunk_line_done(struct request *r)
{
    enum request_progress progress = REQUEST_MORE;
    char *end = NULL;
    switch (r->chunk_step) {
    case CHUNK_SIZE:
        r->body_left = strtoull(r->line.data, &end, 16);
        if (end == r->line.data || (*end != '\0' && *end != ';'))
            progress = REQUEST_BAD;
        r->chunk_step = r->body_left ? CHUNK_DATA : CHUNK_TRAILER;
        break;
    case CHUNK_DATA_END:
        progress = r->line.data[0] ? REQUEST_BAD : REQUEST_MORE;
        r->chunk_step = CHUNK_SIZE;
        break;
    default:
        progress = r->line.data[0] ? REQUEST_MORE : REQUEST_WHOLE;
    }
    buf_reset(&r->line);
    return progress;
}

static enum request_progress chunks_feed(struct request *r, const char *data, size_t len,
                                         size_t *used)
{
    enum request_progress progress = REQUEST_MORE;
    while (*used < len && progress == REQUEST_MORE) {
        if (r->chunk_step == CHUNK_DATA) {
            if (body_take(r, data + *used, len - *used, used))
                r->chunk_step = CHUNK_DATA_END;
        } else if (line_take(r, data + *used, len - *used, used)) {
            progress = chunk_line_done(r);
        }
        if (r->line.failed || r->body.failed || r->body_left > REQUEST_BODY_MAX)
            return REQUEST_TOO_LARGE;
    }
    return progress;
}

enum request_progress request_feed(struct request *r, const char *data, size_t len, size_t *used)
{
    *used = 0;
    if (r->body_form == BODY_CHUNKED)
        return chunks_feed(r, data, len, used);
    if (r->body_left > REQUEST_BODY_MAX)
        return REQUEST_TOO_LARGE;
    return body_take(r, data, len, used) ? REQUEST_WHOLE : REQUEST_MORE;
}
