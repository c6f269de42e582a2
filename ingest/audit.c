/* Writing the audit table. */
#include "ingest/audit.h"

#include <stdlib.h>

bool audit_write(struct store *store, const struct call *call, const char *act, const char *target,
                 json_t *detail, struct error *err)
{
    static const char sql[] =
        "insert into audit (environment_id, key_id, agent_id, act, target, detail) "
        "values ($1::int, $2, $3, $4, $5, coalesce($6::json, '{}'))";
    char environment[24];
    char *text = detail != NULL ? json_dumps(detail, JSON_COMPACT) : NULL;
    json_decref(detail);
    struct store_param params[] = {store_int(call->principal->environment, environment),
                                   store_uuid(&call->principal->key_id),
                                   store_text(call->principal->agent_id),
                                   store_text(act),
                                   store_text(target),
                                   store_text(text)};
    PGresult *r = store_query(store, sql, params, 6, true, err);
    free(text);
    PQclear(r);
    return r != NULL;
}
