/* A provider of anything, for declared actions. */
#ifndef SANDBOX_GENERIC_H
#define SANDBOX_GENERIC_H

#include "tests/provider/sandbox/answer.h"
#include "tests/provider/sandbox/facts.h"
#include "tests/provider/sandbox/fault.h"
#include "tests/provider/sandbox/request.h"

#define GENERIC_PREFIX "/generic/"

void generic_init(size_t keep);
void generic_reset(void);
void generic_handle(const struct request *r, const struct facts *facts, const struct fault *fault,
                    struct answer *answer);

#endif
