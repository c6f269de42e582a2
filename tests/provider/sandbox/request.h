/* One HTTP/1.1 request, read from bytes as they come. */
#ifndef SANDBOX_REQUEST_H
#define SANDBOX_REQUEST_H

#include "common/base/buf.h"

#include <stdbool.h>
#include <stddef.h>

#define REQUEST_HEAD_MAX ((size_t)64 << 10)
#define REQUEST_BODY_MAX ((size_t)16 << 20)
#define REQUEST_HEADERS_MAX 128

struct header {
    char *name;
    char *value;
};

enum body_form { BODY_NONE, BODY_LENGTH, BODY_CHUNKED };
enum chunk_step { CHUNK_SIZE, CHUNK_DATA, CHUNK_DATA_END, CHUNK_TRAILER };

struct request {
    char *head; /* the bytes as they came, with the blank line when the head is whole */
    size_t head_len;
    char *text; /* a copy cut into strings, into which all of the following point */
    char *method;
    char *target; /* with the query */
    char *path;
    char *query; /* "" when there is none */
    struct header headers[REQUEST_HEADERS_MAX];
    size_t header_count;
    bool keep_alive;
    bool expects_continue;
    enum body_form body_form;
    size_t body_left; /* bytes to come: of the body, or of the chunk */
    enum chunk_step chunk_step;
    struct buf line; /* a chunk's size line or a trailer line, as far as it came */
    struct buf body;
};

enum request_progress { REQUEST_MORE, REQUEST_WHOLE, REQUEST_BAD, REQUEST_TOO_LARGE };

/* The length of the head at the front of data, with its blank line; 0 when it is not all there. */
size_t request_head_length(const char *data, size_t len);
/* Reads a head (or, of a cut one, the lines that are whole). Never NULL. *ok says whether it is a
 * request whose body can be read; if not, what could be read of it is there all the same. */
struct request *request_new(const char *head, size_t len, bool *ok);
void request_free(struct request *r);
/* Reads the body on; *used says how many of the bytes belonged to it. */
enum request_progress request_feed(struct request *r, const char *data, size_t len, size_t *used);
/* Value of the first header of that name whatever its case, or NULL. */
const char *request_header(const struct request *r, const char *name);
bool request_is_write(const struct request *r);

#endif
