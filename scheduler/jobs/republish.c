/* Publishes ready effects again whose message may be lost. A message too many costs a look at a row
 * that is no longer ready; it can never cause a second send. */
#include "common/base/config.h"
#include "common/base/metrics.h"
#include "scheduler/publish_again.h"

int job_republish(struct job_context *context, struct error *err)
{
    int64_t limit = config_int("HOLDFAST_REPUBLISH_BATCH");
    int count = publish_again(context,
                              "select effect_id, environment_id, destination, 1 "
                              "from republish_take($1::int, $2::int, $3::int, $4::bigint)",
                              limit, "effect_not_republished", err);
    if (count < 0)
        return -1;
    metric_add(metric_counter("holdfast_republished_total", "",
                              "Ready effects that were published again."),
               count);
    return count >= limit ? JOB_PIECE : 0;
}
