/* holdfast secrets: exchanges the master key that seals them. */
#include "common/base/config.h"
#include "common/vault.h"
#include "common/vault_keys.h"
#include "ctl/commands.h"

#include <stdio.h>
#include <string.h>

static int rotate_master(void)
{
    struct error err = {0};
    struct store_options options = {
        .url = config_text("HOLDFAST_DATABASE_URL"), .name = "holdfast secrets", .as_owner = true};
    size_t resealed = 0;
    if (!vault_keys_load(&err))
        return command_fail(&err);
    struct store *store = store_new(&options);
    bool ok = vault_rotate(store, &resealed, &err);
    store_free(store);
    if (!ok)
        return command_fail(&err);
    printf("%zu secrets were sealed again; all are sealed with the first key of the file now\n",
           resealed);
    return 0;
}

int command_secrets(int argc, char **argv)
{
    if (argc == 1 && strcmp(argv[0], "rotate-master") == 0)
        return rotate_master();
    return command_usage("holdfast secrets rotate-master");
}
