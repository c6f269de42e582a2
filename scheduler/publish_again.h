/* Publishing what is still to be claimed and whose message may be lost. */
#ifndef HOLDFAST_PUBLISH_AGAIN_H
#define HOLDFAST_PUBLISH_AGAIN_H

#include "scheduler/jobs.h"

/* Takes what has waited longer than the consumers' lag and some seconds, and publishes it. `sql`
 * takes it: its parameters are the most that it may take, the first interval, the longest one, and
 * the lag, all but the first in ms; its rows are effect, environment, destination and seq. How many
 * it took; -1 with err when the database was away. Nothing is taken while the brokers can't say how
 * far the group is: the messages are there, or the brokers are not. What can't be queued is logged
 * as `failed` and comes back after its interval. */
int publish_again(struct job_context *context, const char *sql, int64_t limit, const char *failed,
                  struct error *err);

#endif
