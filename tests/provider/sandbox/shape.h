/* Turns an answer into bytes and an end, as a fault wants them. */
#ifndef SANDBOX_SHAPE_H
#define SANDBOX_SHAPE_H

#include "tests/provider/sandbox/answer.h"
#include "tests/provider/sandbox/exchange.h"
#include "tests/provider/sandbox/fault.h"

/* Where the rule gives an answer of its own, puts it in the place of the true one. */
void shape_answer(const struct fault *fault, struct answer *answer);
/* The bytes. fault may be NULL. True when an answer's head is among them. */
bool shape_bytes(const struct fault *fault, struct answer *answer, bool keep_alive,
                 struct sending *out);

#endif
