/* holdfast config: the table of settings. */
#include "common/base/config.h"

#include "ctl/commands.h"

int command_config(int argc, char **argv)
{
    (void)argv;
    if (argc != 0)
        return command_usage("holdfast config");
    config_print(stdout);
    return 0;
}
