/* Refunds and the payment intents they belong to. */
#include "tests/provider/sandbox/refunds.h"

#include "common/base/clock.h"
#include "common/base/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct table refunds;
static struct table intents;
static uint64_t id_next;
static int64_t id_start; /* so that ids of two runs differ */

static void refund_free(struct table_entry *entry)
{
    struct refund *refund = (struct refund *)entry;
    struct intent *intent = refund->intent;
    if (intent && refund->older)
        refund->older->newer = refund->newer;
    else if (intent)
        intent->oldest = refund->newer;
    if (intent && refund->newer)
        refund->newer->older = refund->older;
    else if (intent)
        intent->newest = refund->older;
    free(refund->payment_intent);
    free(refund->charge);
    free(refund->status);
    free(refund->reason);
    free(refund->failure_reason);
    free(refund->metadata);
    free(refund->effect);
    free(refund);
}

static void intent_free(struct table_entry *entry)
{
    struct intent *intent = (struct intent *)entry;
    for (struct refund *refund = intent->oldest; refund; refund = refund->newer)
        refund->intent = NULL;
    free(intent);
}

void refunds_init(size_t keep)
{
    table_init(&refunds, keep, refund_free);
    table_init(&intents, keep, intent_free);
    id_start = clock_wall_ms();
}

void refunds_reset(void)
{
    table_clear(&refunds);
    table_clear(&intents);
}

struct intent *intent_find(const char *id)
{
    return (struct intent *)table_find(&intents, id);
}

struct intent *intent_touch(const char *id)
{
    struct intent *intent = intent_find(id);
    if (intent == NULL) {
        intent = must_calloc(sizeof(*intent));
        intent->amount = -1;
        table_add(&intents, &intent->entry, id);
    }
    return intent;
}

static bool refund_counts(const struct refund *refund)
{
    return refund->status == NULL ||
           (strcmp(refund->status, "failed") != 0 && strcmp(refund->status, "canceled") != 0);
}

int64_t intent_remaining(const struct intent *intent)
{
    int64_t remaining = intent->amount;
    for (const struct refund *refund = intent->oldest; refund; refund = refund->newer)
        if (intent->amount >= 0 && refund_counts(refund))
            remaining -= refund->amount;
    return intent->amount < 0 ? -1 : remaining > 0 ? remaining : 0;
}

static void intent_append(struct intent *intent, struct refund *refund)
{
    refund->intent = intent;
    refund->older = intent->newest;
    if (intent->newest)
        intent->newest->newer = refund;
    else
        intent->oldest = refund;
    intent->newest = refund;
}

struct refund *refund_new(const struct refund_draft *draft)
{
    char id[64];
    struct refund *refund = must_calloc(sizeof(*refund));
    *refund = (struct refund){.payment_intent = must_strdup(draft->payment_intent),
                              .charge = must_strdup(draft->charge),
                              .amount = draft->amount,
                              .status = must_strdup(draft->status),
                              .reason = must_strdup(draft->reason),
                              .metadata = must_strdup(draft->metadata),
                              .effect = must_strdup(draft->effect),
                              .created = clock_wall_ms() / 1000,
                              .hidden_reads = draft->hidden_reads};
    snprintf(refund->currency, sizeof(refund->currency), "%s", draft->currency);
    snprintf(id, sizeof(id), "re_%" PRIx64 "%08" PRIu64, (uint64_t)id_start, ++id_next);
    table_add(&refunds, &refund->entry, id);
    intent_append(intent_touch(draft->payment_intent ? draft->payment_intent : draft->charge),
                  refund);
    return refund;
}

struct refund *refund_find(const char *id)
{
    return (struct refund *)table_find(&refunds, id);
}

struct refund *refund_newest(const char *intent)
{
    if (intent == NULL)
        return (struct refund *)refunds.newest;
    struct intent *found = intent_find(intent);
    return found ? found->newest : NULL;
}

struct refund *refund_next(const struct refund *refund, bool of_intent)
{
    return of_intent ? refund->older : (struct refund *)refund->entry.older;
}

bool refund_read(struct refund *refund)
{
    if (refund->hidden_reads == 0)
        return true;
    refund->hidden_reads--;
    return false;
}

static void member_put(struct buf *out, const char *name, const char *value)
{
    buf_printf(out, ",\"%s\":", name);
    if (value)
        json_put_string(out, value, strlen(value));
    else
        buf_puts(out, "null");
}

void refund_put(const struct refund *refund, struct buf *out)
{
    buf_printf(out, "{\"id\":\"%s\",\"object\":\"refund\",\"amount\":%" PRId64, refund->entry.name,
               refund->amount);
    buf_puts(out, ",\"balance_transaction\":null");
    member_put(out, "charge", refund->charge);
    buf_printf(out, ",\"created\":%" PRId64, refund->created);
    member_put(out, "currency", refund->currency);
    if (refund->failure_reason)
        member_put(out, "failure_reason", refund->failure_reason);
    buf_printf(out, ",\"metadata\":%s", refund->metadata ? refund->metadata : "{}");
    member_put(out, "payment_intent", refund->payment_intent);
    member_put(out, "reason", refund->reason);
    buf_puts(out, ",\"receipt_number\":null,\"source_transfer_reversal\":null");
    member_put(out, "status", refund->status);
    buf_puts(out, ",\"transfer_reversal\":null}");
}
