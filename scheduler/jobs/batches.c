/* Works through the batches of resolutions and reads that people asked for, chunk by chunk. A chunk
 * is one transaction: dying before its COMMIT leaves it to do, after it the next begins behind it.
 */
#include "common/base/config.h"
#include "common/base/service.h"
#include "common/transition.h"
#include "scheduler/jobs.h"

#include <string.h>

enum { CHUNK = 100 };

static void row_tell(const PGresult *r, int row)
{
    struct ulid effect;
    enum outcome outcome;
    row_uuid(r, row, 0, &effect);
    if (!row_null(r, row, 1) && outcome_parse(row_text(r, row, 1), &outcome))
        transition_made(&effect, STAGE_RECONCILING, STAGE_SETTLED, outcome, REASON_MANUAL,
                        service_name());
}

int job_batches(struct job_context *context, struct error *err)
{
    char chunk[24], first_read[24];
    int64_t schedule_ms[32];
    config_durations("HOLDFAST_READBACK_SCHEDULE", schedule_ms, 32);
    struct store_param params[] = {store_int(CHUNK, chunk), store_int(schedule_ms[0], first_read)};
    PGresult *r = NULL;
    struct store_statement statement = {
        "select effect_id, outcome::text from batch_step($1::int, $2::int)", params, 2, true};
    if (!store_transact(context->store, &statement, 1, &r, err))
        return -1;
    int count = PQntuples(r);
    for (int i = 0; i < count; i++)
        row_tell(r, i);
    PQclear(r);
    return count > 0 ? JOB_PIECE : 0; /* whatever is left is looked for at once */
}
