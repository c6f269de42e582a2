/* A batch of calls as the parameters of accept_batch, and what it says of each. */
#include "common/store/array.h"
#include "ingest/accept.h"

#include <stdlib.h>
#include <string.h>

/* The parameters in the order of accept_batch in common/store/functions/10_accept.sql. */
enum column {
    C_ID,
    C_ENVIRONMENT,
    C_KEY,
    C_KEY_HASH,
    C_BODY_HASH,
    C_OPERATION,
    C_OPERATION_HASH,
    C_INPUT_HASH,
    C_RETRY_OF,
    C_ACTION,
    C_ACTION_NAME,
    C_ACTION_VERSION,
    C_GOVERNED,
    C_ADAPTER,
    C_DESTINATION,
    C_INPUT,
    C_REQUEST,
    C_REQUEST_HASH,
    C_SECRETS,
    C_PROVIDER_KEY,
    C_DIMENSION,
    C_UNIT,
    C_AMOUNT,
    C_BOUND,
    C_RESOURCE,
    C_REQUESTED_BY,
    C_AGENT,
    C_RUN,
    C_SPAN,
    C_HAS_READ_BACK,
    C_FAULT_DRILL,
    C_DISPATCH_BEFORE,
    C_GATE,
    C_EXTERNAL,
    C_COMPENSATES,
    COLUMNS
};

static const int element_types[COLUMNS] = {
    [C_ID] = ARRAY_UUID,
    [C_ENVIRONMENT] = ARRAY_INT4,
    [C_KEY] = ARRAY_TEXT,
    [C_KEY_HASH] = ARRAY_BYTEA,
    [C_BODY_HASH] = ARRAY_BYTEA,
    [C_OPERATION] = ARRAY_TEXT,
    [C_OPERATION_HASH] = ARRAY_BYTEA,
    [C_INPUT_HASH] = ARRAY_BYTEA,
    [C_RETRY_OF] = ARRAY_UUID,
    [C_ACTION] = ARRAY_UUID,
    [C_ACTION_NAME] = ARRAY_TEXT,
    [C_ACTION_VERSION] = ARRAY_INT4,
    [C_GOVERNED] = ARRAY_BOOL,
    [C_ADAPTER] = ARRAY_TEXT,
    [C_DESTINATION] = ARRAY_TEXT,
    [C_INPUT] = ARRAY_TEXT,
    [C_REQUEST] = ARRAY_BYTEA,
    [C_REQUEST_HASH] = ARRAY_BYTEA,
    [C_SECRETS] = ARRAY_TEXT,
    [C_PROVIDER_KEY] = ARRAY_TEXT,
    [C_DIMENSION] = ARRAY_TEXT,
    [C_UNIT] = ARRAY_TEXT,
    [C_AMOUNT] = ARRAY_INT8,
    [C_BOUND] = ARRAY_TEXT,
    [C_RESOURCE] = ARRAY_TEXT,
    [C_REQUESTED_BY] = ARRAY_UUID,
    [C_AGENT] = ARRAY_TEXT,
    [C_RUN] = ARRAY_TEXT,
    [C_SPAN] = ARRAY_TEXT,
    [C_HAS_READ_BACK] = ARRAY_BOOL,
    [C_FAULT_DRILL] = ARRAY_BOOL,
    [C_DISPATCH_BEFORE] = ARRAY_INT4,
    [C_GATE] = ARRAY_TEXT,
    [C_EXTERNAL] = ARRAY_BOOL,
    [C_COMPENSATES] = ARRAY_UUID,
};

#define COLUMN_MAX_BYTES ((size_t)512 << 20)

static const char sql[] = "select ord, verdict, effect_id, detail from accept_batch($1, $2, $3, "
                          "$4, $5, $6, $7, $8, $9, $10, "
                          "$11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, "
                          "$25, $26, $27, $28, $29, "
                          "$30, $31, $32, $33, $34, $35)";

static void hash_put(struct array *a, const uint8_t hash[SHA256_SIZE], bool present)
{
    array_put_bytes(a, present ? hash : NULL, SHA256_SIZE);
}

static void impact_put(struct array *columns, const struct impact *impact)
{
    bool declared = impact->declared;
    array_put_text(&columns[C_DIMENSION], declared ? impact->dimension : NULL);
    array_put_text(&columns[C_UNIT], declared ? impact->unit : NULL);
    array_put_text(&columns[C_BOUND], declared ? impact->bound : NULL);
    array_put_text(&columns[C_RESOURCE], declared ? impact->resource : NULL);
    if (declared && impact->has_amount)
        array_put_int(&columns[C_AMOUNT], impact->amount);
    else
        array_put_null(&columns[C_AMOUNT]);
}

static void call_put(struct array *columns, const struct accept_call *a)
{
    const struct principal *principal = a->call->principal;
    array_put_uuid(&columns[C_ID], &a->id);
    array_put_int(&columns[C_ENVIRONMENT], principal->environment);
    array_put_text(&columns[C_KEY], a->call->idempotency_key);
    hash_put(&columns[C_KEY_HASH], a->key_hash, true);
    hash_put(&columns[C_BODY_HASH], a->body_hash, true);
    array_put_text(&columns[C_OPERATION], a->operation);
    hash_put(&columns[C_OPERATION_HASH], a->operation_hash, a->operation != NULL);
    hash_put(&columns[C_INPUT_HASH], a->input_hash, true);
    array_put_uuid(&columns[C_RETRY_OF], &a->retry_of);
    array_put_uuid(&columns[C_ACTION], &a->action->id);
    array_put_text(&columns[C_ACTION_NAME], a->action->name);
    array_put_int(&columns[C_ACTION_VERSION], a->action->version);
    array_put_bool(&columns[C_GOVERNED], a->action->governed || a->claim != NULL);
    array_put_text(&columns[C_ADAPTER], a->action->adapter->type);
    array_put_text(&columns[C_DESTINATION], a->destination);
    array_put_bytes(&columns[C_INPUT], a->input.data, a->input.len);
    array_put_bytes(&columns[C_REQUEST], a->request.data, a->request.len);
    hash_put(&columns[C_REQUEST_HASH], a->request_hash, true);
    array_put_text(&columns[C_SECRETS], a->secrets);
    array_put_text(&columns[C_PROVIDER_KEY], a->provider_key);
    impact_put(columns, &a->impact);
    array_put_uuid(&columns[C_REQUESTED_BY], &principal->key_id);
    array_put_text(&columns[C_AGENT], principal->agent_id);
    array_put_text(&columns[C_RUN], a->run_id);
    array_put_text(&columns[C_SPAN], a->parent_span_id);
    array_put_bool(&columns[C_HAS_READ_BACK], a->has_read_back);
    array_put_bool(&columns[C_FAULT_DRILL], a->fault_drill);
    array_put_int(&columns[C_DISPATCH_BEFORE], a->dispatch_before_s);
    array_put_text(&columns[C_GATE], a->gate_text);
    array_put_bool(&columns[C_EXTERNAL], a->claim != NULL);
    array_put_uuid(&columns[C_COMPENSATES], &a->compensates);
}

static const struct {
    const char *name;
    enum verdict verdict;
} verdict_names[] = {
    {"accepted", VERDICT_ACCEPTED},
    {"key_same", VERDICT_KEY_SAME},
    {"key_reuse", VERDICT_KEY_REUSE},
    {"operation_same", VERDICT_OPERATION_SAME},
    {"operation_reuse", VERDICT_OPERATION_REUSE},
    {"halted", VERDICT_HALTED},
    {"part_halted", VERDICT_PART_HALTED},
    {"over_budget", VERDICT_OVER_BUDGET},
    {"retry_refused", VERDICT_RETRY_REFUSED},
    {"compensates_refused", VERDICT_COMPENSATES_REFUSED},
};

static enum verdict verdict_parse(const char *name)
{
    for (size_t i = 0; i < sizeof verdict_names / sizeof *verdict_names; i++)
        if (name != NULL && strcmp(verdict_names[i].name, name) == 0)
            return verdict_names[i].verdict;
    return VERDICT_NONE;
}

static bool verdicts_read(const PGresult *r, struct accept_call **calls, size_t count,
                          struct error *err)
{
    for (int row = 0; row < PQntuples(r); row++) {
        int64_t ord = row_int(r, row, 0);
        if (ord < 1 || ord > (int64_t)count)
            return error_set(err, ERROR_INTERNAL, "accept_batch answered about a call not asked");
        struct accept_call *a = calls[ord - 1];
        const char *detail = row_text(r, row, 3);
        a->verdict = verdict_parse(row_text(r, row, 1));
        row_uuid(r, row, 2, &a->effect);
        snprintf(a->detail, sizeof a->detail, "%s", detail != NULL ? detail : "");
        /* Our own id under the key: an earlier try of this transaction was committed after all. */
        if (a->verdict == VERDICT_KEY_SAME && ulid_compare(&a->effect, &a->id) == 0)
            a->verdict = VERDICT_ACCEPTED;
    }
    for (size_t i = 0; i < count; i++)
        if (calls[i]->verdict == VERDICT_NONE)
            return error_set(err, ERROR_INTERNAL, "accept_batch left a call without a verdict");
    return true;
}

bool accept_rows_run(struct store *store, struct accept_call **calls, size_t count,
                     struct error *err)
{
    struct array columns[COLUMNS];
    struct store_param params[COLUMNS];
    PGresult *r = NULL;
    bool ok = true;
    for (int c = 0; c < COLUMNS; c++)
        array_init(&columns[c], element_types[c], COLUMN_MAX_BYTES);
    for (size_t i = 0; i < count; i++) {
        calls[i]->verdict = VERDICT_NONE;
        call_put(columns, calls[i]);
    }
    for (int c = 0; c < COLUMNS && ok; c++)
        ok = array_param(&columns[c], &params[c]);
    if (!ok)
        error_set(err, ERROR_TOO_LARGE, "a batch of calls outgrew its memory");
    struct store_statement statement = {
        .sql = sql, .params = params, .count = COLUMNS, .binary_result = true};
    ok = ok && store_transact(store, &statement, 1, &r, err) && verdicts_read(r, calls, count, err);
    PQclear(r);
    for (int c = 0; c < COLUMNS; c++)
        array_free(&columns[c]);
    return ok;
}
