/* Migrations: numbered SQL files, compiled in. Each runs once, in its own transaction together with
 * its row in schema_migrations; an advisory lock lets one process migrate at a time. */
#ifndef HOLDFAST_MIGRATE_H
#define HOLDFAST_MIGRATE_H

#include "common/base/error.h"

#include <libpq-fe.h>
#include <stdio.h>

struct migration {
    int version;
    const char *name;
    const char *sql;
};
extern const struct migration migrations_embedded[]; /* generated; ends with version 0 */
extern const int migrations_embedded_count;

/* Brings the database to this program's version, saying each step on `out`. Refuses a database that
 * has a version this program does not know, or one whose recorded content differs from ours
 * (sha256). */
bool migrate_run(PGconn *conn, FILE *out, struct error *err);
/* Whether the database is exactly at this program's version. */
bool migrate_check(PGconn *conn, struct error *err);

#endif
