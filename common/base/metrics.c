/* The metric registry: families of series in the order they were made, values as atomics. */
#include "common/base/metrics.h"

#include "common/base/error.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum metric_kind { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM, METRIC_CALLBACK };

#define SERIES_MAX 4096 /* labels are closed lists; whoever passes this has put an id into one */
#define BUCKETS 16

static const int64_t bucket_us[BUCKETS] = {500,     1000,     2500,     5000,    10000,   25000,
                                           50000,   100000,   250000,   500000,  1000000, 2500000,
                                           5000000, 10000000, 30000000, 60000000};

struct metric {
    char *labels;
    struct family *family;
    struct metric *next;
    _Atomic int64_t value;        /* counter, gauge; of a histogram the sum in microseconds */
    _Atomic int64_t *buckets;     /* histogram: BUCKETS + 1, not cumulative, the last is +Inf */
    double (*read)(void *opaque); /* callback, guarded by the registry lock */
    void *opaque;
};

struct family {
    char *name;
    char *help;
    enum metric_kind kind;
    struct metric *first;
    struct metric *last;
    struct family *next;
};

/* The lock guards the lists; values are read and added without it. */
static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct family *families_first;
static struct family *families_last;
static size_t series_count;

static char *text_copy(const char *text)
{
    char *copy = strdup(text);
    must(copy);
    return copy;
}

static struct family *family_get(const char *name, enum metric_kind kind, const char *help)
{
    for (struct family *f = families_first; f; f = f->next) {
        if (strcmp(f->name, name) == 0) {
            must(f->kind == kind);
            return f;
        }
    }
    struct family *f = calloc(1, sizeof(*f));
    must(f);
    f->name = text_copy(name);
    f->help = text_copy(help);
    f->kind = kind;
    if (families_last)
        families_last->next = f;
    else
        families_first = f;
    families_last = f;
    return f;
}

static struct metric *series_get(struct family *family, const char *labels)
{
    for (struct metric *m = family->first; m; m = m->next)
        if (strcmp(m->labels, labels) == 0)
            return m;
    must(series_count < SERIES_MAX);
    series_count++;
    struct metric *m = calloc(1, sizeof(*m));
    must(m);
    m->labels = text_copy(labels);
    m->family = family;
    if (family->kind == METRIC_HISTOGRAM) {
        m->buckets = calloc(BUCKETS + 1, sizeof(*m->buckets));
        must(m->buckets);
    }
    if (family->last)
        family->last->next = m;
    else
        family->first = m;
    family->last = m;
    return m;
}

static struct metric *metric_get(const char *name, const char *labels, const char *help,
                                 enum metric_kind kind)
{
    pthread_mutex_lock(&registry_lock);
    struct metric *m = series_get(family_get(name, kind, help), labels);
    pthread_mutex_unlock(&registry_lock);
    return m;
}

struct metric *metric_counter(const char *name, const char *labels, const char *help)
{
    return metric_get(name, labels, help, METRIC_COUNTER);
}

struct metric *metric_gauge(const char *name, const char *labels, const char *help)
{
    return metric_get(name, labels, help, METRIC_GAUGE);
}

struct metric *metric_histogram(const char *name, const char *labels, const char *help)
{
    return metric_get(name, labels, help, METRIC_HISTOGRAM);
}

void metric_callback(const char *name, const char *labels, const char *help,
                     double (*read)(void *opaque), void *opaque)
{
    pthread_mutex_lock(&registry_lock);
    struct metric *m = series_get(family_get(name, METRIC_CALLBACK, help), labels);
    m->read = read;
    m->opaque = opaque;
    pthread_mutex_unlock(&registry_lock);
}

void metric_add(struct metric *m, int64_t delta)
{
    must(m->family->kind == METRIC_GAUGE || (m->family->kind == METRIC_COUNTER && delta >= 0));
    atomic_fetch_add_explicit(&m->value, delta, memory_order_relaxed);
}

void metric_set(struct metric *m, int64_t value)
{
    must(m->family->kind == METRIC_GAUGE);
    atomic_store_explicit(&m->value, value, memory_order_relaxed);
}

void metric_observe_us(struct metric *m, int64_t us)
{
    must(m->family->kind == METRIC_HISTOGRAM);
    size_t i = 0;
    while (i < BUCKETS && us > bucket_us[i])
        i++;
    atomic_fetch_add_explicit(&m->buckets[i], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&m->value, us, memory_order_relaxed);
}

static const char *kind_name(enum metric_kind kind)
{
    switch (kind) {
    case METRIC_COUNTER:
        return "counter";
    case METRIC_HISTOGRAM:
        return "histogram";
    default:
        return "gauge";
    }
}

/* `suffix` is "" or "_sum" and the like. */
static void sample_put_name(struct buf *out, const struct metric *m, const char *suffix)
{
    buf_printf(out, "%s%s", m->family->name, suffix);
    if (m->labels[0])
        buf_printf(out, "{%s}", m->labels);
}

/* The count is the sum of the buckets as read here, so that it agrees with the +Inf bucket even
 * while others add. */
static void histogram_render(struct buf *out, struct metric *m)
{
    int64_t total = 0;
    const char *comma = m->labels[0] ? "," : "";
    for (size_t i = 0; i <= BUCKETS; i++) {
        total += atomic_load_explicit(&m->buckets[i], memory_order_relaxed);
        buf_printf(out, "%s_bucket{%s%sle=\"", m->family->name, m->labels, comma);
        if (i < BUCKETS)
            buf_printf(out, "%g", (double)bucket_us[i] / 1e6);
        else
            buf_puts(out, "+Inf");
        buf_printf(out, "\"} %lld\n", (long long)total);
    }
    int64_t sum_us = atomic_load_explicit(&m->value, memory_order_relaxed);
    sample_put_name(out, m, "_sum");
    buf_printf(out, " %.6f\n", (double)sum_us / 1e6);
    sample_put_name(out, m, "_count");
    buf_printf(out, " %lld\n", (long long)total);
}

static void series_render(struct buf *out, struct metric *m)
{
    if (m->family->kind == METRIC_HISTOGRAM) {
        histogram_render(out, m);
        return;
    }
    sample_put_name(out, m, "");
    if (m->family->kind == METRIC_CALLBACK)
        buf_printf(out, " %.17g\n", m->read(m->opaque));
    else
        buf_printf(out, " %lld\n",
                   (long long)atomic_load_explicit(&m->value, memory_order_relaxed));
}

void metrics_render(struct buf *out)
{
    pthread_mutex_lock(&registry_lock);
    for (struct family *f = families_first; f; f = f->next) {
        buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", f->name, f->help, f->name,
                   kind_name(f->kind));
        for (struct metric *m = f->first; m; m = m->next)
            series_render(out, m);
    }
    pthread_mutex_unlock(&registry_lock);
}
