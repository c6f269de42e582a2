/* The audit table: every act of an operator, written in the transaction that does it. */
#ifndef HOLDFAST_AUDIT_H
#define HOLDFAST_AUDIT_H

#include "ingest/call.h"

/* One row: who (the call's key), what ("limit.patch"), to what, and how. `detail` is taken over
 * (NULL: none); it never holds a secret or an input value. */
bool audit_write(struct store *store, const struct call *call, const char *act, const char *target,
                 json_t *detail, struct error *err);

#endif
