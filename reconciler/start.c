/* Starts read-backs: asks the database for the facts, lets the adapter say what to read, sends
 * that.
 *
 * A read changes nothing at the provider, so it may happen twice: if this process dies at any
 * moment, the message is delivered again or the row's lease ends, and the same is read again. */
#include "common/base/config.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/service.h"
#include "common/store/array.h"
#include "common/vault.h"
#include "reconciler/read_back.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    BATCH_MOST = 64,
    TAKE_MS = 20,
    ENDED_MANY = 512,
    RETRY_MS = 100,
    UUIDS_MAX = BATCH_MOST * 24 + 64
};

struct starter {
    struct reconciler *r;
    struct store *store;
    struct vault *vault;
    struct bus_message *batch[BATCH_MOST];
    size_t count;
};

enum {
    COL_EFFECT,
    COL_ENVIRONMENT,
    COL_ACTION,
    COL_ACTION_NAME,
    COL_ACTION_VERSION,
    COL_ADAPTER,
    COL_INPUT,
    COL_PROVIDER_KEY,
    COL_DIMENSION,
    COL_UNIT,
    COL_AMOUNT,
    COL_BOUND,
    COL_RESOURCE,
    COL_CREATED,
    COL_OBJECT,
    COL_RESPONSE,
    COL_OPEN,
    COL_IN_FLIGHT,
    COL_CONFLICT,
    COL_PURPOSE,
    COL_STEP,
    COL_TRIES,
    COL_READS,
    COL_GIVE_UP,
    COL_DUE
};
static const char facts_sql[] = "select * from read_facts($1::uuid[])";

void read_job_free(struct read_job *job)
{
    if (job == NULL)
        return;
    read_back_free(&job->read);
    filled_free(job->filled);
    answer_free(&job->fetch.answer);
    if (job->action != NULL)
        action_cache_release(job->reconciler->actions, job->action);
    free(job->provider_key);
    free(job->object_id);
    json_decref(job->input);
    json_decref(job->response);
    free(job);
}

/* ---- sending what the adapter wants to read ---- */

struct secret_scope {
    struct starter *s;
    int environment;
};

static bool secret_find(void *opaque, const char *name, struct secret_value *out, struct error *err)
{
    const struct secret_scope *scope = opaque;
    return vault_get(scope->s->vault, scope->environment, name, 0, out, err);
}

static void job_end(struct read_job *job)
{
    must(queue_try_put(job->reconciler->ended, job)); /* has room for every job there can be */
}

/* No usable answer, for a reason of our own. */
static void job_end_unusable(struct read_job *job, const char *why)
{
    job->read.what = READ_UNUSABLE;
    snprintf(job->read.text, sizeof job->read.text, "The read-back could not be made: %.320s", why);
    job_end(job);
}

/* The adapter judged the answer as it came; what it keeps of it must hold no credential. */
static void read_mask(struct read_job *job)
{
    const struct mask *mask = job->filled->mask;
    mask_text(mask, job->read.text, sizeof job->read.text);
    mask_text(mask, job->read.object_id, sizeof job->read.object_id);
}

/* On a fetcher thread: lets the adapter read the answer. Another page goes through the starter
 * again, which alone may open secrets. */
static void fetch_done(struct fetch *fetch)
{
    struct read_job *job = fetch->owner;
    job->status = fetch->answer.status;
    job->read.requests++;
    job->action->adapter->read_back_answer(&job->facts, fetch->complete ? &fetch->answer : NULL,
                                           fetch->complete ? NULL : fetch->cause, &job->read);
    read_mask(job);
    if (job->read.what == READ_NEXT)
        must(queue_try_put(job->reconciler->going, job));
    else
        job_end(job);
}

static void job_send(struct starter *s, struct read_job *job)
{
    struct secret_scope scope = {s, (int)job->message.environment};
    struct error err = {0};
    char id[ULID_PREFIXED_SIZE];
    filled_free(job->filled);
    job->filled =
        request_fill(job->read.next, ulid_format_prefixed("eff", &job->message.effect, id),
                     job->provider_key, secret_find, &scope, &err);
    if (job->filled == NULL) {
        job_end_unusable(job, err.text);
        return;
    }
    answer_free(&job->fetch.answer);
    job->fetch = (struct fetch){.filled = job->filled,
                                .timeout_ms = s->r->read_timeout_ms,
                                .done = fetch_done,
                                .owner = job};
    if (!fetcher_submit(s->r->fetcher, &job->fetch))
        job_end_unusable(job, "the reconciler is stopping");
}

/* ---- from facts to a read ---- */

static void impact_take(const PGresult *r, int row, struct impact *out)
{
    *out = (struct impact){.declared = !row_null(r, row, COL_DIMENSION),
                           .has_amount = !row_null(r, row, COL_AMOUNT),
                           .amount = row_int(r, row, COL_AMOUNT)};
    if (!out->declared)
        return;
    snprintf(out->dimension, sizeof out->dimension, "%s", row_text(r, row, COL_DIMENSION));
    snprintf(out->unit, sizeof out->unit, "%s", row_text(r, row, COL_UNIT));
    snprintf(out->bound, sizeof out->bound, "%s", row_text(r, row, COL_BOUND));
    if (!row_null(r, row, COL_RESOURCE))
        snprintf(out->resource, sizeof out->resource, "%s", row_text(r, row, COL_RESOURCE));
}

static char *text_copy(const char *text)
{
    char *copy = text != NULL ? strdup(text) : NULL;
    must(copy != NULL || text == NULL);
    return copy;
}

/* The response that was kept, where it is JSON: a read-back may need an id from it. */
static json_t *response_parse(const PGresult *r, int row)
{
    size_t len;
    const char *bytes = row_bytes(r, row, COL_RESPONSE, &len);
    return bytes != NULL ? json_parse_strict(bytes, len, NULL) : NULL;
}

static bool job_take_facts(struct starter *s, struct read_job *job, const PGresult *r, int row,
                           struct error *err)
{
    struct ulid action;
    const char *input = row_text(r, row, COL_INPUT);
    row_uuid(r, row, COL_ACTION, &action);
    job->open = row_bool(r, row, COL_OPEN);
    job->conflict = row_bool(r, row, COL_CONFLICT);
    job->due = row_bool(r, row, COL_DUE);
    job->confirming =
        !job->open && job->due && strcmp(row_text(r, row, COL_PURPOSE), "confirm") == 0;
    job->step = (int)row_int(r, row, COL_STEP);
    job->tries = (int)row_int(r, row, COL_TRIES);
    job->reads = (int)row_int(r, row, COL_READS);
    job->provider_key = text_copy(row_text(r, row, COL_PROVIDER_KEY));
    job->object_id = text_copy(row_text(r, row, COL_OBJECT));
    job->response = response_parse(r, row);
    job->input = json_parse_strict(input, strlen(input), err);
    job->action =
        job->input == NULL
            ? NULL
            : action_cache_get(s->r->actions, s->store, &action, row_text(r, row, COL_ACTION_NAME),
                               (int)row_int(r, row, COL_ACTION_VERSION), err);
    if (job->action == NULL)
        return false;
    job->facts = (struct read_back_facts){.action = job->action->action,
                                          .effect = job->message.effect,
                                          .provider_key = job->provider_key,
                                          .input = job->input,
                                          .object_id = job->object_id,
                                          .response = job->response,
                                          .created_unix_us = row_time_us(r, row, COL_CREATED)};
    impact_take(r, row, &job->facts.impact);
    return true;
}

/* Whether a read may still change anything. An open one whose write may yet be answered is left
 * alone. */
static bool facts_want_read(const struct read_job *job, const PGresult *r, int row)
{
    return job->due && !(row_bool(r, row, COL_IN_FLIGHT) && job->message.purpose != READ_DEMAND);
}

static void job_start(struct starter *s, struct read_job *job, const PGresult *r, int row)
{
    struct error err = {0};
    if (!job_take_facts(s, job, r, row, &err)) {
        job_end_unusable(job, err.text);
        return;
    }
    if (!facts_want_read(job, r, row)) {
        consumer_done(s->r->consumer, &job->token);
        read_job_free(job);
        return;
    }
    job->action->adapter->read_back_start(&job->facts, &job->read);
    if (job->read.what == READ_NEXT)
        job_send(s, job);
    else
        job_end(job);
}

/* ---- batches of messages ---- */

static int row_of(const PGresult *r, const struct ulid *effect)
{
    for (int i = 0; i < PQntuples(r); i++) {
        struct ulid id;
        row_uuid(r, i, COL_EFFECT, &id);
        if (ulid_compare(&id, effect) == 0)
            return i;
    }
    return -1;
}

static PGresult *facts_ask(struct starter *s, struct read_job **jobs)
{
    struct error err = {0};
    PGresult *r = NULL;
    while (r == NULL && !service_stopping()) {
        struct array ids;
        struct store_param param;
        array_init(&ids, ARRAY_UUID, UUIDS_MAX);
        for (size_t i = 0; i < s->count; i++)
            array_put_uuid(&ids, &jobs[i]->message.effect);
        must(array_param(&ids, &param));
        r = store_query(s->store, facts_sql, &param, 1, true, &err);
        array_free(&ids);
        if (r == NULL)
            usleep(RETRY_MS * 1000);
    }
    return r;
}

/* Starts what the batch asks for. A message about an effect that nobody has is a dead letter. */
static void batch_start(struct starter *s)
{
    struct read_job *jobs[BATCH_MOST];
    for (size_t i = 0; i < s->count; i++) {
        jobs[i] = calloc(1, sizeof *jobs[i]);
        must(jobs[i] != NULL);
        jobs[i]->reconciler = s->r;
        jobs[i]->token = s->batch[i]->token;
        must(reconcile_message_decode(s->batch[i]->payload, s->batch[i]->len, &jobs[i]->message,
                                      NULL));
    }
    PGresult *r = facts_ask(s, jobs);
    for (size_t i = 0; i < s->count; i++) {
        int row = r != NULL ? row_of(r, &jobs[i]->message.effect) : -1;
        if (row >= 0)
            job_start(s, jobs[i], r, row);
        else
            read_job_free(jobs[i]);
        if (r != NULL && row < 0)
            consumer_dead_letter(s->r->consumer, s->batch[i], "there is no such effect");
        else
            bus_message_free(s->batch[i]);
        s->batch[i] = NULL;
    }
    PQclear(r);
}

/* Further pages first: what has begun should end. Then those that somebody waits for, then the
 * rest; and only as much as the fetcher has room for. */
static void starter_turn(struct starter *s)
{
    struct read_job *going[BATCH_MOST];
    size_t count = queue_take(s->r->going, (void **)going, BATCH_MOST, 0, 0);
    for (size_t i = 0; i < count; i++)
        job_send(s, going[i]);
    size_t room = fetcher_room(s->r->fetcher);
    room = room < BATCH_MOST ? room : BATCH_MOST;
    if (queue_length(s->r->ended) > ENDED_MANY)
        room = 0; /* the database is slow or away: what was read must be written first */
    s->count = room > 0 ? queue_take(s->r->urgent, (void **)s->batch, room, 0, 0) : 0;
    if (s->count == 0 && room > 0)
        s->count = queue_take(s->r->asked, (void **)s->batch, room, count > 0 ? 0 : TAKE_MS, 0);
    if (s->count > 0)
        batch_start(s);
    else if (room == 0)
        usleep(TAKE_MS * 1000);
}

void *reconciler_start_thread(void *opaque)
{
    struct starter *s = calloc(1, sizeof *s);
    must(s != NULL);
    struct store_options options = {.url = config_text("HOLDFAST_DATABASE_URL"),
                                    .name = service_name()};
    s->r = opaque;
    s->store = store_new(&options);
    s->vault = vault_new(s->store);
    while (!service_stopping()) {
        starter_turn(s);
        vault_forget_old(s->vault);
    }
    vault_free(s->vault);
    store_free(s->store);
    free(s);
    return NULL;
}
