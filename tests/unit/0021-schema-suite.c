/* The public JSON-Schema-Test-Suite against our validator: draft 2020-12 as it is, and draft 7 of
 * Debian's package where it means the same. What is left out stands here with the reason, and where
 * the reason is that we refuse the schema, the refusal itself is checked. */
#include "common/base/json.h"
#include "common/base/schema.h"
#include "tests/test.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SUITE_2020_12 "tests/json-schema-test-suite/tests/draft2020-12"
#define SUITE_DEBIAN "/usr/share/json-schema-test-suite/tests/draft7"

enum left_out {
    REFUSED,    /* the schema must not compile */
    UNREADABLE, /* the file holds numbers that never come in */
    DIFFERENT   /* the draft says otherwise now, or we promise less */
};

struct exception {
    const char *file;
    const char *group; /* NULL: the whole file */
    enum left_out how;
    const char *reason;
    bool used;
};

struct tally {
    int files;
    int groups;
    int cases;
    int wrong;
    int refused; /* groups whose refusal was checked */
    int left_out;
};

static struct exception *exception_find(struct exception *exceptions, const char *file,
                                        const char *group)
{
    for (struct exception *e = exceptions; e->file; e++) {
        if (strcmp(e->file, file) == 0 && (!e->group || (group && strcmp(e->group, group) == 0))) {
            e->used = true;
            return e;
        }
    }
    return NULL;
}

/* One value against one schema; an error must name a place that the value has. */
static bool case_run(const struct schema *schema, json_t *test, const char *file, const char *group)
{
    json_t *data = json_object_get(test, "data");
    bool valid = json_is_true(json_object_get(test, "valid"));
    struct error err = {0};
    bool holds = schema_validate(schema, data, &err);
    bool told = holds
                    ? err.code == ERROR_NONE
                    : err.code == ERROR_INVALID && err.text[0] && json_at_pointer(data, err.place);
    if (holds != valid || !told)
        printf("%s: %s: %s: %s at \"%s\": %s\n", file, group,
               json_string_value(json_object_get(test, "description")),
               holds ? "accepted" : "refused", err.place, err.text);
    return holds == valid && told;
}

static void group_run(json_t *entry, const char *file, struct exception *exceptions,
                      struct tally *tally)
{
    const char *group = json_string_value(json_object_get(entry, "description"));
    const struct exception *exception = exception_find(exceptions, file, group);
    if (exception && exception->how == DIFFERENT) {
        tally->left_out++;
        return;
    }
    struct error err = {0};
    struct schema *schema = schema_compile(json_object_get(entry, "schema"), &err);
    bool compiles = !(exception && exception->how == REFUSED);
    if ((schema != NULL) != compiles) {
        printf("%s: %s: schema %s at \"%s\": %s\n", file, group, schema ? "accepted" : "refused",
               err.place, err.text);
        tally->wrong++;
    } else if (schema) {
        size_t i;
        json_t *test;
        tally->groups++;
        json_array_foreach(json_object_get(entry, "tests"), i, test)
        {
            tally->cases++;
            tally->wrong += !case_run(schema, test, file, group);
        }
    } else {
        tally->refused++;
    }
    schema_free(schema);
}

static void file_run(const char *dir, const char *file, struct exception *exceptions,
                     struct tally *tally)
{
    char path[1024];
    snprintf(path, sizeof(path), "%s/%s", dir, file);
    json_error_t problem;
    json_t *groups = json_load_file(path, JSON_DECODE_ANY | JSON_ALLOW_NUL, &problem);
    if (!groups) {
        const struct exception *exception = exception_find(exceptions, file, NULL);
        if (!exception || exception->how != UNREADABLE)
            fail_msg("%s: %s", path, problem.text);
        tally->left_out++;
        return;
    }
    size_t i;
    json_t *entry;
    tally->files++;
    json_array_foreach(groups, i, entry)
    {
        group_run(entry, file, exceptions, tally);
    }
    json_decref(groups);
}

/* Every .json below dir/under, in the order of names. */
static void folder_run(const char *dir, const char *under, struct exception *exceptions,
                       struct tally *tally)
{
    char path[1024], file[512];
    struct dirent **entries;
    snprintf(path, sizeof(path), "%s/%s", dir, under);
    int count = scandir(path, &entries, NULL, alphasort);
    if (count < 0)
        fail_msg("%s is missing: install the package json-schema-test-suite, or point "
                 "HOLDFAST_SCHEMA_SUITE at a folder with draft2020-12 and draft7",
                 path);
    for (int i = 0; i < count; i++) {
        const char *name = entries[i]->d_name;
        size_t len = strlen(name);
        snprintf(file, sizeof(file), "%s%s", under, name);
        if (entries[i]->d_type == DT_DIR && name[0] != '.' && strcmp(name, "format") != 0) {
            strcat(file, "/");
            folder_run(dir, file, exceptions, tally);
        } else if (len > 5 && strcmp(name + len - 5, ".json") == 0) {
            file_run(dir, file, exceptions, tally);
        }
        free(entries[i]);
    }
    free(entries);
}

static void suite_run(const char *usual, const char *draft, struct exception *exceptions,
                      int least_cases)
{
    char dir[512];
    struct tally tally = {0};
    const char *elsewhere = getenv("HOLDFAST_SCHEMA_SUITE");
    snprintf(dir, sizeof(dir), "%s%s%s", elsewhere ? elsewhere : usual, elsewhere ? "/" : "",
             elsewhere ? draft : "");
    folder_run(dir, "", exceptions, &tally);
    printf(
        "%s: %d cases of %d groups in %d files ran, %d wrong; %d groups refused as they must be, "
        "%d left out\n",
        draft, tally.cases, tally.groups, tally.files, tally.wrong, tally.refused, tally.left_out);
    for (struct exception *e = exceptions; e->file && !elsewhere; e++)
        if (!e->used)
            fail_msg("%s: %s is left out and does not exist", e->file, e->group ? e->group : "");
    assert_int_equal(tally.wrong, 0);
    assert_true(tally.cases >= least_cases);
}

static const char elsewhere[] = "leads to another document, which is never fetched";
static const char dynamic[] = "$dynamicRef and $dynamicAnchor are not supported";
static const char unknown[] = "an unknown keyword is refused, never ignored";
static const char bignum[] = "integers past 2^53 are refused before a schema sees them";
static const char format[] = "format and content are annotations";
static const char vocabulary[] = "$schema may only be the draft's own";

static void test_draft_2020_12(void **state)
{
    static struct exception exceptions[] = {
        {"defs.json", NULL, REFUSED, elsewhere},
        {"dynamicRef.json", NULL, REFUSED, dynamic},
        {"ref.json", "remote ref, containing refs itself", REFUSED, elsewhere},
        {"refRemote.json", NULL, REFUSED, elsewhere},
        {"unevaluatedItems.json", "unevaluatedItems with $dynamicRef", REFUSED, dynamic},
        {"unevaluatedProperties.json", "unevaluatedProperties with $dynamicRef", REFUSED, dynamic},
        {"vocabulary.json", NULL, REFUSED, vocabulary},
        {"optional/bignum.json", NULL, UNREADABLE, bignum},
        {"optional/cross-draft.json", NULL, REFUSED, elsewhere},
        {"optional/dependencies-compatibility.json", NULL, REFUSED, unknown},
        {"optional/dynamicRef.json", NULL, REFUSED, dynamic},
        {"optional/format-assertion.json", NULL, REFUSED, vocabulary},
        {"optional/refOfUnknownKeyword.json", NULL, REFUSED, unknown},
        {"optional/unknownKeyword.json", NULL, REFUSED, unknown},
        {NULL},
    };
    (void)state;
    suite_run(SUITE_2020_12, "draft2020-12", exceptions, 1300);
}

static void test_draft_7(void **state)
{
    static const char renamed[] = "the draft has this under another name now";
    static struct exception exceptions[] = {
        {"additionalItems.json", NULL, REFUSED, renamed},
        {"definitions.json", NULL, REFUSED, elsewhere},
        {"dependencies.json", NULL, REFUSED, renamed},
        {"items.json", "an array of schemas for items", REFUSED, renamed},
        {"items.json", "items with boolean schemas", REFUSED, renamed},
        {"ref.json", "relative pointer ref to array", REFUSED, renamed},
        {"ref.json", "escaped pointer ref", REFUSED, unknown},
        {"ref.json", "ref overrides any sibling keywords", DIFFERENT, "it does not any more"},
        {"ref.json", "remote ref, containing refs itself", REFUSED, elsewhere},
        {"refRemote.json", NULL, REFUSED, elsewhere},
        {"optional/bignum.json", NULL, UNREADABLE, bignum},
        {"optional/content.json", NULL, DIFFERENT, format},
        {"optional/ecmascript-regex.json", "ECMA 262 regex non-compliance", DIFFERENT, format},
        {NULL},
    };
    (void)state;
    suite_run(SUITE_DEBIAN, "draft7", exceptions, 340);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_draft_2020_12),
        cmocka_unit_test(test_draft_7),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
