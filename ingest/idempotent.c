/* Recorded replies.
 *
 * In the transaction: a lock on the key, a look for its reply, a savepoint, the handler, the reply.
 * An answer from 400 on undoes the handler's work and is recorded too, up to 499. A COMMIT whose
 * answer is lost is settled by running the same again: the reply is there if and only if it was
 * committed. A call without a key is recorded under its own request id, for that case alone. */
#include "ingest/idempotent.h"

#include "common/base/crypto.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/vault_keys.h"

#include <stdlib.h>
#include <string.h>

enum { TRIES_MAX = 4 };

struct recording {
    uint8_t key_hash[SHA256_SIZE];
    uint8_t request_hash[SHA256_SIZE]; /* keyed once it is stored: the body may hold a secret */
    char environment[24];
};

/* With the plain hash in the database, whoever reads that could try values of a secret against
 * it. */
static const char keyed_purpose[] = "holdfast write replies";

enum recorded { RECORDED_NOT, RECORDED_SAME, RECORDED_OTHER, RECORDED_FAILED };

/* The body as it counts for "the same request": canonical, or as it came when it is no JSON (the
 * handler will say so). */
static bool body_canonical(const struct call *call, struct buf *out)
{
    json_t *body =
        json_parse_strict(call->body.data != NULL ? call->body.data : "", call->body.len, NULL);
    bool ok =
        body != NULL ? json_canonical(body, out) : buf_put(out, call->body.data, call->body.len);
    json_decref(body);
    return ok;
}

/* Another caller's key is another request: nobody is shown a reply that was not given to him. */
static bool recording_make(const struct call *call, struct recording *rec)
{
    const char *key = call->idempotency_key;
    const char *kind = key != NULL ? "key" : "request";
    if (key == NULL)
        key = call->request_id;
    struct buf body;
    buf_init(&body, call->body.len * 2 + 1024);
    bool ok = body_canonical(call, &body);
    struct crypto_part key_parts[] = {{kind, strlen(kind)}, {key, strlen(key)}};
    struct crypto_part parts[] = {{call->principal->key_id.bytes, sizeof(struct ulid)},
                                  {call->method, strlen(call->method)},
                                  {call->path, strlen(call->path)},
                                  {body.data, body.len}};
    crypto_sha256_parts(key_parts, 2, rec->key_hash);
    crypto_sha256_parts(parts, 4, rec->request_hash);
    snprintf(rec->environment, sizeof rec->environment, "%d", call->principal->environment);
    buf_wipe(&body);
    return ok;
}

/* Whoever else has the key in hand finishes first. */
static bool recording_lock(struct store *store, const struct recording *rec, struct error *err)
{
    static const char sql[] = "select pg_advisory_xact_lock(hashtextextended($1::text || ':' || "
                              "encode($2, 'hex'), 18))";
    struct store_param params[] = {store_text(rec->environment),
                                   store_bytes(rec->key_hash, SHA256_SIZE)};
    PGresult *r = store_query(store, sql, params, 2, true, err);
    PQclear(r);
    return r != NULL;
}

/* Whether the stored hash is this request's, made by a process with any of our master keys first.
 */
static bool hash_is_ours(const struct recording *rec, const uint8_t *stored, size_t len)
{
    uint8_t keyed[SHA256_SIZE];
    for (size_t i = 0; vault_keys_digest(i, keyed_purpose, rec->request_hash, SHA256_SIZE, keyed);
         i++)
        if (len == sizeof keyed && crypto_equal(stored, keyed, sizeof keyed))
            return true;
    return false;
}

/* Looks for the reply; RECORDED_SAME answers the call with it. One that is too old is removed. */
static enum recorded recording_find(struct store *store, const struct recording *rec,
                                    struct call *call, struct error *err)
{
    static const char forget[] = "delete from write_replies where environment_id = $1::int and "
                                 "key_hash = $2 and created_at < hf_now() - interval '24 hours'";
    static const char find[] = "select request_hash, status, body from write_replies "
                               "where environment_id = $1::int and key_hash = $2";
    struct store_param params[] = {store_text(rec->environment),
                                   store_bytes(rec->key_hash, SHA256_SIZE)};
    PGresult *r = store_query(store, forget, params, 2, true, err);
    if (r == NULL)
        return RECORDED_FAILED;
    PQclear(r);
    r = store_query(store, find, params, 2, true, err);
    if (r == NULL)
        return RECORDED_FAILED;
    enum recorded found = RECORDED_NOT;
    if (PQntuples(r) == 1) {
        found = RECORDED_OTHER;
        size_t len;
        const void *hash = row_bytes(r, 0, 0, &len);
        if (hash_is_ours(rec, hash, len)) {
            found = RECORDED_SAME;
            call_recorded(call, (int)row_int(r, 0, 1), row_text(r, 0, 2));
            call->replay_header = "recorded";
        }
    }
    PQclear(r);
    return found;
}

static bool command(struct store *store, const char *sql, struct error *err)
{
    PGresult *r = store_query(store, sql, NULL, 0, true, err);
    PQclear(r);
    return r != NULL;
}

static bool recording_keep(struct store *store, const struct recording *rec,
                           const struct call *call, struct error *err)
{
    static const char sql[] =
        "insert into write_replies (environment_id, key_hash, request_hash, status, body) "
        "values ($1::int, $2, $3, $4::int, $5)";
    char status[24];
    uint8_t keyed[SHA256_SIZE];
    must(vault_keys_digest(0, keyed_purpose, rec->request_hash, SHA256_SIZE, keyed));
    struct store_param params[] = {store_text(rec->environment),
                                   store_bytes(rec->key_hash, SHA256_SIZE),
                                   store_bytes(keyed, SHA256_SIZE), store_int(call->status, status),
                                   store_text(call->reply.data)};
    PGresult *r = store_query(store, sql, params, 5, true, err);
    PQclear(r);
    return r != NULL;
}

static void committed_drop(struct call *call)
{
    free(call->committed_what);
    call->committed_what = NULL;
    call->committed = NULL;
}

/* The handler and its reply, inside the open transaction. False with err: nothing of it may be
 * kept. */
static bool handler_run(struct route_worker *worker, struct call *call, const struct recording *rec,
                        struct error *err)
{
    if (!command(worker->store, "savepoint handler", err))
        return false;
    committed_drop(call);
    must(call->route->handle(worker, call) == ROUTE_ANSWERED);
    if (call->status >= 400)
        committed_drop(call);
    if (call->status >= 400 && !command(worker->store, "rollback to savepoint handler", err))
        return false;
    return call->status >= 500 || recording_keep(worker->store, rec, call, err);
}

/* One try. True: the call is answered and what it says is committed. */
static bool attempt(struct route_worker *worker, struct call *call, const struct recording *rec,
                    struct error *err)
{
    struct store *store = worker->store;
    if (!store_begin(store, err))
        return false;
    enum recorded found = RECORDED_FAILED;
    if (recording_lock(store, rec, err))
        found = recording_find(store, rec, call, err);
    if (found == RECORDED_NOT && handler_run(worker, call, rec, err))
        return store_commit(store, err);
    store_rollback(store);
    if (found == RECORDED_OTHER)
        call_error(call, 409, "idempotency_key_reuse", NULL,
                   "this Idempotency-Key was used for another request; use a new key for a new "
                   "request");
    return found == RECORDED_SAME || found == RECORDED_OTHER;
}

void idempotent_run(struct route_worker *worker, struct call *call)
{
    struct recording rec;
    struct error err = {0};
    bool done = false;
    if (!recording_make(call, &rec)) {
        call_error(call, 400, "VALIDATION_ERROR", NULL, "the body cannot be read");
        return;
    }
    for (int i = 0; i < TRIES_MAX && !done; i++) {
        call->replay_header = NULL;
        done = attempt(worker, call, &rec, &err);
        if (!done && err.code != ERROR_DOUBTFUL && err.code != ERROR_UNAVAILABLE)
            break;
        if (!done && err.code == ERROR_UNAVAILABLE && !store_healthy(worker->store))
            break; /* the database is away: whoever calls tries again */
    }
    if (!done)
        call_error_value(call, &err);
    else if (call->committed != NULL)
        call->committed(call->committed_what);
    committed_drop(call);
}
