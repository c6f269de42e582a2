/* The commands of `holdfast`: each is one file with one function. */
#ifndef HOLDFAST_COMMANDS_H
#define HOLDFAST_COMMANDS_H

#include "common/base/error.h"
#include "common/store/store.h"

/* Runs a command with the arguments behind its name. The exit status: 0 done, 1 failed, 2 wrong
 * use. */
typedef int (*command_run)(int argc, char **argv);

int command_config(int argc, char **argv);
int command_journal(int argc, char **argv);
int command_keys(int argc, char **argv);
int command_migrate(int argc, char **argv);
int command_secrets(int argc, char **argv);
int command_topics(int argc, char **argv);

/* Says err on standard error, as a person reads it; returns 1 for `return command_fail(&err)`. */
int command_fail(const struct error *err);
int command_usage(const char *text);

#endif
