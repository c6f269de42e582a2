/* The answer to a request, before it becomes bytes. */
#ifndef SANDBOX_ANSWER_H
#define SANDBOX_ANSWER_H

#include "common/base/buf.h"
#include "tests/provider/sandbox/ledger.h"

#include <jansson.h>
#include <stdbool.h>

#define ANSWER_BODY_MAX ((size_t)64 << 20)

struct answer {
    int status;
    const char *type;   /* Content-Type, static; NULL: none is sent */
    struct buf headers; /* further "Name: value\r\n" lines */
    struct buf body;
    bool framed;    /* the headers hold a Content-Length or Transfer-Encoding of their own */
    bool head_only; /* the body's length is told, the body is not sent */
    enum outcome outcome;
    int applied;
};

void answer_init(struct answer *answer);
void answer_free(struct answer *answer);
void answer_header(struct answer *answer, const char *name, const char *value);
/* Sets status and body; takes the reference. */
void answer_json(struct answer *answer, int status, json_t *body);
/* An error in Stripe's form; code and param may be NULL. */
void answer_error(struct answer *answer, int status, const char *type, const char *code,
                  const char *param, const char *fmt, ...) __attribute__((format(printf, 6, 7)));

/* Appends status line and headers with the blank line. */
void answer_put_head(const struct answer *answer, bool keep_alive, struct buf *out);
/* The same and the body. */
void answer_put(const struct answer *answer, bool keep_alive, struct buf *out);
const char *status_reason(int status);

#endif
