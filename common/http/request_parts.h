/* What request.c, request_json.c and fill.c share about the inside of a request. */
#ifndef HOLDFAST_REQUEST_PARTS_H
#define HOLDFAST_REQUEST_PARTS_H

#include "common/http/request.h"

/* Appends a part; neighbouring literals become one and empty ones vanish, so that a request has one
 * encoding. False: out of memory, too many parts, or past `max` bytes. */
bool parts_add(struct parts *parts, enum part_kind kind, const char *text, size_t len, size_t max);
void parts_free(struct parts *parts);

/* A secret's name: letters, digits, '_', '-', '.', not empty, at most SECRET_NAME_MAX. */
bool secret_name_valid(const char *name, size_t len);
/* A header name of token characters that is not one of the connection's own. */
bool header_name_valid(const char *name);
bool method_valid(const char *method);

/* Judges a path and query as it would be sent: starts with '/', visible ASCII without '#', '\\',
 * quotes and angle brackets, whole percent escapes, no "." or ".." segment in any spelling. */
bool url_valid(const char *url, size_t len, const char **why);

#endif
