/* Errors are values: a code and a sentence that names the thing. Whoever receives one either
 * handles it, returns it or logs it, never two of these. */
#ifndef HOLDFAST_ERROR_H
#define HOLDFAST_ERROR_H

#include <stdbool.h>

enum error_code {
    ERROR_NONE = 0,
    ERROR_INVALID,     /* the caller's input is wrong; `place` names where */
    ERROR_NOT_FOUND,   /* what was named does not exist */
    ERROR_CONFLICT,    /* the state of the thing forbids it */
    ERROR_DENIED,      /* the caller may not */
    ERROR_TOO_LARGE,   /* past a configured limit */
    ERROR_UNAVAILABLE, /* a server we need is away; nothing was decided, trying again is safe */
    ERROR_DOUBTFUL,    /* a COMMIT was asked for and its answer is lost: it may have happened */
    ERROR_MEMORY,
    ERROR_INTERNAL /* a promise between our own parts is broken */
};

struct error {
    enum error_code code;
    char place[128]; /* JSON pointer, field, setting or file:line; "" when there is none */
    char text[384];  /* one sentence for a person, never a secret or an input value */
};

/* Fills *err (which may be NULL) and returns false, so that `return error_set(...)` reads well. */
bool error_set(struct error *err, enum error_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The same, with the place (may be NULL). */
bool error_set_at(struct error *err, enum error_code code, const char *place, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* A short lower-case word for logs and metrics ("unavailable"). Static. */
const char *error_code_name(enum error_code code);

/* An assertion that stays on in release builds: logs where and aborts. */
#define must(cond) ((cond) ? (void)0 : must_failed(#cond, __FILE__, __LINE__))
_Noreturn void must_failed(const char *cond, const char *file, int line);

#endif
