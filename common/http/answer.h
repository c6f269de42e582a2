/* What came back from a provider, and what it proves. The classification is a pure function: it is
 * the outcome table of the whole product. */
#ifndef HOLDFAST_ANSWER_H
#define HOLDFAST_ANSWER_H

#include "common/base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ANSWER_HEAD_MAX (64u << 10) /* bytes of head that are kept */

struct answer {
    int status;         /* of the final head; 0 while none was seen. 1xx heads are skipped */
    struct buf head;    /* the final head's lines after the status line, CR LF included */
    struct buf body;    /* the first body_max bytes, any bytes at all */
    int informational;  /* 1xx heads skipped */
    bool head_complete; /* the final head's blank line was seen */
    bool body_complete; /* the body is as long as the head promised, or ended by its chunk or close
                         */
    bool upload_complete; /* every byte of the request had been sent when the final status came */
    bool malformed;       /* not HTTP/1.x as written down: proves nothing */
    bool head_truncated;  /* lines past ANSWER_HEAD_MAX are not kept */
    bool body_truncated;  /* bytes past body_max are not kept; they were read and counted */
    int64_t body_bytes;   /* received */
    int64_t promised;     /* Content-Length; -1 when there is none */
    bool chunked;
    bool bodiless; /* the request was HEAD: whoever sends it says so after answer_init */
    int head_now;  /* the status of the head being read, 1xx too; 0 outside a head */
};

void answer_init(struct answer *answer, size_t body_max);
/* Forgets what came and keeps the limits. */
void answer_reset(struct answer *answer);
void answer_free(struct answer *answer); /* safe twice */

/* One header line as libcurl hands it over, its line end included. `upload_complete`: whether the
 * whole request body had been sent by now. */
void answer_take_line(struct answer *answer, const char *line, size_t len, bool upload_complete);
void answer_take_body(struct answer *answer, const char *bytes, size_t len);
/* The transfer ended; `ok` says that libcurl saw no error. Decides body_complete. */
void answer_finish(struct answer *answer, bool ok);

/* A whole answer: a final head and its body, both to their end. */
bool answer_complete(const struct answer *answer);
/* The value of the first header with this name (any case), without blanks around it: borrowed, not
 * NUL-terminated, its length in *len. NULL when absent. */
const char *answer_header(const struct answer *answer, const char *name, size_t *len);

/* What is known after a send. */
enum send_result {
    SEND_NEVER_LEFT, /* the gate was never passed: settles failed */
    SEND_SUCCESS,    /* a complete 2xx */
    SEND_REFUSED,    /* a complete 4xx other than 408 and 409: settles failed */
    SEND_UNKNOWN     /* everything else */
};
const char *send_result_name(enum send_result result); /* "never_left", ...; static */

/* The facts that an answer alone does not hold. */
struct answer_facts {
    bool left;         /* the gate was passed: a byte may have left */
    bool dropped;      /* fault drill: the answer is to be treated as lost */
    const char *cause; /* why the transfer ended without error-free answer, or NULL */
};
/* Pure. Writes one sentence for the evidence (never a secret, an input value or a body). */
enum send_result answer_classify(const struct answer *answer, const struct answer_facts *facts,
                                 char *evidence, size_t size);

#endif
