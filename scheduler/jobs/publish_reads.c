/* Publishes the reads that are due to the reconcile topic. Each is leased by moving its time, so
 * one whose message or reader is lost comes again when the lease ends; one published twice is read
 * twice, which settles once. */
#include "common/base/config.h"
#include "common/base/log.h"
#include "common/bus/publish.h"
#include "scheduler/jobs.h"

#include <string.h>

static bool read_publish(struct job_context *context, const PGresult *r, int row, struct error *err)
{
    char key[ULID_PREFIXED_SIZE];
    struct reconcile_message message = {.environment = row_int(r, row, 1),
                                        .reply = MESSAGE_NO_REPLY};
    row_uuid(r, row, 0, &message.effect);
    message.purpose = strcmp(row_text(r, row, 2), "confirm") == 0 ? READ_CONFIRM : READ_UNKNOWN;
    return reconcile_publish(context->producer, &message,
                             ulid_format_prefixed("eff", &message.effect, key), err);
}

int job_publish_reads(struct job_context *context, struct error *err)
{
    char piece[24], lease[24];
    struct store_param params[] = {store_int(JOB_PIECE, piece),
                                   store_int(config_int("HOLDFAST_READ_LEASE_MS"), lease)};
    PGresult *r = NULL;
    struct store_statement statement = {
        "select effect_id, environment_id, purpose from reads_take($1::int, $2::int)", params, 2,
        true};
    if (!store_transact(context->store, &statement, 1, &r, err))
        return -1;
    int count = PQntuples(r);
    for (int i = 0; i < count; i++) {
        struct error why = {0};
        if (!read_publish(context, r, i, &why)) { /* its lease brings it back */
            log_error(LOG_WARN, "read_not_published", &why);
            break;
        }
    }
    PQclear(r);
    return count;
}
