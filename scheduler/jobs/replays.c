/* Replays that were asked for and not claimed: publishes those again whose message may be lost, and
 * ends those whose time to be claimed is over. A message too many finds nothing to claim. */
#include "common/base/service.h"
#include "scheduler/publish_again.h"

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
    if (any && publish_again(context,
                             "select effect_id, environment_id, destination, seq "
                             "from replays_take($1::int, $2::int, $3::int, $4::bigint)",
                             JOB_PIECE, "replay_not_republished", err) < 0)
        return -1;
    return ended;
}
