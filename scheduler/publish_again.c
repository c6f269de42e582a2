/* Takes rows whose message may be lost, and publishes them. */
#include "scheduler/publish_again.h"

#include "common/base/config.h"
#include "common/base/log.h"
#include "common/bus/publish.h"

#include <stdio.h>

enum { LAG_TIMEOUT_MS = 1000 };

static bool row_publish(struct job_context *context, const PGresult *r, int row, struct error *err)
{
    char key[ULID_PREFIXED_SIZE];
    struct effect_message message = {
        .environment = row_int(r, row, 1), .seq = row_int(r, row, 3), .reply = MESSAGE_NO_REPLY};
    row_uuid(r, row, 0, &message.effect);
    snprintf(message.destination, sizeof message.destination, "%s", row_text(r, row, 2));
    return effect_publish(context->producer, &message,
                          ulid_format_prefixed("eff", &message.effect, key), err);
}

int publish_again(struct job_context *context, const char *sql, int64_t limit, const char *failed,
                  struct error *err)
{
    struct lag lag = {0};
    struct error why = {0};
    char most[24], after[24], longest[24], behind[24];
    if (!lag_watch_read(context->lag, LAG_TIMEOUT_MS, &lag, &why)) {
        log_error(LOG_WARN, "lag_not_known", &why);
        return 0;
    }
    struct store_param params[] = {
        store_int(limit, most), store_int(config_int("HOLDFAST_REPUBLISH_AFTER_MS"), after),
        store_int(config_int("HOLDFAST_REPUBLISH_MAX_MS"), longest), store_int(lag.age_ms, behind)};
    PGresult *r = NULL;
    struct store_statement statement = {sql, params, 4, true};
    if (!store_transact(context->store, &statement, 1, &r, err))
        return -1;
    int count = PQntuples(r);
    for (int i = 0; i < count; i++) {
        if (!row_publish(context, r, i, &why)) {
            log_error(LOG_WARN, failed, &why);
            break;
        }
    }
    PQclear(r);
    return count;
}
