/* Definitions of actions: creates, merges of a PATCH, and what needs actions:govern. */
#include "ingest/routes/action_definition.h"
#include "tests/adapters.h"

#define TEMPLATE "'urlTemplate':'https://api.example.com/v1/orders/{{input.id}}'"
#define IMPACT "'impact':{'dimension':'emails','amount':'1','bound':'exact'}"
#define VERIFY "'verify':{'url':'https://api.example.com/v1/orders/1','status':200}"
#define ADAPTER                                                                                    \
    "'adapter':{'type':'stripe.refund','config':{'account':'acct_1','mode':"                       \
    "'test','currency':'usd'},'credentialSecret':'KEY'}"

static json_t *create(const char *text)
{
    struct error err = {0};
    json_t *body = json_of(text);
    json_t *definition = action_definition_create(body, &err);
    if (definition == NULL)
        fail_msg("%s: %s %s", text, err.place, err.text);
    json_decref(body);
    return definition;
}

static json_t *patch(const json_t *stored, const char *text, struct error *err)
{
    json_t *body = json_of(text);
    json_t *definition = action_definition_patch(stored, body, err);
    json_decref(body);
    return definition;
}

static void assert_refused(const char *text, const char *place)
{
    struct error err = {0};
    json_t *body = json_of(text);
    assert_null(action_definition_create(body, &err));
    assert_int_equal(err.code, ERROR_INVALID);
    assert_string_equal(err.place, place);
    json_decref(body);
}

/* ---- create ---- */

static void create_sets_defaults(void **state)
{
    (void)state;
    json_t *d = create("{'name':'a','description':null," TEMPLATE "}");
    assert_string_equal(json_string_value(json_object_get(d, "method")), "POST");
    assert_true(json_is_true(json_object_get(d, "enabled")));
    assert_true(json_is_false(json_object_get(d, "requiresApproval")));
    assert_null(json_object_get(d, "description"));
    assert_null(json_object_get(d, "governed"));
    json_decref(d);
    d = create("{'name':'a','method':'delete'," TEMPLATE "}");
    assert_string_equal(json_string_value(json_object_get(d, "method")), "DELETE");
    json_decref(d);
    d = create("{'name':'a'," ADAPTER "}");
    assert_null(json_object_get(d, "method"));
    json_decref(d);
}

static void create_takes_names_of_real_users(void **state)
{
    static const char *const good[] = {"a",          "7",    "send-email", "stripe.refund",
                                       "Send_Email", "act_1"};
    static const char *const bad[] = {"",
                                      "-a",
                                      ".a",
                                      "a b",
                                      "a/b",
                                      "a%2fb",
                                      "\xc3\xa9",
                                      "effects",
                                      "batch",
                                      "..",
                                      "previews",
                                      "import",
                                      "invocations",
                                      "act_01ARZ3NDEKTSV4RRFFQ69G5FAV"};
    char name[ACTION_NAME_MAX + 2];
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        assert_true(action_name_check(good[i], NULL));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(action_name_check(bad[i], NULL));
    memset(name, 'a', sizeof name);
    name[ACTION_NAME_MAX + 1] = '\0';
    assert_false(action_name_check(name, NULL));
    name[ACTION_NAME_MAX] = '\0';
    assert_true(action_name_check(name, NULL));
}

static void create_names_the_place_of_what_it_refuses(void **state)
{
    (void)state;
    assert_refused("{" TEMPLATE "}", "/name");
    assert_refused("{'name':7," TEMPLATE "}", "/name");
    assert_refused("{'name':'a'}", "/urlTemplate");
    assert_refused("{'name':'a'," TEMPLATE "," ADAPTER "}", "/urlTemplate");
    assert_refused("{'name':'a','adapter':7}", "/adapter");
    assert_refused("{'name':'a','adapter':{'type':'none'}}", "/adapter/type");
    assert_refused("{'name':'a','enabled':'yes'," TEMPLATE "}", "/enabled");
    assert_refused("{'name':'a','inputSchema':{'properties':{'x':{'type':'n'}}}," TEMPLATE "}",
                   "/inputSchema/properties/x/type");
    assert_refused("{'name':'a'," IMPACT "," ADAPTER "}", "/impact");
    assert_refused("{'name':'a'," VERIFY "," ADAPTER "}", "/verify");
    assert_refused("{'name':'a','governed':true," ADAPTER "}", "/governed");
    assert_refused("{'name':'a','governed':false," ADAPTER "}", "/governed");
    assert_refused("{'name':'a','governed':false," IMPACT "," TEMPLATE "}", "/governed");
    assert_refused("{'name':'a','method':7," TEMPLATE "}", "/method");
}

/* ---- patch ---- */

static void patch_keeps_replaces_and_removes(void **state)
{
    struct error err = {0};
    (void)state;
    json_t *stored = create("{'name':'a','description':'d'," TEMPLATE "," IMPACT "," VERIFY "}");
    json_t *before = json_deep_copy(stored);
    json_t *d = patch(stored, "{'name':'b','verify':null,'headers':{'X':'1'}}", &err);
    assert_non_null(d);
    assert_string_equal(json_string_value(json_object_get(d, "name")), "b");
    assert_string_equal(json_string_value(json_object_get(d, "description")), "d");
    assert_null(json_object_get(d, "verify"));
    assert_non_null(json_object_get(d, "impact"));
    assert_non_null(json_object_get(d, "headers"));
    assert_true(json_equal(stored, before)); /* what is stored is left as it is */
    json_decref(d);
    assert_null(patch(stored, "{'name':null}", &err));
    assert_string_equal(err.place, "/name");
    d = patch(stored, "{}", &err);
    assert_true(json_equal(d, stored));
    json_decref(d);
    json_decref(before);
    json_decref(stored);
}

static void patch_governed_false_removes_every_declaration(void **state)
{
    struct error err = {0};
    (void)state;
    json_t *stored = create("{'name':'a','governed':true," TEMPLATE "," IMPACT "," VERIFY "}");
    json_t *d = patch(stored, "{'governed':false}", &err);
    assert_non_null(d);
    assert_null(json_object_get(d, "governed"));
    assert_null(json_object_get(d, "impact"));
    assert_null(json_object_get(d, "verify"));
    json_decref(d);
    d = patch(stored, "{'governed':false,'impact':null}", &err);
    assert_non_null(d);
    json_decref(d);
    assert_null(patch(stored, "{'governed':false," IMPACT "}", &err));
    assert_string_equal(err.place, "/governed");
    json_decref(stored);
}

static void patch_may_change_what_carries_the_call(void **state)
{
    struct error err = {0};
    (void)state;
    json_t *stored = create("{'name':'a'," TEMPLATE "}");
    assert_null(patch(stored, "{" ADAPTER "}", &err));
    assert_string_equal(err.place, "/urlTemplate");
    json_t *d = patch(stored, "{'urlTemplate':null," ADAPTER "}", &err);
    assert_non_null(d);
    assert_null(json_object_get(d, "method"));
    json_t *back = patch(d, "{'adapter':null," TEMPLATE "}", &err);
    assert_true(json_equal(back, stored));
    json_decref(back);
    json_decref(d);
    json_decref(stored);
}

/* ---- actions:govern ---- */

static bool needs_govern(const char *created, const char *edit)
{
    struct error err = {0};
    json_t *before = create(created);
    json_t *after = patch(before, edit, &err);
    assert_non_null(after);
    bool needs = action_definition_needs_govern(before, after);
    json_decref(before);
    json_decref(after);
    return needs;
}

static void govern_is_needed_for_what_is_declared(void **state)
{
    static const char plain[] = "{'name':'a'," TEMPLATE "}";
    static const char counted[] = "{'name':'a'," TEMPLATE "," IMPACT "}";
    static const char marked[] = "{'name':'a','governed':true," TEMPLATE "}";
    static const char adapter[] = "{'name':'a'," ADAPTER "}";
    (void)state;
    assert_false(needs_govern(plain, "{" IMPACT "}"));
    assert_false(needs_govern(plain, "{'governed':true}"));
    assert_false(needs_govern(counted, "{'description':'x'}"));
    assert_false(needs_govern(counted, "{" VERIFY "}"));
    assert_false(needs_govern(counted, "{" IMPACT "}"));
    assert_true(needs_govern(counted, "{'impact':null}"));
    assert_true(needs_govern(counted, "{'governed':false}"));
    assert_true(needs_govern(counted, "{'impact':{'dimension':'emails','amount':'2',"
                                      "'bound':'exact'}}"));
    assert_true(needs_govern(marked, "{'governed':false}"));
    assert_true(needs_govern(marked, "{'governed':null}"));
    assert_true(needs_govern(adapter, "{'adapter':null," TEMPLATE "}"));
    /* What forms the request of a governed action is as much its guard as what it declares. */
    assert_true(needs_govern(counted, "{'name':'b'}"));
    assert_true(needs_govern(counted, "{'method':'PUT'}"));
    assert_true(needs_govern(marked, "{'headers':{'X-To':'you'}}"));
    assert_true(needs_govern(marked, "{'inputSchema':{'type':'object'}}"));
    assert_true(needs_govern(marked, "{'effectKey':'x:{n}'}"));
    assert_false(needs_govern(marked, "{'enabled':false}"));
    assert_false(needs_govern(marked, "{'requiresApproval':true}"));
    assert_false(needs_govern(plain, "{'method':'PUT','headers':{'X-To':'you'}}"));
    static const char gated[] = "{'name':'a','requiresApproval':true," TEMPLATE "}";
    assert_true(needs_govern(gated, "{'requiresApproval':false}"));
    assert_true(needs_govern(gated, "{'method':'PUT'}"));
    assert_false(needs_govern(gated, "{'description':'x'}"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(create_sets_defaults),
        cmocka_unit_test(create_takes_names_of_real_users),
        cmocka_unit_test(create_names_the_place_of_what_it_refuses),
        cmocka_unit_test(patch_keeps_replaces_and_removes),
        cmocka_unit_test(patch_governed_false_removes_every_declaration),
        cmocka_unit_test(patch_may_change_what_carries_the_call),
        cmocka_unit_test(govern_is_needed_for_what_is_declared),
    };
    return cmocka_run_group_tests(tests, destinations_setup, NULL);
}
