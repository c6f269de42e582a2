/* Makes unknown what was claimed and not reported by answer_by: its worker died, or lost the
 * database. It never settles. Dying before the COMMIT changes nothing; after it, the next run finds
 * nothing to do. */
#include "common/base/config.h"
#include "common/base/service.h"
#include "common/transition.h"
#include "scheduler/jobs.h"

#include <string.h>

int job_sweep(struct job_context *context, struct error *err)
{
    char piece[24], first_read[24];
    int64_t schedule_ms[32];
    config_durations("HOLDFAST_READBACK_SCHEDULE", schedule_ms, 32);
    struct store_param params[] = {store_int(JOB_PIECE, piece), store_text(service_name()),
                                   store_int(schedule_ms[0], first_read)};
    PGresult *r = NULL;
    struct store_statement statement = {"select effect_id, result from sweep($1::int, $2, $3::int)",
                                        params, 3, true};
    if (!store_transact(context->store, &statement, 1, &r, err))
        return -1;
    int count = PQntuples(r);
    for (int i = 0; i < count; i++) {
        struct ulid id;
        row_uuid(r, i, 0, &id);
        if (strcmp(row_text(r, i, 1), "unknown") == 0)
            transition_made(&id, STAGE_DISPATCHING, STAGE_RECONCILING, OUTCOME_UNKNOWN, REASON_NONE,
                            service_name());
    }
    PQclear(r);
    return count;
}
