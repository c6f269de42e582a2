/* The impact declaration of a declared action: how much one invocation changes, as an expression
 * over its input: an integer, input.PATH or count(input.PATH), with one optional `* INTEGER`. */
#ifndef HOLDFAST_IMPACT_H
#define HOLDFAST_IMPACT_H

#include "common/base/error.h"
#include "common/effect.h"

#include <jansson.h>
#include <stdbool.h>

/* Checks a declaration. False with err: ERROR_INVALID at "/impact/...". */
bool impact_check(const json_t *declaration, struct error *err);

/* Evaluates a checked declaration: fills all but `resource`. An input that was left out gives
 * has_amount false; one that is not a JSON integer (or list, for count), a negative one and a
 * product past 2^53-1 are ERROR_INVALID at "/input/...". */
bool impact_evaluate(const json_t *declaration, const json_t *input, struct impact *out,
                     struct error *err);

#endif
