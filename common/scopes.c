/* The table of scopes and the sets that keys are usually given. */
#include "common/scopes.h"

#include <string.h>

static const char *const scope_names[SCOPE_COUNT] = {
    [SCOPE_ACTIONS_READ] = "actions:read",
    [SCOPE_ACTIONS_INVOKE] = "actions:invoke",
    [SCOPE_ACTIONS_WRITE] = "actions:write",
    [SCOPE_ACTIONS_GOVERN] = "actions:govern",
    [SCOPE_ACTIONS_RESOLVE] = "actions:resolve",
    [SCOPE_APPROVALS_REQUEST] = "approvals:request",
    [SCOPE_APPROVALS_READ] = "approvals:read",
    [SCOPE_APPROVALS_DECIDE] = "approvals:decide",
    [SCOPE_POLICIES_READ] = "policies:read",
    [SCOPE_POLICIES_WRITE] = "policies:write",
    [SCOPE_LIMITS_READ] = "impact-limits:read",
    [SCOPE_LIMITS_WRITE] = "impact-limits:write",
    [SCOPE_SECRETS_READ] = "secrets:read",
    [SCOPE_SECRETS_WRITE] = "secrets:write",
    [SCOPE_ENVIRONMENTS_HALT] = "environments:halt",
    [SCOPE_EVENTS_READ] = "events:read",
    [SCOPE_DLQ_READ] = "dlq:read",
    [SCOPE_DLQ_WRITE] = "dlq:write",
};

#define ALL (SCOPE_BIT(SCOPE_COUNT) - 1)
#define DECIDING (SCOPE_BIT(SCOPE_ACTIONS_RESOLVE) | SCOPE_BIT(SCOPE_APPROVALS_DECIDE))
#define READING                                                                                    \
    (SCOPE_BIT(SCOPE_ACTIONS_READ) | SCOPE_BIT(SCOPE_APPROVALS_READ) |                             \
     SCOPE_BIT(SCOPE_POLICIES_READ) | SCOPE_BIT(SCOPE_LIMITS_READ) |                               \
     SCOPE_BIT(SCOPE_SECRETS_READ) | SCOPE_BIT(SCOPE_EVENTS_READ) | SCOPE_BIT(SCOPE_DLQ_READ))

static const struct {
    const char *name;
    uint32_t scopes;
} presets[] = {
    {"agent", SCOPE_BIT(SCOPE_ACTIONS_READ) | SCOPE_BIT(SCOPE_ACTIONS_INVOKE) |
                  SCOPE_BIT(SCOPE_APPROVALS_REQUEST) | SCOPE_BIT(SCOPE_APPROVALS_READ)},
    {"operator", ALL & ~DECIDING},
    {"resolver", DECIDING | READING},
};

const char *scope_name(enum scope scope)
{
    return scope_names[scope];
}

bool scope_parse(const char *name, size_t len, enum scope *out)
{
    for (int i = 0; i < SCOPE_COUNT; i++) {
        if (strlen(scope_names[i]) == len && memcmp(scope_names[i], name, len) == 0) {
            *out = (enum scope)i;
            return true;
        }
    }
    return false;
}

bool scope_preset(const char *name, uint32_t *out)
{
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++) {
        if (strcmp(presets[i].name, name) == 0) {
            *out = presets[i].scopes;
            return true;
        }
    }
    return false;
}
