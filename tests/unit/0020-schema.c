/* The schema validator beyond what the public suite asks: refusals with their places, words of
 * errors, and the limits that hold whatever a schema and a value do to each other. */
#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/schema.h"
#include "tests/test.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define REFS "{\"$ref\":\"#/$defs/%d\"}"

static json_t *parse(const char *text)
{
    struct error err = {0};
    json_t *value = json_parse_strict(text, strlen(text), &err);
    if (!value)
        fail_msg("%s: at %s: %s", text, err.place, err.text);
    return value;
}

/* The document is gone at once: a schema keeps its own copy. */
static struct schema *compile_try(const char *text, struct error *err)
{
    json_t *document = parse(text);
    memset(err, 0, sizeof(*err));
    struct schema *schema = schema_compile(document, err);
    json_decref(document);
    return schema;
}

static struct schema *compile(const char *text)
{
    struct error err;
    struct schema *schema = compile_try(text, &err);
    if (!schema)
        fail_msg("%s: at %s: %s", text, err.place, err.text);
    return schema;
}

static bool fits(const char *schema_text, const char *value_text, struct error *err)
{
    struct schema *schema = compile(schema_text);
    json_t *value = parse(value_text);
    memset(err, 0, sizeof(*err));
    bool holds = schema_validate(schema, value, err);
    json_decref(value);
    schema_free(schema);
    return holds;
}

struct refusal {
    const char *schema;
    const char *place;
    const char *text; /* part of the sentence */
};

static void refusals_check(const struct refusal *refusals, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct error err;
        struct schema *schema = compile_try(refusals[i].schema, &err);
        if (schema || err.code != ERROR_INVALID || strcmp(err.place, refusals[i].place) != 0 ||
            !strstr(err.text, refusals[i].text))
            fail_msg("%s: %s at \"%s\": %s", refusals[i].schema,
                     schema ? "compiled" : error_code_name(err.code), err.place, err.text);
    }
}

static void test_refuses_keywords(void **state)
{
    static const struct refusal refusals[] = {
        {"{\"typ\":\"string\"}", "/typ", "\"typ\" is not a keyword"},
        {"{\"properties\":{\"a/b~c\":{\"x\":1}}}", "/properties/a~1b~0c/x", "\"x\" is not"},
        {"{\"allOf\":[true,{\"not\":{\"nullable\":true}}]}", "/allOf/1/not/nullable", "nullable"},
        {"{\"$dynamicRef\":\"#a\"}", "/$dynamicRef", "not a keyword"},
        {"{\"$vocabulary\":{}}", "/$vocabulary", "not a keyword"},
        {"{\"dependencies\":{}}", "/dependencies", "not a keyword"},
        {"{\"additionalItems\":false}", "/additionalItems", "not a keyword"},
        {"{\"\":1}", "/", "\"\" is not a keyword"},
        {"7", "", "a schema must be an object"},
        {"{\"not\":[]}", "/not", "a schema must be an object"},
        {"{\"items\":[{}]}", "/items", "a schema must be an object"},
        {"{\"contentSchema\":1}", "/contentSchema", "a schema must be an object"},
        {"{\"$defs\":{\"a\":null}}", "/$defs/a", "a schema must be an object"},
        {"{\"$schema\":\"http://json-schema.org/draft-07/schema#\"}", "/$schema", "only be"},
    };
    (void)state;
    refusals_check(refusals, COUNT(refusals));
}

static void test_refuses_values(void **state)
{
    static const struct refusal refusals[] = {
        {"{\"type\":\"int\"}", "/type", "type names"},
        {"{\"type\":[]}", "/type", "type names"},
        {"{\"type\":[\"null\",\"null\"]}", "/type", "type names"},
        {"{\"enum\":{}}", "/enum", "a list"},
        {"{\"minimum\":\"1\"}", "/minimum", "must be a number"},
        {"{\"multipleOf\":0}", "/multipleOf", "above 0"},
        {"{\"multipleOf\":-1.5}", "/multipleOf", "above 0"},
        {"{\"minLength\":-1}", "/minLength", "0 or above"},
        {"{\"maxItems\":1.5}", "/maxItems", "0 or above"},
        {"{\"uniqueItems\":1}", "/uniqueItems", "true or false"},
        {"{\"required\":\"a\"}", "/required", "a list of names"},
        {"{\"required\":[\"a\",\"a\"]}", "/required", "each once"},
        {"{\"required\":[1]}", "/required", "a list of names"},
        {"{\"dependentRequired\":{\"a\":[1]}}", "/dependentRequired/a", "a list of names"},
        {"{\"properties\":[]}", "/properties", "an object of schemas"},
        {"{\"allOf\":[]}", "/allOf", "not empty"},
        {"{\"oneOf\":{}}", "/oneOf", "a list of schemas"},
        {"{\"pattern\":1}", "/pattern", "must be a string"},
        {"{\"pattern\":\"(\"}", "/pattern", "regular expression"},
        {"{\"patternProperties\":{\"a\":{},\"[\":{}}}", "/patternProperties/[", "not closed"},
        {"{\"title\":1}", "/title", "must be a string"},
        {"{\"readOnly\":\"yes\"}", "/readOnly", "true or false"},
        {"{\"examples\":1}", "/examples", "must be a list"},
        {"{\"format\":[]}", "/format", "must be a string"},
    };
    (void)state;
    refusals_check(refusals, COUNT(refusals));
}

static void test_refuses_references(void **state)
{
    static const struct refusal refusals[] = {
        {"{\"$ref\":1}", "/$ref", "URI reference"},
        {"{\"$ref\":\"#/$defs/a\"}", "/$ref", "inside this document"},
        {"{\"$ref\":\"#/properties\",\"properties\":{}}", "/$ref", "inside this document"},
        {"{\"$ref\":\"#/enum/0\",\"enum\":[{}]}", "/$ref", "inside this document"},
        {"{\"$ref\":\"#nowhere\"}", "/$ref", "inside this document"},
        {"{\"$ref\":\"#/$defs/%\",\"$defs\":{\"%\":{}}}", "/$ref", "inside this document"},
        {"{\"$ref\":\"#/$defs/a%00\",\"$defs\":{\"a\":{}}}", "/$ref", "inside this document"},
        {"{\"$ref\":\"http://169.254.169.254/latest\"}", "/$ref", "inside this document"},
        {"{\"$ref\":\"file:///etc/passwd\"}", "/$ref", "inside this document"},
        {"{\"items\":{\"$ref\":\"other.json\"}}", "/items/$ref", "inside this document"},
        {"{\"$id\":\"a#b\"}", "/$id", "without a fragment"},
        {"{\"$id\":\"\"}", "/$id", "without a fragment"},
        {"{\"$defs\":{\"a\":{\"$id\":\"u\"},\"b\":{\"$id\":\"u\"}}}", "/$defs/b/$id", "twice"},
        {"{\"$anchor\":\"1a\"}", "/$anchor", "letters"},
        {"{\"$anchor\":\"a\",\"not\":{\"$anchor\":\"a\"}}", "/not/$anchor", "twice"},
    };
    (void)state;
    refusals_check(refusals, COUNT(refusals));
}

static void test_refuses_loops(void **state)
{
    static const struct refusal refusals[] = {
        {"{\"$ref\":\"#\"}", "/$ref", "leads back to itself"},
        {"{\"anyOf\":[{\"type\":\"null\"},{\"$ref\":\"#\"}]}", "/anyOf/1/$ref", "leads back"},
        {"{\"not\":{\"$ref\":\"#\"}}", "/not/$ref", "leads back"},
        {"{\"if\":true,\"then\":{\"$ref\":\"#\"}}", "/then/$ref", "leads back"},
        {"{\"dependentSchemas\":{\"a\":{\"$ref\":\"#\"}}}", "/dependentSchemas/a/$ref", "leads"},
        {"{\"$defs\":{\"a\":{\"$ref\":\"#/$defs/b\"},\"b\":{\"$ref\":\"#/$defs/a\"}}}",
         "/$defs/b/$ref", "leads back"},
    };
    (void)state;
    refusals_check(refusals, COUNT(refusals));
    struct error err; /* but a step into the value may lead back */
    assert_true(fits("{\"type\":\"object\",\"additionalProperties\":{\"$ref\":\"#\"}}",
                     "{\"a\":{\"b\":{}}}", &err));
}

struct sample {
    const char *schema;
    const char *value;
    const char *place; /* NULL: it fits */
    const char *text;
};

static void test_tells_where_and_what(void **state)
{
    static const struct sample samples[] = {
        {"{\"type\":\"integer\"}", "1.0"},
        {"{\"type\":\"integer\"}", "1.5", "", "type: must be integer"},
        {"{\"type\":[\"null\",\"string\"]}", "1", "", "type: must be null or string"},
        {"{\"const\":{\"a\":[1,2]}}", "{\"a\":[1.0,2]}"},
        {"{\"const\":{\"a\":[1,2]}}", "{\"a\":[2,1]}", "", "const: must be {\"a\":[1,2]}"},
        {"{\"enum\":[\"day\",\"month\"]}", "\"year\"", "",
         "enum: must be one of [\"day\",\"month\"]"},
        {"{\"minimum\":-2.5}", "-3", "", "minimum: must be at least -2.5"},
        {"{\"exclusiveMinimum\":0}", "0", "", "exclusiveMinimum: must be more than 0"},
        {"{\"maximum\":9007199254740990}", "9007199254740991", "", "maximum: must be at most "},
        {"{\"exclusiveMaximum\":10}", "10.0", "", "exclusiveMaximum: must be less than 10"},
        {"{\"multipleOf\":0.01}", "19.99"},
        {"{\"multipleOf\":0.01}", "-1234567890.12"},
        {"{\"multipleOf\":0.1}", "0.30000000000000004", "", "multipleOf: must be a multiple of 0."},
        {"{\"multipleOf\":5}", "12", "", "multipleOf: must be a multiple of 5"},
        {"{\"multipleOf\":3e-300}", "600"},
        {"{\"multipleOf\":7e-300}", "600", "", "multipleOf"},
        {"{\"maxLength\":2}", "\"\xf0\x9f\x98\x80\xc3\xa9\""},
        {"{\"maxLength\":1}", "\"ab\"", "", "maxLength: must have at most 1 characters"},
        {"{\"minLength\":3}", "\"\xc3\xa9\xc3\xa9\"", "", "minLength: must have at least 3"},
        {"{\"pattern\":\"^a$\"}", "\"a\\n\"", "", "pattern: must match ^a$"},
        {"{\"uniqueItems\":true}", "[1,{\"a\":1,\"b\":2},{\"b\":2,\"a\":1.0}]", "",
         "uniqueItems: items 1 and 2 are equal"},
        {"{\"uniqueItems\":true}", "[0,-0.0]", "", "uniqueItems: items 0 and 1 are equal"},
        {"{\"minItems\":1}", "[]", "", "minItems: must have at least 1 items"},
        {"{\"maxItems\":1}", "[1,2]", "", "maxItems: must have at most 1 items"},
        {"{\"contains\":{\"const\":1}}", "[2]", "", "contains: must have at least 1 items"},
        {"{\"contains\":{\"const\":1},\"minContains\":2}", "[1]", "", "minContains: "},
        {"{\"contains\":{\"const\":1},\"maxContains\":1}", "[1,1]", "", "maxContains: "},
        {"{\"required\":[\"a\"]}", "{\"b\":1}", "", "required: \"a\" is missing"},
        {"{\"dependentRequired\":{\"b\":[\"a\"]}}", "{\"b\":1}", "", "dependentRequired: \"a\""},
        {"{\"propertyNames\":{\"maxLength\":1}}", "{\"ab\":1}", "/ab", "maxLength: "},
        {"{\"additionalProperties\":false}", "{\"a/~b\":1}", "/a~1~0b",
         "additionalProperties: nothing is allowed here"},
        {"{\"unevaluatedItems\":false}", "[1]", "/0", "unevaluatedItems: nothing is allowed here"},
        {"{\"properties\":{\"a\":{\"items\":{\"type\":\"null\"}}}}", "{\"a\":[null,null,0]}",
         "/a/2", "type: must be null"},
        {"{\"anyOf\":[{\"type\":\"null\"},{\"type\":\"object\"}]}", "1", "",
         "anyOf: must fit at least one of 2 schemas and fits none"},
        {"{\"oneOf\":[{\"type\":\"null\"},{},{}]}", "1", "",
         "oneOf: must fit exactly one of 3 schemas and fits numbers 1 and 2"},
        {"{\"oneOf\":[{\"type\":\"null\"}]}", "1", "", "oneOf: must fit exactly one"},
        {"{\"not\":{}}", "1", "", "not: must not fit"},
        {"{\"if\":{\"minimum\":5},\"then\":{\"maximum\":7}}", "8", "",
         "maximum: must be at most 7"},
        {"{\"properties\":{\"a\":{\"$ref\":\"#/$defs/x\"}},\"$defs\":{\"x\":false}}", "{\"a\":1}",
         "/a", "$defs: nothing is allowed here"},
        {"false", "1", "", "nothing is allowed here"},
        {"{\"format\":\"email\",\"default\":7,\"examples\":[],\"title\":\"t\"}", "\"no email\""},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(samples); i++) {
        const struct sample *s = &samples[i];
        struct error err;
        bool holds = fits(s->schema, s->value, &err);
        bool right = s->place ? !holds && err.code == ERROR_INVALID &&
                                    strcmp(err.place, s->place) == 0 &&
                                    strncmp(err.text, s->text, strlen(s->text)) == 0
                              : holds && err.code == ERROR_NONE;
        if (!right)
            fail_msg("%s on %s: %s at \"%s\": %s", s->schema, s->value,
                     holds ? "fits" : "does not fit", err.place, err.text);
    }
}

static void test_never_tells_the_value(void **state)
{
    static const char *const schemas[] = {
        "{\"type\":\"null\"}",
        "{\"const\":1}",
        "{\"enum\":[1]}",
        "{\"maxLength\":1}",
        "{\"pattern\":\"^x$\"}",
        "{\"not\":{}}",
        "{\"anyOf\":[false]}",
        "{\"oneOf\":[{\"const\":2}]}",
        "{\"minLength\":999}",
        "false",
        "{\"pattern\":\"(x+x+)+y\",\"type\":\"null\"}",
    };
    (void)state;
    for (size_t i = 0; i < COUNT(schemas); i++) {
        struct error err;
        assert_false(fits(schemas[i], "\"hunter2\"", &err));
        assert_null(strstr(err.text, "hunter2"));
        assert_null(strstr(err.place, "hunter2"));
    }
}

/* A pointer longer than an error can hold is cut between characters, and says so. */
static void test_cuts_long_places(void **state)
{
    char value[1024] = "{\"";
    struct error err;
    (void)state;
    for (int i = 0; i < 100; i++)
        strcat(value, "\xe2\x82\xac");
    strcat(value, "\":1}");
    assert_false(fits("{\"additionalProperties\":{\"type\":\"null\"}}", value, &err));
    size_t len = strlen(err.place);
    assert_true(len < sizeof(err.place) && len > sizeof(err.place) - 8);
    assert_string_equal(err.place + len - 6, "\xe2\x82\xac...");
}

static bool pattern_fits(const char *pattern, const char *text)
{
    struct error err = {0};
    json_t *document = json_pack("{s:s}", "pattern", pattern);
    json_t *value = json_string(text);
    struct schema *schema = schema_compile(document, &err);
    if (!schema)
        fail_msg("%s: %s", pattern, err.text);
    bool holds = schema_validate(schema, value, &err);
    schema_free(schema);
    json_decref(document);
    json_decref(value);
    return holds;
}

static void test_pattern_dialect(void **state)
{
    static const struct {
        const char *pattern;
        const char *text;
        bool fits;
    } samples[] = {
        {"", "", true},
        {".*", "", true},
        {".*b", "a\nb", true},
        {"^.$", "\n", false},
        {"^.$", "\xe2\x80\xa8", false}, /* U+2028 ends a line */
        {"^.$", "\xf0\x9f\x98\x80", true},
        {"^a|b$", "xb", true},
        {"^[^]$", "\n", true},
        {"[]", "a", false},
        {"^[[a]+$", "[a", true},
        {"^[\\s\\d]+$", "1 \xc2\xa0", true},
        {"^[\\S]$", " ", false},
        {"^[\\S]$", "\xc3\xa9", true},
        {"^[^\\S]$", "\xe3\x80\x80", true},
        {"^\\W$", "\xc3\xa9", true},
        {"\\bcol",
         "\xc3\xa9"
         "col",
         true}, /* an ASCII word begins after it */
        {"^[\\b]$", "\b", true},
        {"^\\x41\\u0042\\u{43}$", "ABC", true},
        {"^\\ud83d\\ude00$", "\xf0\x9f\x98\x80", true},
        {"^\\cJ$", "\n", true},
        {"^\\v$", "\x0b", true},
        {"^\\p{Lu}\\p{Uppercase_Letter}\\p{gc=Lu}\\P{Ll}$", "ABCD", true},
        {"^\\p{Script=Greek}\\p{sc=Grek}$", "\xce\xb1\xce\xb2", true},
        {"^\\p{Script=Greek}$", "a", false},
        {"^\\p{Alphabetic}\\p{ASCII}$", "aa", true},
        {"^(a)\\1$", "aa", true},
        {"^(?<x>a)\\k<x>$", "aa", true},
        {"^(?:(a)|b)\\1$", "b", true}, /* a group that took no part matches nothing */
        {"^(?=a)(?!b)(?<=^)(?<!c)a$", "a", true},
        {"^a{2}b{1,}c{0,1}?$", "aabb", true},
        {"^a{,2}$", "a{,2}", true},
        {"^\\{\\}{}]$", "{}{}]", true},
        {"^\\/\\-\\@\\.$", "/-@.", true},
        {"^a+?b*?c??$", "aab", true},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(samples); i++)
        if (pattern_fits(samples[i].pattern, samples[i].text) != samples[i].fits)
            fail_msg("%s on %s", samples[i].pattern, samples[i].text);
}

/* What PCRE2 would take and ECMA-262 does not have, or the other way round. */
static void test_pattern_refusals(void **state)
{
    static const char *const patterns[] = {
        "(?R)",
        "(?1)",
        "(?i)a",
        "(?#x)",
        "(*UTF)",
        "(?>a)",
        "(?|a)",
        "(?P<a>b)",
        "a++",
        "a*+",
        "a{2}{3}",
        "a??*",
        "*",
        ".*+",
        "\\Aa",
        "a\\z",
        "\\Z",
        "\\Qa\\E",
        "\\K",
        "\\R",
        "\\h",
        "\\X",
        "\\C",
        "\\N",
        "\\e",
        "\\01",
        "\\8",
        "\\u12",
        "\\ud83d",
        "\\xg",
        "\\u{110000}",
        "\\u{}",
        "\\c1",
        "\\pL",
        "\\p{^L}",
        "\\p{Nope}",
        "\\k{a}",
        "(?<a",
        "(?<a>b)(?<a>c)",
        "[b-a]",
        "(",
        ")",
        "[a",
        "\\",
        "[\\B]",
        "(?<=a+)b",
        "a{99999}",
        "(?",
        "\\p{",
        "(?:(?:(?:a{1,99}){1,99}){1,99}){1,99}",
    };
    (void)state;
    for (size_t i = 0; i < COUNT(patterns); i++) {
        struct error err = {0};
        json_t *document = json_pack("{s:s}", "pattern", patterns[i]);
        struct schema *schema = schema_compile(document, &err);
        if (schema || err.code != ERROR_INVALID || strcmp(err.place, "/pattern") != 0)
            fail_msg("%s: %s at %s", patterns[i], schema ? "compiled" : err.text, err.place);
        json_decref(document);
    }
}

/* --- limits --- */

static json_t *text_of(char c, size_t count, const char *end)
{
    char *text = malloc(count + strlen(end) + 1);
    assert_non_null(text);
    memset(text, c, count);
    strcpy(text + count, end);
    json_t *string = json_string(text);
    free(text);
    return string;
}

/* Takes over the value. Expects a no because of a limit, and soon. */
static void limit_check(const char *schema_text, json_t *value)
{
    struct error err = {0};
    struct schema *schema = compile(schema_text);
    int64_t from = clock_boot_ms();
    bool holds = schema_validate(schema, value, &err);
    int64_t took_ms = clock_boot_ms() - from;
    if (holds || err.code != ERROR_TOO_LARGE || took_ms > 10000) /* sanitizers are slow */
        fail_msg("%s: %s after %lld ms: %s", schema_text, holds ? "fits" : "does not fit",
                 (long long)took_ms, err.text);
    printf("%-60.60s %5lld ms, at \"%.20s\": %s\n", schema_text, (long long)took_ms, err.place,
           err.text);
    assert_false(schema_validate(schema, value, NULL));
    json_decref(value);
    schema_free(schema);
}

static void test_patterns_that_explode(void **state)
{
    (void)state;
    limit_check("{\"pattern\":\"^(a+)+$\"}", text_of('a', 50, "!"));
    limit_check("{\"pattern\":\"^(a|a)*$\"}", text_of('a', 50, "!"));
    limit_check("{\"not\":{\"pattern\":\"^(a+)+$\"}}", text_of('a', 50, "!"));
    limit_check("{\"anyOf\":[{\"pattern\":\"^(a+)+$\"},true]}", text_of('a', 50, "!"));
    limit_check("{\"oneOf\":[true,{\"pattern\":\"^(a+)+$\"}]}", text_of('a', 50, "!"));
    limit_check("{\"if\":{\"pattern\":\"^(a+)+$\"}}", text_of('a', 50, "!"));
    limit_check("{\"pattern\":\"a*a*a*a*a*[bd]\"}", text_of('a', 5000, "c"));
    /* quadratic without a single backtrack: one run over the rest from every position */
    limit_check("{\"pattern\":\"[ab]+(?:c|d)\"}", text_of('a', 1000000, "e"));
    limit_check("{\"pattern\":\"(?:(?=[ab]*)a)*[cd]\"}", text_of('a', 1000000, "e"));
    /* long looks that fail without having moved */
    limit_check("{\"pattern\":\"a{60000}c|a{60000}d|a{60000}e\"}", text_of('a', 500000, "b"));
    limit_check("{\"pattern\":\"(a*)b(?:\\\\1x|\\\\1y|\\\\1z)\"}", text_of('a', 500000, "ba"));
}

/* Each match stays below every limit of one match; together they may not. */
static void test_patterns_share_a_budget(void **state)
{
    (void)state;
    json_t *items = json_array();
    for (int i = 0; i < 20000; i++)
        json_array_append_new(items, text_of('a', 16, "!"));
    limit_check("{\"items\":{\"not\":{\"pattern\":\"^(a+)+$\"}}}", items);
}

static json_t *nested(int depth)
{
    json_t *value = json_array();
    for (int i = 0; i < depth; i++) {
        json_t *outer = json_array();
        json_array_append_new(outer, value);
        value = outer;
    }
    return value;
}

static void test_depth(void **state)
{
    (void)state;
    struct error err = {0};
    struct schema *schema = compile("{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}");
    json_t *value = nested(400);
    assert_true(schema_validate(schema, value, &err));
    json_decref(value);
    schema_free(schema);
    limit_check("{\"items\":{\"$ref\":\"#\"}}", nested(5000));
    limit_check("{\"items\":{\"$ref\":\"#\"},\"not\":{\"type\":\"null\"}}", nested(5000));
    limit_check("{\"unevaluatedItems\":{\"$ref\":\"#\"}}", nested(5000));
}

/* Thirty schemas, each of which uses the next twice: two to the thirtieth ways through. */
static void test_work(void **state)
{
    char schema[4096] = "{\"$ref\":\"#/$defs/0\",\"$defs\":{";
    (void)state;
    for (int i = 0; i < 30; i++)
        sprintf(schema + strlen(schema), "\"%d\":{\"allOf\":[" REFS "," REFS "]},", i, i + 1,
                i + 1);
    strcat(schema, "\"30\":{}}}");
    limit_check(schema, json_integer(1));
}

static void test_unique_items(void **state)
{
    (void)state;
    struct error err = {0};
    struct schema *schema = compile("{\"uniqueItems\":true}");
    json_t *items = json_array();
    for (int i = 0; i < 200000; i++)
        json_array_append_new(items, json_integer(i));
    int64_t from = clock_boot_ms();
    assert_true(schema_validate(schema, items, &err));
    assert_true(clock_boot_ms() - from < 5000);
    json_array_append_new(items, json_real(77777.0));
    assert_false(schema_validate(schema, items, &err));
    assert_string_equal(err.text, "uniqueItems: items 77777 and 200000 are equal");
    json_decref(items);
    schema_free(schema);
}

/* As much of an honest call as a body may hold must fit into the budget. */
static void test_large_values_fit(void **state)
{
    static const char text[] =
        "{\"items\":{\"type\":\"object\",\"required\":[\"id\",\"sum\"],\"additionalProperties\":"
        "false,"
        "\"properties\":{\"id\":{\"type\":\"string\",\"pattern\":\"^[a-z0-9_]{1,40}$\"},"
        "\"sum\":{\"type\":\"integer\",\"minimum\":1,\"multipleOf\":5}}}}";
    (void)state;
    struct error err = {0};
    struct schema *schema = compile(text);
    json_t *items = json_array();
    for (int i = 0; i < 40000; i++) /* 26 bytes each: a body of 1 MiB */
        json_array_append_new(items, json_pack("{s:s, s:i}", "id", "refund_1", "sum", 5));
    int64_t from = clock_boot_ms();
    bool holds = schema_validate(schema, items, &err);
    printf("40,000 objects: %lld ms %s\n", (long long)(clock_boot_ms() - from), err.text);
    assert_true(holds);
    json_decref(items);
    schema_free(schema);

    json_t *letter = text_of('a', 1000000, ".");
    struct schema *words = compile("{\"pattern\":\"^[a-z ]+\\\\.$\",\"minLength\":1000001}");
    assert_true(schema_validate(words, letter, &err));
    json_decref(letter);
    schema_free(words);
}

/* Takes over the document. */
static void compile_limit_check(json_t *document, enum error_code code, const char *text)
{
    struct error err = {0};
    struct schema *schema = schema_compile(document, &err);
    if (schema || err.code != code || !strstr(err.text, text))
        fail_msg("%s, not \"%s\"", schema ? "compiled" : err.text, text);
    json_decref(document);
}

static void test_schema_limits(void **state)
{
    (void)state;
    json_t *deep = json_object();
    for (int i = 0; i < 100000; i++)
        deep = json_pack("{s:o}", "not", deep);
    compile_limit_check(deep, ERROR_TOO_LARGE, "nested more than 64 deep");

    json_t *values = json_array();
    for (int i = 0; i < 50001; i++)
        json_array_append_new(values, json_integer(i));
    compile_limit_check(json_pack("{s:o}", "enum", values), ERROR_TOO_LARGE, "50000 values");

    json_t *schemas = json_array();
    for (int i = 0; i < 5001; i++)
        json_array_append_new(schemas, json_true());
    compile_limit_check(json_pack("{s:o}", "allOf", schemas), ERROR_TOO_LARGE, "5000 schemas");

    json_t *pattern = text_of('a', 5000, "");
    compile_limit_check(json_pack("{s:o}", "pattern", pattern), ERROR_INVALID, "4096 bytes");

    json_t *patterns = json_array();
    for (int i = 0; i < 1000; i++)
        json_array_append_new(patterns, json_pack("{s:s}", "pattern", "(?:abcdefgh){800}"));
    compile_limit_check(json_pack("{s:o}", "allOf", patterns), ERROR_INVALID, "too large");

    json_t *name = text_of('n', 5000, "");
    json_t *named = json_object();
    json_object_set_new(named, json_string_value(name), json_true());
    json_decref(name);
    compile_limit_check(json_pack("{s:o}", "properties", named), ERROR_TOO_LARGE, "4096 bytes");

    json_t *uri = text_of('u', 5000, "");
    compile_limit_check(json_pack("{s:o}", "$id", uri), ERROR_INVALID, "1024 bytes");
}

/* A chain of references as long as there may be schemas: recursion of the compiler and of a run. */
static void test_long_chain(void **state)
{
    (void)state;
    json_t *defs = json_object();
    char name[16], ref[32];
    for (int i = 0; i < 4000; i++) {
        snprintf(name, sizeof(name), "%d", i);
        snprintf(ref, sizeof(ref), "#/$defs/%d", i + 1);
        json_object_set_new(defs, name,
                            i < 3999 ? json_pack("{s:s}", "$ref", ref) : json_pack("{}"));
    }
    json_t *document = json_pack("{s:s, s:o}", "$ref", "#/$defs/0", "$defs", defs);
    char *text = json_dumps(document, 0);
    limit_check(text, json_integer(1));
    free(text);
    json_decref(document);
}

/* --- one schema, many threads --- */

static void *validate_often(void *opaque)
{
    const struct schema *schema = opaque;
    intptr_t wrong = 0;
    json_t *good = json_pack("{s:s, s:[i,i]}", "id", "abc", "list", 1, 2);
    json_t *bad = json_pack("{s:s, s:[i,i]}", "id", "ABC", "list", 1, 1);
    for (int i = 0; i < 2000; i++) {
        struct error err;
        wrong += !schema_validate(schema, good, &err);
        wrong += schema_validate(schema, bad, &err);
    }
    json_decref(good);
    json_decref(bad);
    return (void *)wrong;
}

static void test_threads(void **state)
{
    pthread_t threads[4];
    (void)state;
    struct schema *schema =
        compile("{\"properties\":{\"id\":{\"pattern\":\"^(a|b|c)+$\"},"
                "\"list\":{\"uniqueItems\":true}},\"unevaluatedProperties\":false}");
    for (size_t i = 0; i < COUNT(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, validate_often, schema), 0);
    for (size_t i = 0; i < COUNT(threads); i++) {
        void *wrong;
        assert_int_equal(pthread_join(threads[i], &wrong), 0);
        assert_null(wrong);
    }
    schema_free(schema);
    schema_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refuses_keywords),
        cmocka_unit_test(test_refuses_values),
        cmocka_unit_test(test_refuses_references),
        cmocka_unit_test(test_refuses_loops),
        cmocka_unit_test(test_tells_where_and_what),
        cmocka_unit_test(test_never_tells_the_value),
        cmocka_unit_test(test_cuts_long_places),
        cmocka_unit_test(test_pattern_dialect),
        cmocka_unit_test(test_pattern_refusals),
        cmocka_unit_test(test_patterns_that_explode),
        cmocka_unit_test(test_patterns_share_a_budget),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_work),
        cmocka_unit_test(test_unique_items),
        cmocka_unit_test(test_large_values_fit),
        cmocka_unit_test(test_schema_limits),
        cmocka_unit_test(test_long_chain),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
