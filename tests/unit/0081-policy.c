/* Which policy decides, and what falls on the safe side. */
#include "common/base/json.h"
#include "ingest/policy/policy.h"
#include "tests/test.h"

#include <stdlib.h>
#include <string.h>

#define MOST 8

static struct policy *policies[MOST];
static size_t count;

/* Adds a policy, younger than those before; single quotes stand for double ones. */
static void add(const char *text)
{
    char json[1000];
    struct error err = {0};
    struct ulid id = {.bytes = {[15] = (uint8_t)(count + 1)}};
    snprintf(json, sizeof json, "%s", text);
    for (char *c = json; *c != '\0'; c++)
        *c = *c == '\'' ? '"' : *c;
    json_t *body = json_parse_object(json, strlen(json), &err);
    assert_non_null(body);
    json_t *definition = policy_definition_make(NULL, body, &err);
    if (definition == NULL)
        fail_msg("%s: %s %s", text, err.place, err.text);
    policies[count] = policy_compile(definition, &id, 1, &err);
    assert_non_null(policies[count]);
    count++;
    json_decref(definition);
    json_decref(body);
    qsort(policies, count, sizeof *policies, policy_compare);
}

static int end(void **state)
{
    (void)state;
    while (count > 0)
        policy_free(policies[--count]);
    return 0;
}

static struct policy_decision decide(const struct impact *impact, bool custom)
{
    static json_t *input;
    if (input == NULL)
        input = json_pack("{s:i, s:s}", "amount", 700, "text", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaabb");
    struct policy_request request = {.custom = custom,
                                     .action = custom ? NULL : "refund",
                                     .input = input,
                                     .agent = "alice",
                                     .impact = impact};
    struct policy_decision decision;
    policy_decide(policies, count, &request, &decision);
    return decision;
}

static void test_highest_priority_then_the_older(void **state)
{
    (void)state;
    assert_int_equal(decide(NULL, false).effect, POLICY_NONE);
    add("{'name':'a','matchKind':'any','effect':'require_approval','requiredApprovals':3}");
    add("{'name':'b','matchKind':'action','effect':'auto_approve'}");
    assert_string_equal(decide(NULL, false).policy->name, "a");
    assert_int_equal(decide(NULL, false).required, 3);
    add("{'name':'c','matchKind':'action','effect':'auto_approve','priority':1}");
    assert_string_equal(decide(NULL, false).policy->name, "c");
    add("{'name':'d','matchKind':'any','effect':'auto_approve','priority':9,'enabled':false}");
    assert_string_equal(decide(NULL, false).policy->name, "c");
    assert_string_equal(decide(NULL, true).policy->name, "a");
}

/* An impact without a quantity is as large as any, but never a reason to let something pass. */
static void test_amounts(void **state)
{
    (void)state;
    struct impact none = {0};
    struct impact small = {.declared = true, .has_amount = true, .amount = 99};
    struct impact large = {.declared = true, .has_amount = true, .amount = 100};
    struct impact unsaid = {.declared = true};
    add("{'name':'a','matchKind':'action','effect':'auto_approve','minAmount':100,'priority':1}");
    add("{'name':'b','matchKind':'action','effect':'auto_deny','minAmount':100}");
    assert_int_equal(decide(&none, false).effect, POLICY_NONE);
    assert_int_equal(decide(NULL, false).effect, POLICY_NONE);
    assert_int_equal(decide(&small, false).effect, POLICY_NONE);
    assert_int_equal(decide(&large, false).effect, POLICY_AUTO_APPROVE);
    assert_int_equal(decide(&unsaid, false).effect, POLICY_AUTO_DENY);
}

/* Conditions that are too much work to check count as met, and nothing passes because of them. */
static void test_conditions_that_cannot_be_checked(void **state)
{
    (void)state;
    add("{'name':'a','matchKind':'action','effect':'auto_approve','conditions':{'properties':"
        "{'input':{'properties':{'text':{'pattern':'^(a|aa|a.)+$'}}}}}}");
    struct policy_decision decision = decide(NULL, false);
    assert_true(decision.undecided);
    assert_int_equal(decision.effect, POLICY_REQUIRE_APPROVAL);
    assert_int_equal(decision.required, 1);
}

static void test_conditions(void **state)
{
    (void)state;
    add("{'name':'a','matchKind':'any','effect':'auto_deny','priority':2,'conditions':{'properties'"
        ":"
        "{'input':{'properties':{'amount':{'minimum':701}}}}}}");
    add("{'name':'b','matchKind':'any','effect':'auto_deny','priority':1,'conditions':{'properties'"
        ":"
        "{'action':{'const':'refund'},'agentId':{'const':'alice'},'userId':{'type':'null'},"
        "'input':{'properties':{'amount':{'minimum':700}}}}}}");
    assert_string_equal(decide(NULL, false).policy->name, "b");
    assert_null(decide(NULL, true).policy); /* it has no action */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_highest_priority_then_the_older, end),
        cmocka_unit_test_teardown(test_amounts, end),
        cmocka_unit_test_teardown(test_conditions_that_cannot_be_checked, end),
        cmocka_unit_test_teardown(test_conditions, end)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
