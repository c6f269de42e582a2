/* Reading what a dead process' journal says, and how far it can be believed. */
#include "common/journal/journal.h"
#include "common/journal/journal_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static bool proves_nothing(struct journal_left *left, const char *why)
{
    left->proves = false;
    snprintf(left->why, sizeof left->why, "%s", why);
    return true;
}

static bool read_whole(int fd, void *out, size_t size, off_t from)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = pread(fd, (char *)out + done, size - done, from + (off_t)done);
        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

/* Whether the header says that what is not among the entries never left. */
static void header_judge(struct journal_left *left, const struct journal_header *h,
                         const struct stat *st)
{
    struct journal_file file;
    uint8_t digest[SHA256_SIZE];
    char boot_id[JOURNAL_BOOT_ID_SIZE];
    left->proves = true;
    journal_header_digest(h, digest);
    if (memcmp(digest, h->digest, sizeof digest) != 0)
        proves_nothing(left, "its header is damaged");
    else if ((uint64_t)st->st_size != journal_file_size(h->entries))
        proves_nothing(left, "it is cut short");
    else if (!h->file.known)
        proves_nothing(left, "its file system does not tell a file from a copy");
    else if (!journal_file_of(left->fd, &file) || memcmp(&file, &h->file, sizeof file) != 0)
        proves_nothing(left, "it is a copy of a journal");
    else if (!journal_boot_id(boot_id) || strncmp(boot_id, h->boot_id, sizeof boot_id) != 0)
        proves_nothing(left, "it is of another boot: what was in memory then is lost");
}

static int entry_compare(const void *a, const void *b)
{
    return ulid_compare(&((const struct journal_entry *)a)->effect,
                        &((const struct journal_entry *)b)->effect);
}

/* A torn entry in use can't say which effect it is about, so nothing is proven then. One that was
 * only taken belongs to a gate that never opened. */
static void slots_take(struct journal_left *left, const struct journal_slot *slots, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t state = atomic_load(&slots[i].state);
        if (state == ENTRY_FREE || state == ENTRY_TAKEN)
            continue;
        if (state != ENTRY_USED || slots[i].check != journal_slot_check(&slots[i])) {
            proves_nothing(left, "one of its entries is damaged");
            continue;
        }
        struct journal_entry *entry = &left->entries[left->count++];
        memcpy(entry->effect.bytes, slots[i].effect, sizeof entry->effect.bytes);
        entry->seq = slots[i].seq;
        entry->at_wall_us = slots[i].at_wall_us;
    }
    qsort(left->entries, left->count, sizeof *left->entries, entry_compare);
}

static bool journal_load(struct journal_left *left, struct error *err)
{
    struct journal_header h;
    struct stat st;
    if (fstat(left->fd, &st) != 0 || !read_whole(left->fd, &h, sizeof h, 0) ||
        memcmp(h.magic, JOURNAL_MAGIC, sizeof h.magic) != 0 ||
        h.entry_size != sizeof(struct journal_slot) || h.entries == 0 ||
        h.entries > JOURNAL_ENTRIES_MAX)
        return error_set_at(err, ERROR_INVALID, left->path, "this is no send journal");
    memcpy(left->incarnation, h.incarnation, sizeof left->incarnation);
    header_judge(left, &h, &st);
    size_t size = h.entries * sizeof(struct journal_slot);
    struct journal_slot *slots = calloc(h.entries, sizeof *slots);
    left->entries = calloc(h.entries, sizeof *left->entries);
    must(slots != NULL && left->entries != NULL);
    if (!read_whole(left->fd, slots, size, JOURNAL_HEADER_SIZE))
        proves_nothing(left, "it is cut short");
    slots_take(left, slots, h.entries);
    free(slots);
    return true;
}

bool journal_read(const char *path, struct journal_left *out, struct error *err)
{
    *out = (struct journal_left){.fd = open(path, O_RDWR | O_CLOEXEC)};
    snprintf(out->path, sizeof out->path, "%s", path);
    if (out->fd < 0)
        return error_set_at(err, ERROR_NOT_FOUND, path, "it can't be opened: %s", strerror(errno));
    if (!journal_load(out, err)) {
        journal_left_close(out, false);
        return false;
    }
    out->locked = flock(out->fd, LOCK_EX | LOCK_NB) == 0;
    if (!out->locked)
        proves_nothing(out, "its process is running");
    return true;
}

/* NAME.<32 hex digits>.left */
static bool left_name(const char *file, const char *name)
{
    size_t name_len = strlen(name), len = strlen(file);
    return len == name_len + 38 && strncmp(file, name, name_len) == 0 && file[name_len] == '.' &&
           strcmp(file + len - 5, ".left") == 0;
}

size_t journal_left_all(const char *dir, const char *name, struct journal_left *out, size_t max)
{
    DIR *files = opendir(dir);
    size_t count = 0;
    struct dirent *d;
    while (files != NULL && count < max && (d = readdir(files)) != NULL) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/%s", dir, d->d_name);
        if (!left_name(d->d_name, name) || !journal_read(path, &out[count], NULL))
            continue;
        if (out[count].locked)
            count++;
        else
            journal_left_close(&out[count], false);
    }
    if (files != NULL)
        closedir(files);
    return count;
}

bool journal_left_has(const struct journal_left *left, const struct ulid *effect, int seq)
{
    for (size_t i = 0; i < left->count; i++)
        if (left->entries[i].seq == seq && ulid_compare(&left->entries[i].effect, effect) == 0)
            return true;
    return false;
}

void journal_left_close(struct journal_left *left, bool done)
{
    if (done)
        unlink(left->path);
    if (left->fd >= 0)
        close(left->fd);
    free(left->entries);
    *left = (struct journal_left){.fd = -1};
}
