/* holdfast topics: creates the Kafka topics that are missing. */
#include "common/bus/topics.h"

#include "common/base/config.h"
#include "ctl/commands.h"

#include <stdio.h>

enum { TOPICS_TIMEOUT_MS = 60000 };

int command_topics(int argc, char **argv)
{
    struct error err = {0};
    struct bus_config config;
    (void)argv;
    if (argc != 0)
        return command_usage("holdfast topics");
    bus_config_load(&config, "holdfast");
    if (!topics_create(&config, (int)config_int("HOLDFAST_PARTITIONS"),
                       (int)config_int("HOLDFAST_OUTCOME_PARTITIONS"), TOPICS_TIMEOUT_MS, &err))
        return command_fail(&err);
    printf("the topics are there\n");
    return 0;
}
