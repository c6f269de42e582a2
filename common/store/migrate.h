/* The database's schema, compiled in. Migrations are numbered SQL files that hold the tables: each
 * runs once, in its own transaction together with its row in schema_migrations, and never changes
 * after it was released. Functions and views are code: common/store/functions holds the one current
 * definition of each. When it differs from what the database has, one transaction drops all that an
 * earlier migrate made and makes them anew, so a changed signature needs nothing more. Whatever a
 * trigger, default or constraint depends on can't be dropped like that and belongs into a
 * migration. An advisory lock lets one process migrate at a time. */
#ifndef HOLDFAST_MIGRATE_H
#define HOLDFAST_MIGRATE_H

#include "common/base/error.h"

#include <libpq-fe.h>
#include <stdio.h>

struct migration {
    int version; /* the file's number */
    const char *name;
    const char *sql; /* one that begins with "-- Retired" was moved into the functions: the content
                        recorded for it may be what it once was */
};
extern const struct migration migrations_embedded[]; /* generated; ends with version 0 */
extern const int migrations_embedded_count;
extern const struct migration functions_embedded[]; /* likewise, in the order they are made in */
extern const int functions_embedded_count;

/* Brings the database to this program's version, saying each step on `out`. Refuses a database that
 * has a version this program does not know, or one whose recorded content differs from ours
 * (sha256). */
bool migrate_run(PGconn *conn, FILE *out, struct error *err);
/* Whether the database has exactly this program's migrations and functions. */
bool migrate_check(PGconn *conn, struct error *err);

#endif
