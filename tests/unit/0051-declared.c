/* Declared actions: what may be declared, and the request, impact and resource that an input gives.
 */
#include "tests/adapters.h"

#define URL "'urlTemplate':'https://api.example.com/v1/orders/{{input.id}}'"

static void test_check(void **state)
{
    (void)state;
    static const struct {
        const char *definition;
        const char *refused_at; /* NULL: taken */
    } cases[] = {
        {"{" URL "}", NULL},
        {"{" URL ",'method':'post','headers':null,'bodyTemplate':null,'impact':null}", NULL},
        {"{'urlTemplate':'https://api.example.com'}", NULL},
        {"{'urlTemplate':'https://api.example.com?q={{input.q}}','method':'GET'}", NULL},
        {"{'urlTemplate':'https://api.example.com:8443/a'}", NULL},
        {"{'urlTemplate':'http://127.0.0.1:8420/a'}", NULL},
        {"{'urlTemplate':'http://sandbox.test/a'}", NULL},
        {"{}", "/urlTemplate"},
        {"{'urlTemplate':7}", "/urlTemplate"},
        {"{'urlTemplate':''}", "/urlTemplate"},
        {"{'urlTemplate':'/v1/orders'}", "/urlTemplate"},
        {"{'urlTemplate':'http://api.example.com/a'}", "/urlTemplate"},
        {"{'urlTemplate':'ftp://api.example.com/a'}", "/urlTemplate"},
        {"{'urlTemplate':'https://127.0.0.1:8421/a'}", "/urlTemplate"},
        {"{'urlTemplate':'https://169.254.169.254/latest'}", "/urlTemplate"},
        {"{'urlTemplate':'https://user@api.example.com/a'}", "/urlTemplate"},
        {"{'urlTemplate':'https://user:pw@api.example.com/a'}", "/urlTemplate"},
        {"{'urlTemplate':'https://{{input.host}}/a'}", "/urlTemplate"},
        {"{'urlTemplate':'https://api.{{input.host}}/a'}", "/urlTemplate"},
        {"{'urlTemplate':'https://api.example.com{{input.host}}/a'}", "/urlTemplate"},
        {"{'urlTemplate':'https://api.example.com:{{input.port}}/a'}", "/urlTemplate"},
        {"{'urlTemplate':'{{input.url}}'}", "/urlTemplate"},
        {"{'urlTemplate':'{{input.scheme}}://api.example.com'}", "/urlTemplate"},
        {"{'urlTemplate':'https://{{secret:HOST}}/a'}", "/urlTemplate"},
        {"{'urlTemplate':'https://api.example.com/{id}'}", "/urlTemplate"},
        {"{'urlTemplate':'https://api.example.com/{{id}}'}", "/urlTemplate"},
        {"{'urlTemplate':'https://api.example.com/{{response.id}}'}", "/urlTemplate"},
        {"{'urlTemplate':'https://api.example.com/../a'}", "/urlTemplate"},
        {"{'urlTemplate':'https://api.example.com/%2e%2E/a'}", "/urlTemplate"},
        {"{'urlTemplate':'https://api.example.com/a#b'}", "/urlTemplate"},
        {"{'urlTemplate':'https://api.example.com/a b'}", "/urlTemplate"},
        {"{'urlTemplate':'https://api.example.com/\\u00fc'}", "/urlTemplate"},
        {"{'urlTemplate':'https://api.example.com\\\\@evil.test/'}", "/urlTemplate"},
        {"{" URL ",'method':'TRACE'}", "/method"},
        {"{" URL ",'method':'CONNECTED'}", "/method"},
        {"{" URL ",'method':7}", "/method"},
        {"{" URL ",'method':'GET','bodyTemplate':{}}", "/bodyTemplate"},
        {"{" URL ",'headers':[]}", "/headers"},
        {"{" URL ",'headers':{'X-A':7}}", "/headers/X-A"},
        {"{" URL ",'headers':{'X-A':'{{nope}}'}}", "/headers/X-A"},
        {"{" URL ",'headers':{'X A':'b'}}", "/headers/X A"},
        {"{" URL ",'headers':{'':'b'}}", "/headers/"},
        {"{" URL ",'headers':{'{{input.a}}':'b'}}", "/headers/{{input.a}}"},
        {"{" URL ",'headers':{'host':'evil.test'}}", "/headers/host"},
        {"{" URL ",'headers':{'Content-Length':'0'}}", "/headers/Content-Length"},
        {"{" URL ",'headers':{'Transfer-Encoding':'chunked'}}", "/headers/Transfer-Encoding"},
        {"{" URL ",'headers':{'connection':'close'}}", "/headers/connection"},
        {"{" URL ",'headers':{'Expect':'100-continue'}}", "/headers/Expect"},
        {"{" URL ",'headers':{'TE':'trailers'}}", "/headers/TE"},
        {"{" URL ",'headers':{'Upgrade':'h2c'}}", "/headers/Upgrade"},
        {"{" URL ",'headers':{'Proxy-Authorization':'x'}}", "/headers/Proxy-Authorization"},
        {"{" URL ",'headers':{'X-A':'a\\r\\nb'}}", "/headers/X-A"},
        {"{" URL ",'headers':{'X-A':'a','x-a':'b'}}", "/headers/x-a"},
        {"{" URL ",'headers':{'Content-Type':'{{input.t}}'}}", "/headers/Content-Type"},
        {"{" URL ",'headers':{'Content-Type':'a{{input.t}}'}}", "/headers/Content-Type"},
        {"{" URL ",'bodyTemplate':{'a':{'b':['{{input.x}}','{{bad}}']}}}", "/bodyTemplate/a/b/1"},
        {"{" URL ",'bodyTemplate':{'a':'{{response.x}}'}}", "/bodyTemplate/a"},
        {"{" URL ",'bodyTemplate':{'{{input.k}}':1}}", "/bodyTemplate/{{input.k}}"},
        {"{" URL ",'bodyTemplate':{},'headers':{'content-type':'application/xml'}}",
         "/bodyTemplate"},
        {"{" URL ",'bodyTemplate':{},'headers':{'content-type':'application/vnd.x+json; a=b'}}",
         NULL},
        {"{" URL ",'bodyTemplate':'<a>{{input.x}}</a>','headers':{'content-type':'text/xml'}}",
         "/bodyTemplate"},
        {"{" URL ",'bodyTemplate':'<a>{{effect.id}}</a>','headers':{'content-type':'text/xml'}}",
         NULL},
        {"{" URL ",'bodyTemplate':'a={{input.x}}','headers':{'Content-Type':"
         "'application/x-www-form-urlencoded'}}",
         "/bodyTemplate"},
        {"{" URL ",'bodyTemplate':'[{{input.x}}]','headers':{'Content-Type':'application/json'}}",
         "/bodyTemplate"},
        {"{" URL ",'bodyTemplate':{'a':[]},'headers':{'Content-Type':"
         "'application/x-www-form-urlencoded'}}",
         "/bodyTemplate/a"},
        {"{" URL ",'bodyTemplate':[],'headers':{'Content-Type':"
         "'application/x-www-form-urlencoded'}}",
         "/bodyTemplate"},
        {"{" URL ",'adapter':{'type':'template'}}", "/adapter"},
        {"{" URL ",'governed':'yes'}", "/governed"},
        {"{" URL ",'effectKey':'x'}", "/effectKey"},
        {"{" URL ",'impact':{'dimension':'a','amount':'x','bound':'exact'}}", "/impact/amount"},
        {"{" URL ",'verify':{'url':'https://api.example.com/{{response.id}}','status':200}}", NULL},
        {"{" URL ",'verify':{'url':'https://API.example.com:443/x','status':404}}", NULL},
        {"{" URL ",'verify':{'url':'https://evil.test/{{response.id}}','status':200}}",
         "/verify/url"},
        {"{" URL ",'verify':{'url':'https://api.example.com:444/x','status':200}}", "/verify/url"},
        {"{" URL ",'verify':{'url':'https://api.example.com/{{input.}}','status':200}}",
         "/verify/url"},
        {"{" URL ",'verify':{'url':'https://api.example.com/..','status':200}}", "/verify/url"},
        {"{'urlTemplate':'http://sandbox.test/a','verify':{'url':'https://sandbox.test:80/a',"
         "'status':200}}",
         "/verify/url"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct error err = {0};
        json_t *definition = json_of(cases[i].definition);
        bool ok = adapter_find("template")->check(definition, &err);
        if (ok != !cases[i].refused_at)
            fail_msg("%s: %s %s", cases[i].definition, err.place, err.text);
        if (!ok) {
            assert_int_equal(err.code, ERROR_INVALID);
            assert_string_equal(err.place, cases[i].refused_at);
        }
        json_decref(definition);
    }
}

/* Checks the definition, prepares the input, and compares the request as it would leave. */
static void prepare_is(const char *definition_text, const char *input_text, const char *expected,
                       const char *refused_at)
{
    struct error err = {0};
    struct prepared prepared;
    json_t *definition = json_of(definition_text);
    json_t *input = json_of(input_text);
    const struct adapter *adapter = adapter_of(definition);
    struct adapter_action action = {"a", 1, definition};
    if (!adapter->check(definition, &err))
        fail_msg("%s: %s %s", definition_text, err.place, err.text);
    bool ok = adapter->prepare(&action, input, &prepared, &err);
    if (ok != (expected != NULL))
        fail_msg("%s %s: %s %s", definition_text, input_text, err.place, err.text);
    if (ok) {
        request_shows(prepared.request, expected);
        prepared_free(&prepared);
    } else {
        assert_string_equal(err.place, refused_at);
    }
    json_decref(input);
    json_decref(definition);
}

#define ORIGIN "https://api.example.com:443"
#define KEY "Idempotency-Key: key-1\n"
#define JSON_TYPE "Content-Type: application/json\n"

static void test_prepare(void **state)
{
    (void)state;
    static const struct {
        const char *definition, *input, *expected, *refused_at;
    } cases[] = {
        {"{" URL "}", "{'id':'o/1'}", "POST " ORIGIN "/v1/orders/o%2F1\n" KEY, NULL},
        {"{" URL ",'method':'get','headers':{'Authorization':'Bearer {{secret:K}}'}}", "{'id':1}",
         "GET " ORIGIN "/v1/orders/1\nAuthorization: Bearer sk&1\n", NULL},
        {"{" URL ",'method':'DELETE'}", "{'id':1}", "DELETE " ORIGIN "/v1/orders/1\n" KEY, NULL},
        {"{" URL ",'headers':{'idempotency-key':'{{effect.id}}'}}", "{'id':1}",
         "POST " ORIGIN "/v1/orders/1\nidempotency-key: " EFFECT_ID "\n", NULL},
        {"{" URL ",'bodyTemplate':{'a':'x{{input.gone}}'}}", "{'id':1}", NULL, "/input/gone"},
        {"{" URL ",'bodyTemplate':['{{input.gone}}']}", "{'id':1}", NULL, "/input/gone"},
        {"{" URL ",'bodyTemplate':{'a':'x{{input.o}}'}}", "{'id':1,'o':{}}", NULL, "/input/o"},
        {"{" URL ",'bodyTemplate':{'a':'x{{input.o}}'}}", "{'id':1,'o':[]}", NULL, "/input/o"},
        {"{" URL ",'bodyTemplate':{'a':'{{input.o}}'}}", "{'id':1,'o':null}",
         "POST " ORIGIN "/v1/orders/1\n" JSON_TYPE KEY "\n{\"a\":null}", NULL},
        {"{" URL ",'bodyTemplate':'{{input.o}}'}", "{'id':1,'o':{'b':[],'a':1}}",
         "POST " ORIGIN "/v1/orders/1\n" JSON_TYPE KEY "\n{\"a\":1,\"b\":[]}", NULL},
        {"{" URL ",'bodyTemplate':'{{input.o}}'}", "{'id':1}", NULL, "/input/o"},
        {"{" URL ",'bodyTemplate':7}", "{'id':1}",
         "POST " ORIGIN "/v1/orders/1\n" JSON_TYPE KEY "\n7", NULL},
        {"{" URL ",'bodyTemplate':{}}", "{'id':1}",
         "POST " ORIGIN "/v1/orders/1\n" JSON_TYPE KEY "\n{}", NULL},
        /* A template in a value stays text, wherever it ends up. */
        {"{" URL ",'bodyTemplate':{'a':'{{input.s}}','b':'-{{input.s}}'}}",
         "{'id':'{{secret:K}}','s':'{{effect.id}}{{secret:K}}'}",
         "POST " ORIGIN "/v1/orders/%7B%7Bsecret%3AK%7D%7D\n" JSON_TYPE KEY
         "\n{\"a\":\"{{effect.id}}{{secret:K}}\",\"b\":\"-{{effect.id}}{{secret:K}}\"}",
         NULL},
        {"{" URL ",'bodyTemplate':{'a':'{{secret:K}}','b':'k {{secret:K}}'}}", "{'id':1}",
         "POST " ORIGIN "/v1/orders/1\n" JSON_TYPE KEY "\n{\"a\":\"sk&1\",\"b\":\"k sk&1\"}", NULL},
        /* Forms. */
        {"{" URL ",'headers':{'Content-Type':'application/x-www-form-urlencoded'},'bodyTemplate':"
         "{'b':'{{input.s}}','a[x]':7,'c':null,'d':'{{input.gone}}','e':'{{input.n}}','f':true,"
         "'g':'{{secret:K}}'}}",
         "{'id':1,'s':'a b&c=d+\\u00fc','n':null}",
         "POST " ORIGIN "/v1/orders/1\nContent-Type: application/x-www-form-urlencoded\n" KEY
         "\na%5Bx%5D=7&b=a+b%26c%3Dd%2B%C3%BC&f=true&g=sk%261",
         NULL},
        {"{" URL ",'headers':{'Content-Type':'application/x-www-form-urlencoded'},'bodyTemplate':"
         "{'b':'{{input.s}}'}}",
         "{'id':1,'s':[1]}", NULL, "/input/s"},
        /* Text. */
        {"{" URL ",'bodyTemplate':'Hi {{input.s}}'}", "{'id':1,'s':'a\\nb'}",
         "POST " ORIGIN "/v1/orders/1\nContent-Type: text/plain; charset=utf-8\n" KEY "\nHi a\nb",
         NULL},
        {"{" URL ",'headers':{'Content-Type':'text/plain'},'bodyTemplate':'{{input.s}}'}",
         "{'id':1,'s':'x'}", "POST " ORIGIN "/v1/orders/1\nContent-Type: text/plain\n" KEY "\nx",
         NULL},
        {"{" URL ",'headers':{'X-B':'{{input.b}}','X-A':'{{input.a}}'}}",
         "{'id':1,'a':1,'b':'two'}", "POST " ORIGIN "/v1/orders/1\nX-A: 1\nX-B: two\n" KEY, NULL},
        {"{" URL ",'headers':{'X-B':'{{input.b}}'}}", "{'id':1,'b':'a\\r\\nX-Admin: 1'}", NULL,
         "/input/b"},
        {"{" URL "}", "{'id':'..'}", NULL, "/input/id"},
        {"{'urlTemplate':'https://api.example.com/a/.{{input.id}}'}", "{'id':'.'}", NULL, "/input"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        prepare_is(cases[i].definition, cases[i].input, cases[i].expected, cases[i].refused_at);
}

/* Types are kept, text is inserted, and what was left out leaves its member out. */
static void test_json_types(void **state)
{
    (void)state;
    prepare_is("{" URL ",'bodyTemplate':{'z':'{{input.n}}','a':['{{input.l}}',null,1.5,true],"
               "'s':'no {{input.n}}, {{input.s}}','o':'{{input.gone}}','e':'{{effect.id}}'}}",
               "{'id':1,'n':7,'l':[{'b':1,'a':2}],'s':'\\u0022\\u005c'}",
               "POST " ORIGIN "/v1/orders/1\n" JSON_TYPE KEY
               "\n{\"a\":[[{\"a\":2,\"b\":1}],null,1.5,true],\"e\":\"" EFFECT_ID
               "\",\"s\":\"no 7, \\\"\\\\\",\"z\":7}",
               NULL);
}

static void test_governed(void **state)
{
    (void)state;
    static const struct {
        const char *definition;
        bool governed;
    } cases[] = {
        {"{" URL "}", false},
        {"{" URL ",'impact':null,'verify':null,'governed':false}", false},
        {"{" URL ",'governed':true}", true},
        {"{" URL ",'impact':{}}", true},
        {"{" URL ",'verify':{}}", true},
        {"{'adapter':{'type':'stripe.refund'}}", true},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        json_t *definition = json_of(cases[i].definition);
        assert_int_equal(adapter_of(definition)->governed(definition), cases[i].governed);
        json_decref(definition);
    }
}

static void test_registry(void **state)
{
    (void)state;
    static const char *const unknown[] = {"{'adapter':{'type':'nope'}}", "{'adapter':{}}",
                                          "{'adapter':'template'}", "{'adapter':{'type':7}}"};
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
        json_t *definition = json_of(unknown[i]);
        assert_null(adapter_of(definition));
        json_decref(definition);
    }
    assert_null(adapter_find("nope"));
    assert_string_equal(adapter_find("template")->type, "template");
    assert_string_equal(adapter_find("stripe.refund")->type, "stripe.refund");
}

static void test_impact_and_resource(void **state)
{
    (void)state;
    static const struct {
        const char *definition, *input, *resource;
        bool has_amount, has_read_back;
    } cases[] = {
        {"{" URL ",'impact':{'dimension':'a','amount':'input.n','bound':'exact'}}",
         "{'id':'x y','n':3}", "api.example.com/v1/orders/x%20y", true, false},
        {"{" URL ",'impact':{'dimension':'a','amount':'input.n','bound':'exact'}}", "{'id':'x'}",
         "api.example.com/v1/orders/x", false, false},
        {"{'urlTemplate':'https://api.example.com:8443/{{secret:K}}/{{effect.id}}/z?q=1',"
         "'verify':{'url':'https://api.example.com:8443/{{response.id}}','status':200}}",
         "{}", "api.example.com:8443/{K}/{effect.id}/z", false, true},
        {"{'urlTemplate':'https://api.example.com?q=1','verify':{'url':"
         "'https://api.example.com/{{input.n}}','status':200}}",
         "{}", "api.example.com/", false, false},
        {"{'urlTemplate':'https://api.example.com/a','verify':{'url':'https://api.example.com/b',"
         "'status':200,'match':[{'path':'x','equals':'{{input.n}}'}]}}",
         "{}", "api.example.com/a", false, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct error err = {0};
        struct prepared prepared;
        json_t *definition = json_of(cases[i].definition);
        json_t *input = json_of(cases[i].input);
        struct adapter_action action = {"a", 1, definition};
        assert_true(adapter_of(definition)->check(definition, &err));
        if (!adapter_of(definition)->prepare(&action, input, &prepared, &err))
            fail_msg("%s: %s", cases[i].definition, err.text);
        assert_string_equal(prepared.impact.resource, cases[i].resource);
        assert_int_equal(prepared.impact.has_amount, cases[i].has_amount);
        assert_int_equal(prepared.has_read_back, cases[i].has_read_back);
        assert_false(prepared.fault_drill);
        prepared_free(&prepared);
        json_decref(input);
        json_decref(definition);
    }
}

/* The same values in another order give the same request, to the byte. */
static void test_order_does_not_matter(void **state)
{
    (void)state;
    static const char *const definitions[] = {
        "{" URL ",'headers':{'X-A':'1','X-B':'2'},'bodyTemplate':{'a':'{{input.o}}','b':1}}",
        "{'bodyTemplate':{'b':1,'a':'{{input.o}}'},'headers':{'X-B':'2','X-A':'1'}," URL "}",
    };
    static const char *const inputs[] = {"{'id':1,'o':{'x':1,'y':2}}",
                                         "{'o':{'y':2,'x':1},'id':1}"};
    struct buf encoded[2];
    for (size_t i = 0; i < 2; i++) {
        struct error err = {0};
        struct prepared prepared;
        json_t *definition = json_of(definitions[i]);
        json_t *input = json_of(inputs[i]);
        struct adapter_action action = {"a", 1, definition};
        assert_true(adapter_of(definition)->prepare(&action, input, &prepared, &err));
        buf_init(&encoded[i], REQUEST_ENCODED_MAX);
        assert_true(request_encode(prepared.request, &encoded[i]));
        assert_null(strstr(encoded[i].data, EFFECT_ID));
        prepared_free(&prepared);
        json_decref(input);
        json_decref(definition);
    }
    assert_string_equal(encoded[0].data, encoded[1].data);
    buf_free(&encoded[0]);
    buf_free(&encoded[1]);
}

static void test_answer(void **state)
{
    (void)state;
    struct answer answer;
    struct answer_meaning meaning;
    answer_make(&answer, "HTTP/1.1 200 OK", "\xff not JSON");
    adapter_find("template")->read_answer(NULL, NULL, &answer, &meaning);
    assert_int_equal(meaning.what, MEANING_SUCCEEDED);
    assert_string_equal(meaning.object_id, "");
    answer_free(&answer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_prepare),
        cmocka_unit_test(test_json_types),
        cmocka_unit_test(test_governed),
        cmocka_unit_test(test_registry),
        cmocka_unit_test(test_impact_and_resource),
        cmocka_unit_test(test_order_does_not_matter),
        cmocka_unit_test(test_answer),
    };
    return cmocka_run_group_tests(tests, destinations_setup, NULL);
}
