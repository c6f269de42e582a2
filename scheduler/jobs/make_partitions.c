/* Makes the partitions of the coming months. The service's role may not create tables, so this asks
 * for a function that runs with the right of the schema's owner. */
#include "scheduler/jobs.h"

int job_make_partitions(struct job_context *context, struct error *err)
{
    PGresult *r = NULL;
    struct store_statement statement = {"select partitions_ensure(3)", NULL, 0, true};
    if (!store_transact(context->store, &statement, 1, &r, err))
        return -1;
    PQclear(r);
    return 0;
}
