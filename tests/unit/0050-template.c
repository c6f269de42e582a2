/* The template language: what parses, what is refused, and values that must stay text. */
#include "adapters/path.h"
#include "adapters/template.h"
#include "tests/adapters.h"

static void test_parse(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t parts;
    } fine[] = {
        {"", 0},
        {"plain", 1},
        {"{single} }} braces", 1},
        {"{{input.a}}", 1},
        {"a{{input.a.0.b-c_d$@}}b", 3},
        {"{{secret:A_1}}{{effect.id}}", 2},
    };
    for (size_t i = 0; i < sizeof(fine) / sizeof(fine[0]); i++) {
        struct template template;
        struct error err = {0};
        assert_true(template_parse(fine[i].text, TEMPLATE_IN_WRITE, "/x", &template, &err));
        assert_int_equal(template.count, fine[i].parts);
    }
}

static void test_parse_refused(void **state)
{
    (void)state;
    static const char *const refused[] = {
        "{{",
        "{{input.a",
        "{{input.a}",
        "{{}}",
        "{{ input.a }}",
        "{{input}}",
        "{{input.}}",
        "{{input..a}}",
        "{{input.a.}}",
        "{{.input.a}}",
        "{{input.a*}}",
        "{{input.*.a}}",
        "{{input.a b}}",
        "{{Input.a}}",
        "{{secret:}}",
        "{{secret:lower}}",
        "{{secret:A-B}}",
        "{{secret:A B}}",
        "{{secret.A}}",
        "{{effect.ids}}",
        "{{effect.i}}",
        "{{env.HOME}}",
        "{{{input.a}}}",
        "{{{{input.a}}}}",
        "{{input.{{input.a}}}}",
        "{{response.a}}",
        "{{input.a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q}}",
    };
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        struct template template;
        struct error err = {0};
        if (template_parse(refused[i], TEMPLATE_IN_WRITE, "/place", &template, &err))
            fail_msg("%s was taken", refused[i]);
        assert_int_equal(err.code, ERROR_INVALID);
        assert_string_equal(err.place, "/place");
    }
}

static void test_parse_bounds(void **state)
{
    (void)state;
    struct template template;
    struct error err = {0};
    char text[16 * (TEMPLATE_PARTS_MAX + 1) + 1] = "";
    for (int i = 0; i < TEMPLATE_PARTS_MAX; i++)
        strcat(text, "{{input.a}}");
    assert_true(template_parse(text, TEMPLATE_IN_WRITE, "/x", &template, &err));
    strcat(text, "{{input.a}}");
    assert_false(template_parse(text, TEMPLATE_IN_WRITE, "/x", &template, &err));

    char name[PATH_LENGTH_MAX + 32];
    memset(name, 'a', sizeof(name));
    memcpy(name, "{{input.", 8);
    memcpy(name + sizeof(name) - 3, "}}", 3);
    assert_false(template_parse(name, TEMPLATE_IN_WRITE, "/x", &template, &err));
}

static void test_paths(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        const char *found; /* canonical JSON, NULL: nothing */
    } cases[] = {
        {"a", "{'0':'zero','b':[1,[2,3]]}"},
        {"a.b", "[1,[2,3]]"},
        {"a.b.0", "1"},
        {"a.b.1.1", "3"},
        {"a.0", "'zero'"},
        {"a.b.2", NULL},
        {"a.b.-1", NULL},
        {"a.b.00", NULL},
        {"a.b.+0", NULL},
        {"a.b.18446744073709551616", NULL},
        {"a.b.x", NULL},
        {"a.b.0.x", NULL},
        {"n", "null"},
        {"n.x", NULL},
        {"\xc3\xa4", "true"},
        {"b", NULL},
    };
    json_t *root = json_of("{'a':{'b':[1,[2,3]],'0':'zero'},'n':null,'\xc3\xa4':true}");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const json_t *value = path_find(root, cases[i].path, strlen(cases[i].path));
        if (!cases[i].found) {
            assert_null(value);
            continue;
        }
        json_t *expected = json_of(cases[i].found);
        assert_true(json_equal(value, expected));
        json_decref(expected);
    }
    json_decref(root);

    char place[16];
    assert_string_equal(path_pointer("/input", "a.b", 3, place, sizeof(place)), "/input/a/b");
    assert_string_equal(path_pointer("/in", "a/b~c", 5, place, sizeof(place)), "/in/a~1b~0c");
    path_pointer("/input", "aaaaaaaaaaaaaaaaaaaaaaaaaa", 26, place, sizeof(place));
    assert_true(strlen(place) < sizeof(place));
}

/* Puts a template with {'v': VALUE} and says how that place then looks, or where it is refused. */
static void put_is(enum place place, const char *source, const char *input, const char *expected,
                   const char *refused_at)
{
    struct error err = {0};
    struct template template;
    json_t *json = json_of(input);
    struct template_values values = {.input = json};
    struct request *request = request_new("POST", "https://api.example.com", BODY_TEXT, &err);
    assert_non_null(request);
    assert_true(template_parse(source, TEMPLATE_IN_WRITE, "/x", &template, &err));
    if (place == PLACE_HEADER)
        request_put_header(request, "X-Test");
    bool ok =
        template_put(&template, &values, place, request, &err) && request_check(request, &err);
    if (ok != (expected != NULL))
        fail_msg("%s with %s: %s %s", source, input, err.place, err.text);
    if (!ok) {
        assert_int_equal(err.code, ERROR_INVALID);
        assert_string_equal(err.place, refused_at);
    } else {
        char text[512];
        static const char origin[] = "POST https://api.example.com:443";
        if (place == PLACE_URL)
            snprintf(text, sizeof(text), "%s%s\n\n", origin, expected);
        else if (place == PLACE_HEADER)
            snprintf(text, sizeof(text), "%s/\nX-Test: %s\n\n", origin, expected);
        else
            snprintf(text, sizeof(text), "%s/\n\n%s", origin, expected);
        request_shows(request, text);
    }
    request_free(request);
    json_decref(json);
}

static void test_url_values(void **state)
{
    (void)state;
    static const struct {
        const char *source, *input, *expected, *refused_at;
    } cases[] = {
        {"/o/{{input.v}}", "{'v':'a'}", "/o/a", NULL},
        {"/o/{{input.v}}", "{'v':7}", "/o/7", NULL},
        {"/o/{{input.v}}", "{'v':true}", "/o/true", NULL},
        {"/o/{{input.v}}", "{'v':1e2}", "/o/100", NULL},
        {"/o/{{input.v}}", "{'v':'../admin'}", "/o/..%2Fadmin", NULL},
        {"/o/{{input.v}}", "{'v':'a?b=c&d#e'}", "/o/a%3Fb%3Dc%26d%23e", NULL},
        {"/o/{{input.v}}", "{'v':'@evil.test'}", "/o/%40evil.test", NULL},
        {"/o/{{input.v}}", "{'v':'%2f%2e%2e'}", "/o/%252f%252e%252e", NULL},
        {"/o/{{input.v}}", "{'v':'a b\\\\c;d:e'}", "/o/a%20b%5Cc%3Bd%3Ae", NULL},
        {"/o/{{input.v}}", "{'v':'\xc3\xbc\xf0\x9f\x92\xb6'}", "/o/%C3%BC%F0%9F%92%B6", NULL},
        {"/o/{{input.v}}", "{'v':'\\r\\nHost: x'}", "/o/%0D%0AHost%3A%20x", NULL},
        {"/o/{{input.v}}", "{'v':'{{secret:K}}'}", "/o/%7B%7Bsecret%3AK%7D%7D", NULL},
        {"/o/{{input.v}}", "{'v':'.'}", NULL, "/input/v"},
        {"/o/{{input.v}}", "{'v':'..'}", NULL, "/input/v"},
        {"/o/{{input.v}}/x", "{'v':'..'}", NULL, "/input/v"},
        {"/o/{{input.v}}?x", "{'v':'..'}", NULL, "/input/v"},
        {"/o/{{input.v}}", "{'v':'...'}", "/o/...", NULL},
        {"/o/a{{input.v}}", "{'v':'..'}", "/o/a..", NULL},
        {"/o/.{{input.v}}", "{'v':'.'}", NULL, "url"},
        {"/o/{{input.v}}{{input.v}}", "{'v':'.'}", NULL, "url"},
        {"/o/{{input.v}}", "{'v':''}", NULL, "/input/v"},
        {"/o/a{{input.v}}", "{'v':''}", NULL, "/input/v"},
        {"/o?q={{input.v}}", "{'v':''}", "/o?q=", NULL},
        {"/o?q={{input.v}}", "{'v':'..'}", "/o?q=..", NULL},
        {"/o?q={{input.v}}", "{'v':'a&b=c+d#'}", "/o?q=a%26b%3Dc%2Bd%23", NULL},
        {"/o/{{input.v}}", "{'v':null}", NULL, "/input/v"},
        {"/o/{{input.v}}", "{'v':[1]}", NULL, "/input/v"},
        {"/o/{{input.v}}", "{'v':{}}", NULL, "/input/v"},
        {"/o/{{input.v}}", "{}", NULL, "/input/v"},
        {"/o/{{input.v.w.0}}", "{'v':{'w':[]}}", NULL, "/input/v/w/0"},
        {"/o/{{effect.id}}/{{secret:K}}", "{}", "/o/" EFFECT_ID "/sk%261", NULL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        put_is(PLACE_URL, cases[i].source, cases[i].input, cases[i].expected, cases[i].refused_at);
}

static void test_header_values(void **state)
{
    (void)state;
    static const struct {
        const char *source, *input, *expected, *refused_at;
    } cases[] = {
        {"Bearer {{secret:K}}", "{}", "Bearer sk&1", NULL},
        {"{{input.v}}", "{'v':'a b'}", "a b", NULL},
        {"{{input.v}}", "{'v':'{{secret:K}} {{effect.id}}'}", "{{secret:K}} {{effect.id}}", NULL},
        {"n={{input.v}}", "{'v':-3}", "n=-3", NULL},
        {"{{input.v}}", "{'v':'a\\r\\nX: y'}", NULL, "/input/v"},
        {"{{input.v}}", "{'v':'a\\n'}", NULL, "/input/v"},
        {"{{input.v}}", "{'v':'a\\u007f'}", NULL, "/input/v"},
        {"{{input.v}}", "{'v':'\\u0001'}", NULL, "/input/v"},
        {"{{input.v}}", "{'v':'\\t'}", NULL, "/input/v"},
        {"{{input.v}}", "{'v':{}}", NULL, "/input/v"},
        {"{{input.v}}", "{}", NULL, "/input/v"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        put_is(PLACE_HEADER, cases[i].source, cases[i].input, cases[i].expected,
               cases[i].refused_at);
}

static void test_text_body_values(void **state)
{
    (void)state;
    put_is(PLACE_BODY, "Hi {{input.v}}, {{effect.id}}", "{'v':'\\u00fc{{input.v}}\\r\\n'}",
           "Hi \xc3\xbc{{input.v}}\r\n, " EFFECT_ID, NULL);
    put_is(PLACE_BODY, "{{input.v}}", "{'v':0.5}", "0.5", NULL);
    put_is(PLACE_BODY, "{{input.v}}", "{'v':9007199254740991}", "9007199254740991", NULL);
}

static void test_trial(void **state)
{
    (void)state;
    struct error err = {0};
    struct template template;
    struct template_values trial = {.input_trial = true, .response_trial = true};
    struct request *request = request_new("GET", "https://api.example.com", BODY_NONE, &err);
    assert_true(
        template_parse("/{{input.a}}/{{response.b}}", TEMPLATE_IN_READ, "/x", &template, &err));
    assert_true(template_put(&template, &trial, PLACE_URL, request, &err));
    request_shows(request, "GET https://api.example.com:443/x/x\n");
    request_free(request);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse),
        cmocka_unit_test(test_parse_refused),
        cmocka_unit_test(test_parse_bounds),
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_url_values),
        cmocka_unit_test(test_header_values),
        cmocka_unit_test(test_text_body_values),
        cmocka_unit_test(test_trial),
    };
    return cmocka_run_group_tests(tests, destinations_setup, NULL);
}
