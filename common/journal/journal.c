/* The send journal's file. */
#include "common/journal/journal.h"

#include "common/base/log.h"
#include "common/journal/journal_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

struct journal {
    int fd;
    char path[512];
    struct journal_header *header; /* the mapping */
    struct journal_slot *entries;
    size_t count;
    pthread_mutex_t lock; /* over the list of free entries */
    uint32_t *free_list;
    size_t free_count;
};

size_t journal_file_size(size_t entries)
{
    return JOURNAL_HEADER_SIZE + entries * sizeof(struct journal_slot);
}

uint64_t journal_slot_check(const struct journal_slot *entry)
{
    uint8_t digest[SHA256_SIZE];
    uint64_t check;
    struct crypto_part parts[] = {{entry->effect, sizeof entry->effect},
                                  {&entry->seq, sizeof entry->seq},
                                  {&entry->at_wall_us, sizeof entry->at_wall_us}};
    crypto_sha256_parts(parts, 3, digest);
    memcpy(&check, digest, sizeof check);
    return check;
}

void journal_header_digest(const struct journal_header *header, uint8_t out[SHA256_SIZE])
{
    crypto_sha256(header, offsetof(struct journal_header, digest), out);
}

bool journal_boot_id(char out[JOURNAL_BOOT_ID_SIZE])
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, out, JOURNAL_BOOT_ID_SIZE - 1) : -1;
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return false;
    out[n] = '\0';
    out[strcspn(out, "\n")] = '\0';
    return true;
}

bool journal_file_of(int fd, struct journal_file *out)
{
    struct statx st;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &st) != 0)
        return false;
    *out = (struct journal_file){.device = makedev(st.stx_dev_major, st.stx_dev_minor),
                                 .inode = st.stx_ino,
                                 .born_s = st.stx_btime.tv_sec,
                                 .born_ns = st.stx_btime.tv_nsec,
                                 .known = (st.stx_mask & STATX_BTIME) != 0};
    return true;
}

/* ---- making one ---- */

static bool header_write(struct journal *j, const uint8_t incarnation[16], struct error *err)
{
    struct journal_header *h = j->header;
    memcpy(h->magic, JOURNAL_MAGIC, sizeof h->magic);
    h->entry_size = sizeof(struct journal_slot);
    h->entries = (uint32_t)j->count;
    memcpy(h->incarnation, incarnation, sizeof h->incarnation);
    if (!journal_boot_id(h->boot_id) || !journal_file_of(j->fd, &h->file))
        return error_set_at(err, ERROR_INTERNAL, j->path, "the kernel's boot id can't be read");
    journal_header_digest(h, h->digest);
    return true;
}

static bool journal_map(struct journal *j, struct error *err)
{
    if (ftruncate(j->fd, (off_t)journal_file_size(j->count)) != 0 ||
        posix_fallocate(j->fd, 0, (off_t)journal_file_size(j->count)) != 0)
        return error_set_at(err, ERROR_INTERNAL, j->path, "no room for the journal: %s",
                            strerror(errno));
    void *map =
        mmap(NULL, journal_file_size(j->count), PROT_READ | PROT_WRITE, MAP_SHARED, j->fd, 0);
    if (map == MAP_FAILED)
        return error_set_at(err, ERROR_MEMORY, j->path, "the journal can't be mapped: %s",
                            strerror(errno));
    j->header = map;
    j->entries = (struct journal_slot *)((char *)map + JOURNAL_HEADER_SIZE);
    return true;
}

/* What an earlier process of this name left is kept under the name of its incarnation. */
static bool journal_set_aside(const char *dir, const char *name, const char *path,
                              struct error *err)
{
    struct journal_left left;
    char hex[33], aside[PATH_MAX];
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT || error_set_at(err, ERROR_INTERNAL, path,
                                               "the journal can't be opened: %s", strerror(errno));
    bool free_now = flock(fd, LOCK_EX | LOCK_NB) == 0;
    close(fd);
    if (!free_now)
        return error_set_at(err, ERROR_CONFLICT, path,
                            "another process named %s is running: names must be different", name);
    if (!journal_read(path, &left, NULL)) {
        log_event(LOG_WARN, "journal_damaged", "path=%s reason=%s", path,
                  "it is no journal; removed");
        return unlink(path) == 0;
    }
    crypto_hex(left.incarnation, sizeof left.incarnation, hex);
    journal_left_close(&left, false);
    snprintf(aside, sizeof aside, "%s/%s.%s.left", dir, name, hex);
    return rename(path, aside) == 0 ||
           error_set_at(err, ERROR_INTERNAL, path, "the journal can't be moved: %s",
                        strerror(errno));
}

/* The file is made complete under another name first: whoever reads NAME.journal finds it whole. */
static bool journal_create(struct journal *j, const char *dir, const char *name,
                           const uint8_t incarnation[16], struct error *err)
{
    char fresh[PATH_MAX];
    snprintf(j->path, sizeof j->path, "%s/%s.journal", dir, name);
    snprintf(fresh, sizeof fresh, "%s/%s.new", dir, name);
    if (!journal_set_aside(dir, name, j->path, err))
        return false;
    j->fd = open(fresh, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (j->fd < 0)
        return error_set_at(err, ERROR_INTERNAL, fresh, "the journal can't be made: %s",
                            strerror(errno));
    if (flock(j->fd, LOCK_EX | LOCK_NB) != 0)
        return error_set_at(err, ERROR_CONFLICT, fresh, "another process named %s is starting",
                            name);
    if (!journal_map(j, err) || !header_write(j, incarnation, err))
        return false;
    return rename(fresh, j->path) == 0 ||
           error_set_at(err, ERROR_INTERNAL, j->path, "the journal can't be put in place: %s",
                        strerror(errno));
}

struct journal *journal_open(const char *dir, const char *name, const uint8_t incarnation[16],
                             size_t entries, struct error *err)
{
    must(entries >= 1 && entries <= JOURNAL_ENTRIES_MAX);
    struct journal *j = calloc(1, sizeof *j);
    must(j != NULL);
    j->fd = -1;
    j->count = entries;
    pthread_mutex_init(&j->lock, NULL);
    j->free_list = malloc(entries * sizeof *j->free_list);
    must(j->free_list != NULL);
    for (size_t i = 0; i < entries; i++)
        j->free_list[j->free_count++] = (uint32_t)(entries - 1 - i);
    if (mkdir(dir, 0700) != 0 && errno != EEXIST)
        error_set_at(err, ERROR_INTERNAL, dir, "the journal's directory can't be made: %s",
                     strerror(errno));
    else if (journal_create(j, dir, name, incarnation, err))
        return j;
    journal_close(j, false);
    return NULL;
}

void journal_close(struct journal *j, bool clean)
{
    if (j == NULL)
        return;
    if (clean && j->header != NULL)
        unlink(j->path);
    if (j->header != NULL)
        munmap(j->header, journal_file_size(j->count));
    if (j->fd >= 0)
        close(j->fd);
    pthread_mutex_destroy(&j->lock);
    free(j->free_list);
    free(j);
}

/* ---- entries ---- */

size_t journal_put(struct journal *j, const struct ulid *effect, int seq, int64_t at_wall_us)
{
    pthread_mutex_lock(&j->lock);
    size_t at = j->free_count > 0 ? j->free_list[--j->free_count] : JOURNAL_NONE;
    pthread_mutex_unlock(&j->lock);
    if (at == JOURNAL_NONE)
        return JOURNAL_NONE;
    struct journal_slot *entry = &j->entries[at];
    atomic_store_explicit(&entry->state, ENTRY_TAKEN, memory_order_release);
    memcpy(entry->effect, effect->bytes, sizeof entry->effect);
    entry->seq = seq;
    entry->at_wall_us = at_wall_us;
    entry->check = journal_slot_check(entry);
    atomic_store_explicit(&entry->state, ENTRY_USED, memory_order_seq_cst);
    return at;
}

void journal_free_entry(struct journal *j, size_t at)
{
    if (at == JOURNAL_NONE)
        return;
    must(at < j->count);
    atomic_store_explicit(&j->entries[at].state, ENTRY_FREE, memory_order_seq_cst);
    pthread_mutex_lock(&j->lock);
    must(j->free_count < j->count);
    j->free_list[j->free_count++] = (uint32_t)at;
    pthread_mutex_unlock(&j->lock);
}

size_t journal_used(const struct journal *j)
{
    return j->count - j->free_count;
}
