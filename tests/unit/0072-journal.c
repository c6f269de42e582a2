/* The send journal: what a dead process' file proves, and everything that makes it prove nothing.
 */
#include "common/journal/journal.h"
#include "common/journal/journal_file.h"
#include "tests/test.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ENTRIES = 8 };
static const uint8_t first[16] = "first-incarnatio", second[16] = "second-incarnat";
static char dir[64];

static struct ulid effect_of(uint8_t n)
{
    struct ulid id = {{1, 2, 3, [15] = n}};
    return id;
}

static int dir_make(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/holdfast-journal-XXXXXX");
    return mkdtemp(dir) == NULL;
}

static int dir_remove(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}

static void path_of(char out[128])
{
    snprintf(out, 128, "%s/d.journal", dir);
}

/* A process that opens the gates of effects 1..puts, settles `freed` of them, and is killed. */
static void process_dies(size_t puts, size_t freed)
{
    pid_t child = fork();
    if (child == 0) {
        struct journal *j = journal_open(dir, "d", first, ENTRIES, NULL);
        size_t entries[ENTRIES];
        for (size_t i = 0; i < puts; i++) {
            struct ulid id = effect_of((uint8_t)(i + 1));
            entries[i] = journal_put(j, &id, 1, 1000);
        }
        for (size_t i = 0; i < freed; i++)
            journal_free_entry(j, entries[i]);
        kill(getpid(), SIGKILL);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
}

static void left_after_kill(void **state)
{
    struct journal_left left;
    struct ulid one = effect_of(1), three = effect_of(3), nine = effect_of(9);
    (void)state;
    process_dies(4, 2);
    struct journal *j = journal_open(dir, "d", second, ENTRIES, NULL);
    assert_non_null(j);
    assert_int_equal(journal_left_all(dir, "d", &left, 1), 1);
    assert_true(left.proves);
    assert_memory_equal(left.incarnation, first, sizeof first);
    assert_int_equal(left.count, 2);
    assert_true(journal_left_has(&left, &three, 1));
    assert_false(journal_left_has(&left, &three, 2));
    assert_false(journal_left_has(&left, &one, 1));  /* settled: freed */
    assert_false(journal_left_has(&left, &nine, 1)); /* never let go */
    journal_left_close(&left, true);
    assert_int_equal(journal_left_all(dir, "d", &left, 1), 0);
    journal_close(j, true);
}

static void full_is_refused(void **state)
{
    struct ulid id = effect_of(1);
    size_t last = JOURNAL_NONE;
    (void)state;
    struct journal *j = journal_open(dir, "d", first, ENTRIES, NULL);
    for (int i = 0; i < ENTRIES; i++)
        assert_int_not_equal(last = journal_put(j, &id, i + 1, 1), JOURNAL_NONE);
    assert_int_equal(journal_put(j, &id, 99, 1), JOURNAL_NONE);
    journal_free_entry(j, last);
    assert_int_equal(journal_put(j, &id, 99, 1), last);
    assert_int_equal(journal_used(j), ENTRIES);
    journal_close(j, true);
}

static void living_process_keeps_it(void **state)
{
    struct journal_left left;
    struct error err = {0};
    char path[128];
    (void)state;
    path_of(path);
    struct journal *j = journal_open(dir, "d", first, ENTRIES, NULL);
    assert_null(journal_open(dir, "d", second, ENTRIES, &err));
    assert_int_equal(err.code, ERROR_CONFLICT);
    assert_true(journal_read(path, &left, NULL));
    assert_false(left.proves);
    assert_string_equal(left.why, "its process is running");
    journal_left_close(&left, false);
    journal_close(j, true);
}

/* Overwrites bytes of the dead process' file and expects that it proves nothing any more. */
static void expect_no_proof(off_t at, const void *bytes, size_t len, const char *why)
{
    struct journal_left left;
    char path[128];
    path_of(path);
    process_dies(3, 0);
    int fd = open(path, O_RDWR);
    assert_int_equal(pwrite(fd, bytes, len, at), len);
    close(fd);
    assert_true(journal_read(path, &left, NULL));
    assert_false(left.proves);
    assert_string_equal(left.why, why);
    journal_left_close(&left, true);
}

static void damaged_proves_nothing(void **state)
{
    (void)state;
    off_t entry = JOURNAL_HEADER_SIZE + (off_t)sizeof(struct journal_slot);
    uint32_t nonsense = 77;
    expect_no_proof(offsetof(struct journal_header, boot_id), "x", 1, "its header is damaged");
    expect_no_proof(entry + (off_t)offsetof(struct journal_slot, effect), "x", 1,
                    "one of its entries is damaged");
    expect_no_proof(entry, &nonsense, sizeof nonsense, "one of its entries is damaged");
}

/* A header with another boot id and a right digest: what a reboot leaves. */
static void other_boot_proves_nothing(void **state)
{
    struct journal_header now;
    char path[128];
    (void)state;
    path_of(path);
    process_dies(1, 0);
    int fd = open(path, O_RDWR);
    assert_int_equal(pread(fd, &now, sizeof now, 0), sizeof now);
    now.boot_id[0] = now.boot_id[0] == 'a' ? 'b' : 'a';
    journal_header_digest(&now, now.digest);
    assert_int_equal(pwrite(fd, &now, sizeof now, 0), sizeof now);
    close(fd);
    struct journal_left left;
    assert_true(journal_read(path, &left, NULL));
    assert_false(left.proves);
    assert_string_equal(left.why, "it is of another boot: what was in memory then is lost");
    journal_left_close(&left, true);
}

static void copy_proves_nothing(void **state)
{
    struct journal_left left;
    char command[768], path[128];
    (void)state;
    path_of(path);
    process_dies(2, 0);
    snprintf(command, sizeof command, "cp %s %s.old && mv %s.old %s", path, path, path, path);
    assert_int_equal(system(command), 0);
    assert_true(journal_read(path, &left, NULL));
    assert_false(left.proves);
    assert_string_equal(left.why, "it is a copy of a journal");
    journal_left_close(&left, true);
}

static void cut_short_proves_nothing(void **state)
{
    struct journal_left left;
    char path[128];
    (void)state;
    path_of(path);
    process_dies(2, 0);
    assert_int_equal(truncate(path, JOURNAL_HEADER_SIZE + 40), 0);
    assert_true(journal_read(path, &left, NULL));
    assert_false(left.proves);
    assert_string_equal(left.why, "it is cut short");
    journal_left_close(&left, true);
}

/* An entry that was only taken belongs to a gate that had not opened: it neither counts nor harms.
 */
static void torn_last_entry_is_no_send(void **state)
{
    struct journal_left left;
    char path[128];
    uint32_t taken = ENTRY_TAKEN;
    struct ulid two = effect_of(2);
    (void)state;
    path_of(path);
    process_dies(2, 0);
    int fd = open(path, O_RDWR);
    off_t second_slot = JOURNAL_HEADER_SIZE + (off_t)sizeof(struct journal_slot);
    assert_int_equal(pwrite(fd, &taken, sizeof taken, second_slot), sizeof taken);
    close(fd);
    assert_true(journal_read(path, &left, NULL));
    assert_true(left.proves);
    assert_int_equal(left.count, 1);
    assert_false(journal_left_has(&left, &two, 1));
    journal_left_close(&left, true);
}

static void no_journal_is_said(void **state)
{
    struct journal_left left;
    struct error err = {0};
    char path[128];
    (void)state;
    path_of(path);
    assert_false(journal_read(path, &left, &err));
    assert_int_equal(err.code, ERROR_NOT_FOUND);
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    assert_int_equal(write(fd, "hello", 5), 5);
    close(fd);
    assert_false(journal_read(path, &left, &err));
    assert_int_equal(err.code, ERROR_INVALID);
    assert_string_equal(err.text, "this is no send journal");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(left_after_kill, dir_make, dir_remove),
        cmocka_unit_test_setup_teardown(full_is_refused, dir_make, dir_remove),
        cmocka_unit_test_setup_teardown(living_process_keeps_it, dir_make, dir_remove),
        cmocka_unit_test_setup_teardown(damaged_proves_nothing, dir_make, dir_remove),
        cmocka_unit_test_setup_teardown(other_boot_proves_nothing, dir_make, dir_remove),
        cmocka_unit_test_setup_teardown(copy_proves_nothing, dir_make, dir_remove),
        cmocka_unit_test_setup_teardown(cut_short_proves_nothing, dir_make, dir_remove),
        cmocka_unit_test_setup_teardown(torn_last_entry_is_no_send, dir_make, dir_remove),
        cmocka_unit_test_setup_teardown(no_journal_is_said, dir_make, dir_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
