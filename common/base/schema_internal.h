/* The compiled form of a schema, and what the files of the validator offer each other. Only
 * common/base/schema_*.c include this. */
#ifndef HOLDFAST_SCHEMA_INTERNAL_H
#define HOLDFAST_SCHEMA_INTERNAL_H

#include "common/base/error.h"
#include "common/base/json.h"
#include "common/base/schema.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#define SCHEMA_VALUES_MAX 50000                    /* JSON values in a schema document */
#define SCHEMA_NODES_MAX 5000                      /* schemas in a document, the root included */
#define SCHEMA_PATTERN_MAX 4096                    /* bytes of one regular expression */
#define SCHEMA_PATTERNS_SIZE_MAX (4 * 1024 * 1024) /* bytes of all of them, compiled */
#define SCHEMA_RECURSION_MAX 1000 /* schemas entered and not yet left, within one validation */
#define SCHEMA_WORK_MAX 4000000   /* steps of one validation: well under a second, see run_charge */
#define SCHEMA_MATCH_STEPS                                                                         \
    1000000 /* PCRE2's own limits, the second line behind SCHEMA_WORK_MAX                          \
             */
#define SCHEMA_MATCH_DEPTH 100000
#define SCHEMA_MATCH_HEAP_KIB 16384

/* The keywords that leave something to do or to look up once compiled, in the order in which they
 * are checked: cheap ones first, the two that need what all others evaluated last. */
enum schema_keyword {
    KEYWORD_TYPE,
    KEYWORD_CONST,
    KEYWORD_ENUM,
    KEYWORD_MINIMUM,
    KEYWORD_EXCLUSIVE_MINIMUM,
    KEYWORD_MAXIMUM,
    KEYWORD_EXCLUSIVE_MAXIMUM,
    KEYWORD_MULTIPLE_OF,
    KEYWORD_MIN_LENGTH,
    KEYWORD_MAX_LENGTH,
    KEYWORD_PATTERN,
    KEYWORD_MIN_ITEMS,
    KEYWORD_MAX_ITEMS,
    KEYWORD_UNIQUE_ITEMS,
    KEYWORD_MIN_PROPERTIES,
    KEYWORD_MAX_PROPERTIES,
    KEYWORD_REQUIRED,
    KEYWORD_DEPENDENT_REQUIRED,
    KEYWORD_PROPERTY_NAMES,
    KEYWORD_PROPERTIES,
    KEYWORD_PATTERN_PROPERTIES,
    KEYWORD_ADDITIONAL_PROPERTIES,
    KEYWORD_PREFIX_ITEMS,
    KEYWORD_ITEMS,
    KEYWORD_MIN_CONTAINS,
    KEYWORD_MAX_CONTAINS,
    KEYWORD_CONTAINS,
    KEYWORD_REF,
    KEYWORD_ALL_OF,
    KEYWORD_ANY_OF,
    KEYWORD_ONE_OF,
    KEYWORD_NOT,
    KEYWORD_IF,
    KEYWORD_THEN,
    KEYWORD_ELSE,
    KEYWORD_DEPENDENT_SCHEMAS,
    KEYWORD_UNEVALUATED_PROPERTIES,
    KEYWORD_UNEVALUATED_ITEMS,
    KEYWORD_RULES, /* how many there are; what follows makes no rule */
    KEYWORD_DEFINITIONS,
    KEYWORD_ANNOTATION
};

enum schema_type {
    SCHEMA_TYPE_NULL = 1,
    SCHEMA_TYPE_BOOLEAN = 2,
    SCHEMA_TYPE_INTEGER = 4,
    SCHEMA_TYPE_NUMBER = 8,
    SCHEMA_TYPE_STRING = 16,
    SCHEMA_TYPE_OBJECT = 32,
    SCHEMA_TYPE_ARRAY = 64
};

struct schema_node;
struct schema_pattern;

/* A schema inside a keyword, with what decides when it applies. */
struct schema_branch {
    const char *name; /* properties, dependentSchemas: the member; borrowed; else NULL */
    size_t name_len;
    struct schema_pattern *pattern; /* patternProperties: which members; owned; else NULL */
    struct schema_node *node;
};

/* One keyword of one schema. */
struct schema_rule {
    enum schema_keyword keyword;
    const char *name;               /* the keyword as written */
    const json_t *value;            /* what the document gives it; borrowed from schema.document */
    size_t limit;                   /* minLength and its like */
    unsigned types;                 /* type: SCHEMA_TYPE_ bits */
    struct schema_pattern *pattern; /* pattern; owned */
    struct schema_branch *branches; /* owned; `properties` are sorted by name */
    size_t branch_count;
    char want[200]; /* type, enum, const: what is wanted, for a person */
};

/* One schema: an object or a boolean. */
struct schema_node {
    enum { NODE_RULES, NODE_TRUE, NODE_FALSE } kind;
    const char *under;         /* the keyword that this schema stands under, "" for the root */
    size_t index;              /* in schema.nodes */
    struct schema_rule *rules; /* in the order of enum schema_keyword */
    size_t rule_count;
    bool unevaluated; /* has unevaluatedProperties or unevaluatedItems */
};

struct schema {
    json_t *document;           /* our own copy; rules borrow names and values from it */
    struct schema_node **nodes; /* parents before children; [0] is the root */
    size_t node_count;
};

/* The rule of that keyword or NULL. */
const struct schema_rule *schema_node_rule(const struct schema_node *node,
                                           enum schema_keyword keyword);

/* A place in a document, kept as a chain on the stack and spelled out only when it is needed. */
struct schema_place {
    const struct schema_place *up; /* NULL at the root */
    const char *name;              /* NULL: an array item */
    size_t name_len;
    size_t index;
};

/* Copies a JSON pointer; one that does not fit is cut and ends with "...". Returns out. */
char *schema_pointer_cut(const char *pointer, size_t len, char *out, size_t size);
/* Writes the place as a JSON pointer, cut in the same way. */
char *schema_place_write(const struct schema_place *place, char *out, size_t size);
/* The same without a limit but that of the buffer. */
bool schema_place_put(const struct schema_place *place, struct buf *out);
/* Orders names by bytes, shorter first among those that begin alike. */
int schema_name_compare(const char *a, size_t a_len, const char *b, size_t b_len);
/* How many bytes of text fit into max without cutting a character, for "%.*s". */
int schema_text_fit(const char *text, size_t len, size_t max);

/* schema_reference.c: identifiers and references */

/* A `$ref` that waits until every place it could mean is known. */
struct schema_pending {
    struct schema_rule *rule;
    const char *base; /* borrowed from references.bases */
    char *place;      /* JSON pointer of the $ref; owned */
};

struct schema_references {
    json_t *pointers;  /* JSON pointer of each schema -> index of its node */
    json_t *resources; /* absolute URI without fragment -> JSON pointer */
    json_t *anchors;   /* "URI#anchor" -> index of the node */
    char **bases;      /* owned */
    size_t base_count;
    struct schema_pending *pending;
    size_t pending_count;
};

bool schema_references_init(struct schema_references *references);
void schema_references_free(struct schema_references *references);
bool schema_references_add_node(struct schema_references *references,
                                const struct schema_place *place, size_t index, struct error *err);
/* `$id`: gives the base URI of the schemas from here on down, NULL with err. */
const char *schema_references_add_id(struct schema_references *references, const json_t *id,
                                     const char *base, const struct schema_place *schema,
                                     const struct schema_place *keyword, struct error *err);
bool schema_references_add_anchor(struct schema_references *references, const json_t *anchor,
                                  const char *base, size_t index,
                                  const struct schema_place *keyword, struct error *err);
bool schema_references_add_ref(struct schema_references *references, struct schema_rule *rule,
                               const char *base, const struct schema_place *keyword,
                               struct error *err);
/* Gives every waiting $ref its node, and refuses a schema that would come back to itself without
 * taking a step into the value. */
bool schema_references_resolve(struct schema_references *references, struct schema *schema,
                               struct error *err);

/* schema_pattern.c: regular expressions */

struct schema_pattern {
    pcre2_code *code;
    size_t size;           /* bytes of the code */
    unsigned least_repeat; /* the largest n of its {n} */
    bool back_references;
};

/* Compiles an ECMA-262 pattern. NULL with why, which stays empty when memory is out. */
struct schema_pattern *schema_pattern_compile(const char *text, size_t len, char *why, size_t size);
void schema_pattern_free(struct schema_pattern *pattern); /* may be NULL */

/* What matching needs, for one validation on one thread. */
struct schema_matcher {
    pcre2_match_data *data; /* both made at the first match */
    pcre2_match_context *context;
    int64_t *work;     /* steps that are left; every step of a match is taken from it */
    int64_t step_cost; /* of the pattern at hand */
    size_t position;   /* where the last step stood in the subject */
};

enum schema_match { SCHEMA_MATCH, SCHEMA_MISS, SCHEMA_GAVE_UP, SCHEMA_NO_MEMORY };

enum schema_match schema_pattern_match(struct schema_matcher *matcher,
                                       const struct schema_pattern *pattern, const char *text,
                                       size_t len);
void schema_matcher_free(struct schema_matcher *matcher);

/* schema_value.c: numbers and equality as JSON Schema means them. All take what they cost from
 * *work and answer anything once that is below zero: the caller looks at it. */

bool schema_value_equal(const json_t *a, const json_t *b, int64_t *work);
int schema_number_compare(const json_t *a, const json_t *b); /* -1, 0, 1; both numbers */
bool schema_number_is_integer(const json_t *number);         /* 1.0 is one */
bool schema_number_is_multiple(const json_t *number, const json_t *divisor);
enum schema_unique { SCHEMA_UNIQUE, SCHEMA_TWICE, SCHEMA_UNIQUE_NO_MEMORY };
/* first and second name two equal items when TWICE. */
enum schema_unique schema_items_unique(const json_t *array, int64_t *work, size_t *first,
                                       size_t *second);

#endif
