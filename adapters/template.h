/* The template language of declared actions: text with {{input.a.b}}, {{response.a.b}} (read-backs
 * only), {{secret:NAME}} and {{effect.id}}. Text is parsed before values are known and values are
 * never parsed, so nothing in an input can become a template. Secrets and the effect id stay slots.
 */
#ifndef HOLDFAST_TEMPLATE_H
#define HOLDFAST_TEMPLATE_H

#include "common/base/error.h"
#include "common/http/request.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define TEMPLATE_PARTS_MAX 64

/* Bits, so that a place can say which it takes. Plain text is always taken. */
enum template_kind {
    TEMPLATE_TEXT = 1,
    TEMPLATE_INPUT = 2,
    TEMPLATE_RESPONSE = 4,
    TEMPLATE_SECRET = 8,
    TEMPLATE_EFFECT_ID = 16
};
#define TEMPLATE_IN_WRITE (TEMPLATE_INPUT | TEMPLATE_SECRET | TEMPLATE_EFFECT_ID)
#define TEMPLATE_IN_READ (TEMPLATE_IN_WRITE | TEMPLATE_RESPONSE)

struct template_part {
    enum template_kind kind;
    const char *text; /* the text, the path after "input." or "response.", the secret's name */
    size_t len;
};

/* Parts point into the source that was parsed. */
struct template
{
    struct template_part parts[TEMPLATE_PARTS_MAX];
    size_t count;
};

/* What references stand for. A trial puts "x" for every value: it shows, when an action is created,
 * whether the request has a sound shape. */
struct template_values {
    const json_t *input;
    const json_t *response; /* NULL: no answer was kept */
    bool input_trial;
    bool response_trial;
};

/* False with err (ERROR_INVALID at `place`) for braces that hold anything but an allowed reference.
 */
bool template_parse(const char *source, unsigned allowed, const char *place, struct template *out,
                    struct error *err);

/* The one reference that the whole template is, or NULL when it is text or more than one part. */
const struct template_part *template_single(const struct template *template);

/* The value of an input or response reference; NULL when there is none. Borrowed. */
const json_t *template_value(const struct template_part *part,
                             const struct template_values *values);

/* Says that a reference has no value: at "/input/..." or, for a response, as the sentence that a
 * read-back gives. Returns false. */
bool template_missing(const struct template_part *part, const struct template_values *values,
                      struct error *err);

/* Puts the template into the request, escaped for where it stands. Strings, numbers and booleans
 * have a text; a missing value, null, an object or a list is ERROR_INVALID at the input's pointer,
 * as is a value that cannot stand there (a control character in a header, an empty or dot segment
 * in a path). Errors of the request itself stay in the request, for request_check. */
bool template_put(const struct template *template, const struct template_values *values,
                  enum place place, struct request *request, struct error *err);

#endif
