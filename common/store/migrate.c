/* Runs the embedded migrations, one process at a time. */
#include "common/store/migrate.h"

#include "common/base/crypto.h"

#include <stdlib.h>
#include <string.h>

/* Any process that migrates holds this advisory lock of the session. */
#define MIGRATE_LOCK "4710247293"

static bool run(PGconn *conn, const char *sql, struct error *err, const char *what)
{
    PGresult *r = PQexec(conn, sql);
    ExecStatusType status = PQresultStatus(r);
    bool ok = status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
    if (!ok)
        error_set_at(err, ERROR_INTERNAL, what, "%s", PQerrorMessage(conn));
    PQclear(r);
    return ok;
}

static void migration_digest(const struct migration *m, char hex[2 * SHA256_SIZE + 1])
{
    uint8_t digest[SHA256_SIZE];
    crypto_sha256(m->sql, strlen(m->sql), digest);
    crypto_hex(digest, sizeof digest, hex);
}

static const struct migration *migration_find(int version)
{
    for (const struct migration *m = migrations_embedded; m->version != 0; m++)
        if (m->version == version)
            return m;
    return NULL;
}

/* Every recorded version must be one of ours with the same content. *newest is the last of them. */
static bool recorded_known(PGconn *conn, int *newest, struct error *err)
{
    PGresult *r = PQexec(conn, "select version, digest from schema_migrations order by version");
    bool ok = PQresultStatus(r) == PGRES_TUPLES_OK;
    *newest = 0;
    if (!ok)
        error_set(err, ERROR_INTERNAL, "schema_migrations can't be read: %s", PQerrorMessage(conn));
    for (int i = 0; ok && i < PQntuples(r); i++) {
        char hex[2 * SHA256_SIZE + 1];
        *newest = atoi(PQgetvalue(r, i, 0));
        const struct migration *m = migration_find(*newest);
        if (m == NULL) {
            ok = error_set(
                err, ERROR_CONFLICT,
                "the database has migration %d, which this program does not know: it is of a "
                "newer or another Holdfast",
                *newest);
            break;
        }
        migration_digest(m, hex);
        if (strcmp(hex, PQgetvalue(r, i, 1)) != 0)
            ok = error_set(err, ERROR_CONFLICT,
                           "migration %d (%s) was run with another content than this program has",
                           m->version, m->name);
    }
    PQclear(r);
    return ok;
}

static bool migration_apply(PGconn *conn, const struct migration *m, struct error *err)
{
    char hex[2 * SHA256_SIZE + 1], version[16];
    migration_digest(m, hex);
    snprintf(version, sizeof version, "%d", m->version);
    if (!run(conn, "begin", err, m->name) || !run(conn, m->sql, err, m->name))
        goto failed;
    const char *values[] = {version, m->name, hex};
    PGresult *r = PQexecParams(conn,
                               "insert into schema_migrations (version, name, digest) "
                               "values ($1::int, $2, $3)",
                               3, NULL, values, NULL, NULL, 0);
    bool ok = PQresultStatus(r) == PGRES_COMMAND_OK;
    if (!ok)
        error_set_at(err, ERROR_INTERNAL, m->name, "%s", PQerrorMessage(conn));
    PQclear(r);
    if (!ok || !run(conn, "commit", err, m->name))
        goto failed;
    return true;
failed:
    PQclear(PQexec(conn, "rollback"));
    return false;
}

static bool migrate_locked(PGconn *conn, FILE *out, struct error *err)
{
    int newest;
    if (!run(conn,
             "create table if not exists schema_migrations (version int primary key, name text not "
             "null, "
             "digest text not null, at timestamptz not null default now())",
             err, "schema_migrations") ||
        !recorded_known(conn, &newest, err))
        return false;
    for (const struct migration *m = migrations_embedded; m->version != 0; m++) {
        if (m->version <= newest)
            continue;
        if (!migration_apply(conn, m, err))
            return false;
        fprintf(out, "ran migration %s\n", m->name);
    }
    return run(
        conn,
        "do $$ begin if exists (select from pg_roles where rolname = 'holdfast_service') then "
        "grant select on schema_migrations to holdfast_service; end if; end $$",
        err, "schema_migrations");
}

bool migrate_run(PGconn *conn, FILE *out, struct error *err)
{
    if (!run(conn, "set client_min_messages = warning", err, "session") ||
        !run(conn, "select pg_advisory_lock(" MIGRATE_LOCK ")", err, "lock"))
        return false;
    bool ok = migrate_locked(conn, out, err);
    PQclear(PQexec(conn, "select pg_advisory_unlock(" MIGRATE_LOCK ")"));
    return ok;
}

bool migrate_check(PGconn *conn, struct error *err)
{
    const struct migration *last = migrations_embedded + migrations_embedded_count - 1;
    PGresult *r = PQexec(conn, "select max(version) from schema_migrations");
    bool ok = PQresultStatus(r) == PGRES_TUPLES_OK && !PQgetisnull(r, 0, 0);
    if (!ok)
        error_set(err, ERROR_DENIED, "the database has no Holdfast schema: run `holdfast migrate`");
    else if (atoi(PQgetvalue(r, 0, 0)) != last->version)
        ok = error_set(err, ERROR_DENIED,
                       "the database is at migration %s and this program at %d: run the matching "
                       "`holdfast migrate`",
                       PQgetvalue(r, 0, 0), last->version);
    PQclear(r);
    return ok;
}
