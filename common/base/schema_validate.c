/* Checks values against a compiled schema: within a fixed budget of steps and depth whatever the
 * schema and the value are, and without ever putting the value into an error. Here are the keywords
 * that hold schemas; schema_assert.c has the others. */
#include "common/base/schema_run.h"

#include <stdlib.h>

static bool node_check(struct schema_run *run, const struct schema_node *node, const json_t *value,
                       const struct schema_place *place, struct schema_marks *marks);

/* --- marks --- */

static bool marks_new(struct schema_run *run, struct schema_marks *marks,
                      const struct schema_spot *spot)
{
    size_t count = json_array_size(spot->value) + json_object_size(spot->value);
    marks->words = count / 64 + 1;
    marks->bits = calloc(marks->words, sizeof(*marks->bits));
    if (!marks->bits)
        return schema_run_stop(run, spot->place, ERROR_MEMORY, "no memory to validate");
    return schema_run_charge(run, spot->place, marks->words);
}

static void mark(const struct schema_spot *spot, size_t index)
{
    if (spot->marks)
        spot->marks->bits[index / 64] |= UINT64_C(1) << (index % 64);
}

static bool marked(const struct schema_spot *spot, size_t index)
{
    return spot->marks->bits[index / 64] >> (index % 64) & 1;
}

/* --- arrays --- */

static bool item_check(struct schema_run *run, const struct schema_branch *branch,
                       const struct schema_spot *spot, size_t index)
{
    struct schema_place item = {.up = spot->place, .index = index};
    return node_check(run, branch->node, json_array_get(spot->value, index), &item, NULL);
}

static bool check_prefix_items(struct schema_run *run, const struct schema_rule *rule,
                               const struct schema_spot *spot)
{
    for (size_t i = 0; i < json_array_size(spot->value) && i < rule->branch_count; i++) {
        if (!item_check(run, &rule->branches[i], spot, i))
            return false;
        mark(spot, i);
    }
    return true;
}

static bool check_items(struct schema_run *run, const struct schema_rule *rule,
                        const struct schema_spot *spot)
{
    const struct schema_rule *prefix = schema_node_rule(spot->node, KEYWORD_PREFIX_ITEMS);
    for (size_t i = prefix ? prefix->branch_count : 0; i < json_array_size(spot->value); i++) {
        if (!item_check(run, &rule->branches[0], spot, i))
            return false;
        mark(spot, i);
    }
    return true;
}

static bool check_contains(struct schema_run *run, const struct schema_rule *rule,
                           const struct schema_spot *spot)
{
    const struct schema_rule *least = schema_node_rule(spot->node, KEYWORD_MIN_CONTAINS);
    const struct schema_rule *most = schema_node_rule(spot->node, KEYWORD_MAX_CONTAINS);
    size_t wanted = least ? least->limit : 1;
    size_t found = 0;
    if (!json_is_array(spot->value))
        return true;
    for (size_t i = 0; i < json_array_size(spot->value); i++) {
        run->quiet++;
        bool holds = item_check(run, &rule->branches[0], spot, i);
        run->quiet--;
        if (run->stopped)
            return false;
        if (holds)
            mark(spot, i);
        found += holds;
    }
    if (found < wanted)
        return schema_run_fail(run, spot->place,
                               "%s: must have at least %zu items of the wanted kind",
                               least ? "minContains" : "contains", wanted);
    return !most || found <= most->limit ||
           schema_run_fail(run, spot->place,
                           "maxContains: must have at most %zu items of that kind", most->limit);
}

static bool check_unevaluated_items(struct schema_run *run, const struct schema_rule *rule,
                                    const struct schema_spot *spot)
{
    for (size_t i = 0; i < json_array_size(spot->value); i++) {
        if (marked(spot, i))
            continue;
        if (!item_check(run, &rule->branches[0], spot, i))
            return false;
        mark(spot, i);
    }
    return true;
}

/* --- objects --- */

/* A member of the object at hand. */
struct member {
    const char *name;
    size_t len;
    const json_t *value;
    size_t index;
};

static bool member_check(struct schema_run *run, const struct schema_node *node,
                         const struct schema_spot *spot, const struct member *member)
{
    struct schema_place place = {.up = spot->place, .name = member->name, .name_len = member->len};
    if (!node_check(run, node, member->value, &place, NULL))
        return false;
    mark(spot, member->index);
    return true;
}

/* Calls `check` for each member of the object at hand, as long as it says true; true of anything
 * that is no object. */
static bool members_check(struct schema_run *run, const struct schema_rule *rule,
                          const struct schema_spot *spot,
                          bool (*check)(struct schema_run *run, const struct schema_rule *rule,
                                        const struct schema_spot *spot,
                                        const struct member *member))
{
    struct member member = {.index = 0};
    json_t *value;
    json_object_keylen_foreach((json_t *)spot->value, member.name, member.len, value)
    {
        member.value = value;
        if (!schema_run_charge(run, spot->place, 1) || !check(run, rule, spot, &member))
            return false;
        member.index++;
    }
    return true;
}

static bool member_check_name(struct schema_run *run, const struct schema_rule *rule,
                              const struct schema_spot *spot, const struct member *member)
{
    struct schema_place place = {.up = spot->place, .name = member->name, .name_len = member->len};
    json_t *name = json_stringn_nocheck(member->name, member->len);
    if (!name)
        return schema_run_stop(run, spot->place, ERROR_MEMORY, "no memory to validate");
    bool holds = node_check(run, rule->branches[0].node, name, &place, NULL);
    json_decref(name);
    return holds;
}

static bool check_property_names(struct schema_run *run, const struct schema_rule *rule,
                                 const struct schema_spot *spot)
{
    return members_check(run, rule, spot, member_check_name);
}

static int branch_find_compare(const void *key, const void *branch_found)
{
    const struct member *member = key;
    const struct schema_branch *branch = branch_found;
    return schema_name_compare(member->name, member->len, branch->name, branch->name_len);
}

static const struct schema_branch *property_find(const struct schema_rule *properties,
                                                 const struct member *member)
{
    return bsearch(member, properties->branches, properties->branch_count,
                   sizeof(*properties->branches), branch_find_compare);
}

static bool member_check_property(struct schema_run *run, const struct schema_rule *rule,
                                  const struct schema_spot *spot, const struct member *member)
{
    const struct schema_branch *branch = property_find(rule, member);
    return !branch || member_check(run, branch->node, spot, member);
}

static bool check_properties(struct schema_run *run, const struct schema_rule *rule,
                             const struct schema_spot *spot)
{
    return members_check(run, rule, spot, member_check_property);
}

static bool member_check_patterns(struct schema_run *run, const struct schema_rule *rule,
                                  const struct schema_spot *spot, const struct member *member)
{
    for (size_t i = 0; i < rule->branch_count; i++) {
        const struct schema_branch *branch = &rule->branches[i];
        bool applies =
            schema_run_matches(run, branch->pattern, member->name, member->len, spot->place);
        if (run->stopped || (applies && !member_check(run, branch->node, spot, member)))
            return false;
    }
    return true;
}

static bool check_pattern_properties(struct schema_run *run, const struct schema_rule *rule,
                                     const struct schema_spot *spot)
{
    return members_check(run, rule, spot, member_check_patterns);
}

/* Whether `properties` or `patternProperties` beside it speak of the member. */
static bool member_is_named(struct schema_run *run, const struct schema_spot *spot,
                            const struct member *member)
{
    const struct schema_rule *named = schema_node_rule(spot->node, KEYWORD_PROPERTIES);
    const struct schema_rule *patterns = schema_node_rule(spot->node, KEYWORD_PATTERN_PROPERTIES);
    if (named && property_find(named, member))
        return true;
    for (size_t i = 0; patterns && i < patterns->branch_count; i++)
        if (schema_run_matches(run, patterns->branches[i].pattern, member->name, member->len,
                               spot->place))
            return true;
    return false;
}

static bool member_check_additional(struct schema_run *run, const struct schema_rule *rule,
                                    const struct schema_spot *spot, const struct member *member)
{
    if (member_is_named(run, spot, member))
        return true;
    return !run->stopped && member_check(run, rule->branches[0].node, spot, member);
}

static bool check_additional_properties(struct schema_run *run, const struct schema_rule *rule,
                                        const struct schema_spot *spot)
{
    return members_check(run, rule, spot, member_check_additional);
}

static bool member_check_unevaluated(struct schema_run *run, const struct schema_rule *rule,
                                     const struct schema_spot *spot, const struct member *member)
{
    return marked(spot, member->index) || member_check(run, rule->branches[0].node, spot, member);
}

static bool check_unevaluated_properties(struct schema_run *run, const struct schema_rule *rule,
                                         const struct schema_spot *spot)
{
    return members_check(run, rule, spot, member_check_unevaluated);
}

/* --- schemas on the same value --- */

static bool branch_check(struct schema_run *run, const struct schema_branch *branch,
                         const struct schema_spot *spot)
{
    return node_check(run, branch->node, spot->value, spot->place, spot->marks);
}

/* Whether a branch holds, where a no is an answer and not an error. */
static bool branch_holds(struct schema_run *run, const struct schema_branch *branch,
                         const struct schema_spot *spot)
{
    run->quiet++;
    bool holds = branch_check(run, branch, spot);
    run->quiet--;
    return holds;
}

static bool check_all(struct schema_run *run, const struct schema_rule *rule,
                      const struct schema_spot *spot)
{
    for (size_t i = 0; i < rule->branch_count; i++)
        if (!branch_check(run, &rule->branches[i], spot))
            return false;
    return true;
}

static bool check_any_of(struct schema_run *run, const struct schema_rule *rule,
                         const struct schema_spot *spot)
{
    bool any = false;
    /* Where marks are asked for, every branch that holds has its say. */
    for (size_t i = 0; i < rule->branch_count && !run->stopped && (!any || spot->marks); i++)
        any |= branch_holds(run, &rule->branches[i], spot);
    return (any && !run->stopped) ||
           schema_run_fail(run, spot->place,
                           "anyOf: must fit at least one of %zu schemas and fits none",
                           rule->branch_count);
}

static bool check_one_of(struct schema_run *run, const struct schema_rule *rule,
                         const struct schema_spot *spot)
{
    size_t count = 0, first = 0;
    for (size_t i = 0; i < rule->branch_count; i++) {
        bool holds = branch_holds(run, &rule->branches[i], spot);
        if (run->stopped)
            return false;
        if (holds && count++)
            return schema_run_fail(
                run, spot->place,
                "oneOf: must fit exactly one of %zu schemas and fits numbers %zu and "
                "%zu (from 0)",
                rule->branch_count, first, i);
        if (holds)
            first = i;
    }
    return count == 1 || schema_run_fail(run, spot->place,
                                         "oneOf: must fit exactly one of %zu schemas and fits none",
                                         rule->branch_count);
}

static bool check_not(struct schema_run *run, const struct schema_rule *rule,
                      const struct schema_spot *spot)
{
    struct schema_spot aside = *spot;
    aside.marks = NULL; /* what holds under `not` evaluates nothing */
    bool holds = branch_holds(run, &rule->branches[0], &aside);
    return (!holds && !run->stopped) ||
           schema_run_fail(run, spot->place, "not: must not fit the schema under not");
}

static bool check_if(struct schema_run *run, const struct schema_rule *rule,
                     const struct schema_spot *spot)
{
    bool holds = branch_holds(run, &rule->branches[0], spot);
    if (run->stopped)
        return false;
    const struct schema_rule *next =
        schema_node_rule(spot->node, holds ? KEYWORD_THEN : KEYWORD_ELSE);
    return !next || branch_check(run, &next->branches[0], spot);
}

static bool check_dependent_schemas(struct schema_run *run, const struct schema_rule *rule,
                                    const struct schema_spot *spot)
{
    if (!json_is_object(spot->value))
        return true;
    if (!schema_run_charge(run, spot->place, rule->branch_count))
        return false;
    for (size_t i = 0; i < rule->branch_count; i++) {
        const struct schema_branch *branch = &rule->branches[i];
        if (json_object_getn(spot->value, branch->name, branch->name_len) &&
            !branch_check(run, branch, spot))
            return false;
    }
    return true;
}

/* --- nodes --- */

static const schema_rule_check applicators[KEYWORD_RULES] = {
    [KEYWORD_PROPERTY_NAMES] = check_property_names,
    [KEYWORD_PROPERTIES] = check_properties,
    [KEYWORD_PATTERN_PROPERTIES] = check_pattern_properties,
    [KEYWORD_ADDITIONAL_PROPERTIES] = check_additional_properties,
    [KEYWORD_PREFIX_ITEMS] = check_prefix_items,
    [KEYWORD_ITEMS] = check_items,
    [KEYWORD_CONTAINS] = check_contains,
    [KEYWORD_REF] = check_all,
    [KEYWORD_ALL_OF] = check_all,
    [KEYWORD_ANY_OF] = check_any_of,
    [KEYWORD_ONE_OF] = check_one_of,
    [KEYWORD_NOT] = check_not,
    [KEYWORD_IF] = check_if,
    [KEYWORD_DEPENDENT_SCHEMAS] = check_dependent_schemas,
    [KEYWORD_UNEVALUATED_PROPERTIES] = check_unevaluated_properties,
    [KEYWORD_UNEVALUATED_ITEMS] = check_unevaluated_items,
};

static bool rules_check(struct schema_run *run, const struct schema_spot *spot)
{
    for (size_t i = 0; i < spot->node->rule_count; i++) {
        const struct schema_rule *rule = &spot->node->rules[i];
        schema_rule_check check = applicators[rule->keyword];
        if (!check)
            check = schema_assertion(rule->keyword);
        /* A keyword without a check is looked up by the keyword that it belongs to. */
        if (check && !check(run, rule, spot))
            return false;
        if (!schema_run_charge(run, spot->place, 1))
            return false;
    }
    return true;
}

/* With marks of its own: a schema sees what itself and the schemas in it evaluated, nothing around
 * it, and what it evaluated counts outside only if it holds. */
static bool rules_check_marking(struct schema_run *run, const struct schema_spot *spot)
{
    struct schema_marks own = {0};
    struct schema_spot inner = *spot;
    inner.marks = &own;
    bool holds = marks_new(run, &own, spot) && rules_check(run, &inner);
    for (size_t i = 0; holds && spot->marks && i < own.words; i++)
        spot->marks->bits[i] |= own.bits[i];
    free(own.bits);
    return holds;
}

static bool node_check(struct schema_run *run, const struct schema_node *node, const json_t *value,
                       const struct schema_place *place, struct schema_marks *marks)
{
    if (!schema_run_charge(run, place, 1) || node->kind == NODE_TRUE)
        return !run->stopped;
    if (node->kind == NODE_FALSE)
        return schema_run_fail(run, place, "%s%snothing is allowed here", node->under,
                               *node->under ? ": " : "");
    if (run->depth == SCHEMA_RECURSION_MAX)
        return schema_run_stop(run, place, ERROR_TOO_LARGE,
                               "the value and the schema lead too deep into each other");
    run->depth++;
    struct schema_spot spot = {.node = node, .value = value, .place = place, .marks = marks};
    bool holds =
        marks || node->unevaluated ? rules_check_marking(run, &spot) : rules_check(run, &spot);
    run->depth--;
    return holds;
}

bool schema_validate(const struct schema *schema, const json_t *value, struct error *err)
{
    struct schema_run run = {.err = err, .work = SCHEMA_WORK_MAX};
    run.matcher.work = &run.work;
    bool holds = node_check(&run, schema->nodes[0], value, NULL, NULL);
    schema_matcher_free(&run.matcher);
    return holds && !run.stopped;
}
