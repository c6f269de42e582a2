/* Verify rules: what may be declared, the read-back request, and which answers confirm a write. */
#include "adapters/verify.h"
#include "tests/adapters.h"

#define RULE "{'url':'https://api.example.com/x','status':200"

static void test_check(void **state)
{
    (void)state;
    static const struct {
        const char *verify;
        const char *refused_at; /* NULL: taken */
    } cases[] = {
        {RULE "}", NULL},
        {RULE ",'match':null}", NULL},
        {RULE ",'match':[]}", NULL},
        {RULE ",'match':[{'path':'data.*.id','equals':'x','absent':true}]}", NULL},
        {RULE ",'match':[{'path':'a','equals':null},{'path':'*.0','equals':1.5}]}", NULL},
        {RULE ",'match':[{'path':'a','equals':'{{input.x}}'}]}", NULL},
        {RULE ",'match':[{'path':'a','equals':'{{response.x.0}}'}]}", NULL},
        {RULE ",'match':[{'path':'a','equals':'{{effect.id}}'}]}", NULL},
        {"7", "/verify"},
        {"{'status':200}", "/verify/url"},
        {"{'url':'https://api.example.com/x'}", "/verify/status"},
        {"{'url':'https://api.example.com/x','status':'200'}", "/verify/status"},
        {"{'url':'https://api.example.com/x','status':200.0}", "/verify/status"},
        {"{'url':'https://api.example.com/x','status':302}", "/verify/status"},
        {"{'url':'https://api.example.com/x','status':401}", "/verify/status"},
        {"{'url':'https://api.example.com/x','status':429}", "/verify/status"},
        {"{'url':'https://api.example.com/x','status':500}", "/verify/status"},
        {"{'url':'https://api.example.com/x','status':4294967496}", "/verify/status"},
        {RULE ",'method':'POST'}", "/verify/method"},
        {RULE ",'match':{}}", "/verify/match"},
        {RULE ",'match':[1,2,3,4,5,6,7,8,9,10,11]}", "/verify/match"},
        {RULE ",'match':[7]}", "/verify/match/0"},
        {RULE ",'match':[{'path':'a','equals':1,'x':1}]}", "/verify/match/0/x"},
        {RULE ",'match':[{'equals':1}]}", "/verify/match/0/path"},
        {RULE ",'match':[{'path':'','equals':1}]}", "/verify/match/0/path"},
        {RULE ",'match':[{'path':'a..b','equals':1}]}", "/verify/match/0/path"},
        {RULE ",'match':[{'path':'a*','equals':1}]}", "/verify/match/0/path"},
        {RULE ",'match':[{'path':'$.a b','equals':1}]}", "/verify/match/0/path"},
        {RULE ",'match':[{'path':'a'}]}", "/verify/match/0/equals"},
        {RULE ",'match':[{'path':'a','equals':[]}]}", "/verify/match/0/equals"},
        {RULE ",'match':[{'path':'a','equals':{}}]}", "/verify/match/0/equals"},
        {RULE ",'match':[{'path':'a','equals':'x{{input.x}}'}]}", "/verify/match/0/equals"},
        {RULE ",'match':[{'path':'a','equals':'{{input.x}}{{input.y}}'}]}",
         "/verify/match/0/equals"},
        {RULE ",'match':[{'path':'a','equals':'{{secret:K}}'}]}", "/verify/match/0/equals"},
        {RULE ",'match':[{'path':'a','equals':'{{bad}}'}]}", "/verify/match/0/equals"},
        {RULE ",'match':[{'path':'a','equals':1,'absent':'yes'}]}", "/verify/match/0/absent"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct error err = {0};
        json_t *verify = json_of(cases[i].verify);
        bool ok = verify_check(verify, &err);
        if (ok != !cases[i].refused_at)
            fail_msg("%s: %s %s", cases[i].verify, err.place, err.text);
        if (!ok) {
            assert_int_equal(err.code, ERROR_INVALID);
            assert_string_equal(err.place, cases[i].refused_at);
        }
        json_decref(verify);
    }
}

/* One read-back of a declared action: its facts, and what came of it. */
struct reading {
    json_t *definition, *input, *response;
    struct read_back_facts facts;
    struct read_back read;
};

static void reading_start(struct reading *r, const char *definition, const char *input,
                          const char *response)
{
    *r = (struct reading){.definition = json_of(definition), .input = json_of(input)};
    r->response = response ? json_of(response) : NULL;
    r->facts = (struct read_back_facts){
        .action = {"a", 1, r->definition},
        .provider_key = "key-1",
        .input = r->input,
        .response = r->response,
    };
    assert_true(ulid_parse(EFFECT_ULID, 26, &r->facts.effect));
    adapter_find("template")->read_back_start(&r->facts, &r->read);
}

static void reading_end(struct reading *r)
{
    read_back_free(&r->read);
    json_decref(r->definition);
    json_decref(r->input);
    json_decref(r->response);
}

static void reading_answer(struct reading *r, const struct answer *answer, const char *transport)
{
    r->read.requests++;
    adapter_find("template")->read_back_answer(&r->facts, answer, transport, &r->read);
    assert_null(r->read.next);
}

#define ACTION(verify)                                                                             \
    "{'urlTemplate':'https://api.example.com/v1','headers':{'Authorization':'Bearer "              \
    "{{secret:K}}','X-Tenant':'{{input.t}}','Content-Type':'application/json','If-Match':'1',"     \
    "'Idempotency-Key':'{{effect.id}}'},'bodyTemplate':{},'verify':" verify "}"

static void test_request(void **state)
{
    (void)state;
    static const char definition[] =
        ACTION("{'url':'https://api.example.com/v1/{{input.a}}/{{response.id}}?k={{secret:K}}&"
               "e={{effect.id}}','status':200}");
    struct reading r;
    reading_start(&r, definition, "{'a':'x/y','t':'acme'}", "{'id':7}");
    assert_int_equal(r.read.what, READ_NEXT);
    request_shows(r.read.next, "GET https://api.example.com:443/v1/x%2Fy/7?k=sk%261&e=" EFFECT_ID
                               "\nAuthorization: Bearer sk&1\nX-Tenant: acme\n");
    reading_end(&r);
}

static void test_impossible(void **state)
{
    (void)state;
    static const struct {
        const char *definition, *input, *response, *text;
    } cases[] = {
        {ACTION("{'url':'https://api.example.com/v1/{{response.id}}','status':200}"), "{'t':'a'}",
         NULL, "The read-back needs response.id, and no answer was kept."},
        {ACTION("{'url':'https://api.example.com/v1/{{response.id}}','status':200}"), "{'t':'a'}",
         "{'ID':1}",
         "The read-back needs response.id, and the answer that was kept does not hold it."},
        {ACTION("{'url':'https://api.example.com/v1/{{response.id}}','status':200}"), "{'t':'a'}",
         "'text'",
         "The read-back needs response.id, and the answer that was kept does not hold it."},
        {ACTION("{'url':'https://api.example.com/v1/{{response.id}}','status':200}"), "{'t':'a'}",
         "{'id':{}}",
         "The read-back can't be made: response.id must be a string, a number or a boolean to "
         "stand in text."},
        {ACTION("{'url':'https://api.example.com/v1/{{response.id}}','status':200}"), "{'t':'a'}",
         "{'id':'..'}",
         "The read-back can't be made: response.id can't be . or .. in the path of a URL."},
        {ACTION("{'url':'https://api.example.com/v1/{{input.id}}','status':200}"), "{'t':'a'}",
         NULL, "The read-back can't be made: input.id is needed and missing."},
        {ACTION("{'url':'https://api.example.com/v1','status':200}"), "{}", NULL,
         "The read-back can't be made: input.t is needed and missing."},
        {ACTION("{'url':'https://api.example.com/v1','status':200,'match':[{'path':'a','equals':"
                "'{{response.id}}'}]}"),
         "{'t':'a'}", NULL, "The read-back needs response.id, and no answer was kept."},
        {ACTION("null"), "{'t':'a'}", NULL, "The action declares no read-back."},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct reading r;
        reading_start(&r, cases[i].definition, cases[i].input, cases[i].response);
        assert_int_equal(r.read.what, READ_IMPOSSIBLE);
        assert_string_equal(r.read.text, cases[i].text);
        assert_null(r.read.next);
        reading_end(&r);
    }
}

static void test_matching(void **state)
{
    (void)state;
    static const struct {
        const char *match, *body;
        bool matches;
    } cases[] = {
        {"{'path':'a','equals':'x'}", "{'a':'x'}", true},
        {"{'path':'a','equals':'x'}", "{'a':'X'}", false},
        {"{'path':'a','equals':'x'}", "{'a':'xy'}", false},
        {"{'path':'a','equals':'x'}", "{}", false},
        {"{'path':'a','equals':'x'}", "{'a':['x']}", false},
        {"{'path':'a','equals':'x'}", "['x']", false},
        {"{'path':'a','equals':5}", "{'a':5}", true},
        {"{'path':'a','equals':5}", "{'a':5.0}", true},
        {"{'path':'a','equals':5}", "{'a':50e-1}", true},
        {"{'path':'a','equals':5}", "{'a':5.5}", false},
        {"{'path':'a','equals':5}", "{'a':'5'}", false},
        {"{'path':'a','equals':1}", "{'a':true}", false},
        {"{'path':'a','equals':0.5}", "{'a':0.5}", true},
        {"{'path':'a','equals':9007199254740991}", "{'a':9007199254740992.0}", false},
        {"{'path':'a','equals':5}", "{'a':1e300}", false},
        {"{'path':'a','equals':true}", "{'a':true}", true},
        {"{'path':'a','equals':true}", "{'a':1}", false},
        {"{'path':'a','equals':false}", "{'a':null}", false},
        {"{'path':'a','equals':null}", "{'a':null}", true},
        {"{'path':'a','equals':null}", "{}", false},
        {"{'path':'a.b.1','equals':2}", "{'a':{'b':[1,2]}}", true},
        {"{'path':'*.id','equals':2}", "[{'id':1},{'id':2}]", true},
        {"{'path':'*.id','equals':3}", "[{'id':1},{'id':2}]", false},
        {"{'path':'a.*.b.*','equals':3}", "{'a':[{'b':[1]},7,{'b':[2,3]}]}", true},
        {"{'path':'a.*','equals':1}", "{'a':{'x':1}}", false},
        {"{'path':'a.*','equals':1}", "{'a':[]}", false},
        {"{'path':'a','equals':'{{input.s}}'}", "{'a':'in'}", true},
        {"{'path':'a','equals':'{{input.n}}'}", "{'a':7.0}", true},
        {"{'path':'a','equals':'{{input.n}}'}", "{'a':'7'}", false},
        {"{'path':'a','equals':'{{input.o}}'}", "{'a':{'y':[1],'x':null}}", true},
        {"{'path':'a','equals':'{{response.id}}'}", "{'a':'r-1'}", true},
        {"{'path':'a','equals':'{{response.id}}'}", "{'a':'r-2'}", false},
        {"{'path':'a','equals':'{{effect.id}}'}", "{'a':'" EFFECT_ID "'}", true},
        {"{'path':'a','equals':'{{effect.id}}'}", "{'a':'eff_0'}", false},
        {"{'path':'l.*.name','equals':'x','absent':true}", "{'l':[{'name':'y'}]}", true},
        {"{'path':'l.*.name','equals':'x','absent':true}", "{'l':[{'name':'y'},{'name':'x'}]}",
         false},
        {"{'path':'l.*.name','equals':'x','absent':true}", "{'l':[]}", true},
        {"{'path':'a','equals':'x','absent':false}", "{'a':'x'}", true},
        {"{'path':'a','equals':1},{'path':'b','equals':2}", "{'a':1,'b':2}", true},
        {"{'path':'a','equals':1},{'path':'b','equals':2}", "{'a':1,'b':3}", false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct answer answer;
        struct reading r;
        char definition[512];
        snprintf(definition, sizeof(definition),
                 "{'urlTemplate':'https://api.example.com/v1','verify':{'url':"
                 "'https://api.example.com/v1','status':200,'match':[%s]}}",
                 cases[i].match);
        reading_start(&r, definition, "{'s':'in','n':7,'o':{'x':null,'y':[1]}}", "{'id':'r-1'}");
        assert_int_equal(r.read.what, READ_NEXT);
        answer_make_json(&answer, "HTTP/1.1 200 OK", cases[i].body);
        reading_answer(&r, &answer, NULL);
        if (r.read.what != (cases[i].matches ? READ_MATCH : READ_NOT_FOUND))
            fail_msg("%s on %s: %s", cases[i].match, cases[i].body, r.read.text);
        answer_free(&answer);
        reading_end(&r);
    }
}

#define NO_MATCH                                                                                   \
    "The read-back did not match the declared verify rule. That does not prove the write failed, " \
    "so the outcome stays unknown."

static void test_answers(void **state)
{
    (void)state;
    static const struct {
        int status; /* declared */
        const char *head, *body;
        enum read_what what;
        int64_t retry_after_ms;
        const char *text; /* NULL: not looked at */
    } cases[] = {
        {200, "HTTP/1.1 200 OK", "{}", READ_MATCH, 0, NULL},
        {200, "HTTP/1.1 200 OK", "", READ_MATCH, 0, NULL},
        {204, "HTTP/1.1 204 No Content", "", READ_MATCH, 0, NULL},
        {200, "HTTP/1.1 201 Created", "{}", READ_NOT_FOUND, 0, NO_MATCH},
        {200, "HTTP/1.1 404 Not Found", "{}", READ_NOT_FOUND, 0, NO_MATCH},
        {200, "HTTP/1.1 410 Gone", "", READ_NOT_FOUND, 0, NO_MATCH},
        {404, "HTTP/1.1 404 Not Found", "", READ_MATCH, 0, NULL},
        {404, "HTTP/1.1 200 OK", "{}", READ_NOT_FOUND, 0, NO_MATCH},
        {404, "HTTP/1.1 404 Not Found\nContent-Type: text/html", "<html>", READ_UNUSABLE, 0, NULL},
        {200, "HTTP/1.1 200 OK\nContent-Type: TEXT/HTML; a=b", "<html>", READ_UNUSABLE, 0, NULL},
        {200, "HTTP/1.1 301 Moved\nLocation: /x", "", READ_UNUSABLE, 0, NULL},
        {200, "HTTP/1.1 400 Bad Request", "{}", READ_UNUSABLE, 0,
         "The read-back got no usable answer: HTTP 400."},
        {200, "HTTP/1.1 401 Unauthorized", "{}", READ_UNUSABLE, 0, NULL},
        {200, "HTTP/1.1 403 Forbidden", "{}", READ_UNUSABLE, 0, NULL},
        {200, "HTTP/1.1 408 Time-out", "{}", READ_UNUSABLE, 0, NULL},
        {200, "HTTP/1.1 429 Slow\nRetry-After: 7", "{}", READ_UNUSABLE, 7000, NULL},
        {200, "HTTP/1.1 429 Slow\nRetry-After: 99999999999999999999", "{}", READ_UNUSABLE, 86400000,
         NULL},
        {200, "HTTP/1.1 429 Slow\nRetry-After: soon", "{}", READ_UNUSABLE, 0, NULL},
        {200, "HTTP/1.1 429 Slow\nRetry-After: -5", "{}", READ_UNUSABLE, 0, NULL},
        {200,
         "HTTP/1.1 503 Busy\nDate: Sun, 06 Nov 1994 08:49:37 GMT\nRetry-After: Sun, 06 Nov 1994 "
         "08:50:07 GMT",
         "{}", READ_UNUSABLE, 30000, NULL},
        {200,
         "HTTP/1.1 503 Busy\nDate: Sun, 06 Nov 1994 08:49:37 GMT\nRetry-After: Sun, 06 Nov 1994 "
         "08:49:00 GMT",
         "{}", READ_UNUSABLE, 0, NULL},
        {200, "HTTP/1.1 500 Error", "{}", READ_UNUSABLE, 0, NULL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct answer answer;
        struct reading r;
        char definition[256];
        snprintf(definition, sizeof(definition),
                 "{'urlTemplate':'https://api.example.com/v1','verify':{'url':"
                 "'https://api.example.com/v1','status':%d}}",
                 cases[i].status);
        reading_start(&r, definition, "{}", NULL);
        answer_make_json(&answer, cases[i].head, cases[i].body);
        reading_answer(&r, &answer, NULL);
        if (r.read.what != cases[i].what || r.read.retry_after_ms != cases[i].retry_after_ms)
            fail_msg("%d: %s: %s", cases[i].status, cases[i].head, r.read.text);
        if (cases[i].text)
            assert_string_equal(r.read.text, cases[i].text);
        answer_free(&answer);
        reading_end(&r);
    }
}

static void test_broken_answers(void **state)
{
    (void)state;
    static const char definition[] =
        "{'urlTemplate':'https://api.example.com/v1','verify':{'url':'https://api.example.com/v1',"
        "'status':200,'match':[{'path':'a','equals':1}]}}";
    static const char *const bodies[] = {
        "",           "not JSON", "{\"a\":1",           "{\"a\":1,\"a\":2}",
        "{\"a\":1}x", "\xff",     "{\"a\":\"\\u0000\"}"};
    struct answer answer;
    struct reading r;
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        reading_start(&r, definition, "{}", NULL);
        answer_make(&answer, "HTTP/1.1 200 OK", bodies[i]);
        reading_answer(&r, &answer, NULL);
        assert_int_equal(r.read.what, READ_UNUSABLE);
        answer_free(&answer);
        reading_end(&r);
    }

    reading_start(&r, definition, "{}", NULL);
    reading_answer(&r, NULL, "connection refused");
    assert_int_equal(r.read.what, READ_UNUSABLE);
    assert_string_equal(r.read.text, "The read-back got no answer: connection refused.");
    reading_end(&r);

    reading_start(&r, definition, "{}", NULL);
    answer_init(&answer, 1000);
    answer_take_line(&answer, "HTTP/1.1 200 OK\r\n", 17, true);
    answer_take_line(&answer, "Content-Length: 100\r\n", 21, true);
    answer_take_line(&answer, "\r\n", 2, true);
    answer_take_body(&answer, "{\"a\":1}", 7);
    answer_finish(&answer, false);
    reading_answer(&r, &answer, "cut");
    assert_int_equal(r.read.what, READ_UNUSABLE);
    answer_free(&answer);
    reading_end(&r);
}

/* A body of stars under stars is walked once, and nesting far past ours does no harm. */
static void test_hostile_bodies(void **state)
{
    (void)state;
    static const char definition[] =
        "{'urlTemplate':'https://api.example.com/v1','verify':{'url':'https://api.example.com/v1',"
        "'status':200,'match':[{'path':'*.*.*.*.*.*.*.*.*.*.*.*.*.*.*.*','equals':1}]}}";
    struct answer answer;
    struct reading r;
    char body[3001];
    memset(body, '[', 1500);
    memset(body + 1500, ']', 1500);
    body[3000] = '\0';
    reading_start(&r, definition, "{}", NULL);
    answer_make(&answer, "HTTP/1.1 200 OK", body);
    reading_answer(&r, &answer, NULL);
    assert_int_equal(r.read.what, READ_NOT_FOUND);
    answer_free(&answer);
    reading_end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_check),          cmocka_unit_test(test_request),
        cmocka_unit_test(test_impossible),     cmocka_unit_test(test_matching),
        cmocka_unit_test(test_answers),        cmocka_unit_test(test_broken_answers),
        cmocka_unit_test(test_hostile_bodies),
    };
    return cmocka_run_group_tests(tests, destinations_setup, NULL);
}
