/* Ends sends: says what an answer means, settles in batches, tells who waits, gives the slot back.
 * While the database is away the ended sends are kept and their slots with them, so nothing is
 * forgotten and nothing new is claimed; what this process can't settle before it dies, the sweep
 * makes unknown. */
#include "common/base/clock.h"
#include "common/base/config.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/metrics.h"
#include "common/base/service.h"
#include "common/settle.h"
#include "dispatcher/dispatch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BATCH_MOST = 256, TAKE_MS = 200, RETRY_MS = 100 };

struct settler {
    struct dispatcher *d;
    struct store *store;
    struct dispatch *batch[BATCH_MOST];
    struct settle_item items[BATCH_MOST];
    struct answer_meaning meanings[BATCH_MOST];
    size_t count;
};

/* What the provider means by a 2xx, which only its adapter knows. Where the action can't be had the
 * 2xx stands for itself. */
static void meaning_read(struct settler *s, const struct dispatch *x, struct answer_meaning *out)
{
    struct error err = {0};
    *out = (struct answer_meaning){.what = MEANING_SUCCEEDED};
    const struct cached_action *cached = action_cache_get(s->d->actions, s->store, &x->action,
                                                          x->action_name, x->action_version, &err);
    if (cached == NULL) {
        log_error(LOG_WARN, "answer_not_read", &err);
        return;
    }
    json_t *input = json_parse_strict(x->input, strlen(x->input), &err);
    if (input != NULL)
        cached->adapter->read_answer(&cached->action, input, &x->send.answer, out);
    json_decref(input);
    action_cache_release(s->d->actions, cached);
}

static void item_take_success(struct settler *s, const struct dispatch *x, struct settle_item *item,
                              struct answer_meaning *meaning)
{
    meaning_read(s, x, meaning);
    item->object_id = meaning->object_id;
    if (meaning->text[0] != '\0')
        item->evidence = meaning->text;
    if (meaning->what == MEANING_PENDING) {
        item->outcome = OUTCOME_PENDING;
    } else if (meaning->what == MEANING_FAILED) {
        item->outcome = OUTCOME_FAILED;
        item->reason = REASON_PROVIDER_RECORD;
        item->error = meaning->text;
    } else {
        item->outcome = OUTCOME_SUCCEEDED;
        item->reason = REASON_PROVIDER_2XX;
    }
}

/* The adapter read the answer as it came, so that masking never changes what it means; everything
 * that is stored of it goes through here. */
static void item_mask(struct dispatch *x, struct settle_item *item, struct answer_meaning *meaning)
{
    static const char note[] = " The answer repeated a credential, which was masked.";
    if (x->filled == NULL || x->filled->mask == NULL)
        return;
    const struct mask *mask = x->filled->mask;
    struct answer *answer = &x->send.answer;
    bool cut = answer->body_truncated || !answer->body_complete;
    size_t places = mask_buf(mask, &answer->body, cut);
    places += mask_text(mask, meaning->object_id, sizeof meaning->object_id);
    places += mask_text(mask, meaning->text, sizeof meaning->text);
    places += mask_text(mask, x->send.evidence, sizeof x->send.evidence);
    if (places == 0)
        return;
    bool read = item->evidence == meaning->text;
    char *text = read ? meaning->text : x->send.evidence;
    size_t size = read ? sizeof meaning->text : sizeof x->send.evidence, len = strlen(text);
    snprintf(text + len, size - len, "%s", note);
}

static void item_take_response(const struct dispatch *x, struct settle_item *item)
{
    const struct answer *answer = &x->send.answer;
    bool dropped = x->send.drop_response_after_send && x->send.result == SEND_UNKNOWN;
    if (dropped || !answer->head_complete || answer->malformed)
        return;
    item->response_status = answer->status;
    item->response = answer->body.data;
    item->response_len = answer->body.len;
    item->response_truncated = answer->body_truncated;
}

/* The outcome table: what a send's end becomes. */
static void item_take(struct settler *s, struct dispatch *x, struct settle_item *item,
                      struct answer_meaning *meaning)
{
    *meaning = (struct answer_meaning){0};
    *item = (struct settle_item){.effect = x->effect,
                                 .kind = SETTLE_DISPATCH,
                                 .seq = x->seq,
                                 .evidence = x->send.evidence,
                                 .sent_at_us = x->send.sent_at_us,
                                 .finished_at_us = x->send.finished_at_us,
                                 .consumed = -1,
                                 .by = service_name()};
    switch (x->send.result) {
    case SEND_SUCCESS:
        item_take_success(s, x, item, meaning);
        break;
    case SEND_REFUSED:
        item->outcome = OUTCOME_FAILED;
        item->reason = REASON_PROVIDER_4XX;
        item->error = x->send.evidence;
        break;
    case SEND_NEVER_LEFT:
        item->outcome = OUTCOME_FAILED;
        item->reason = REASON_NEVER_LEFT;
        item->error = x->send.evidence;
        break;
    case SEND_UNKNOWN:
        item->outcome = OUTCOME_UNKNOWN;
        break;
    }
    item_mask(x, item, meaning);
    item_take_response(x, item);
}

static enum outcome_what what_of(const struct settle_item *item)
{
    return item->result == SETTLE_UNKNOWN   ? WHAT_UNKNOWN
           : item->result == SETTLE_PENDING ? WHAT_PENDING
                                            : WHAT_SETTLED;
}

/* Effects of a batch are distinct, and both lists are in their order. */
static int dispatch_compare(const void *a, const void *b)
{
    return ulid_compare(&(*(struct dispatch *const *)a)->effect,
                        &(*(struct dispatch *const *)b)->effect);
}

/* A settlement that is committed frees the journal's entry. One that nobody has decided keeps it,
 * so that a successor does not take the write for one that never left. */
static void batch_end(struct settler *s)
{
    for (size_t i = 0; i < s->count; i++) {
        struct dispatch *x = s->batch[i];
        must(ulid_compare(&x->effect, &s->items[i].effect) == 0);
        outcome_publish(s->d->producer, &x->effect, x->environment, x->reply,
                        what_of(&s->items[i]));
        if (s->items[i].result != SETTLE_NOT_DECIDED)
            journal_free_entry(s->d->journal, x->journal_entry);
        destinations_release(s->d->destinations, x->destination, 1);
        dispatch_free(x);
        s->batch[i] = NULL;
    }
    s->count = 0;
}

/* Settling again what a doubtful COMMIT had settled finds it settled: nothing changes but a line of
 * evidence. */
static void batch_settle(struct settler *s)
{
    struct error err = {0};
    for (size_t i = 0; i < s->count; i++)
        item_take(s, s->batch[i], &s->items[i], &s->meanings[i]);
    int64_t give_up_ms = 0;
    while (!settle_batch_run(s->store, s->items, s->count, &err)) {
        int64_t now_ms = clock_boot_ms();
        if (service_stopping() && give_up_ms == 0)
            give_up_ms = now_ms + config_int("HOLDFAST_DRAIN_MS");
        if (give_up_ms != 0 && now_ms >= give_up_ms) {
            log_event(LOG_ERROR, "settle_given_up", "effects=%zu reason=%s", s->count, err.text);
            break;
        }
        usleep(RETRY_MS * 1000);
    }
    batch_end(s);
}

/* Sorts what is in hand and brings the first of each effect to the front: how many. The late end of
 * an effect's first write may come together with the end of its replay. */
static size_t batch_distinct(struct settler *s)
{
    struct dispatch *again[BATCH_MOST];
    size_t distinct = 0, repeated = 0;
    qsort(s->batch, s->count, sizeof *s->batch, dispatch_compare);
    for (size_t i = 0; i < s->count; i++) {
        if (distinct > 0 && dispatch_compare(&s->batch[distinct - 1], &s->batch[i]) == 0)
            again[repeated++] = s->batch[i];
        else
            s->batch[distinct++] = s->batch[i];
    }
    memcpy(s->batch + distinct, again, repeated * sizeof *again);
    return distinct;
}

static void ended_settle(struct settler *s)
{
    while (s->count > 0) {
        size_t distinct = batch_distinct(s), repeated = s->count - distinct;
        s->count = distinct;
        batch_settle(s);
        memmove(s->batch, s->batch + distinct, repeated * sizeof *s->batch);
        s->count = repeated;
    }
}

void *settler_thread(void *opaque)
{
    struct dispatcher *d = opaque;
    struct settler *s = calloc(1, sizeof *s);
    must(s != NULL);
    char name[STORE_NAME_SIZE];
    snprintf(name, sizeof name, "%s settle", service_name());
    struct store_options options = {.url = config_text("HOLDFAST_DATABASE_URL"), .name = name};
    s->d = d;
    s->store = store_new(&options);
    size_t max = d->settle_batch < BATCH_MOST ? d->settle_batch : BATCH_MOST;
    bool crowded = false; /* the last batch was more than one: others are worth a wait */
    for (;;) {
        s->count = queue_take(d->ended, (void **)s->batch, max, TAKE_MS,
                              crowded ? d->settle_linger_ms : 0);
        crowded = s->count > 1;
        if (s->count > 0)
            ended_settle(s);
        else if (queue_closed(d->ended))
            break;
    }
    store_free(s->store);
    free(s);
    return NULL;
}
