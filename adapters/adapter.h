/* What an adapter is: one file with one table of functions that knows a provider. It builds the
 * request (in ingest, once; previews use the same code), reads the meaning of a 2xx (in the
 * dispatcher), builds the read-back and reads the provider's record (in the reconciler). It never
 * sends, never touches the database, keeps no state; every function may run on any thread. */
#ifndef HOLDFAST_ADAPTER_H
#define HOLDFAST_ADAPTER_H

#include "common/base/error.h"
#include "common/effect.h"
#include "common/http/answer.h"
#include "common/http/request.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* An action version as adapters see it. `definition` is the stored, normalised create body: name,
 * adapter{type,config,credentialSecret} or urlTemplate, method, headers, bodyTemplate; impact,
 * verify, governed, effectKey, inputSchema. Immutable, shared between threads, borrowed: read only
 * with functions of jansson that do not change reference counts across threads (json_object_get and
 * so on). */
struct adapter_action {
    const char *name;
    int version;
    const json_t *definition;
};

/* What prepare gives. The owner frees with prepared_free. */
struct prepared {
    struct request *request; /* slotted: no secret, no effect id in it; NULL: the fleet has nothing
                                to send (external) */
    struct impact impact;
    bool
        has_read_back; /* a read-back may become possible (perhaps only once a response is there) */
    bool fault_drill;  /* drop_response_after_send: test mode only */
};
void prepared_free(struct prepared *prepared);

/* What a complete 2xx means to the provider. */
struct answer_meaning {
    enum { MEANING_SUCCEEDED, MEANING_PENDING, MEANING_FAILED } what;
    char object_id[256]; /* the provider's id of what was made, "" when it said none */
    char text[256];      /* a sentence for the evidence, "" when there is nothing to say */
};

/* The facts a read-back works from: all from the database, none from a sender's memory. Borrowed.
 */
struct read_back_facts {
    struct adapter_action action;
    struct ulid effect;
    const char *provider_key; /* the Idempotency-Key the write carried */
    const json_t *input;
    struct impact impact;
    const char *object_id;   /* from an answer, or NULL */
    const json_t *response;  /* the parsed answer of the write, or NULL when none was kept */
    int64_t created_unix_us; /* when the effect was accepted (database time) */
};

enum read_what {
    READ_NEXT,      /* `next` must be sent as well: another page, another candidate */
    READ_MATCH,     /* the provider's record is ours and agrees: settles succeeded, confirmed */
    READ_NOT_FINAL, /* ours, but the provider says it is not final */
    READ_PROVIDER_FAILED, /* ours, and the provider's own record says that it failed */
    READ_NOT_FOUND,       /* a usable answer without our operation: proves nothing */
    READ_CONFLICT,  /* two records, or one that contradicts the request: only a person settles */
    READ_UNUSABLE,  /* no usable answer (429, 5xx, 401, HTML): back off, use up no step */
    READ_IMPOSSIBLE /* nothing can be read with what is known (no id, no verify) */
};

/* A read-back in progress: start fills it, each answer advances it. Zeroed by the caller before
 * start; freed with read_back_free. Bounded: at most READ_PAGES_MAX requests. */
#define READ_PAGES_MAX 50
struct read_back {
    enum read_what what;
    struct request *next;   /* with READ_NEXT: the GET to send; owned here */
    char text[384];         /* the evidence sentence, without input values or secrets */
    char object_id[256];    /* the provider's id, where one was found */
    int64_t retry_after_ms; /* with READ_UNUSABLE: what the provider asked for, 0 when nothing */
    int requests;           /* made so far; the caller counts, before it hands over the answer */
    json_t *state;          /* the adapter's own cursor and candidates; owned here */
};
void read_back_free(struct read_back *read);

struct adapter {
    const char *type; /* "stripe.refund"; "template" for declared actions */

    /* Checks a definition when an action is created or edited: ERROR_INVALID with the JSON pointer
     * of the field (the route answers 400). */
    bool (*check)(const json_t *definition, struct error *err);
    /* Whether invocations of it make governed effects (an adapter's always do). */
    bool (*governed)(const json_t *definition);
    /* Builds the request and the impact from an input that the schema has accepted. */
    bool (*prepare)(const struct adapter_action *action, const json_t *input, struct prepared *out,
                    struct error *err);
    /* A complete 2xx (answer.h) only. NULL-safe on bodies of any kind. */
    void (*read_answer)(const struct adapter_action *action, const json_t *input,
                        const struct answer *answer, struct answer_meaning *out);
    /* Begins a read-back: what is READ_NEXT or READ_IMPOSSIBLE (text says what is missing). */
    void (*read_back_start)(const struct read_back_facts *facts, struct read_back *read);
    /* Takes the answer to `next` (NULL: the GET got none; transport text says why) and moves on; on
     * return `next` is replaced or NULL. */
    void (*read_back_answer)(const struct read_back_facts *facts, const struct answer *answer,
                             const char *transport, struct read_back *read);
    /* Seconds after the first send in which the same key and bytes may be replayed; 0: never. */
    int64_t replay_window_s;
};

/* By definition: its adapter.type, or "template". NULL for an unknown type. Static. */
const struct adapter *adapter_find(const char *type);
const struct adapter *adapter_of(const json_t *definition);

/* The operation key that an effectKey template ("refund:{payment_id}") gives for an input, or false
 * with err when a named field is missing. *out is malloc'd, at most 255 bytes of visible ASCII. */
bool effect_key_expand(const char *tmpl, const json_t *input, char **out, struct error *err);

#endif
