/* One read-back on its way through a reconciler: started from facts by start.c, carried page by
 * page, ended in the database by ender.c. It only reads providers. */
#ifndef HOLDFAST_READ_BACK_H
#define HOLDFAST_READ_BACK_H

#include "adapters/adapter.h"
#include "common/action_cache.h"
#include "common/base/queue.h"
#include "common/bus/consumer.h"
#include "common/bus/message.h"
#include "common/bus/producer.h"
#include "common/http/fetcher.h"

#include <jansson.h>

enum { READ_SCHEDULE_MAX = 32 };

/* What the threads of a reconciler share; made by main.c, constant afterwards. */
struct reconciler {
    struct consumer *consumer;
    struct producer *producer;
    struct fetcher *fetcher;
    struct action_cache *actions;
    struct queue *asked;  /* struct bus_message, as they came */
    struct queue *urgent; /* the same: somebody waits */
    struct queue *going;  /* struct read_job with another request to send */
    struct queue *ended;  /* struct read_job, for the ender */
    int64_t schedule_ms[READ_SCHEDULE_MAX];
    size_t rungs;
    int64_t read_timeout_ms;
};

struct read_job {
    struct reconciler *reconciler;
    struct reconcile_message message;
    struct bus_token token;

    /* ---- facts, from the database ---- */
    const struct cached_action *action; /* held */
    struct read_back_facts facts;       /* borrows from what follows */
    char *provider_key, *object_id;
    json_t *input, *response;
    bool open; /* not settled yet */
    bool conflict;
    bool confirming; /* settled succeeded; only the grade may change */
    bool due;        /* a row wants reads of it */
    int step, tries, reads;

    /* ---- the read ---- */
    struct read_back read;
    struct filled *filled;
    struct fetch fetch; /* owner is this job */
    int status;         /* of the last answer, 0: none */
};

void read_job_free(struct read_job *job);

/* When the next read of this one is due, in milliseconds from now; -1: not by itself. Pure. */
int64_t read_next_ms(const struct read_job *job, const int64_t *schedule_ms, size_t rungs);

/* Threads. */
void *reconciler_intake_thread(void *reconciler);
void *reconciler_start_thread(void *reconciler);
void *reconciler_end_thread(void *reconciler);

#endif
