/* The send journal: which gates of this process have opened and are not settled yet. It outlives
 * the process, so that the next one can prove what never left.
 *
 * A file of fixed size, mapped into memory: a header that says whose it is, and one entry for each
 * send that there can be. The gate takes a free entry before it opens; the settler frees it after
 * the settlement's COMMIT. So at every moment the entries in use name every write of this
 * incarnation that may have left and is not settled; an effect that this incarnation claimed and
 * that is not among them never left, or is settled. What is in mapped memory survives the death of
 * the process, not that of the kernel: hence the boot id.
 *
 * Only a journal that is whole, of this boot, in the very file it was made in, and whose process is
 * dead (the lock is free) proves anything. Everything else only means more unknowns. */
#ifndef HOLDFAST_JOURNAL_H
#define HOLDFAST_JOURNAL_H

#include "common/base/error.h"
#include "common/base/ulid.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define JOURNAL_ENTRIES_MAX 65536
#define JOURNAL_NONE SIZE_MAX

struct journal;

/* Makes DIR/NAME.journal for this incarnation with room for `entries` sends, and locks it. One that
 * an earlier process left is moved to DIR/NAME.INCARNATION.left first, for journal_left_all. NULL
 * with err: another process holds NAME's journal (ERROR_CONFLICT), or the directory can't be used.
 */
struct journal *journal_open(const char *dir, const char *name, const uint8_t incarnation[16],
                             size_t entries, struct error *err);
/* The lock is given up with it. `clean`: nothing is in flight any more, and the file is removed. */
void journal_close(struct journal *journal, bool clean);

/* Writes (effect, seq) into a free entry; its index, or JOURNAL_NONE when none is free. Any thread.
 * When it returns the entry would survive this process. */
size_t journal_put(struct journal *journal, const struct ulid *effect, int seq, int64_t at_wall_us);
/* The settlement is committed: the entry may be used again. Any thread. JOURNAL_NONE is nothing. */
void journal_free_entry(struct journal *journal, size_t entry);
size_t journal_used(const struct journal *journal);

/* ---- what a process left behind ---- */

struct journal_entry {
    struct ulid effect;
    int seq;
    int64_t at_wall_us;
};

/* A journal read as evidence. */
struct journal_left {
    char path[512];
    uint8_t incarnation[16];
    bool proves;                   /* what is not in it never left */
    char why[128];                 /* why it proves nothing, "" when it does */
    struct journal_entry *entries; /* in use, ascending by effect; owned here */
    size_t count;
    bool locked; /* its process is dead and nobody else reads it */
    int fd;      /* -1: closed */
};

/* Opens the journals that processes named NAME left in DIR, at most `max`; how many. Call it once
 * the name is one's own (journal_open): then nobody adds to them. Any other use of a file passes it
 * over. */
size_t journal_left_all(const char *dir, const char *name, struct journal_left *out, size_t max);
/* Reads any journal file: `holdfast journal FILE`. False with err when it is no journal at all. */
bool journal_read(const char *path, struct journal_left *out, struct error *err);
bool journal_left_has(const struct journal_left *left, const struct ulid *effect, int seq);
/* `done`: everything that it could prove is settled, and the file is removed. */
void journal_left_close(struct journal_left *left, bool done);

#endif
