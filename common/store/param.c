/* Parameters, and reading binary results. */
#include "common/store/store.h"

#include <arpa/inet.h>
#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    OID_BOOL = 16,
    OID_BYTEA = 17,
    OID_INT8 = 20,
    OID_INT2 = 21,
    OID_INT4 = 23,
    OID_UUID = 2950
};
/* Microseconds between the Unix epoch and Postgres' (2000-01-01). */
#define POSTGRES_EPOCH_US 946684800000000LL

struct store_param store_text(const char *value)
{
    return (struct store_param){.value = value};
}

struct store_param store_bytes(const void *value, int length)
{
    return (struct store_param){.value = value, .length = length, .binary = 1, .type = OID_BYTEA};
}

struct store_param store_uuid(const struct ulid *id)
{
    return (struct store_param){
        .value = (const char *)id, .length = sizeof id->bytes, .binary = 1, .type = OID_UUID};
}

struct store_param store_int(int64_t value, char buffer[24])
{
    snprintf(buffer, 24, "%" PRId64, value);
    return (struct store_param){.value = buffer};
}

bool row_null(const PGresult *r, int row, int col)
{
    return PQgetisnull(r, row, col);
}

int64_t row_int(const PGresult *r, int row, int col)
{
    if (PQgetisnull(r, row, col))
        return 0;
    const char *v = PQgetvalue(r, row, col);
    must(PQfformat(r, col) == 1);
    switch (PQgetlength(r, row, col)) {
    case 2: {
        uint16_t n;
        memcpy(&n, v, sizeof n);
        return (int16_t)be16toh(n);
    }
    case 4: {
        uint32_t n;
        memcpy(&n, v, sizeof n);
        return (int32_t)be32toh(n);
    }
    default: {
        uint64_t n;
        must(PQgetlength(r, row, col) == 8);
        memcpy(&n, v, sizeof n);
        return (int64_t)be64toh(n);
    }
    }
}

bool row_bool(const PGresult *r, int row, int col)
{
    if (PQgetisnull(r, row, col))
        return false;
    must(PQgetlength(r, row, col) == 1);
    return PQgetvalue(r, row, col)[0] != 0;
}

void row_uuid(const PGresult *r, int row, int col, struct ulid *out)
{
    memset(out, 0, sizeof *out);
    if (PQgetisnull(r, row, col))
        return;
    must(PQgetlength(r, row, col) == (int)sizeof out->bytes);
    memcpy(out->bytes, PQgetvalue(r, row, col), sizeof out->bytes);
}

const char *row_text(const PGresult *r, int row, int col)
{
    return PQgetisnull(r, row, col) ? NULL : PQgetvalue(r, row, col);
}

const void *row_bytes(const PGresult *r, int row, int col, size_t *len)
{
    if (len != NULL)
        *len = (size_t)PQgetlength(r, row, col);
    return row_text(r, row, col);
}

int64_t row_time_us(const PGresult *r, int row, int col)
{
    return PQgetisnull(r, row, col) ? 0 : row_int(r, row, col) + POSTGRES_EPOCH_US;
}

/* ---- arrays: dimensions, has-null, element type, then length and lower bound of the one
 * dimension, then each element as length (-1: NULL) and bytes; all numbers are 4 bytes in network
 * order ---- */

static int32_t array_number(const char *at)
{
    uint32_t n;
    memcpy(&n, at, sizeof n);
    return (int32_t)ntohl(n);
}

int row_array_length(const PGresult *r, int row, int col)
{
    if (PQgetisnull(r, row, col))
        return 0;
    const char *v = PQgetvalue(r, row, col);
    must(PQgetlength(r, row, col) >= 12 && array_number(v) <= 1);
    return array_number(v) == 0 ? 0 : array_number(v + 12);
}

static const char *array_element(const PGresult *r, int row, int col, int index, int32_t *len)
{
    must(index >= 0 && index < row_array_length(r, row, col));
    const char *at = PQgetvalue(r, row, col) + 20;
    for (int i = 0;; i++) {
        *len = array_number(at);
        if (i == index)
            return *len < 0 ? NULL : at + 4;
        at += 4 + (*len > 0 ? *len : 0);
    }
}

const char *row_array_text(const PGresult *r, int row, int col, int index, size_t *len)
{
    int32_t n;
    const char *at = array_element(r, row, col, index, &n);
    *len = at != NULL ? (size_t)n : 0;
    return at;
}

int32_t row_array_int(const PGresult *r, int row, int col, int index)
{
    int32_t n;
    const char *at = array_element(r, row, col, index, &n);
    must(at != NULL && n == 4);
    return array_number(at);
}
