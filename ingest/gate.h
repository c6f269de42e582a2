/* The gate in front of a call: what the policies and the action make of it, before it is accepted.
 *
 * Policies are those in this process' cache, at most a second old; which one decided, and in which
 * version, is stored with the effect. What has to be exact, the approval, is checked in the claim.
 */
#ifndef HOLDFAST_GATE_H
#define HOLDFAST_GATE_H

#include "ingest/accept.h"

/* Sets a->gate and a->gate_text from the call's action, input and impact. False with err: the
 * policies can't be read now. */
bool gate_decide(struct store *store, struct accept_call *a, json_t *input, struct error *err);

#endif
