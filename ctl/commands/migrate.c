/* holdfast migrate: brings the database to this program's schema. Safe when two run at once. */
#include "common/store/migrate.h"

#include "common/base/config.h"
#include "ctl/commands.h"

#include <string.h>

int command_migrate(int argc, char **argv)
{
    struct error err = {0};
    bool check = argc == 1 && strcmp(argv[0], "--check") == 0;
    if (argc > 1 || (argc == 1 && !check))
        return command_usage("holdfast migrate [--check]");
    PGconn *conn = PQconnectdb(config_text("HOLDFAST_DATABASE_URL"));
    bool ok = PQstatus(conn) == CONNECTION_OK;
    if (!ok)
        error_set_at(&err, ERROR_UNAVAILABLE, "HOLDFAST_DATABASE_URL", "%s", PQerrorMessage(conn));
    else
        ok = check ? migrate_check(conn, &err) : migrate_run(conn, stdout, &err);
    if (ok)
        printf("the database is at migration %d\n",
               migrations_embedded[migrations_embedded_count - 1].version);
    PQfinish(conn);
    return ok ? 0 : command_fail(&err);
}
