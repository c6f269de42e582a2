/* The words of the data model. */
#include "common/effect.h"

#include <string.h>

static const char *const stage_names[STAGE_COUNT] = {"awaiting_approval", "ready",   "dispatching",
                                                     "reconciling",       "settled", "rejected"};
static const char *const outcome_names[OUTCOME_COUNT] = {"pending", "unknown", "succeeded",
                                                         "failed", "not_dispatched"};
static const char *const reason_names[REASON_COUNT] = {
    "",       "provider_2xx",  "provider_4xx", "never_left", "provider_record",
    "manual", "worker_report", "refused",      "expired",    "cancelled",
    "denied"};

static bool name_find(const char *const *names, int count, const char *name, int *out)
{
    for (int i = 0; i < count; i++) {
        if (strcmp(names[i], name) == 0) {
            *out = i;
            return true;
        }
    }
    return false;
}

const char *stage_name(enum stage stage)
{
    return stage_names[stage];
}

const char *outcome_name(enum outcome outcome)
{
    return outcome_names[outcome];
}

const char *settle_reason_name(enum settle_reason reason)
{
    return reason_names[reason];
}

bool stage_parse(const char *name, enum stage *out)
{
    int found;
    bool ok = name_find(stage_names, STAGE_COUNT, name, &found);
    if (ok)
        *out = (enum stage)found;
    return ok;
}

bool outcome_parse(const char *name, enum outcome *out)
{
    int found;
    bool ok = name_find(outcome_names, OUTCOME_COUNT, name, &found);
    if (ok)
        *out = (enum outcome)found;
    return ok;
}

bool settle_reason_parse(const char *name, enum settle_reason *out)
{
    int found;
    bool ok = name_find(reason_names, REASON_COUNT, name, &found);
    if (ok)
        *out = (enum settle_reason)found;
    return ok;
}
