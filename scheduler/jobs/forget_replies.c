/* Removes the recorded replies of writes that are older than a day. */
#include "scheduler/jobs.h"

#include <stdlib.h>

int job_forget_replies(struct job_context *context, struct error *err)
{
    PGresult *r = NULL;
    struct store_statement statement = {
        "delete from write_replies where ctid = any (array(select ctid from write_replies "
        "where created_at < hf_now() - interval '24 hours' limit 500))",
        NULL, 0, true};
    if (!store_transact(context->store, &statement, 1, &r, err))
        return -1;
    int count = atoi(PQcmdTuples(r));
    PQclear(r);
    return count;
}
