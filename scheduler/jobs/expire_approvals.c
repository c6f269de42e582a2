/* Expires the approvals that were asked for by themselves and not decided in time. Those of
 * invocations end with their effect, which the job `expire` rejects. */
#include "scheduler/jobs.h"

int job_expire_approvals(struct job_context *context, struct error *err)
{
    char piece[24];
    struct store_param params[] = {store_int(JOB_PIECE, piece)};
    PGresult *r = NULL;
    struct store_statement statement = {"select approvals_expire($1::int)", params, 1, true};
    if (!store_transact(context->store, &statement, 1, &r, err))
        return -1;
    int count = PQntuples(r);
    PQclear(r);
    return count;
}
