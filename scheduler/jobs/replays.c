/* Replays that were asked for and not claimed: publishes those again whose message may be lost, and
 * ends those whose time to be claimed is over. A message too many finds nothing to claim. */
#include "common/base/config.h"
#include "common/base/log.h"
#include "common/base/service.h"
#include "common/bus/message.h"
#include "scheduler/jobs.h"

#include <stdio.h>

enum { LAG_TIMEOUT_MS = 1000 };

static bool replay_publish(struct job_context *context, const PGresult *r, int row,
                           struct error *err)
{
    char key[ULID_PREFIXED_SIZE];
    struct effect_message message = {
        .environment = row_int(r, row, 1), .seq = row_int(r, row, 3), .reply = MESSAGE_NO_REPLY};
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

static int replays_expire(struct job_context *context, struct error *err)
{
    char piece[24];
    struct store_param params[] = {store_int(JOB_PIECE, piece), store_text(service_name())};
    PGresult *r = NULL;
    struct store_statement statement = {"select replays_expire($1::int, $2)", params, 2, true};
    if (!store_transact(context->store, &statement, 1, &r, err))
        return -1;
    int count = PQntuples(r);
    PQclear(r);
    return count;
}

/* As job_republish: nothing while the brokers can't say how far the group is. */
static bool replays_publish(struct job_context *context, struct error *err)
{
    struct lag lag = {0};
    struct error why = {0};
    char piece[24], after[24], most[24], behind[24];
    if (!lag_watch_read(context->lag, LAG_TIMEOUT_MS, &lag, &why)) {
        log_error(LOG_WARN, "lag_not_known", &why);
        return true;
    }
    struct store_param params[] = {
        store_int(JOB_PIECE, piece), store_int(config_int("HOLDFAST_REPUBLISH_AFTER_MS"), after),
        store_int(config_int("HOLDFAST_REPUBLISH_MAX_MS"), most), store_int(lag.age_ms, behind)};
    PGresult *r = NULL;
    struct store_statement statement = {"select effect_id, environment_id, destination, seq "
                                        "from replays_take($1::int, $2::int, $3::int, $4::bigint)",
                                        params, 4, true};
    if (!store_transact(context->store, &statement, 1, &r, err))
        return false;
    for (int i = 0; i < PQntuples(r); i++) {
        if (!replay_publish(context, r, i, &why)) { /* its interval brings it back */
            log_error(LOG_WARN, "replay_not_republished", &why);
            break;
        }
    }
    PQclear(r);
    return true;
}

int job_replays(struct job_context *context, struct error *err)
{
    int ended = replays_expire(context, err);
    if (ended < 0)
        return -1;
    PGresult *r =
        store_query(context->store, "select 1 from open_replays limit 1", NULL, 0, true, err);
    if (r == NULL)
        return -1;
    bool any = PQntuples(r) > 0; /* rarely: the brokers are asked for nothing otherwise */
    PQclear(r);
    return any && !replays_publish(context, err) ? -1 : ended;
}
