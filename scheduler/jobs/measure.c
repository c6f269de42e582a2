/* Counts what is open, for those who watch: by where it stands, what is in conflict, and how old
 * the oldest unknown is. Looks at the table of open effects only, however long the history is. */
#include "common/base/metrics.h"
#include "scheduler/jobs.h"

static const struct {
    const char *name, *labels, *help;
} gauges[] = {
    {"holdfast_open_effects", "state=\"awaiting_approval\"",
     "Effects that are open, by where they stand."},
    {"holdfast_open_effects", "state=\"ready\"", "Effects that are open, by where they stand."},
    {"holdfast_open_effects", "state=\"dispatching\"",
     "Effects that are open, by where they stand."},
    {"holdfast_open_effects", "state=\"pending\"", "Effects that are open, by where they stand."},
    {"holdfast_open_effects", "state=\"unknown\"", "Effects that are open, by where they stand."},
    {"holdfast_open_conflicts", "", "Open effects in conflict: each waits for a person."},
    {"holdfast_oldest_unknown_seconds", "",
     "Since when the oldest unknown effect was accepted; 0: there is none."},
};
enum { GAUGES = sizeof gauges / sizeof *gauges };

/* One row, a column a gauge. An id begins with the moment it was made, in ms. */
static const char sql[] =
    "select count(*) filter (where o.stage = 'awaiting_approval'), count(*) filter (where o.stage "
    "= 'ready'), "
    "count(*) filter (where o.stage = 'dispatching'), "
    "count(*) filter (where o.stage = 'reconciling' and o.outcome = 'pending'), "
    "count(*) filter (where o.outcome = 'unknown'), count(*) filter (where o.conflict), "
    "coalesce(greatest((extract(epoch from hf_now()) * 1000)::bigint - "
    "('x' || min(left(replace(o.id::text, '-', ''), 12)) filter (where o.outcome = "
    "'unknown'))::bit(48)::bigint, 0) "
    "/ 1000, 0) from open_effects o";

int job_measure(struct job_context *context, struct error *err)
{
    PGresult *r = NULL;
    struct store_statement statement = {sql, NULL, 0, true};
    if (!store_transact(context->store, &statement, 1, &r, err))
        return -1;
    for (int i = 0; i < GAUGES; i++)
        metric_set(metric_gauge(gauges[i].name, gauges[i].labels, gauges[i].help),
                   row_int(r, 0, i));
    PQclear(r);
    return 0;
}
