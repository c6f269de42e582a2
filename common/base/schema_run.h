/* One validation under way: what the checks of keywords get and may call. Only
 * common/base/schema_*.c include this. */
#ifndef HOLDFAST_SCHEMA_RUN_H
#define HOLDFAST_SCHEMA_RUN_H

#include "common/base/schema_internal.h"

/* One validation. */
struct schema_run {
    struct error *err;
    int64_t work; /* steps that are left, from SCHEMA_WORK_MAX; below zero nothing goes on */
    int depth;    /* schemas entered and not left */
    int quiet;    /* inside branches whose failure is no error */
    bool stopped; /* a limit was hit: the answer is no, whatever `not` makes of it */
    struct schema_matcher matcher;
};

/* Which members or items of one value some keyword has looked at, for unevaluatedProperties and
 * unevaluatedItems. Members count in the order in which the object iterates. */
struct schema_marks {
    uint64_t *bits;
    size_t words;
};

/* What a rule is checked on. */
struct schema_spot {
    const struct schema_node *node;
    const json_t *value;
    const struct schema_place *place;
    struct schema_marks *marks; /* NULL when nobody asks */
};

/* Checks one keyword. On false the run has failed or stopped. */
typedef bool (*schema_rule_check)(struct schema_run *run, const struct schema_rule *rule,
                                  const struct schema_spot *spot);

/* Says why the value does not fit, unless inside a branch where that is no error. Returns false. */
bool schema_run_fail(struct schema_run *run, const struct schema_place *place, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Ends the whole validation with a no, from inside any branch. Returns false. */
bool schema_run_stop(struct schema_run *run, const struct schema_place *place, enum error_code code,
                     const char *why);
/* Looks at the budget after something that takes from it: false when the run is to stop. */
bool schema_run_goes_on(struct schema_run *run, const struct schema_place *place);
bool schema_run_charge(struct schema_run *run, const struct schema_place *place, size_t steps);
/* Whether a regular expression matches; false also when the run had to stop. */
bool schema_run_matches(struct schema_run *run, const struct schema_pattern *pattern,
                        const char *text, size_t len, const struct schema_place *place);

/* schema_assert.c: the check of a keyword that holds no schemas; NULL for others. */
schema_rule_check schema_assertion(enum schema_keyword keyword);

#endif
