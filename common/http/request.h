/* A prepared request: what an adapter builds once, what is stored with the effect, and what is sent
 * or read back later. It holds no secret, no effect id and no provider key, only slots that say
 * where one will stand. Slots are structure, never marks inside text, so no input text can become a
 * slot. */
#ifndef HOLDFAST_REQUEST_H
#define HOLDFAST_REQUEST_H

#include "common/base/buf.h"
#include "common/base/crypto.h"
#include "common/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REQUEST_URL_MAX 8192
#define REQUEST_HEADERS_MAX 32
#define REQUEST_HEADER_NAME_MAX 127
#define REQUEST_HEADER_VALUE_MAX 8192
#define REQUEST_BODY_MAX (4u << 20) /* bytes, escapes included */
#define REQUEST_PARTS_MAX 256       /* in one URL, header value or body */
#define REQUEST_ENCODED_MAX (8u << 20)
#define SECRET_NAME_MAX 127

/* Where a part stands. The values are bits: a secret's allowedPlacements is a set of them. */
enum place { PLACE_URL = 1, PLACE_HEADER = 2, PLACE_BODY = 4 };

/* How text is escaped in the body: as the inside of a JSON string, as a form value, or not at all.
 */
enum body_format { BODY_NONE, BODY_JSON, BODY_FORM, BODY_TEXT };

enum part_kind { PART_LITERAL, PART_SECRET, PART_EFFECT_ID, PART_PROVIDER_KEY };

struct part {
    enum part_kind kind;
    struct buf text; /* the literal's bytes as they will be sent, or the secret's name */
};

struct parts {
    struct part *items;
    size_t count;
    size_t room;
};

struct request_header {
    char name[REQUEST_HEADER_NAME_MAX + 1];
    struct parts value;
};

struct request {
    char method[8]; /* GET HEAD POST PUT PATCH DELETE */
    bool https;
    char host[254]; /* lower case; an IPv6 literal without brackets */
    int port;
    struct parts url; /* path and query, starts with '/' */
    struct request_header headers[REQUEST_HEADERS_MAX];
    size_t header_count;
    enum body_format
        format; /* BODY_NONE: no body and no Content-Length, but for POST, PUT and PATCH */
    struct parts body;
    struct error failure; /* the first put that failed; request_check reports it */
};

/* Begins a request to `base` ("https://host[:port][/path]", no query, no fragment, no userinfo);
 * its path is the first literal of the URL, without a '/' at its end. Whether plain http or a
 * private address is allowed is asked now (guard.h). NULL with err. The caller frees with
 * request_free. */
struct request *request_new(const char *method, const char *base, enum body_format format,
                            struct error *err);
void request_free(struct request *request);

/* The puts append to the URL, to the header begun last, or to the body. They may be called one
 * after the other without looking: the first that fails is kept and request_check tells it. */
/* Starts the next header. Names that belong to the connection (Host, Content-Length, ...) fail. */
void request_put_header(struct request *request, const char *name);
/* Bytes that are already as they must be sent: valid UTF-8 without NUL. */
void request_put_literal(struct request *request, enum place place, const char *text, size_t len);
/* Text from outside, escaped for where it stands: URL percent-encoded, header as it is but refused
 * with a control character, body by the format. An empty value in the path fails (it would name
 * another resource). */
void request_put_text(struct request *request, enum place place, const char *text, size_t len);
void request_put_secret(struct request *request, enum place place, const char *name);
void request_put_effect_id(struct request *request, enum place place);    /* "eff_..." */
void request_put_provider_key(struct request *request, enum place place); /* the idempotency key */

/* The last step of building, and part of decoding: the failure of a put, else the shape as a whole
 * (a path without dot segments, JSON slots inside quotes, sizes). False with err (ERROR_INVALID;
 * place is "url", a header's name or "body"). */
bool request_check(const struct request *request, struct error *err);

/* Canonical JSON of the slotted request, appended to `out` (give it REQUEST_ENCODED_MAX). The same
 * request gives the same bytes. False: out of memory or past the maximum. */
bool request_encode(const struct request *request, struct buf *out);
/* Strict: unknown members, wrong types and anything request_check refuses fail. It does not ask
 * whether the destination is allowed; request_fill does, when it is used. */
struct request *request_decode(const char *bytes, size_t len, struct error *err);
/* requestHash: sha256 of the encoding. */
void request_hash(const char *encoded, size_t len, uint8_t hash[SHA256_SIZE]);

/* "host:port", lower case, IPv6 in brackets: the key of a destination's queue. size >= 264. */
char *request_destination(const struct request *request, char *out, size_t size);

#endif
