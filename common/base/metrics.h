/* Counters, gauges and histograms in Prometheus text form. Series are made once (at start) and kept
 * for the life of the process; adding is lock-free. Label sets are closed lists: never an id. */
#ifndef HOLDFAST_METRICS_H
#define HOLDFAST_METRICS_H

#include "common/base/buf.h"

#include <stdint.h>

struct metric;

/* Same name and labels give the same series. `labels` as `outcome="unknown"` or "". Never NULL. */
struct metric *metric_counter(const char *name, const char *labels, const char *help);
struct metric *metric_gauge(const char *name, const char *labels, const char *help);
/* Seconds, fixed buckets from 0.5 ms to 60 s. */
struct metric *metric_histogram(const char *name, const char *labels, const char *help);
/* A gauge read when scraped. */
void metric_callback(const char *name, const char *labels, const char *help, double (*read)(void *),
                     void *opaque);

void metric_add(struct metric *m, int64_t delta);
void metric_set(struct metric *m, int64_t value);
void metric_observe_us(struct metric *m, int64_t us);
void metrics_render(struct buf *out);

#endif
