/* Publishes ready effects again whose message may be lost: older than the consumers' lag and some
 * seconds. A message too many costs a look at a row that is no longer ready; it can never cause a
 * second send. */
#include "common/base/config.h"
#include "common/base/log.h"
#include "common/base/metrics.h"
#include "common/bus/message.h"
#include "scheduler/jobs.h"

#include <stdio.h>

enum { LAG_TIMEOUT_MS = 1000 };

static bool effect_publish(struct job_context *context, const PGresult *r, int row,
                           struct error *err)
{
    char key[ULID_PREFIXED_SIZE];
    struct effect_message message = {
        .environment = row_int(r, row, 1), .seq = 1, .reply = MESSAGE_NO_REPLY};
    struct buf payload;
    row_uuid(r, row, 0, &message.effect);
    snprintf(message.destination, sizeof message.destination, "%s", row_text(r, row, 2));
    buf_init(&payload, MESSAGE_MAX);
    bool ok = effect_message_encode(&message, &payload) &&
              producer_send(context->producer, BUS_EFFECTS, BUS_ANY_PARTITION,
                            ulid_format_prefixed("eff", &message.effect, key), payload.data,
                            payload.len, NULL, NULL, err);
    buf_free(&payload);
    return ok;
}

/* Nothing is republished while the brokers can't say how far the group is: the messages are there,
 * or the brokers are not. */
int job_republish(struct job_context *context, struct error *err)
{
    struct lag lag = {0};
    struct error why = {0};
    char piece[24], after[24], most[24], behind[24];
    if (!lag_watch_read(context->lag, LAG_TIMEOUT_MS, &lag, &why)) {
        log_error(LOG_WARN, "lag_not_known", &why);
        return 0;
    }
    int64_t limit = config_int("HOLDFAST_REPUBLISH_BATCH");
    struct store_param params[] = {
        store_int(limit, piece), store_int(config_int("HOLDFAST_REPUBLISH_AFTER_MS"), after),
        store_int(config_int("HOLDFAST_REPUBLISH_MAX_MS"), most), store_int(lag.age_ms, behind)};
    PGresult *r = NULL;
    struct store_statement statement = {
        "select effect_id, environment_id, destination "
        "from republish_take($1::int, $2::int, $3::int, $4::bigint)",
        params, 4, true};
    if (!store_transact(context->store, &statement, 1, &r, err))
        return -1;
    int count = PQntuples(r);
    for (int i = 0; i < count; i++) {
        if (!effect_publish(context, r, i, &why)) { /* its interval brings it back */
            log_error(LOG_WARN, "effect_not_republished", &why);
            break;
        }
    }
    metric_add(metric_counter("holdfast_republished_total", "",
                              "Ready effects that were published again."),
               count);
    PQclear(r);
    return count >= limit ? JOB_PIECE : 0;
}
