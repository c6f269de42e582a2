/* What a request says about itself: whose key, which effect, which payment intent. */
#ifndef SANDBOX_FACTS_H
#define SANDBOX_FACTS_H

#include "tests/provider/sandbox/form.h"
#include "tests/provider/sandbox/request.h"

#include <jansson.h>
#include <stdbool.h>

#define FACTS_NAME_MAX 1024 /* bytes of a key, an effect or an intent */

struct facts {
    bool write;
    bool whole;         /* all of the body came */
    struct form query;  /* decoded */
    struct form form;   /* the body, where it says that it is a form */
    json_t *json;       /* else the body as a JSON value; NULL when it is none */
    const char *key;    /* Idempotency-Key; borrowed, as all three, and NULL when absent */
    const char *effect; /* X-Holdfast-Effect, metadata[holdfast_effect] or "holdfast_effect" */
    const char *intent; /* payment_intent, else charge */
};

void facts_read(struct facts *facts, const struct request *r, bool whole);
/* The same from the head alone, whatever there is of the body. */
void facts_read_head(struct facts *facts, const struct request *r);
void facts_free(struct facts *facts);

#endif
