/* Connecting, preparing, and running transactions in one flush. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/store/migrate.h"
#include "common/store/store_internal.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BACKOFF_FIRST_MS = 100,
    BACKOFF_MOST_MS = 2000,
    CONNECT_TIMEOUT_S = 5,
    ANSWER_GRACE_MS = 5000,
    HEAR_MOST = 16
};

struct store *store_new(const struct store_options *options)
{
    struct store *store = calloc(1, sizeof *store);
    must(store != NULL);
    store->options = *options;
    if (store->options.statement_timeout_ms == 0)
        store->options.statement_timeout_ms = 15000;
    atomic_init(&store->healthy, false);
    return store;
}

/* The connection is of no more use: its prepared statements and open transaction are gone with it.
 */
static void store_drop(struct store *store)
{
    PQfinish(store->conn);
    store->conn = NULL;
    store->prepared_count = 0;
    store->in_transaction = false;
    atomic_store(&store->healthy, false);
}

void store_free(struct store *store)
{
    if (store == NULL)
        return;
    store_drop(store);
    free(store);
}

bool store_healthy(const struct store *store)
{
    return atomic_load(&store->healthy);
}

PGconn *store_connection(struct store *store)
{
    return store->conn;
}

static PGconn *store_dial(const struct store *store)
{
    char options[256], timeout[16], tcp_timeout[16];
    int statement_ms = store->options.as_owner ? 0 : store->options.statement_timeout_ms;
    snprintf(options, sizeof options,
             "-c jit=off -c statement_timeout=%d -c lock_timeout=%d "
             "-c idle_in_transaction_session_timeout=10000%s",
             statement_ms, statement_ms,
             store->options.as_owner ? "" : " -c role=holdfast_service");
    snprintf(timeout, sizeof timeout, "%d", CONNECT_TIMEOUT_S);
    snprintf(tcp_timeout, sizeof tcp_timeout, "%d", store->options.statement_timeout_ms);
    const char *keys[] = {"connect_timeout",  "tcp_user_timeout",
                          "keepalives_idle",  "keepalives_interval",
                          "keepalives_count", "dbname",
                          "application_name", "options",
                          "client_encoding",  NULL};
    const char *values[] = {
        timeout, tcp_timeout, "5", "2", "3", store->options.url, store->options.name,
        options, "UTF8",      NULL};
    return PQconnectdbParams(keys, values, 1);
}

static void ignore_notice(void *opaque, const PGresult *result)
{
    (void)opaque;
    (void)result;
}

/* What a server must have before we trust it with the only copy of anything. */
static bool store_check_server(struct store *store, struct error *err)
{
    if (store->options.as_owner)
        return true;
    PGresult *r =
        PQexec(store->conn, "select name from (values ('fsync'), ('full_page_writes'), "
                            "('synchronous_commit')) s(name) where current_setting(name) = 'off'");
    bool ok = PQresultStatus(r) == PGRES_TUPLES_OK;
    if (!ok)
        error_set(err, ERROR_UNAVAILABLE, "the database can't be asked for its settings: %s",
                  PQerrorMessage(store->conn));
    else if (PQntuples(r) > 0)
        ok = error_set(err, ERROR_DENIED,
                       "the database has %s off: what it acknowledged could be lost",
                       PQgetvalue(r, 0, 0));
    PQclear(r);
    return ok && migrate_check(store->conn, err);
}

/* Hears what the server has said since it was last asked, its goodbye above all: a connection that
 * ended while it was idle is replaced before anything is sent on it. */
static void store_hear(struct store *store)
{
    struct pollfd p = {.fd = PQsocket(store->conn), .events = POLLIN};
    for (int i = 0; i < HEAR_MOST && PQstatus(store->conn) == CONNECTION_OK; i++) {
        if (poll(&p, 1, 0) <= 0)
            return;
        (void)PQconsumeInput(store->conn); /* at the end of the stream the status goes bad */
    }
}

bool store_ready(struct store *store, struct error *err)
{
    int64_t now_ms = clock_boot_ms();
    if (store->conn != NULL)
        store_hear(store);
    if (store->conn != NULL && PQstatus(store->conn) == CONNECTION_OK)
        return true;
    store_drop(store);
    if (now_ms < store->retry_at_ms)
        return error_set(err, ERROR_UNAVAILABLE, "the database is away: %s", store->last_trouble);
    store->conn = store_dial(store);
    struct error why = {0};
    bool ok = PQstatus(store->conn) == CONNECTION_OK;
    if (ok) {
        PQsetNoticeReceiver(store->conn, ignore_notice, NULL);
        ok = store_check_server(store, &why);
    } else {
        error_set(&why, ERROR_UNAVAILABLE, "%s", PQerrorMessage(store->conn));
    }
    if (ok) {
        store->backoff_ms = 0;
        atomic_store(&store->healthy, true);
        return true;
    }
    why.text[strcspn(why.text, "\n")] = '\0';
    snprintf(store->last_trouble, sizeof store->last_trouble, "%s", why.text);
    store_drop(store);
    store->backoff_ms = store->backoff_ms == 0 ? BACKOFF_FIRST_MS : store->backoff_ms * 2;
    if (store->backoff_ms > BACKOFF_MOST_MS)
        store->backoff_ms = BACKOFF_MOST_MS;
    store->retry_at_ms = clock_boot_ms() + store->backoff_ms;
    if (err != NULL)
        *err = why;
    return false;
}

/* ---- prepared statements ---- */

/* The name under which sql is prepared on this connection, preparing it when it is not. NULL with
 * err. */
static const char *store_prepare(struct store *store, const struct store_statement *statement,
                                 struct error *err)
{
    for (int i = 0; i < store->prepared_count; i++)
        if (store->prepared[i].sql == statement->sql)
            return store->prepared[i].name;
    must(store->prepared_count < STORE_PREPARED_MAX);
    must(statement->count <= STORE_PARAMS_MAX);
    struct store_prepared *p = &store->prepared[store->prepared_count];
    Oid types[STORE_PARAMS_MAX];
    for (int i = 0; i < statement->count; i++)
        types[i] = statement->params[i].type;
    snprintf(p->name, sizeof p->name, "s%d", store->prepared_count);
    PGresult *r = NULL;
    if (PQsendPrepare(store->conn, p->name, statement->sql, statement->count, types))
        r = store_answer(store);
    if (PQresultStatus(r) != PGRES_COMMAND_OK) {
        store_error_of(store, r, false, err);
        PQclear(r);
        return NULL;
    }
    PQclear(r);
    store_answer_end(store);
    p->sql = statement->sql;
    store->prepared_count++;
    return p->name;
}

static int store_send(struct store *store, const char *name,
                      const struct store_statement *statement)
{
    const char *values[STORE_PARAMS_MAX];
    int lengths[STORE_PARAMS_MAX], formats[STORE_PARAMS_MAX];
    for (int i = 0; i < statement->count; i++) {
        values[i] = statement->params[i].value;
        lengths[i] = statement->params[i].length;
        formats[i] = statement->params[i].binary;
    }
    return PQsendQueryPrepared(store->conn, name, statement->count, values, lengths, formats,
                               statement->binary_result);
}

/* ---- waiting for answers ---- */

/* The next result, or NULL at the end of a command's results or when the connection is lost or
 * silent past the statement time-out and a grace. */
PGresult *store_answer(struct store *store)
{
    int64_t deadline_ms = clock_boot_ms() + store->options.statement_timeout_ms + ANSWER_GRACE_MS;
    bool bounded = !store->options.as_owner;
    while (PQflush(store->conn) == 1 || PQisBusy(store->conn)) {
        int64_t left_ms = deadline_ms - clock_boot_ms();
        if (bounded && left_ms <= 0) {
            log_event(LOG_WARN, "database_silent", "name=%s", store->options.name);
            store->silent = true;
            return NULL;
        }
        struct pollfd p = {.fd = PQsocket(store->conn), .events = POLLIN};
        if (poll(&p, 1, bounded ? (int)left_ms : -1) > 0 && !PQconsumeInput(store->conn))
            return NULL;
    }
    return PQgetResult(store->conn);
}

void store_answer_end(struct store *store)
{
    PGresult *r;
    while ((r = store_answer(store)) != NULL)
        PQclear(r);
}

static bool store_lost(const struct store *store)
{
    return store->silent || store->conn == NULL || PQstatus(store->conn) != CONNECTION_OK;
}

/* Errors of the content and of the moment, by SQLSTATE class (appendix A of the server's manual).
 */
static enum error_code code_of_sqlstate(const char *state)
{
    if (strncmp(state, "23505", 5) == 0 || strncmp(state, "HF", 2) == 0)
        return ERROR_CONFLICT;
    if (strncmp(state, "22", 2) == 0 || strncmp(state, "23", 2) == 0)
        return ERROR_INVALID;
    if (strncmp(state, "08", 2) == 0 || strncmp(state, "40", 2) == 0 ||
        strncmp(state, "53", 2) == 0 || strncmp(state, "55", 2) == 0 ||
        strncmp(state, "57", 2) == 0 || strncmp(state, "25", 2) == 0)
        return ERROR_UNAVAILABLE;
    return ERROR_INTERNAL;
}

/* Fills err from a failed result. `commit_sent`: when the connection is lost as well, nobody knows
 * whether the transaction was committed. */
void store_error_of(struct store *store, const PGresult *r, bool commit_sent, struct error *err)
{
    const char *state = r != NULL ? PQresultErrorField(r, PG_DIAG_SQLSTATE) : NULL;
    const char *text = r != NULL ? PQresultErrorField(r, PG_DIAG_MESSAGE_PRIMARY) : NULL;
    if (text == NULL)
        text = store->silent ? "no answer in time" : PQerrorMessage(store->conn);
    enum error_code code = state != NULL ? code_of_sqlstate(state) : ERROR_UNAVAILABLE;
    if (commit_sent && store_lost(store))
        code = ERROR_DOUBTFUL;
    error_set_at(err, code, state != NULL ? state : "", "database: %s", text);
    if (err != NULL)
        err->text[strcspn(err->text, "\n")] = '\0';
    if (store_lost(store))
        atomic_store(&store->healthy, false);
}

static void store_drop_if_lost(struct store *store)
{
    if (store_lost(store))
        store_drop(store);
    store->silent = false;
}

/* ---- one flush ---- */

/* Sends BEGIN, the statements, COMMIT and a sync. *commit_sent says whether COMMIT may have left.
 */
static bool flush_send(struct store *store, const char *const *names,
                       const struct store_statement *statements, int count, bool *commit_sent)
{
    PGconn *conn = store->conn;
    if (!PQenterPipelineMode(conn) ||
        !PQsendQueryParams(conn, "BEGIN", 0, NULL, NULL, NULL, NULL, 0))
        return false;
    for (int i = 0; i < count; i++)
        if (!store_send(store, names[i], &statements[i]))
            return false;
    *commit_sent = true;
    return PQsendQueryParams(conn, "COMMIT", 0, NULL, NULL, NULL, NULL, 0) && PQpipelineSync(conn);
}

/* Reads one command's result inside the pipeline. False with *failed set (may be NULL) when it is
 * no success. */
static PGresult *flush_read(struct store *store)
{
    PGresult *r = store_answer(store);
    if (r != NULL && PQresultStatus(r) != PGRES_PIPELINE_SYNC)
        store_answer_end(store);
    return r;
}

static bool result_good(const PGresult *r)
{
    return r != NULL &&
           (PQresultStatus(r) == PGRES_TUPLES_OK || PQresultStatus(r) == PGRES_COMMAND_OK);
}

/* Reads all answers. True when COMMIT answered COMMIT. Else err is set from the first failure; an
 * error at a statement before COMMIT means that COMMIT was never reached. */
static bool flush_take(struct store *store, int count, PGresult **results, struct error *err)
{
    bool ok = true;
    for (int i = -1; i <= count && ok; i++) {
        PGresult *r = flush_read(store);
        bool is_commit = i == count;
        ok = result_good(r);
        if (!ok) {
            bool named = r != NULL && PQresultErrorField(r, PG_DIAG_SQLSTATE) != NULL;
            store_error_of(store, r, is_commit || !named, err);
        } else if (is_commit && strcmp(PQcmdStatus(r), "COMMIT") != 0) {
            ok = error_set(err, ERROR_UNAVAILABLE, "database: COMMIT was answered %s",
                           PQcmdStatus(r));
        }
        if (ok && i >= 0 && !is_commit)
            results[i] = r;
        else
            PQclear(r);
    }
    return ok;
}

/* Leaves the pipeline, whatever is still in it, and the failed transaction. */
static void flush_end(struct store *store)
{
    while (!store_lost(store)) {
        PGresult *r = store_answer(store);
        bool synced = r != NULL && PQresultStatus(r) == PGRES_PIPELINE_SYNC;
        PQclear(r);
        if (synced)
            break;
    }
    if (!store_lost(store) && !PQexitPipelineMode(store->conn))
        store->silent = true; /* out of step: only a new connection is safe */
    if (!store_lost(store) && PQtransactionStatus(store->conn) != PQTRANS_IDLE) {
        if (PQsendQuery(store->conn, "ROLLBACK"))
            store_answer_end(store);
        if (!store_lost(store) && PQtransactionStatus(store->conn) != PQTRANS_IDLE)
            store->silent = true;
    }
    store_drop_if_lost(store);
}

bool store_transact(struct store *store, const struct store_statement *statements, int count,
                    PGresult **results, struct error *err)
{
    const char *names[STORE_STATEMENTS_MAX];
    bool commit_sent = false;
    must(count >= 1 && count <= STORE_STATEMENTS_MAX && !store->in_transaction);
    memset(results, 0, (size_t)count * sizeof *results);
    if (!store_ready(store, err))
        return false;
    for (int i = 0; i < count; i++) {
        names[i] = store_prepare(store, &statements[i], err);
        if (names[i] == NULL) {
            store_answer_end(store);
            store_drop_if_lost(store);
            return false;
        }
    }
    bool ok;
    if (!flush_send(store, names, statements, count, &commit_sent)) {
        error_set(err, commit_sent ? ERROR_DOUBTFUL : ERROR_UNAVAILABLE, "database: %s",
                  PQerrorMessage(store->conn));
        store_drop(store);
        return false;
    }
    ok = flush_take(store, count, results, err);
    flush_end(store);
    for (int i = 0; i < count && !ok; i++) {
        PQclear(results[i]);
        results[i] = NULL;
    }
    return ok;
}

/* ---- interactive ---- */

static bool store_command(struct store *store, const char *sql, bool commit, struct error *err)
{
    PGresult *r = PQsendQuery(store->conn, sql) ? store_answer(store) : NULL;
    bool ok = PQresultStatus(r) == PGRES_COMMAND_OK;
    if (!ok)
        store_error_of(store, r, commit, err);
    else if (commit && strcmp(PQcmdStatus(r), "COMMIT") != 0)
        ok = error_set(err, ERROR_UNAVAILABLE, "database: COMMIT was answered %s", PQcmdStatus(r));
    PQclear(r);
    if (!store_lost(store))
        store_answer_end(store);
    store_drop_if_lost(store);
    return ok;
}

bool store_begin(struct store *store, struct error *err)
{
    must(!store->in_transaction);
    if (!store_ready(store, err) || !store_command(store, "BEGIN", false, err))
        return false;
    store->in_transaction = true;
    return true;
}

bool store_commit(struct store *store, struct error *err)
{
    if (store->conn == NULL) {
        store->in_transaction = false;
        return error_set(err, ERROR_UNAVAILABLE, "database: the connection was lost before COMMIT");
    }
    store->in_transaction = false;
    return store_command(store, "COMMIT", true, err);
}

void store_rollback(struct store *store)
{
    store->in_transaction = false;
    if (store->conn != NULL)
        (void)store_command(store, "ROLLBACK", false, NULL);
}

PGresult *store_query(struct store *store, const char *sql, const struct store_param *params,
                      int count, bool binary_result, struct error *err)
{
    struct store_statement statement = {sql, params, count, binary_result};
    bool inside = store->in_transaction;
    if (inside && store->conn == NULL) {
        error_set(err, ERROR_UNAVAILABLE,
                  "database: the connection was lost inside the transaction");
        return NULL;
    }
    if (!inside && !store_ready(store, err))
        return NULL;
    const char *name = store_prepare(store, &statement, err);
    PGresult *r = NULL;
    if (name != NULL) {
        r = store_send(store, name, &statement) ? store_answer(store) : NULL;
        if (!result_good(r)) {
            store_error_of(store, r, !inside, err);
            PQclear(r);
            r = NULL;
        }
    }
    if (!store_lost(store))
        store_answer_end(store);
    if (store_lost(store)) { /* the server may have committed what we did not hear of */
        if (r != NULL && !inside) {
            error_set(err, ERROR_DOUBTFUL, "database: the connection was lost after the answer");
            PQclear(r);
            r = NULL;
        }
        bool was_inside = store->in_transaction;
        store_drop(store);
        store->in_transaction = was_inside;
        store->silent = false;
    }
    return r;
}
