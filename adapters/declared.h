/* The body of a declared action's request: what declared.c leaves to declared_body.c. */
#ifndef HOLDFAST_DECLARED_H
#define HOLDFAST_DECLARED_H

#include "adapters/template.h"

/* How a definition's body is sent, from its bodyTemplate and the Content-Type of its headers (NULL:
 * none declared). False with err at "/bodyTemplate": the two do not fit, or an input could break
 * out of the text around it. */
bool body_format_choose(const json_t *body, const char *content_type, enum body_format *out,
                        struct error *err);

/* The Content-Type that a format is sent with when none is declared; NULL for BODY_NONE. Static. */
const char *body_content_type(enum body_format format);

/* Puts the body into a request of the chosen format. False with err at "/bodyTemplate/..." or
 * "/input/...". */
bool body_put(const json_t *body, const struct template_values *values, struct request *request,
              struct error *err);

#endif
