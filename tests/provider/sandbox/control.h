/* The calls under /_control by which a test sees what arrived and asks for misbehaviour. */
#ifndef SANDBOX_CONTROL_H
#define SANDBOX_CONTROL_H

#include "tests/provider/sandbox/answer.h"
#include "tests/provider/sandbox/request.h"

#define CONTROL_PATH "/_control"

void control_handle(const struct request *r, struct answer *answer);

#endif
