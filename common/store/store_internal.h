/* What store.c keeps of a connection. */
#ifndef HOLDFAST_STORE_INTERNAL_H
#define HOLDFAST_STORE_INTERNAL_H

#include "common/store/store.h"

#include <stdatomic.h>

enum { STORE_PREPARED_MAX = 128, STORE_STATEMENTS_MAX = 4 };

struct store_prepared {
    const char *sql; /* compared by address */
    char name[8];
};

struct store {
    struct store_options options;
    PGconn *conn; /* NULL: not connected */
    struct store_prepared prepared[STORE_PREPARED_MAX];
    int prepared_count;
    bool in_transaction;
    bool silent; /* no answer in time, or out of step: the connection is to be dropped */
    int64_t retry_at_ms;
    int backoff_ms;
    char last_trouble[384];
    atomic_bool healthy;
};

PGresult *store_answer(struct store *store);
void store_answer_end(struct store *store);
void store_error_of(struct store *store, const PGresult *r, bool commit_sent, struct error *err);

#endif
