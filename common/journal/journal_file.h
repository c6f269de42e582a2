/* The form of a journal's file, shared by those who write and who read it. */
#ifndef HOLDFAST_JOURNAL_FILE_H
#define HOLDFAST_JOURNAL_FILE_H

#include "common/base/crypto.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JOURNAL_MAGIC "HFJOURN1"
enum { JOURNAL_BOOT_ID_SIZE = 40, JOURNAL_HEADER_SIZE = 4096 };

/* Entry states. A taken one belongs to a gate that had not opened: the gate waits until it is used.
 */
enum { ENTRY_FREE = 0, ENTRY_TAKEN = 1, ENTRY_USED = 2 };

/* What tells one file from any other, also from one that got the same inode number later. */
struct journal_file {
    uint64_t device, inode;
    int64_t born_s;
    uint32_t born_ns;
    uint32_t
        known; /* 0: the file system does not say when a file was made; then nothing is proven */
};

struct journal_header {
    char magic[8];
    uint32_t entry_size;
    uint32_t entries;
    uint8_t incarnation[16];
    char boot_id[JOURNAL_BOOT_ID_SIZE];
    struct journal_file file;    /* that it was made in: a copy is another */
    uint8_t digest[SHA256_SIZE]; /* of all before */
};

struct journal_slot {
    _Atomic uint32_t state;
    int32_t seq;
    uint8_t effect[16];
    int64_t at_wall_us;
    uint64_t check; /* over effect, seq and time */
};
_Static_assert(sizeof(struct journal_slot) == 40, "the file's form is fixed");

size_t journal_file_size(size_t entries);
uint64_t journal_slot_check(const struct journal_slot *slot);
void journal_header_digest(const struct journal_header *header, uint8_t out[SHA256_SIZE]);
bool journal_file_of(int fd, struct journal_file *out);
bool journal_boot_id(char out[JOURNAL_BOOT_ID_SIZE]);

#endif
