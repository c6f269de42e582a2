/* Runs the embedded migrations and replaces the functions, one process at a time. */
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
    bool ok = status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK ||
              status == PGRES_EMPTY_QUERY; /* a retired migration */
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

static bool migration_retired(const struct migration *m)
{
    return strncmp(m->sql, "-- Retired", strlen("-- Retired")) == 0;
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
        if (!migration_retired(m) && strcmp(hex, PQgetvalue(r, i, 1)) != 0)
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

/* ---- functions ---- */

/* One digest over all of them, names included. */
static void functions_digest(char hex[2 * SHA256_SIZE + 1])
{
    char each[2 * SHA256_SIZE + 1], chained[4 * SHA256_SIZE + 256];
    hex[0] = '\0';
    for (const struct migration *f = functions_embedded; f->version != 0; f++) {
        uint8_t digest[SHA256_SIZE];
        migration_digest(f, each);
        int n = snprintf(chained, sizeof chained, "%s %s %s", hex, f->name, each);
        crypto_sha256(chained, (size_t)n, digest);
        crypto_hex(digest, sizeof digest, hex);
    }
}

/* *out is the digest that the database has, "" when it has none. */
static bool functions_recorded(PGconn *conn, char out[2 * SHA256_SIZE + 1], struct error *err)
{
    PGresult *r = PQexec(conn, "select digest from schema_functions");
    bool ok = PQresultStatus(r) == PGRES_TUPLES_OK;
    out[0] = '\0';
    if (!ok)
        error_set(err, ERROR_INTERNAL, "schema_functions can't be read: %s", PQerrorMessage(conn));
    else if (PQntuples(r) == 1)
        snprintf(out, 2 * SHA256_SIZE + 1, "%s", PQgetvalue(r, 0, 0));
    PQclear(r);
    return ok;
}

/* Drops what the last time made, and remembers what is there besides. */
static const char functions_drop[] =
    "do $$ declare r record; begin"
    "  for r in select x.kind, x.identity from schema_functions f,"
    "               unnest(f.kinds, f.identities) with ordinality x(kind, identity, n)"
    "           order by x.kind desc, x.n desc loop" /* views before functions */
    "    execute format('drop %s if exists %s', r.kind, r.identity);"
    "  end loop; "
    "end $$;"
    "create temp table schema_before on commit drop as"
    "  select p.oid from pg_proc p where p.pronamespace = 'public'::regnamespace"
    "  union all select c.oid from pg_class c where c.relnamespace = 'public'::regnamespace and "
    "c.relkind = 'v';";

/* Records what is there now and was not before; $1 is the digest. */
static const char functions_record[] =
    "with made as ("
    "  select 'function' as kind, p.oid::regprocedure::text as identity, p.oid from pg_proc p"
    "  where p.pronamespace = 'public'::regnamespace"
    "  union all select 'view', c.oid::regclass::text, c.oid from pg_class c"
    "  where c.relnamespace = 'public'::regnamespace and c.relkind = 'v')"
    "insert into schema_functions (digest, kinds, identities)"
    "  select $1, array_agg(m.kind order by m.oid), array_agg(m.identity order by m.oid) from made "
    "m"
    "  where m.oid not in (select b.oid from schema_before b)"
    " on conflict (one) do update set digest = excluded.digest, kinds = excluded.kinds,"
    "  identities = excluded.identities";

static bool functions_make(PGconn *conn, const char *digest, struct error *err)
{
    if (!run(conn, "begin", err, "functions") || !run(conn, functions_drop, err, "functions"))
        goto failed;
    for (const struct migration *f = functions_embedded; f->version != 0; f++)
        if (!run(conn, f->sql, err, f->name))
            goto failed;
    PGresult *r = PQexecParams(conn, functions_record, 1, NULL, &digest, NULL, NULL, 0);
    bool ok = PQresultStatus(r) == PGRES_COMMAND_OK;
    if (!ok)
        error_set_at(err, ERROR_INTERNAL, "functions", "%s", PQerrorMessage(conn));
    PQclear(r);
    if (!ok || !run(conn, "commit", err, "functions"))
        goto failed;
    return true;
failed:
    PQclear(PQexec(conn, "rollback"));
    return false;
}

static bool functions_apply(PGconn *conn, bool migrated, FILE *out, struct error *err)
{
    char wanted[2 * SHA256_SIZE + 1], there[2 * SHA256_SIZE + 1];
    functions_digest(wanted);
    if (!functions_recorded(conn, there, err))
        return false;
    if (!migrated && strcmp(wanted, there) == 0)
        return true;
    if (!functions_make(conn, wanted, err))
        return false;
    fprintf(out, "made the functions\n");
    return true;
}

static bool migrate_locked(PGconn *conn, FILE *out, struct error *err)
{
    int newest;
    bool migrated = false;
    if (!run(conn,
             "create table if not exists schema_migrations (version int primary key, name text not "
             "null, "
             "digest text not null, at timestamptz not null default now())",
             err, "schema_migrations") ||
        !run(conn,
             "create table if not exists schema_functions (one boolean primary key default true "
             "check (one), "
             "digest text not null, kinds text[] not null, identities text[] not null)",
             err, "schema_functions") ||
        !recorded_known(conn, &newest, err))
        return false;
    for (const struct migration *m = migrations_embedded; m->version != 0; m++) {
        if (m->version <= newest)
            continue;
        if (!migration_apply(conn, m, err))
            return false;
        fprintf(out, "ran migration %s\n", m->name);
        migrated = true;
    }
    return functions_apply(conn, migrated, out, err) &&
           run(conn,
               "do $$ begin if exists (select from pg_roles where rolname = 'holdfast_service') "
               "then "
               "grant select on schema_migrations, schema_functions to holdfast_service; end if; "
               "end $$",
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
    char wanted[2 * SHA256_SIZE + 1], there[2 * SHA256_SIZE + 1];
    functions_digest(wanted);
    if (!ok || !functions_recorded(conn, there, err))
        return false;
    return strcmp(wanted, there) == 0 ||
           error_set(err, ERROR_DENIED,
                     "the database has the functions of another program than this one: run the "
                     "matching `holdfast migrate`");
}
