/* What the last process of this name left: claimed effects that it did not settle. Where its
 * journal proves that the gate never opened they settle failed (never left); the others become
 * unknown at once, not first at answer_by.
 *
 * The dead process' last claim may still be committing when we look, so its journal is kept until a
 * claim of it can't come any more (the lease) and looked at again until then. If this process dies
 * here, the next one finds the same journal and does the same; settling twice changes nothing. */
#include "common/base/clock.h"
#include "common/base/config.h"
#include "common/base/log.h"
#include "common/base/service.h"
#include "common/journal/journal.h"
#include "common/settle.h"
#include "dispatcher/dispatch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BATCH_MOST = 256, LOOK_EVERY_MS = 250, LEFT_MOST = 64 };

struct recovery {
    struct dispatcher *d;
    struct store *store;
    struct journal_left left;
    int64_t until_ms; /* clock_boot_ms: a claim of that process may commit until then */
    size_t never_left, unknown;
};

static PGresult *candidates_ask(struct recovery *r, struct error *err)
{
    static const char sql[] =
        "select a.effect_id, a.seq from open_effects o join attempts a on a.effect_id = o.id "
        "and a.seq = o.last_seq where o.answer_by is not null and a.incarnation = $1 "
        "order by a.effect_id limit 256";
    struct ulid incarnation;
    memcpy(incarnation.bytes, r->left.incarnation, sizeof incarnation.bytes);
    struct store_param param = store_uuid(&incarnation);
    return store_query(r->store, sql, &param, 1, true, err);
}

static void item_take(struct recovery *r, const PGresult *rows, int row, struct settle_item *item)
{
    *item = (struct settle_item){.kind = SETTLE_DISPATCH,
                                 .seq = (int)row_int(rows, row, 1),
                                 .consumed = -1,
                                 .finished_at_us = clock_wall_us(),
                                 .by = service_name()};
    row_uuid(rows, row, 0, &item->effect);
    if (r->left.proves && !journal_left_has(&r->left, &item->effect, item->seq)) {
        item->outcome = OUTCOME_FAILED;
        item->reason = REASON_NEVER_LEFT;
        item->error = "the dispatcher ended before it was let go";
        item->evidence =
            "The dispatcher ended before the request was let go: its journal has no entry for it.";
        r->never_left++;
    } else {
        item->outcome = OUTCOME_UNKNOWN;
        item->evidence =
            r->left.proves
                ? "The dispatcher ended after the request was let go; its answer is lost."
                : "The dispatcher ended, and its journal can't tell whether the request was let "
                  "go.";
        r->unknown++;
    }
}

/* One look. How many were settled; -1 when the database is away. */
static int recovery_look(struct recovery *r)
{
    struct settle_item items[BATCH_MOST];
    struct error err = {0};
    PGresult *rows = candidates_ask(r, &err);
    if (rows == NULL)
        return -1;
    int count = PQntuples(rows);
    for (int i = 0; i < count; i++)
        item_take(r, rows, i, &items[i]);
    bool ok = count == 0 || settle_batch_run(r->store, items, (size_t)count, &err);
    PQclear(rows);
    if (!ok)
        log_error(LOG_WARN, "recovery_waits", &err);
    return ok ? count : -1;
}

static void recovery_begin(struct recovery *r)
{
    r->until_ms = clock_boot_ms() + r->d->lease_ms;
    log_event(LOG_INFO, "recovery_begins", "journal=%s proves=%d in_use=%zu reason=%s",
              r->left.path, (int)r->left.proves, r->left.count, r->left.why);
}

/* Looks once more; true when nothing can come any more. */
static bool recovery_step(struct recovery *r)
{
    bool late = clock_boot_ms() >= r->until_ms;
    int found = recovery_look(r);
    if (found != 0 || !late)
        return false;
    log_event(LOG_INFO, "recovery_ends", "never_left=%zu unknown=%zu", r->never_left, r->unknown);
    journal_left_close(&r->left, true);
    return true;
}

/* All of them side by side: what one process left must not wait for another's. */
static void recoveries_run(struct recovery *all, size_t count)
{
    while (count > 0 && !service_stopping()) {
        size_t open = 0;
        for (size_t i = 0; i < count; i++)
            if (!recovery_step(&all[i]))
                all[open++] = all[i];
        count = open;
        if (count > 0)
            usleep(LOOK_EVERY_MS * 1000);
    }
    for (size_t i = 0; i < count; i++)
        journal_left_close(&all[i].left, false);
}

void *recover_thread(void *opaque)
{
    char name[STORE_NAME_SIZE];
    snprintf(name, sizeof name, "%s recover", service_name());
    struct store_options options = {.url = config_text("HOLDFAST_DATABASE_URL"), .name = name};
    struct store *store = store_new(&options);
    static struct journal_left left[LEFT_MOST];
    static struct recovery all[LEFT_MOST];
    size_t count =
        journal_left_all(config_text("HOLDFAST_JOURNAL_DIR"), service_name(), left, LEFT_MOST);
    for (size_t i = 0; i < count; i++) {
        all[i] = (struct recovery){.d = opaque, .store = store, .left = left[i]};
        recovery_begin(&all[i]);
    }
    recoveries_run(all, count);
    store_free(store);
    return NULL;
}
