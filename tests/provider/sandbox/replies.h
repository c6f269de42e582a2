/* What is kept under idempotency keys: the parameters, and the answer to give again. */
#ifndef SANDBOX_REPLIES_H
#define SANDBOX_REPLIES_H

#include "tests/provider/sandbox/table.h"

#include <stdbool.h>
#include <stdint.h>

struct reply {
    struct table_entry entry; /* its name is the key */
    uint8_t params[32];
    bool in_flight; /* the first request is being answered still */
    int status;
    char *body;
};

void replies_init(size_t keep);
void replies_reset(void);
struct reply *reply_find(const char *key); /* borrowed; NULL key: NULL */
/* Keeps (or replaces) the answer; the first parameters stay. A NULL key keeps nothing. */
void reply_keep(const char *key, const uint8_t params[32], int status, const char *body);
void reply_forget(const char *key);
void reply_set_in_flight(const char *key, bool in_flight);

#endif
