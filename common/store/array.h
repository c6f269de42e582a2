/* Array parameters in Postgres' binary form, built element by element: how batches travel. */
#ifndef HOLDFAST_STORE_ARRAY_H
#define HOLDFAST_STORE_ARRAY_H

#include "common/base/buf.h"
#include "common/base/ulid.h"
#include "common/store/store.h"

/* Element types by their server OIDs (pg_type.dat: fixed for built-in types). */
enum {
    ARRAY_BOOL = 16,
    ARRAY_BYTEA = 17,
    ARRAY_INT8 = 20,
    ARRAY_INT4 = 23,
    ARRAY_TEXT = 25,
    ARRAY_TIMESTAMPTZ = 1184,
    ARRAY_UUID = 2950
};

struct array {
    struct buf buf;
    int element; /* ARRAY_... */
    int count;
};

/* At most max bytes in all; past that array_param fails. */
void array_init(struct array *a, int element, size_t max);
void array_put_null(struct array *a);
void array_put_text(struct array *a, const char *text);              /* NULL is SQL NULL */
void array_put_bytes(struct array *a, const void *data, size_t len); /* data NULL is SQL NULL */
void array_put_uuid(struct array *a, const struct ulid *id);         /* NULL or zero is SQL NULL */
void array_put_int(struct array *a, int64_t value); /* int4 or int8, by the element type */
void array_put_bool(struct array *a, bool value);
void array_put_time(struct array *a, int64_t unix_us); /* 0 is SQL NULL */
/* Completes it and makes a parameter that borrows it. Enum arrays: send ARRAY_TEXT and cast in the
 * SQL
 * ($4::text[]::effect_outcome[]). false: it outgrew its maximum or memory. */
bool array_param(struct array *a, struct store_param *out);
void array_free(struct array *a);

/* Asks `sql` about a list of ids, its one parameter; rows in binary form. NULL with err, as
 * store_query. */
PGresult *array_query_ids(struct store *store, const char *sql, const struct ulid *ids,
                          size_t count, struct error *err);

#endif
