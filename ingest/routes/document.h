/* Answers that are what one query gives: one document, or one page of them. */
#ifndef HOLDFAST_ROUTES_DOCUMENT_H
#define HOLDFAST_ROUTES_DOCUMENT_H

#include "ingest/call.h"

/* Answers with the JSON text in the first column of the one row. No row: 404, "there is no KIND
 * NAME in this environment". Use outside and inside of recorded routes. */
enum route_result document_answer(struct route_worker *worker, struct call *call, int status,
                                  const char *sql, const struct store_param *params, int count,
                                  const char *kind, const char *name);

/* Answers with a page: the query gives one row of a JSON array (text) and a total (bigint, null
 * when there are too many to count). */
enum route_result page_answer(struct route_worker *worker, struct call *call, const char *sql,
                              const struct store_param *params, int count, int64_t limit,
                              int64_t offset);

/* The 404 by itself. */
enum route_result document_missing(struct call *call, const char *kind, const char *name);

/* Answers with what an error says: `return error_answer(call, &err);`. */
enum route_result error_answer(struct call *call, const struct error *err);

/* For routes whose feature this version lacks: 402, nothing was stored or sent. */
enum route_result feature_refused(struct call *call, const char *feature);

#endif
