/* holdfast: migrations, keys, topics and what an operator asks from a shell. */
#include "common/base/config.h"
#include "common/base/harden.h"
#include "common/base/log.h"
#include "ctl/commands.h"

#include <stdio.h>
#include <string.h>

static const struct command {
    const char *name;
    command_run run;
    const char *sentence;
} commands[] = {
    {"config", command_config, "print every setting with its value, default and meaning"},
    {"journal", command_journal, "show the send journal of a dispatcher"},
    {"keys", command_keys, "create, list and revoke API keys"},
    {"migrate", command_migrate, "bring the database to this program's schema"},
    {"secrets", command_secrets, "seal the secrets with another master key"},
    {"topics", command_topics, "create the Kafka topics that are missing"},
};
enum { COMMAND_COUNT = sizeof commands / sizeof *commands };

int command_fail(const struct error *err)
{
    if (err->place[0] != '\0')
        fprintf(stderr, "holdfast: %s: %s\n", err->place, err->text);
    else
        fprintf(stderr, "holdfast: %s\n", err->text);
    return 1;
}

int command_usage(const char *text)
{
    fprintf(stderr, "usage: %s\n", text);
    return 2;
}

static int usage(FILE *out)
{
    fprintf(out, "usage: holdfast COMMAND [ARGUMENTS]\n\n");
    for (int i = 0; i < COMMAND_COUNT; i++)
        fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].sentence);
    fprintf(
        out,
        "\nSettings are HOLDFAST_ variables of the environment; `holdfast config` lists them.\n");
    return out == stdout ? 0 : 2;
}

int main(int argc, char **argv)
{
    struct error err = {0};
    if (argc < 2)
        return usage(stderr);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0)
        return usage(stdout);
    if (strcmp(argv[1], "--version") == 0)
        return printf("holdfast %s\n", HOLDFAST_VERSION) < 0;
    harden_memory();
    log_init("holdfast", LOG_WARN);
    if (!config_load(&err))
        return command_fail(&err);
    harden_process();
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(commands[i].name, argv[1]) == 0)
            return commands[i].run(argc - 2, argv + 2);
    fprintf(stderr, "holdfast: there is no command %s\n", argv[1]);
    return usage(stderr);
}
