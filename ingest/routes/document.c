/* From a query's row to the answer. */
#include "ingest/routes/document.h"

#include "common/base/log.h"

#include <string.h>

enum route_result error_answer(struct call *call, const struct error *err)
{
    struct error shown = *err;
    bool of_database = err->code == ERROR_INVALID && strncmp(err->text, "database:", 9) == 0;
    if (of_database) { /* the SQLSTATE and the server's words mean nothing to the caller */
        log_error(LOG_WARN, "request_refused", err);
        error_set(&shown, ERROR_INVALID, "the request holds a value that cannot be stored");
        shown.place[0] = '\0';
    }
    call_error_value(call, &shown);
    return ROUTE_ANSWERED;
}

enum route_result document_missing(struct call *call, const char *kind, const char *name)
{
    call_error(call, 404, "NOT_FOUND", NULL, "there is no %s %.128s in this environment", kind,
               name);
    return ROUTE_ANSWERED;
}

enum route_result document_answer(struct route_worker *worker, struct call *call, int status,
                                  const char *sql, const struct store_param *params, int count,
                                  const char *kind, const char *name)
{
    struct error err = {0};
    PGresult *r = store_query(worker->store, sql, params, count, true, &err);
    if (r == NULL)
        return error_answer(call, &err);
    if (PQntuples(r) == 0)
        document_missing(call, kind, name);
    else
        call_data(call, status, row_text(r, 0, 0));
    PQclear(r);
    return ROUTE_ANSWERED;
}

enum route_result page_answer(struct route_worker *worker, struct call *call, const char *sql,
                              const struct store_param *params, int count, int64_t limit,
                              int64_t offset)
{
    struct error err = {0};
    PGresult *r = store_query(worker->store, sql, params, count, true, &err);
    if (r == NULL)
        return error_answer(call, &err);
    call_list(call, row_text(r, 0, 0), limit, offset, row_null(r, 0, 1) ? -1 : row_int(r, 0, 1));
    PQclear(r);
    return ROUTE_ANSWERED;
}

enum route_result feature_refused(struct call *call, const char *feature)
{
    call_error(call, 402, "FEATURE_NOT_AVAILABLE", NULL,
               "%s: not part of this version of Holdfast. Nothing was stored and nothing was sent.",
               feature);
    return ROUTE_ANSWERED;
}
