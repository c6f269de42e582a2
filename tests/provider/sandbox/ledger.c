/* What arrived: one record per request, in order, and counters per key, effect and intent. */
#include "tests/provider/sandbox/ledger.h"

#include "common/base/clock.h"
#include "common/base/crypto.h"
#include "tests/provider/sandbox/table.h"

#include <stdlib.h>
#include <string.h>

#define COUNTS_SHOWN_MAX 10000 /* names per table in one answer, the newest */

struct counts {
    uint64_t writes; /* received whole or in part */
    uint64_t reads;
    uint64_t partial;
    uint64_t applied;
    uint64_t replayed;
    uint64_t refused;
};

struct counter {
    struct table_entry entry;
    struct counts counts;
};

struct record {
    uint64_t seq;
    int64_t at_us;
    struct ledger_entry what;
    bool write;
    char *bytes; /* the head, then what is kept of the body */
    size_t head_len;
    size_t body_kept;
    size_t body_len;
    uint8_t body_sha256[SHA256_SIZE];
    char *key;
    char *effect;
    char *intent;
};

static struct {
    struct counts totals;
    uint64_t connections;
    uint64_t keys_written_again;
    uint64_t effects_written_again;
    uint64_t effects_applied_again;
    struct table by_key;
    struct table by_effect;
    struct table by_intent;
    struct record ring[LEDGER_RECORDS_MAX]; /* record `seq` is at seq % LEDGER_RECORDS_MAX */
    uint64_t first_seq;
    uint64_t next_seq;
    size_t bytes;
} ledger;

static void counter_free(struct table_entry *entry)
{
    free(entry);
}

void ledger_init(size_t keep)
{
    table_init(&ledger.by_key, keep, counter_free);
    table_init(&ledger.by_effect, keep, counter_free);
    table_init(&ledger.by_intent, keep, counter_free);
    ledger.first_seq = ledger.next_seq = 1;
}

static void record_drop_oldest(void)
{
    struct record *record = &ledger.ring[ledger.first_seq++ % LEDGER_RECORDS_MAX];
    ledger.bytes -= record->head_len + record->body_kept;
    free(record->bytes);
    free(record->key);
    free(record->effect);
    free(record->intent);
    memset(record, 0, sizeof(*record));
}

void ledger_reset(void)
{
    while (ledger.first_seq < ledger.next_seq)
        record_drop_oldest();
    memset(&ledger.totals, 0, sizeof(ledger.totals));
    ledger.connections = 0;
    ledger.keys_written_again = ledger.effects_written_again = ledger.effects_applied_again = 0;
    table_clear(&ledger.by_key);
    table_clear(&ledger.by_effect);
    table_clear(&ledger.by_intent);
}

void ledger_connection_opened(void)
{
    ledger.connections++;
}

static void counts_add(struct counts *counts, bool write, const struct ledger_entry *entry)
{
    if (!write) {
        counts->reads++;
        return;
    }
    counts->writes++;
    counts->applied += (uint64_t)entry->applied;
    counts->replayed += entry->outcome == OUTCOME_REPLAYED;
    counts->refused += entry->outcome == OUTCOME_REFUSED;
    counts->partial += entry->outcome == OUTCOME_PARTIAL || entry->outcome == OUTCOME_UNREAD;
}

/* Counts under a name; gives the counts as they are then, or NULL when there is no name. */
static const struct counts *counter_add(struct table *table, const char *name, bool write,
                                        const struct ledger_entry *entry)
{
    if (name == NULL)
        return NULL;
    struct counter *counter = (struct counter *)table_find(table, name);
    if (counter == NULL) {
        counter = must_calloc(sizeof(*counter));
        table_add(table, &counter->entry, name);
    }
    counts_add(&counter->counts, write, entry);
    return &counter->counts;
}

static void ledger_count(const struct facts *facts, const struct ledger_entry *entry)
{
    bool write = facts->write;
    counts_add(&ledger.totals, write, entry);
    const struct counts *key = counter_add(&ledger.by_key, facts->key, write, entry);
    const struct counts *effect = counter_add(&ledger.by_effect, facts->effect, write, entry);
    counter_add(&ledger.by_intent, facts->intent, write, entry);
    if (key && write && key->writes == 2)
        ledger.keys_written_again++;
    if (effect && write && effect->writes == 2)
        ledger.effects_written_again++;
    uint64_t applied = (uint64_t)entry->applied;
    if (effect && effect->applied >= 2 && effect->applied - applied < 2)
        ledger.effects_applied_again++;
}

void ledger_add(const struct request *r, const struct facts *facts,
                const struct ledger_entry *entry)
{
    ledger_count(facts, entry);
    size_t body_kept = r->body.len < LEDGER_BODY_KEPT ? r->body.len : LEDGER_BODY_KEPT;
    size_t bytes = r->head_len + body_kept;
    while (ledger.first_seq < ledger.next_seq &&
           (ledger.next_seq - ledger.first_seq == LEDGER_RECORDS_MAX ||
            ledger.bytes + bytes > LEDGER_BYTES_MAX))
        record_drop_oldest();
    struct record *record = &ledger.ring[ledger.next_seq % LEDGER_RECORDS_MAX];
    *record = (struct record){.seq = ledger.next_seq++,
                              .at_us = clock_wall_us(),
                              .what = *entry,
                              .write = facts->write,
                              .head_len = r->head_len,
                              .body_kept = body_kept,
                              .body_len = r->body.len,
                              .key = must_strdup(facts->key),
                              .effect = must_strdup(facts->effect),
                              .intent = must_strdup(facts->intent)};
    record->bytes = must_calloc(bytes);
    memcpy(record->bytes, r->head, r->head_len);
    if (body_kept)
        memcpy(record->bytes + r->head_len, r->body.data, body_kept);
    crypto_sha256(r->body.data ? r->body.data : "", r->body.len, record->body_sha256);
    ledger.bytes += bytes;
}

static json_t *counts_json(const struct counts *counts)
{
    return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I}", "writes", (json_int_t)counts->writes, "reads",
                     (json_int_t)counts->reads, "partial", (json_int_t)counts->partial, "applied",
                     (json_int_t)counts->applied, "replayed", (json_int_t)counts->replayed,
                     "refused", (json_int_t)counts->refused);
}

static json_t *counter_json(const struct table *table, const char *name)
{
    static const struct counts none;
    const struct counter *counter = (const struct counter *)table_find(table, name);
    return counts_json(counter ? &counter->counts : &none);
}

static json_t *table_json(const struct table *table, bool *cut)
{
    json_t *object = json_object();
    size_t shown = 0;
    for (struct table_entry *entry = table->newest; entry; entry = entry->older) {
        if (shown++ == COUNTS_SHOWN_MAX) {
            *cut = true;
            break;
        }
        const struct counter *counter = (const struct counter *)entry;
        json_t *name = json_bytes(entry->name, strlen(entry->name));
        json_object_set_new(object, json_string_value(name), counts_json(&counter->counts));
        json_decref(name);
    }
    return object;
}

static json_t *totals_json(void)
{
    json_t *totals = counts_json(&ledger.totals);
    json_t *more = json_pack("{s:I,s:I,s:I,s:I}", "connections", (json_int_t)ledger.connections,
                             "keysWrittenAgain", (json_int_t)ledger.keys_written_again,
                             "effectsWrittenAgain", (json_int_t)ledger.effects_written_again,
                             "effectsAppliedAgain", (json_int_t)ledger.effects_applied_again);
    json_object_update(totals, more);
    json_decref(more);
    return totals;
}

json_t *ledger_counts(const char *key, const char *effect, const char *intent)
{
    if (key)
        return counter_json(&ledger.by_key, key);
    if (effect)
        return counter_json(&ledger.by_effect, effect);
    if (intent)
        return counter_json(&ledger.by_intent, intent);
    bool cut = false;
    json_t *by_key = table_json(&ledger.by_key, &cut);
    json_t *by_effect = table_json(&ledger.by_effect, &cut);
    json_t *by_intent = table_json(&ledger.by_intent, &cut);
    uint64_t evicted = ledger.by_key.evicted + ledger.by_effect.evicted + ledger.by_intent.evicted;
    return json_pack("{s:o,s:o,s:o,s:o,s:b,s:I}", "totals", totals_json(), "byKey", by_key,
                     "byEffect", by_effect, "byIntent", by_intent, "truncated", cut, "evicted",
                     (json_int_t)evicted);
}

static json_t *name_json(const char *name)
{
    return name ? json_bytes(name, strlen(name)) : json_null();
}

static json_t *headers_json(const struct request *r)
{
    json_t *headers = json_array();
    for (size_t i = 0; i < r->header_count; i++) {
        json_t *pair = json_array();
        json_array_append_new(pair, name_json(r->headers[i].name));
        json_array_append_new(pair, name_json(r->headers[i].value));
        json_array_append_new(headers, pair);
    }
    return headers;
}

static const char *outcome_name(enum outcome outcome)
{
    static const char *const names[] = {"read",    "applied", "replayed",
                                        "refused", "partial", "unread"};
    return names[outcome];
}

static json_t *record_json(const struct record *record)
{
    bool ok;
    char sha256[2 * SHA256_SIZE + 1];
    crypto_hex(record->body_sha256, SHA256_SIZE, sha256);
    struct request *r = request_new(record->bytes, record->head_len, &ok);
    json_t *object = json_pack(
        "{s:I,s:I,s:I,s:o,s:o,s:b,s:s,s:i,s:i,s:s?}", "seq", (json_int_t)record->seq, "atUs",
        (json_int_t)record->at_us, "connection", (json_int_t)record->what.connection, "method",
        name_json(r->method), "target", name_json(r->target), "write", record->write, "outcome",
        outcome_name(record->what.outcome), "applied", record->what.applied, "status",
        record->what.status, "fault", record->what.fault);
    json_object_set_new(object, "key", name_json(record->key));
    json_object_set_new(object, "effect", name_json(record->effect));
    json_object_set_new(object, "intent", name_json(record->intent));
    json_object_set_new(object, "headers", headers_json(r));
    json_object_set_new(object, "head", json_bytes(record->bytes, record->head_len));
    json_object_set_new(object, "body",
                        json_bytes(record->bytes + record->head_len, record->body_kept));
    json_object_set_new(object, "bodyBytes", json_integer((json_int_t)record->body_len));
    json_object_set_new(object, "bodySha256", json_string(sha256));
    request_free(r);
    return object;
}

json_t *ledger_records(uint64_t since, size_t limit)
{
    uint64_t seq = since + 1 > ledger.first_seq ? since + 1 : ledger.first_seq;
    json_t *records = json_array();
    for (; seq < ledger.next_seq && json_array_size(records) < limit; seq++)
        json_array_append_new(records, record_json(&ledger.ring[seq % LEDGER_RECORDS_MAX]));
    return json_pack("{s:o,s:I,s:I}", "data", records, "next", (json_int_t)(seq - 1), "oldest",
                     (json_int_t)ledger.first_seq);
}
