/* Array parameters in binary form. */
#include "common/store/array.h"

#include <endian.h>
#include <limits.h>
#include <string.h>

#define POSTGRES_EPOCH_US 946684800000000LL
enum { HEAD_SIZE = 20 }; /* dimensions, has-null, element type, length, lower bound */

static void put_number(struct array *a, int32_t n)
{
    uint32_t be = htobe32((uint32_t)n);
    buf_put(&a->buf, &be, sizeof be);
}

void array_init(struct array *a, int element, size_t max)
{
    static const char head[HEAD_SIZE];
    buf_init(&a->buf, max);
    a->element = element;
    a->count = 0;
    buf_put(&a->buf, head, sizeof head);
}

void array_put_null(struct array *a)
{
    put_number(a, -1);
    a->count++;
}

void array_put_bytes(struct array *a, const void *data, size_t len)
{
    if (data == NULL) {
        array_put_null(a);
        return;
    }
    if (len > INT_MAX) {
        a->buf.failed = true;
        return;
    }
    put_number(a, (int32_t)len);
    buf_put(&a->buf, data, len);
    a->count++;
}

void array_put_text(struct array *a, const char *text)
{
    array_put_bytes(a, text, text != NULL ? strlen(text) : 0);
}

void array_put_uuid(struct array *a, const struct ulid *id)
{
    array_put_bytes(a, id == NULL || ulid_is_zero(id) ? NULL : id->bytes, sizeof id->bytes);
}

static void put_int8(struct array *a, int64_t value)
{
    uint64_t be = htobe64((uint64_t)value);
    array_put_bytes(a, &be, sizeof be);
}

void array_put_int(struct array *a, int64_t value)
{
    if (a->element == ARRAY_INT8) {
        put_int8(a, value);
        return;
    }
    must(a->element == ARRAY_INT4 && value >= INT32_MIN && value <= INT32_MAX);
    uint32_t be = htobe32((uint32_t)(int32_t)value);
    array_put_bytes(a, &be, sizeof be);
}

void array_put_bool(struct array *a, bool value)
{
    char byte = value ? 1 : 0;
    array_put_bytes(a, &byte, 1);
}

void array_put_time(struct array *a, int64_t unix_us)
{
    if (unix_us == 0)
        array_put_null(a);
    else
        put_int8(a, unix_us - POSTGRES_EPOCH_US);
}

/* The OID of the array type over an element type. */
static Oid array_oid(int element)
{
    switch (element) {
    case ARRAY_BOOL:
        return 1000;
    case ARRAY_BYTEA:
        return 1001;
    case ARRAY_INT8:
        return 1016;
    case ARRAY_INT4:
        return 1007;
    case ARRAY_TEXT:
        return 1009;
    case ARRAY_TIMESTAMPTZ:
        return 1185;
    default:
        must(element == ARRAY_UUID);
        return 2951;
    }
}

bool array_param(struct array *a, struct store_param *out)
{
    if (a->buf.failed || a->buf.len > INT_MAX)
        return false;
    uint32_t head[5] = {htobe32(1), htobe32(1), htobe32((uint32_t)a->element),
                        htobe32((uint32_t)a->count), htobe32(1)};
    memcpy(a->buf.data, head, sizeof head);
    *out = (struct store_param){.value = a->buf.data,
                                .length = (int)a->buf.len,
                                .binary = 1,
                                .type = array_oid(a->element)};
    return true;
}

void array_free(struct array *a)
{
    buf_free(&a->buf);
}

PGresult *array_query_ids(struct store *store, const char *sql, const struct ulid *ids,
                          size_t count, struct error *err)
{
    struct array array;
    struct store_param param;
    array_init(&array, ARRAY_UUID, 64 + count * (sizeof ids->bytes + 4));
    for (size_t i = 0; i < count; i++)
        array_put_uuid(&array, &ids[i]);
    PGresult *r = NULL;
    if (array_param(&array, &param))
        r = store_query(store, sql, &param, 1, true, err);
    else
        error_set(err, ERROR_MEMORY, "out of memory for a list of %zu ids", count);
    array_free(&array);
    return r;
}
