/* What routes read of a request, each answering the call with a 400 that names the place when it
 * can't be used. */
#ifndef HOLDFAST_ROUTES_PARSE_H
#define HOLDFAST_ROUTES_PARSE_H

#include "ingest/call.h"

/* The body as an object with none but these members (NULL-terminated). An empty body reads as {}
 * when `optional`. NULL: answered. */
json_t *body_read(struct call *call, bool optional, const char *const *members);

/* A number from the query string; *out stays as it is when there is none. False: answered. */
bool query_int(struct call *call, const char *name, int64_t least, int64_t most, int64_t *out);
/* true or false from the query string; *out stays as it is when there is neither. */
bool query_bool(struct call *call, const char *name, bool *out);
/* One of the words of a list (NULL-terminated); *out stays as it is when the query has none. */
bool query_word(struct call *call, const char *name, const char *const *words, const char **out);

/* limit (1..PAGE_MOST, else `standard`) and offset from the query string. */
#define PAGE_MOST 200
bool query_page(struct call *call, int64_t standard, int64_t *limit, int64_t *offset);

/* Turns the place of an error into one below `prefix`. Returns false, as error_set does. */
bool error_place_under(struct error *err, const char *prefix);

/* A list of 1..count_most distinct strings of 1..len_most bytes that `valid` (may be NULL) takes.
 * False with err at "/name". */
bool field_text_list(const json_t *list, const char *name, size_t count_most, size_t len_most,
                     bool (*valid)(const char *text), const char *what, struct error *err);

#endif
