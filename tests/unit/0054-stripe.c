/* stripe.refund: configuration, input, the form that is sent, what answers mean, and the read-back
 * through pages, errors, contradictions and second records. */
#include "tests/adapters.h"

#define CONFIG "'account':'acct_1','mode':'test','currency':'usd'"
#define ADAPTER(config)                                                                            \
    "{'adapter':{'type':'stripe.refund','config':{" config "},'credentialSecret':'STRIPE_KEY'}}"
#define LOCAL ADAPTER(CONFIG ",'baseUrl':'http://127.0.0.1:8420'")

static const struct adapter *stripe(void)
{
    return adapter_find("stripe.refund");
}

static void test_check(void **state)
{
    (void)state;
    static const struct {
        const char *definition;
        const char *refused_at; /* NULL: taken */
    } cases[] = {
        {ADAPTER(CONFIG), NULL},
        {LOCAL, NULL},
        {ADAPTER("'account':'acct_1','mode':'live','currency':'jpy'"), NULL},
        {ADAPTER(CONFIG ",'faultDrill':'drop_response_after_send'"), NULL},
        {"{'adapter':{'type':'stripe.refund','config':{" CONFIG "}}}", "/adapter/credentialSecret"},
        {"{'adapter':{'type':'stripe.refund','config':{" CONFIG "},'credentialSecret':'lower'}}",
         "/adapter/credentialSecret"},
        {"{'adapter':{'type':'stripe.refund','config':{" CONFIG "},'credentialSecret':'K','x':1}}",
         "/adapter/x"},
        {"{'adapter':{'type':'stripe.refund','credentialSecret':'K'}}", "/adapter/config"},
        {ADAPTER(CONFIG ",'x':1"), "/adapter/config/x"},
        {ADAPTER("'mode':'test','currency':'usd'"), "/adapter/config/account"},
        {ADAPTER("'account':'a/b','mode':'test','currency':'usd'"), "/adapter/config/account"},
        {ADAPTER("'account':'','mode':'test','currency':'usd'"), "/adapter/config/account"},
        {ADAPTER("'account':'a','mode':'prod','currency':'usd'"), "/adapter/config/mode"},
        {ADAPTER("'account':'a','currency':'usd'"), "/adapter/config/mode"},
        {ADAPTER("'account':'a','mode':'test','currency':'USD'"), "/adapter/config/currency"},
        {ADAPTER("'account':'a','mode':'test'"), "/adapter/config/currency"},
        {ADAPTER(CONFIG ",'baseUrl':7"), "/adapter/config/baseUrl"},
        {ADAPTER(CONFIG ",'baseUrl':'https://evil.example'"), "/adapter/config/baseUrl"},
        {ADAPTER(CONFIG ",'baseUrl':'http://127.0.0.1:8421'"), "/adapter/config/baseUrl"},
        {ADAPTER(CONFIG ",'baseUrl':'http://127.0.0.1:8420/?a=b'"), "/adapter/config/baseUrl"},
        {ADAPTER(CONFIG ",'baseUrl':'http://u@127.0.0.1:8420'"), "/adapter/config/baseUrl"},
        {ADAPTER(CONFIG ",'faultDrill':'drop'"), "/adapter/config/faultDrill"},
        {ADAPTER("'account':'a','mode':'live','currency':'usd','faultDrill':"
                 "'drop_response_after_send'"),
         "/adapter/config/faultDrill"},
        {"{'governed':true,'adapter':{'type':'stripe.refund','config':{" CONFIG
         "},'credentialSecret':'K'}}",
         "/governed"},
        {"{'impact':{},'adapter':{'type':'stripe.refund','config':{" CONFIG
         "},'credentialSecret':'K'}}",
         "/impact"},
        {"{'verify':{},'adapter':{'type':'stripe.refund','config':{" CONFIG
         "},'credentialSecret':'K'}}",
         "/verify"},
        {"{'urlTemplate':'https://x.test','adapter':{'type':'stripe.refund','config':{" CONFIG
         "},'credentialSecret':'K'}}",
         "/urlTemplate"},
        {"{'effectKey':'x','adapter':{'type':'stripe.refund','config':{" CONFIG
         "},'credentialSecret':'K'}}",
         "/effectKey"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct error err = {0};
        json_t *definition = json_of(cases[i].definition);
        bool ok = stripe()->check(definition, &err);
        if (ok != !cases[i].refused_at)
            fail_msg("%s: %s %s", cases[i].definition, err.place, err.text);
        if (!ok) {
            assert_int_equal(err.code, ERROR_INVALID);
            assert_string_equal(err.place, cases[i].refused_at);
        }
        json_decref(definition);
    }
}

#define HEAD                                                                                       \
    "POST http://127.0.0.1:8420/v1/refunds\nAuthorization: Bearer sk&1\n"                          \
    "Content-Type: application/x-www-form-urlencoded\nIdempotency-Key: key-1\n\n"
#define TAG "metadata[holdfast_effect]=" EFFECT_ID

static void test_prepare(void **state)
{
    (void)state;
    static const struct {
        const char *input;
        const char *expected; /* body */
        const char *refused_at;
    } cases[] = {
        {"{'payment_intent':'pi_1','amount':12000}", "amount=12000&payment_intent=pi_1&" TAG, NULL},
        {"{'charge':'ch_1','amount':1,'reason':'duplicate'}",
         "amount=1&charge=ch_1&reason=duplicate&" TAG, NULL},
        {"{'payment_intent':'pi_1'}", "payment_intent=pi_1&" TAG, NULL},
        {"{'metadata':{'z':'a&b=c','a b':'{{secret:K}}'},'payment_intent':'pi_1'}",
         "payment_intent=pi_1&" TAG "&metadata[a+b]=%7B%7Bsecret%3AK%7D%7D&metadata[z]=a%26b%3Dc",
         NULL},
        {"{'payment_intent':'pi_1','metadata':{}}", "payment_intent=pi_1&" TAG, NULL},
        {"{}", NULL, "/input/payment_intent"},
        {"{'payment_intent':'pi_1','charge':'ch_1'}", NULL, "/input/payment_intent"},
        {"{'paymentIntent':'pi_1'}", NULL, "/input/paymentIntent"},
        {"{'payment_intent':'pi_1','currency':'usd'}", NULL, "/input/currency"},
        {"{'payment_intent':'','amount':1}", NULL, "/input/payment_intent"},
        {"{'payment_intent':'pi_1&amount=1'}", NULL, "/input/payment_intent"},
        {"{'payment_intent':'../x'}", NULL, "/input/payment_intent"},
        {"{'payment_intent':7}", NULL, "/input/payment_intent"},
        {"{'charge':null}", NULL, "/input/charge"},
        {"{'payment_intent':'pi_1','amount':0}", NULL, "/input/amount"},
        {"{'payment_intent':'pi_1','amount':-1}", NULL, "/input/amount"},
        {"{'payment_intent':'pi_1','amount':100.0}", NULL, "/input/amount"},
        {"{'payment_intent':'pi_1','amount':1e2}", NULL, "/input/amount"},
        {"{'payment_intent':'pi_1','amount':'100'}", NULL, "/input/amount"},
        {"{'payment_intent':'pi_1','amount':null}", NULL, "/input/amount"},
        {"{'payment_intent':'pi_1','reason':'because'}", NULL, "/input/reason"},
        {"{'payment_intent':'pi_1','reason':null}", NULL, "/input/reason"},
        {"{'payment_intent':'pi_1','metadata':[]}", NULL, "/input/metadata"},
        {"{'payment_intent':'pi_1','metadata':{'a':1}}", NULL, "/input/metadata/a"},
        {"{'payment_intent':'pi_1','metadata':{'':'x'}}", NULL, "/input/metadata/"},
        {"{'payment_intent':'pi_1','metadata':{'a]':'x'}}", NULL, "/input/metadata/a]"},
        {"{'payment_intent':'pi_1','metadata':{'holdfast_effect':'x'}}", NULL,
         "/input/metadata/holdfast_effect"},
        {"[]", NULL, "/input"},
    };
    json_t *definition = json_of(LOCAL);
    struct adapter_action action = {"refund", 1, definition};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct error err = {0};
        struct prepared prepared;
        json_t *input = json_of(cases[i].input);
        bool ok = stripe()->prepare(&action, input, &prepared, &err);
        if (ok != (cases[i].expected != NULL))
            fail_msg("%s: %s %s", cases[i].input, err.place, err.text);
        if (ok) {
            char expected[1024];
            snprintf(expected, sizeof(expected), HEAD "%s", cases[i].expected);
            request_shows(prepared.request, expected);
            prepared_free(&prepared);
        } else {
            assert_int_equal(err.code, ERROR_INVALID);
            assert_string_equal(err.place, cases[i].refused_at);
        }
        json_decref(input);
    }
    json_decref(definition);
}

static void prepare_one(const char *definition_text, const char *input_text, struct prepared *out)
{
    struct error err = {0};
    json_t *definition = json_of(definition_text);
    json_t *input = json_of(input_text);
    struct adapter_action action = {"refund", 1, definition};
    assert_true(stripe()->check(definition, &err));
    assert_true(stripe()->prepare(&action, input, out, &err));
    json_decref(input);
    json_decref(definition);
}

static void test_impact(void **state)
{
    (void)state;
    struct prepared prepared;
    prepare_one(ADAPTER("'account':'acct_1','mode':'live','currency':'jpy'"),
                "{'payment_intent':'pi_1','amount':500}", &prepared);
    assert_string_equal(prepared.request->host, "api.stripe.com");
    assert_true(prepared.request->https);
    assert_true(prepared.has_read_back);
    assert_false(prepared.fault_drill);
    assert_true(prepared.impact.declared && prepared.impact.has_amount);
    assert_int_equal(prepared.impact.amount, 500);
    assert_string_equal(prepared.impact.dimension, "money");
    assert_string_equal(prepared.impact.unit, "jpy");
    assert_string_equal(prepared.impact.bound, "exact");
    assert_string_equal(prepared.impact.resource, "stripe/acct_1/pi_1");
    prepared_free(&prepared);

    prepare_one(ADAPTER(CONFIG ",'faultDrill':'drop_response_after_send'"), "{'charge':'ch_1'}",
                &prepared);
    assert_true(prepared.fault_drill);
    assert_false(prepared.impact.has_amount);
    assert_string_equal(prepared.impact.resource, "stripe/acct_1/ch_1");
    prepared_free(&prepared);
}

static void test_answer(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        int what;
        const char *object_id;
    } cases[] = {
        {"{'id':'re_1','status':'succeeded'}", MEANING_SUCCEEDED, "re_1"},
        {"{'id':'re_1','status':'pending'}", MEANING_PENDING, "re_1"},
        {"{'id':'re_1','status':'requires_action'}", MEANING_PENDING, "re_1"},
        {"{'id':'re_1','status':'failed'}", MEANING_FAILED, "re_1"},
        {"{'id':'re_1','status':'canceled'}", MEANING_FAILED, "re_1"},
        {"{'id':'re_1','status':null}", MEANING_PENDING, "re_1"},
        {"{'id':'re_1','status':'new_word'}", MEANING_PENDING, "re_1"},
        {"{'id':7,'status':'failed'}", MEANING_SUCCEEDED, ""},
        {"{'id':'re 1','status':'failed'}", MEANING_SUCCEEDED, ""},
        {"{}", MEANING_SUCCEEDED, ""},
        {"[]", MEANING_SUCCEEDED, ""},
        {"", MEANING_SUCCEEDED, ""},
        {"\xff\xfe", MEANING_SUCCEEDED, ""},
        {"{'id':'\\u0000','status':'failed'}", MEANING_SUCCEEDED, ""},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct answer answer;
        struct answer_meaning meaning;
        answer_make_json(&answer, "HTTP/1.1 200 OK", cases[i].body);
        stripe()->read_answer(NULL, NULL, &answer, &meaning);
        if ((int)meaning.what != cases[i].what)
            fail_msg("%s: %d", cases[i].body, (int)meaning.what);
        assert_string_equal(meaning.object_id, cases[i].object_id);
        answer_free(&answer);
    }
}

/* ---- read-backs ---- */

struct reading {
    json_t *definition, *input;
    struct read_back_facts facts;
    struct read_back read;
};

static void reading_start(struct reading *r, const char *input, const char *object_id)
{
    *r = (struct reading){.definition = json_of(LOCAL), .input = json_of(input)};
    r->facts = (struct read_back_facts){
        .action = {"refund", 1, r->definition},
        .provider_key = "key-1",
        .input = r->input,
        .object_id = object_id,
    };
    assert_true(ulid_parse(EFFECT_ULID, 26, &r->facts.effect));
    stripe()->read_back_start(&r->facts, &r->read);
}

static void reading_end(struct reading *r)
{
    read_back_free(&r->read);
    json_decref(r->definition);
    json_decref(r->input);
}

static void reading_asks(struct reading *r, const char *path)
{
    char expected[512];
    assert_int_equal(r->read.what, READ_NEXT);
    snprintf(expected, sizeof(expected),
             "GET http://127.0.0.1:8420/v1/refunds%s\nAuthorization: Bearer sk&1\n", path);
    request_shows(r->read.next, expected);
}

static void reading_answer(struct reading *r, const char *head, const char *body)
{
    struct answer answer;
    answer_make_json(&answer, head, body);
    r->read.requests++;
    stripe()->read_back_answer(&r->facts, &answer, NULL, &r->read);
    assert_int_equal(r->read.what == READ_NEXT, r->read.next != NULL);
    answer_free(&answer);
}

#define ASKED "{'payment_intent':'pi_1','amount':500}"
#define OK "HTTP/1.1 200 OK"
#define RECORD(id, status, tag)                                                                    \
    "{'id':'" id "','object':'refund','amount':500,'currency':'usd','payment_intent':'pi_1',"      \
    "'status':" status ",'metadata':" tag "}"
#define OURS "{'holdfast_effect':'" EFFECT_ID "','x':'y'}"
#define OTHERS "{'holdfast_effect':'eff_01BX5ZZKBKACTAV9WEVGEMMVRZ'}"
#define PAGE(more, items) "{'object':'list','has_more':" more ",'data':[" items "]}"

/* One page, no id known. */
static void test_single_page(void **state)
{
    (void)state;
    static const struct {
        const char *head, *body;
        enum read_what what;
        const char *object_id;
    } cases[] = {
        {OK, PAGE("false", RECORD("re_1", "'succeeded'", OURS)), READ_MATCH, "re_1"},
        {OK,
         PAGE("false",
              RECORD("re_0", "'succeeded'", OTHERS) "," RECORD("re_1", "'succeeded'", OURS)),
         READ_MATCH, "re_1"},
        {OK, PAGE("false", RECORD("re_1", "'pending'", OURS)), READ_NOT_FINAL, "re_1"},
        {OK, PAGE("false", RECORD("re_1", "'requires_action'", OURS)), READ_NOT_FINAL, "re_1"},
        {OK, PAGE("false", RECORD("re_1", "null", OURS)), READ_NOT_FINAL, "re_1"},
        {OK, PAGE("false", RECORD("re_1", "'new_word'", OURS)), READ_NOT_FINAL, "re_1"},
        {OK, PAGE("false", RECORD("re_1", "'failed'", OURS)), READ_PROVIDER_FAILED, "re_1"},
        {OK, PAGE("false", RECORD("re_1", "'canceled'", OURS)), READ_PROVIDER_FAILED, "re_1"},
        /* The same record twice is one; two records are a conflict, whatever they say. */
        {OK,
         PAGE("false", RECORD("re_1", "'succeeded'", OURS) "," RECORD("re_1", "'succeeded'", OURS)),
         READ_MATCH, "re_1"},
        {OK,
         PAGE("false", RECORD("re_1", "'succeeded'", OURS) "," RECORD("re_2", "'succeeded'", OURS)),
         READ_CONFLICT, ""},
        {OK, PAGE("false", RECORD("re_1", "'failed'", OURS) "," RECORD("re_2", "'pending'", OURS)),
         READ_CONFLICT, ""},
        /* Ours, and not what was asked for. */
        {OK,
         PAGE("false", "{'id':'re_1','amount':501,'currency':'usd','payment_intent':'pi_1',"
                       "'status':'succeeded','metadata':" OURS "}"),
         READ_CONFLICT, "re_1"},
        {OK,
         PAGE("false", "{'id':'re_1','amount':500.0,'currency':'usd','payment_intent':'pi_1',"
                       "'status':'succeeded','metadata':" OURS "}"),
         READ_CONFLICT, "re_1"},
        {OK,
         PAGE("false", "{'id':'re_1','amount':500,'currency':'jpy','payment_intent':'pi_1',"
                       "'status':'succeeded','metadata':" OURS "}"),
         READ_CONFLICT, "re_1"},
        {OK,
         PAGE("false", "{'id':'re_1','amount':500,'currency':'usd','payment_intent':'pi_2',"
                       "'status':'failed','metadata':" OURS "}"),
         READ_CONFLICT, "re_1"},
        {OK,
         PAGE("false", "{'id':'re_1','amount':500,'currency':'usd','status':'pending',"
                       "'metadata':" OURS "}"),
         READ_CONFLICT, "re_1"},
        {OK,
         PAGE("false", "{'id':'re_1','amount':500,'currency':'usd','payment_intent':"
                       "{'id':'pi_1'},'status':'succeeded','metadata':" OURS "}"),
         READ_MATCH, "re_1"},
        /* Not ours. */
        {OK, PAGE("false", ""), READ_NOT_FOUND, ""},
        {OK, PAGE("false", RECORD("re_1", "'succeeded'", "{}")), READ_NOT_FOUND, ""},
        {OK, PAGE("false", RECORD("re_1", "'succeeded'", "null")), READ_NOT_FOUND, ""},
        {OK, PAGE("false", "{'id':'re_1','amount':500}"), READ_NOT_FOUND, ""},
        {"HTTP/1.1 404 Not Found", "{'error':{'message':'No such payment_intent'}}", READ_NOT_FOUND,
         ""},
        /* Not usable. */
        {OK, "{'object':'list','data':[]}", READ_UNUSABLE, ""},
        {OK, "{'has_more':false}", READ_UNUSABLE, ""},
        {OK, "{'has_more':false,'data':{}}", READ_UNUSABLE, ""},
        {OK, PAGE("false", "7"), READ_UNUSABLE, ""},
        {OK, PAGE("false", "{'id':''}"), READ_UNUSABLE, ""},
        {OK, PAGE("true", ""), READ_UNUSABLE, ""},
        {OK, "[]", READ_UNUSABLE, ""},
        {OK, "", READ_UNUSABLE, ""},
        {OK "\nContent-Type: text/html", "<html>", READ_UNUSABLE, ""},
        {"HTTP/1.1 400 Bad Request", "{}", READ_UNUSABLE, ""},
        {"HTTP/1.1 401 Unauthorized", "{}", READ_UNUSABLE, ""},
        {"HTTP/1.1 500 Oops", "oops", READ_UNUSABLE, ""},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct reading r;
        reading_start(&r, ASKED, NULL);
        reading_asks(&r, "?payment_intent=pi_1&limit=100");
        reading_answer(&r, cases[i].head, cases[i].body);
        if (r.read.what != cases[i].what)
            fail_msg("%s %s: %d %s", cases[i].head, cases[i].body, (int)r.read.what, r.read.text);
        assert_string_equal(r.read.object_id, cases[i].object_id);
        reading_end(&r);
    }
}

static void test_sentences(void **state)
{
    (void)state;
    struct reading r;
    reading_start(&r, ASKED, NULL);
    reading_answer(&r, OK, PAGE("false", ""));
    assert_string_equal(r.read.text,
                        "The read-back did not find this operation. That does not prove the write "
                        "failed, so the outcome stays unknown.");
    reading_end(&r);

    reading_start(&r, ASKED, NULL);
    reading_answer(&r, OK, PAGE("false", RECORD("re_1", "'succeeded'", OURS)));
    assert_string_equal(r.read.text,
                        "The provider's refund re_1 is succeeded and agrees in amount, "
                        "currency and payment_intent.");
    reading_end(&r);

    reading_start(&r, ASKED, NULL);
    reading_answer(&r, "HTTP/1.1 429 Slow\nRetry-After: 3", "{}");
    assert_string_equal(r.read.text, "The read-back got no usable answer: HTTP 429.");
    assert_int_equal(r.read.retry_after_ms, 3000);
    reading_end(&r);

    reading_start(&r, ASKED, NULL);
    stripe()->read_back_answer(&r.facts, NULL, "time-out", &r.read);
    assert_int_equal(r.read.what, READ_UNUSABLE);
    assert_string_equal(r.read.text, "The read-back got no answer: time-out.");
    reading_end(&r);
}

/* All pages are read before anything is said: the second record may be on the last one. */
static void test_pages(void **state)
{
    (void)state;
    struct reading r;
    reading_start(&r, ASKED, NULL);
    reading_answer(&r, OK, PAGE("true", RECORD("re_a", "'succeeded'", OTHERS)));
    reading_asks(&r, "?payment_intent=pi_1&limit=100&starting_after=re_a");
    reading_answer(&r, OK, PAGE("false", RECORD("re_b", "'succeeded'", OURS)));
    assert_int_equal(r.read.what, READ_MATCH);
    assert_int_equal(r.read.requests, 2);
    reading_end(&r);

    reading_start(&r, ASKED, NULL);
    reading_answer(&r, OK, PAGE("true", RECORD("re_a", "'succeeded'", OURS)));
    reading_asks(&r, "?payment_intent=pi_1&limit=100&starting_after=re_a");
    reading_answer(&r, OK, PAGE("true", RECORD("re_b", "'succeeded'", OTHERS)));
    reading_asks(&r, "?payment_intent=pi_1&limit=100&starting_after=re_b");
    reading_answer(&r, OK, PAGE("false", RECORD("re_c", "'succeeded'", OURS)));
    assert_int_equal(r.read.what, READ_CONFLICT);
    assert_string_equal(r.read.text,
                        "The provider has two refunds for this effect: re_a and re_c.");
    reading_end(&r);

    /* An error in the middle says nothing, even after a match. */
    reading_start(&r, ASKED, NULL);
    reading_answer(&r, OK, PAGE("true", RECORD("re_a", "'succeeded'", OURS)));
    reading_answer(&r, "HTTP/1.1 500 Oops", "");
    assert_int_equal(r.read.what, READ_UNUSABLE);
    reading_end(&r);

    /* A provider that ignores starting_after. */
    reading_start(&r, ASKED, NULL);
    reading_answer(&r, OK, PAGE("true", RECORD("re_a", "'succeeded'", OURS)));
    reading_answer(&r, OK, PAGE("true", RECORD("re_a", "'succeeded'", OURS)));
    assert_int_equal(r.read.what, READ_UNUSABLE);
    reading_end(&r);
}

static void test_pages_are_bounded(void **state)
{
    (void)state;
    struct reading r;
    reading_start(&r, ASKED, NULL);
    for (int i = 0; i < READ_PAGES_MAX; i++) {
        char body[512];
        assert_int_equal(r.read.what, READ_NEXT);
        snprintf(body, sizeof(body), PAGE("true", "{'id':'re_%d'}"), i);
        reading_answer(&r, OK, body);
    }
    assert_int_equal(r.read.what, READ_UNUSABLE);
    assert_int_equal(r.read.requests, READ_PAGES_MAX);
    reading_end(&r);
}

/* Where the id is known, that refund is read first, then the list for a second one. */
static void test_by_id(void **state)
{
    (void)state;
    static const struct {
        const char *head, *record; /* the answer by id */
        const char *list;          /* the list that follows, or NULL: none is asked for */
        enum read_what what;
    } cases[] = {
        {OK, RECORD("re_1", "'succeeded'", OURS),
         PAGE("false", RECORD("re_1", "'succeeded'", OURS)), READ_MATCH},
        {OK, RECORD("re_1", "'succeeded'", OURS), PAGE("false", ""), READ_MATCH},
        {OK, RECORD("re_1", "'succeeded'", "{}"), PAGE("false", ""), READ_MATCH},
        {OK, RECORD("re_1", "'succeeded'", OURS),
         PAGE("false", RECORD("re_2", "'succeeded'", OURS)), READ_CONFLICT},
        {OK, RECORD("re_1", "'failed'", OURS), PAGE("false", RECORD("re_2", "'succeeded'", OURS)),
         READ_CONFLICT},
        {OK, RECORD("re_1", "'failed'", OURS), PAGE("false", RECORD("re_1", "'failed'", OURS)),
         READ_PROVIDER_FAILED},
        {OK, RECORD("re_1", "'pending'", OURS), NULL, READ_NOT_FINAL},
        {OK, RECORD("re_1", "'succeeded'", OTHERS), NULL, READ_CONFLICT},
        {OK, RECORD("re_2", "'succeeded'", OURS), NULL, READ_UNUSABLE},
        {OK, "{}", NULL, READ_UNUSABLE},
        {OK,
         "{'id':'re_1','amount':400,'currency':'usd','payment_intent':'pi_1','status':'succeeded'}",
         PAGE("false", ""), READ_CONFLICT},
        {"HTTP/1.1 404 Not Found", "{}", PAGE("false", ""), READ_NOT_FOUND},
        {"HTTP/1.1 404 Not Found", "{}", PAGE("false", RECORD("re_2", "'succeeded'", OURS)),
         READ_MATCH},
        {"HTTP/1.1 503 Busy", "{}", NULL, READ_UNUSABLE},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct reading r;
        reading_start(&r, ASKED, "re_1");
        reading_asks(&r, "/re_1");
        reading_answer(&r, cases[i].head, cases[i].record);
        if (cases[i].list) {
            reading_asks(&r, "?payment_intent=pi_1&limit=100");
            reading_answer(&r, OK, cases[i].list);
        }
        if (r.read.what != cases[i].what)
            fail_msg("%s: %d %s", cases[i].record, (int)r.read.what, r.read.text);
        reading_end(&r);
    }

    struct reading r; /* a list that is a 404 holds no second one */
    reading_start(&r, ASKED, "re_1");
    reading_answer(&r, OK, RECORD("re_1", "'succeeded'", OURS));
    reading_answer(&r, "HTTP/1.1 404 Not Found", "{}");
    assert_int_equal(r.read.what, READ_MATCH);
    reading_end(&r);
}

static void test_charge_and_full_refund(void **state)
{
    (void)state;
    struct reading r;
    reading_start(&r, "{'charge':'ch_1'}", NULL);
    reading_asks(&r, "?charge=ch_1&limit=100");
    reading_answer(&r, OK,
                   PAGE("false",
                        "{'id':'re_1','amount':7,'currency':'usd','charge':'ch_1',"
                        "'payment_intent':null,'status':'succeeded','metadata':" OURS "}"));
    assert_int_equal(r.read.what, READ_MATCH);
    assert_string_equal(
        r.read.text, "The provider's refund re_1 is succeeded and agrees in currency and charge.");
    reading_end(&r);

    reading_start(&r, "{'charge':'ch_1'}", NULL);
    reading_answer(&r, OK,
                   PAGE("false", "{'id':'re_1','amount':7,'currency':'usd','charge':'ch_2',"
                                 "'status':'succeeded','metadata':" OURS "}"));
    assert_int_equal(r.read.what, READ_CONFLICT);
    reading_end(&r);
}

static void test_table(void **state)
{
    (void)state;
    json_t *definition = json_of(LOCAL);
    assert_true(stripe()->governed(definition));
    assert_int_equal(stripe()->replay_window_s, 86400);
    json_decref(definition);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_check),       cmocka_unit_test(test_prepare),
        cmocka_unit_test(test_impact),      cmocka_unit_test(test_answer),
        cmocka_unit_test(test_single_page), cmocka_unit_test(test_sentences),
        cmocka_unit_test(test_pages),       cmocka_unit_test(test_pages_are_bounded),
        cmocka_unit_test(test_by_id),       cmocka_unit_test(test_charge_and_full_refund),
        cmocka_unit_test(test_table),
    };
    return cmocka_run_group_tests(tests, destinations_setup, NULL);
}
