/* Rejects what has waited past its dispatch_before, or past the end of its approval. One that a
 * dispatcher is claiming at this moment is left to the claim, which checks the same. */
#include "common/base/service.h"
#include "common/transition.h"
#include "scheduler/jobs.h"

#include <string.h>

int job_expire(struct job_context *context, struct error *err)
{
    char piece[24];
    struct store_param params[] = {store_int(JOB_PIECE, piece), store_text(service_name())};
    PGresult *r = NULL;
    struct store_statement statement = {
        "select effect_id, result, stage::text from expire($1::int, $2)", params, 2, true};
    if (!store_transact(context->store, &statement, 1, &r, err))
        return -1;
    int count = PQntuples(r);
    for (int i = 0; i < count; i++) {
        struct ulid id;
        row_uuid(r, i, 0, &id);
        enum stage from;
        if (strcmp(row_text(r, i, 1), "settled") == 0 && stage_parse(row_text(r, i, 2), &from))
            transition_made(&id, from, STAGE_REJECTED, OUTCOME_NOT_DISPATCHED, REASON_EXPIRED,
                            service_name());
    }
    PQclear(r);
    return count;
}
