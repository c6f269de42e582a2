/* The scheduler's jobs: each is one file with one function, all in one table (main.c). A job does a
 * bounded piece of work on the connection that holds the scheduler's lock. It keeps no state that
 * matters: another scheduler goes on from the rows. */
#ifndef HOLDFAST_JOBS_H
#define HOLDFAST_JOBS_H

#include "common/base/error.h"
#include "common/bus/lag.h"
#include "common/bus/producer.h"
#include "common/store/store.h"

struct job_context {
    struct store *store;
    struct producer *producer;
    struct lag_watch *lag;
};

/* How many things it found; -1 with err when the database was away. A full piece (JOB_PIECE) means
 * that more may be waiting: the job is run again at once. */
typedef int (*job_run)(struct job_context *context, struct error *err);
enum { JOB_PIECE = 500 };

int job_batches(struct job_context *context, struct error *err);
int job_expire(struct job_context *context, struct error *err);
int job_expire_approvals(struct job_context *context, struct error *err);
int job_forget_replies(struct job_context *context, struct error *err);
int job_make_partitions(struct job_context *context, struct error *err);
int job_measure(struct job_context *context, struct error *err);
int job_publish_reads(struct job_context *context, struct error *err);
int job_replays(struct job_context *context, struct error *err);
int job_republish(struct job_context *context, struct error *err);
int job_sweep(struct job_context *context, struct error *err);

#endif
