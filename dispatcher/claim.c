/* Claims batches of effects and hands what is ours to the sender.
 *
 * A claim is one transaction in one flush. Only what came back from a transaction whose COMMIT
 * answered COMMIT is sent. If this process dies or pauses before the flush    nothing is claimed;
 * the messages are delivered again inside              the server finishes or aborts by itself; no
 * lock waits for us after the COMMIT    the attempts stand in Postgres with send_by and answer_by;
 * a paused process finds its gate shut when it wakes (the deadline is counted from before BEGIN);
 * the sweep makes unknown what nobody reports After a lost COMMIT answer the attempts that carry
 * this try's claim_id are ours and no others; until they are known nothing is sent, and past
 * send_by the gate refuses them, which settles them as never left. */
#include "common/base/clock.h"
#include "common/base/config.h"
#include "common/base/crypto.h"
#include "common/base/log.h"
#include "common/base/metrics.h"
#include "common/base/service.h"
#include "common/store/array.h"
#include "common/transition.h"
#include "common/vault.h"
#include "dispatcher/dispatch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    BATCH_MOST = 256,
    TAKE_MS = 200,
    LINGER_MS = 1,
    RETRY_MS = 50,
    UUIDS_MAX = BATCH_MOST * 24 + 64
};

struct claimer {
    struct dispatcher *d;
    struct store *store;
    struct vault *vault;
    struct waiting taken[BATCH_MOST];
    struct waiting *batch; /* the part of `taken` that is being claimed */
    size_t count;
    bool replays;                    /* the batch is of replays, else of dispatches */
    struct destination *destination; /* whose slots the batch holds */
    struct ulid claim_id;
    int64_t send_by_ms; /* clock_boot_ms: counted from before BEGIN */
};

/* The columns of claim_batch, replay_claim and claim_recover. */
enum {
    COL_EFFECT,
    COL_VERDICT,
    COL_DETAIL,
    COL_ENVIRONMENT,
    COL_GOVERNED,
    COL_ACTION,
    COL_ACTION_NAME,
    COL_ACTION_VERSION,
    COL_ADAPTER,
    COL_DESTINATION,
    COL_INPUT,
    COL_REQUEST,
    COL_PROVIDER_KEY,
    COL_FAULT_DRILL,
    COL_SECRETS,
    COL_SECRET_VERSIONS,
    COL_SEQ /* claim_batch has none: it claims attempt 1 */
};

static const char claim_sql[] =
    "select * from claim_batch($1::uuid[], $2::uuid, $3, $4::uuid, $5::int, $6::int)";
static const char replay_sql[] = "select * from replay_claim($1::uuid[], $7::int[], $2::uuid, $3, "
                                 "$4::uuid, $5::int, $6::int)";
static const char recover_sql[] = "select * from claim_recover($1::uuid[], $2::uuid)";

/* ---- from a row to a send ---- */

void dispatch_free(struct dispatch *dispatch)
{
    if (dispatch == NULL)
        return;
    filled_free(dispatch->filled);
    answer_free(&dispatch->send.answer);
    free(dispatch->action_name);
    free(dispatch->input);
    free(dispatch);
}

void outcome_publish(struct producer *producer, const struct ulid *effect, int environment,
                     int reply, enum outcome_what what)
{
    struct outcome_message message = {.effect = *effect, .environment = environment, .what = what};
    struct error err = {0};
    struct buf payload;
    char key[ULID_PREFIXED_SIZE];
    if (reply == MESSAGE_NO_REPLY)
        return;
    buf_init(&payload, MESSAGE_MAX);
    if (outcome_message_encode(&message, &payload) &&
        !producer_send(producer, BUS_OUTCOMES, reply, ulid_format_prefixed("eff", effect, key),
                       payload.data, payload.len, NULL, NULL, &err))
        log_error(LOG_WARN, "outcome_not_published", &err);
    buf_free(&payload);
}

/* The secrets of one claimed row, at exactly the versions that its attempt records. */
struct row_secrets {
    struct claimer *claimer;
    const PGresult *r;
    int row;
};

static bool secret_find(void *opaque, const char *name, struct secret_value *out, struct error *err)
{
    const struct row_secrets *s = opaque;
    int environment = (int)row_int(s->r, s->row, COL_ENVIRONMENT);
    for (int i = 0; i < row_array_length(s->r, s->row, COL_SECRETS); i++) {
        size_t len;
        const char *known = row_array_text(s->r, s->row, COL_SECRETS, i, &len);
        if (strlen(name) == len && memcmp(known, name, len) == 0)
            return vault_get(s->claimer->vault, environment, name,
                             row_array_int(s->r, s->row, COL_SECRET_VERSIONS, i), out, err);
    }
    return error_set(err, ERROR_INTERNAL, "secret %s is not among those that were claimed", name);
}

static struct filled *row_fill(struct claimer *c, const PGresult *r, int row, struct error *err)
{
    struct row_secrets secrets = {c, r, row};
    struct ulid effect;
    char id[ULID_PREFIXED_SIZE];
    size_t len;
    const char *bytes = row_bytes(r, row, COL_REQUEST, &len);
    struct request *request = request_decode(bytes, len, err);
    if (request == NULL)
        return NULL;
    row_uuid(r, row, COL_EFFECT, &effect);
    struct filled *filled =
        request_fill(request, ulid_format_prefixed("eff", &effect, id),
                     row_text(r, row, COL_PROVIDER_KEY), secret_find, &secrets, err);
    request_free(request);
    return filled;
}

/* Inside the gate, before it opens: from here on a successor knows that the request may have left.
 */
static bool journal_write(struct send_record *record, void *opaque)
{
    struct dispatch *x = opaque;
    x->journal_entry = journal_put(x->journal, &record->effect, record->seq, clock_wall_us());
    return x->journal_entry != JOURNAL_NONE;
}

static int row_seq(const PGresult *r, int row)
{
    return PQnfields(r) > COL_SEQ ? (int)row_int(r, row, COL_SEQ) : 1;
}

static struct dispatch *row_dispatch(struct claimer *c, const PGresult *r, int row)
{
    struct dispatch *x = calloc(1, sizeof *x);
    must(x != NULL);
    row_uuid(r, row, COL_EFFECT, &x->effect);
    x->environment = (int)row_int(r, row, COL_ENVIRONMENT);
    x->seq = row_seq(r, row);
    row_uuid(r, row, COL_ACTION, &x->action);
    x->action_name = strdup(row_text(r, row, COL_ACTION_NAME));
    x->action_version = (int)row_int(r, row, COL_ACTION_VERSION);
    x->input = strdup(row_text(r, row, COL_INPUT));
    must(x->action_name != NULL && x->input != NULL);
    x->destination = c->destination;
    send_record_init(&x->send.record, &x->effect, x->seq, c->send_by_ms);
    x->journal = c->d->journal;
    x->journal_entry = JOURNAL_NONE;
    x->send.record.before_open = journal_write;
    x->send.record.before_open_opaque = x;
    x->send.timeout_ms = c->d->provider_timeout_ms;
    x->send.drop_response_after_send = row_bool(r, row, COL_FAULT_DRILL);
    x->send.owner = x;
    x->reply = MESSAGE_NO_REPLY;
    for (size_t i = 0; i < c->count; i++)
        if (ulid_compare(&c->batch[i].message.effect, &x->effect) == 0)
            x->reply = c->batch[i].message.reply;
    return x;
}

/* A claimed effect that can't be sent at all: its gate was never asked, so it provably never left.
 */
static void dispatch_never_left(struct claimer *c, struct dispatch *x, const char *why)
{
    x->send.result = SEND_NEVER_LEFT;
    snprintf(x->send.evidence, sizeof x->send.evidence, "The request could not be made: %s", why);
    x->send.finished_at_us = clock_wall_us();
    must(queue_try_put(c->d->ended, x));
}

static void replay_log(const struct ulid *effect, int seq, const char *event, const char *reason)
{
    char id[ULID_PREFIXED_SIZE];
    log_event(LOG_INFO, event, "effect=%s seq=%d reason=%s",
              ulid_format_prefixed("eff", effect, id), seq, reason);
}

static void row_send(struct claimer *c, const PGresult *r, int row)
{
    struct error err = {0};
    struct dispatch *x = row_dispatch(c, r, row);
    if (x->seq == 1)
        transition_made(&x->effect, STAGE_READY, STAGE_DISPATCHING, OUTCOME_PENDING, REASON_NONE,
                        service_name());
    else
        replay_log(&x->effect, x->seq, "replay_claimed", "");
    x->filled = row_fill(c, r, row, &err);
    x->send.filled = x->filled;
    if (x->filled == NULL)
        dispatch_never_left(c, x, err.text);
    else if (!sender_submit(c->d->sender, &x->send)) /* stopping: slots are reserved otherwise */
        dispatch_never_left(c, x, "the dispatcher is stopping");
}

/* ---- what the claim decided ---- */

static void row_rejected(struct claimer *c, const PGresult *r, int row, enum settle_reason reason)
{
    struct ulid effect;
    row_uuid(r, row, COL_EFFECT, &effect);
    transition_made(&effect, STAGE_READY, STAGE_REJECTED, OUTCOME_NOT_DISPATCHED, reason,
                    service_name());
    for (size_t i = 0; i < c->count; i++)
        if (ulid_compare(&c->batch[i].message.effect, &effect) == 0)
            outcome_publish(c->d->producer, &effect, (int)row_int(r, row, COL_ENVIRONMENT),
                            c->batch[i].message.reply,
                            reason == REASON_EXPIRED ? WHAT_EXPIRED : WHAT_REFUSED);
}

/* ---- the end of the messages ---- */

static void message_done(struct claimer *c, struct waiting *waiting)
{
    consumer_done(c->d->consumer, &waiting->delivered->token);
    bus_message_free(waiting->delivered);
    waiting->delivered = NULL;
}

/* Whether an id is in a column of ids. Both are asked for in ascending order, so *row moves on. */
static bool rows_have(const PGresult *r, int *row, const struct ulid *effect)
{
    for (; *row < PQntuples(r); (*row)++) {
        struct ulid id;
        row_uuid(r, *row, COL_EFFECT, &id);
        int order = ulid_compare(&id, effect);
        if (order >= 0)
            return order == 0;
    }
    return false;
}

/* Those of the batch whose effect does not exist at all. Only what the claim said nothing about can
 * be such, so this is rarely asked. NULL: none, or the database is away. */
static PGresult *nobodys_ask(struct claimer *c, const PGresult *claimed)
{
    static const char sql[] = "select u.id from unnest($1::uuid[]) u(id) where not exists "
                              "(select 1 from effects e where e.id = u.id) order by u.id";
    struct error err = {0};
    struct array ids;
    struct store_param param;
    size_t count = 0;
    int row = 0;
    array_init(&ids, ARRAY_UUID, UUIDS_MAX);
    for (size_t i = 0; i < c->count; i++) {
        if (rows_have(claimed, &row, &c->batch[i].message.effect))
            continue;
        array_put_uuid(&ids, &c->batch[i].message.effect);
        count++;
    }
    must(array_param(&ids, &param));
    PGresult *r = count > 0 ? store_query(c->store, sql, &param, 1, true, &err) : NULL;
    array_free(&ids);
    return r;
}

/* Every message is decided; those about effects that nobody has are dead letters. */
static void batch_done(struct claimer *c, const PGresult *claimed)
{
    PGresult *nobodys = nobodys_ask(c, claimed);
    int row = 0;
    for (size_t i = 0; i < c->count; i++) {
        struct waiting *waiting = &c->batch[i];
        if (nobodys == NULL || !rows_have(nobodys, &row, &waiting->message.effect)) {
            message_done(c, waiting);
            continue;
        }
        consumer_dead_letter(c->d->consumer, waiting->delivered, "there is no such effect");
        waiting->delivered = NULL; /* taken */
    }
    PQclear(nobodys);
    c->count = 0;
}

/* Acts on every row; the slots of what is not sent are given back. */
static void rows_take(struct claimer *c, const PGresult *r)
{
    size_t sent = 0;
    for (int i = 0; i < PQntuples(r); i++) {
        const char *verdict = row_text(r, i, COL_VERDICT);
        struct ulid effect;
        char id[ULID_PREFIXED_SIZE];
        if (strcmp(verdict, "claimed") == 0) {
            sent++;
            row_send(c, r, i);
        } else if (strcmp(verdict, "refused") == 0) {
            row_rejected(c, r, i, REASON_REFUSED);
        } else if (strcmp(verdict, "expired") == 0) {
            row_rejected(c, r, i, REASON_EXPIRED);
        } else if (strcmp(verdict, "not_sent") == 0) {
            row_uuid(r, i, COL_EFFECT, &effect);
            replay_log(&effect, row_seq(r, i), "replay_not_sent", row_text(r, i, COL_DETAIL));
        } else if (strcmp(verdict, "damaged") == 0) {
            row_uuid(r, i, COL_EFFECT, &effect);
            log_event(LOG_ERROR, "effect_damaged", "effect=%s reason=%s",
                      ulid_format_prefixed("eff", &effect, id),
                      "a ready effect has an attempt already");
        }
    }
    destinations_release(c->d->destinations, c->destination, c->count - sent);
    batch_done(c, r);
}

/* ---- the transaction ---- */

static int waiting_compare(const void *a, const void *b)
{
    const struct effect_message *one = &((const struct waiting *)a)->message;
    const struct effect_message *other = &((const struct waiting *)b)->message;
    int by_effect = ulid_compare(&one->effect, &other->effect);
    return by_effect != 0 ? by_effect : (one->seq > other->seq) - (one->seq < other->seq);
}

/* Ascending, each once, with the numbers of the attempts: a message may have been delivered twice
 * into one batch. */
static void ids_put(struct claimer *c, struct array *ids, struct array *seqs)
{
    qsort(c->batch, c->count, sizeof *c->batch, waiting_compare);
    array_init(ids, ARRAY_UUID, UUIDS_MAX);
    array_init(seqs, ARRAY_INT4, UUIDS_MAX);
    for (size_t i = 0; i < c->count; i++) {
        if (i > 0 && waiting_compare(&c->batch[i - 1], &c->batch[i]) == 0)
            continue;
        array_put_uuid(ids, &c->batch[i].message.effect);
        array_put_int(seqs, c->batch[i].message.seq);
    }
}

static bool claim_ask(struct claimer *c, PGresult **r, struct error *err)
{
    char lease[24], provider[24];
    struct ulid incarnation;
    struct array ids, seqs;
    struct store_param params[7];
    memcpy(incarnation.bytes, service_incarnation(), sizeof incarnation.bytes);
    ids_put(c, &ids, &seqs);
    must(array_param(&ids, &params[0]) && array_param(&seqs, &params[6]));
    params[1] = store_uuid(&c->claim_id);
    params[2] = store_text(service_name());
    params[3] = store_uuid(&incarnation);
    params[4] = store_int(c->d->lease_ms, lease);
    params[5] = store_int(c->d->provider_timeout_ms, provider);
    struct store_statement statement = {c->replays ? replay_sql : claim_sql, params,
                                        c->replays ? 7 : 6, true};
    bool ok = store_transact(c->store, &statement, 1, r, err);
    array_free(&ids);
    array_free(&seqs);
    return ok;
}

/* After a lost COMMIT answer: what is ours, asked until the database says. NULL only when stopping.
 */
static PGresult *claim_recover(struct claimer *c)
{
    for (;;) {
        struct error err = {0};
        struct array ids, seqs;
        struct store_param params[2];
        PGresult *r = NULL;
        ids_put(c, &ids, &seqs);
        array_free(&seqs);
        must(array_param(&ids, &params[0]));
        params[1] = store_uuid(&c->claim_id);
        struct store_statement statement = {recover_sql, params, 2, true};
        bool ok = store_transact(c->store, &statement, 1, &r, &err);
        array_free(&ids);
        if (ok)
            return r;
        if (service_stopping())
            return NULL;
        usleep(RETRY_MS * 1000);
    }
}

/* Nothing of the batch is ours: the rows are as they were. The messages are decided all the same
 * where the rows will be published again; here they are given up. */
static void batch_drop(struct claimer *c)
{
    destinations_release(c->d->destinations, c->destination, c->count);
    for (size_t i = 0; i < c->count; i++)
        message_done(c, &c->batch[i]);
    c->count = 0;
}

enum try { TRY_DONE, TRY_AGAIN, TRY_REFUSED };

/* AGAIN: the database is away, the same batch is tried again. REFUSED: it can't be claimed as it
 * is. */
static enum try claim_try(struct claimer *c, struct error *err)
{
    PGresult *r = NULL;
    crypto_random(&c->claim_id, sizeof c->claim_id);
    c->send_by_ms = clock_boot_ms() + c->d->lease_ms;
    if (!claim_ask(c, &r, err)) {
        if (err->code == ERROR_UNAVAILABLE)
            return TRY_AGAIN;
        if (err->code != ERROR_DOUBTFUL)
            return TRY_REFUSED;
        log_event(LOG_WARN, "claim_doubtful", "effects=%zu reason=%s", c->count, err->text);
        r = claim_recover(c);
        if (r == NULL) {
            batch_drop(c);
            return TRY_DONE;
        }
    }
    rows_take(c, r);
    PQclear(r);
    return TRY_DONE;
}

/* Claims the batch. One that the database refuses for good is halved until the offender stands
 * alone; that one is dropped back with an alarm, the others go on. */
static void claim_run(struct claimer *c)
{
    struct error err = {0};
    enum try result;
    while ((result = claim_try(c, &err)) == TRY_AGAIN) {
        if (service_stopping()) {
            batch_drop(c);
            return;
        }
        usleep(RETRY_MS * 1000);
    }
    if (result == TRY_DONE)
        return;
    if (c->count == 1) {
        char id[ULID_PREFIXED_SIZE];
        log_event(LOG_ERROR, "claim_refused", "effect=%s sqlstate=%s reason=%s",
                  ulid_format_prefixed("eff", &c->batch[0].message.effect, id), err.place,
                  err.text);
        batch_drop(c);
        return;
    }
    struct waiting *batch = c->batch;
    size_t count = c->count;
    c->count = count / 2;
    claim_run(c);
    c->batch = batch + count / 2;
    c->count = count - count / 2;
    claim_run(c);
}

/* Claims what was taken: the dispatches, then the replays, which have a claim of their own. */
static void taken_claim(struct claimer *c)
{
    size_t count = c->count, dispatches = 0;
    for (size_t i = 0; i < count; i++) {
        if (c->taken[i].message.seq > 1)
            continue;
        struct waiting one = c->taken[i];
        c->taken[i] = c->taken[dispatches];
        c->taken[dispatches++] = one;
    }
    c->replays = false;
    c->count = dispatches;
    if (dispatches > 0)
        claim_run(c);
    c->replays = true;
    c->batch = c->taken + dispatches;
    c->count = count - dispatches;
    if (c->count > 0)
        claim_run(c);
}

void *claim_thread(void *opaque)
{
    struct dispatcher *d = opaque;
    struct claimer *c = calloc(1, sizeof *c);
    must(c != NULL);
    char name[STORE_NAME_SIZE];
    snprintf(name, sizeof name, "%s claim", service_name());
    struct store_options options = {.url = config_text("HOLDFAST_DATABASE_URL"), .name = name};
    c->d = d;
    c->store = store_new(&options);
    c->vault = vault_new(c->store);
    size_t max = d->claim_batch < BATCH_MOST ? d->claim_batch : BATCH_MOST;
    bool crowded = false; /* the last batch was more than one: others are worth a wait */
    while (!service_stopping()) {
        c->batch = c->taken;
        c->count = destinations_take(d->destinations, c->taken, max, TAKE_MS,
                                     crowded ? LINGER_MS : 0, &c->destination);
        vault_forget_old(c->vault);
        if (c->count == 0)
            continue;
        crowded = c->count > 1;
        taken_claim(c);
        destinations_claimed(d->destinations, c->destination);
    }
    vault_free(c->vault);
    store_free(c->store);
    free(c);
    return NULL;
}
