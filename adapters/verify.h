/* The verify rule of a declared action: which answer to its read-back confirms the write. */
#ifndef HOLDFAST_VERIFY_H
#define HOLDFAST_VERIFY_H

#include "adapters/adapter.h"
#include "adapters/template.h"

#include <jansson.h>
#include <stdbool.h>

#define VERIFY_MATCHES_MAX 10

/* What `equals` may refer to. */
struct verify_values {
    struct template_values values;
    const char *effect_id; /* "eff_..." */
};

/* Checks all of a rule but its url. False with err: ERROR_INVALID at "/verify/...". */
bool verify_check(const json_t *verify, struct error *err);

/* Whether everything that the rule's equals refer to is known; else err holds the sentence. */
bool verify_ready(const json_t *verify, const struct template_values *values, struct error *err);

/* Judges an answer to the read-back: READ_MATCH, READ_NOT_FOUND, READ_UNUSABLE. Needs verify_ready.
 */
void verify_judge(const json_t *verify, const struct verify_values *values,
                  const struct answer *answer, const char *transport, struct read_back *read);

#endif
