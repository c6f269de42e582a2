/* YAML in, as far as it says what JSON can say, and says it plainly.
 *
 * Refused, with the line: more than one document, anchors, aliases and merge keys, tags, keys that
 * are no plain or quoted text, the same key twice, nesting over 64, more than YAML_NODES_MAX
 * values, and whatever readers of YAML disagree about: yes/no/on/off and numbers that are not
 * written as JSON writes them (0x10, 010, 1_000, .5, .inf) have to be quoted or written plainly. */
#ifndef HOLDFAST_YAML_H
#define HOLDFAST_YAML_H

#include "common/base/error.h"

#include <jansson.h>
#include <stddef.h>

#define YAML_NODES_MAX 100000

/* A new reference, or NULL with err: ERROR_INVALID, place "line L column C". */
json_t *yaml_parse(const char *text, size_t len, struct error *err);

#endif
