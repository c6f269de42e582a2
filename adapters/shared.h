/* What adapters share among themselves: the table's entries, checks that hold for each, and the
 * steps that every read-back takes. Nothing outside adapters/ includes it. */
#ifndef HOLDFAST_ADAPTERS_SHARED_H
#define HOLDFAST_ADAPTERS_SHARED_H

#include "adapters/adapter.h"

extern const struct adapter declared_adapter;
extern const struct adapter stripe_refund_adapter;
extern const struct adapter external_adapter;

/* Puts `prefix` in front of the error's place. Returns false. */
bool error_put_under(struct error *err, const char *prefix);

/* The names of an object's members in byte order. *out is malloc'd, the names are borrowed. */
bool names_sorted(const json_t *object, const char ***out, size_t *count, struct error *err);

/* Whether a secret may be named so: ^[A-Z0-9_]+$, at most SECRET_NAME_MAX. */
bool secret_name_allowed(const char *name, size_t len);

/* Checks what every adapter action must keep to: no template, no declarations, adapter{type,
 * config, credentialSecret} and nothing else in it. Whose config is right is the adapter's to say.
 */
bool adapter_definition_check(const json_t *definition, struct error *err);

/* Refuses what only a declared action may say of itself: a template, an impact, a verify. */
bool adapter_declarations_absent(const json_t *definition, struct error *err);

/* Checks the effectKey of a definition, where there is one. */
bool effect_key_check(const json_t *definition, struct error *err);

/* Ends a read-back step: no request is next, and the text says why. */
void read_back_conclude(struct read_back *read, enum read_what what, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Takes an answer and frees the request it answered. True when it may be judged: a whole 2xx, 404,
 * 410 or `expected` (0: none more) that is not HTML. Else the read-back is READ_UNUSABLE, with what
 * Retry-After asked for. */
bool read_back_take(struct read_back *read, const struct answer *answer, const char *transport,
                    int expected);

/* The body as JSON, or NULL. A provider's JSON is read as leniently as is safe: only duplicate
 * members and NUL are refused. A new reference. */
json_t *answer_json(const struct answer *answer);

#endif
