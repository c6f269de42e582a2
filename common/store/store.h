/* A connection to Postgres and the one way to run a transaction: BEGIN, the statements and COMMIT
 * leave in one flush, so no round trip of ours lies between the first lock and COMMIT. */
#ifndef HOLDFAST_STORE_H
#define HOLDFAST_STORE_H

#include "common/base/error.h"
#include "common/base/ulid.h"

#include <libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STORE_PARAMS_MAX 40
#define STORE_NAME_SIZE 96 /* of an application_name; Postgres shows its first 63 bytes */

/* One connection; belongs to one thread at a time. Connects on first use and again after it broke,
 * with a back-off; every session sets statement, lock and idle-in-transaction time-outs, TCP user
 * time-out, jit off and the role holdfast_service. */
struct store;

struct store_options {
    const char *url;          /* borrowed for the life of the store */
    const char *name;         /* application_name, e.g. "dispatcher-1 claim" */
    bool as_owner;            /* true: no SET ROLE, and no statement time-out (ctl) */
    int statement_timeout_ms; /* 0: 15000 */
};

struct store *store_new(const struct store_options *options);
void store_free(struct store *store);
/* Connects when not connected. ERROR_UNAVAILABLE while it can't (also while backing off, at once);
 * also refuses a server with fsync, full_page_writes or synchronous_commit off, and a schema of
 * another version. */
bool store_ready(struct store *store, struct error *err);
/* For readiness: whether the last use went well. Any thread. */
bool store_healthy(const struct store *store);

/* A statement: SQL with $1.. and parameters in text or binary form (see array.h). Prepared on first
 * use on each connection under `sql`'s address, which therefore must be a string literal or static.
 */
struct store_param {
    const char *value; /* NULL is SQL NULL */
    int length;        /* bytes; ignored for text */
    int binary;        /* 0 text (NUL-terminated), 1 binary */
    Oid type;          /* 0: let the server infer */
};
struct store_statement {
    const char *sql;
    const struct store_param *params;
    int count;
    bool binary_result; /* results in binary form (row_* below read those), else text */
};

struct store_param store_text(const char *value);              /* may be NULL */
struct store_param store_bytes(const void *value, int length); /* bytea; value NULL is NULL */
struct store_param store_uuid(const struct ulid *id);          /* NULL is NULL; not copied */
/* Integers and such as text: `buffer` must live until the call returns. */
struct store_param store_int(int64_t value, char buffer[24]);

/* Runs the statements as one transaction. On true, COMMIT answered COMMIT and results[i] (one a
 * statement) are the caller's to PQclear. On false nothing is returned and err->code says what is
 * known: ERROR_UNAVAILABLE  not committed, not because of the content (no connection, serialization
 * failure, deadlock, lock time-out, server shutting down): may be tried again ERROR_DOUBTFUL COMMIT
 * was sent and its answer is lost ERROR_CONFLICT     a unique key or one of our own guards (HF0xx)
 * refused it; not committed ERROR_INVALID      the content was refused (data exception, check); not
 * committed ERROR_INTERNAL     anything else; not committed sqlstate (of the failing statement) is
 * in err->place. */
bool store_transact(struct store *store, const struct store_statement *statements, int count,
                    PGresult **results, struct error *err);

/* One statement in its own transaction, results as text or binary. NULL with err as above. Reads
 * that fail ERROR_DOUBTFUL may simply be asked again. */
PGresult *store_query(struct store *store, const char *sql, const struct store_param *params,
                      int count, bool binary_result, struct error *err);

/* An interactive transaction for rare work (routes): BEGIN, any number of store_query, then commit
 * or rollback. While one is open store_query runs inside it. A failed store_query leaves it failed:
 * roll back. */
bool store_begin(struct store *store, struct error *err);
bool store_commit(struct store *store, struct error *err); /* ERROR_DOUBTFUL as above */
void store_rollback(struct store *store);

/* The raw connection for LISTEN; NULL when not connected. */
PGconn *store_connection(struct store *store);

/* ---- reading binary results; column types must match (must() fails otherwise) ---- */
bool row_null(const PGresult *r, int row, int col);
int64_t row_int(const PGresult *r, int row, int col); /* int2, int4, int8; NULL is 0 */
bool row_bool(const PGresult *r, int row, int col);
void row_uuid(const PGresult *r, int row, int col, struct ulid *out); /* NULL is all zero */
/* text, enum, json, bytea: borrowed, NUL-terminated by libpq; len may be NULL. SQL NULL gives NULL.
 */
const char *row_text(const PGresult *r, int row, int col);
const void *row_bytes(const PGresult *r, int row, int col, size_t *len);
int64_t row_time_us(const PGresult *r, int row,
                    int col); /* timestamptz as Unix microseconds; NULL is 0 */
/* Elements of a one-dimensional array of text or int4. */
int row_array_length(const PGresult *r, int row, int col);
const char *row_array_text(const PGresult *r, int row, int col, int index,
                           size_t *len); /* not terminated */
int32_t row_array_int(const PGresult *r, int row, int col, int index);

#endif
