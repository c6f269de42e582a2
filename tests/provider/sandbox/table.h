/* Named entries with a hard maximum: when it is full, adding one lets the oldest go. */
#ifndef SANDBOX_TABLE_H
#define SANDBOX_TABLE_H

#include <stddef.h>
#include <stdint.h>

/* Stands first in whatever is kept in a table. */
struct table_entry {
    char *name; /* the table's own copy */
    uint64_t hash;
    struct table_entry *chain;
    struct table_entry *older;
    struct table_entry *newer;
};

struct table {
    struct table_entry **slots;
    size_t slot_count; /* a power of two */
    size_t count;
    size_t max;
    uint64_t evicted;
    struct table_entry *oldest;
    struct table_entry *newest;
    void (*free_entry)(struct table_entry *entry); /* frees the entry itself, not its name */
};

void table_init(struct table *t, size_t max, void (*free_entry)(struct table_entry *entry));
/* NULL name or nothing found: NULL. */
struct table_entry *table_find(const struct table *t, const char *name);
/* Takes the entry, which must come from malloc and whose name must not be in the table yet. */
void table_add(struct table *t, struct table_entry *entry, const char *name);
void table_remove(struct table *t, struct table_entry *entry);
void table_clear(struct table *t);

/* Zeroed memory, or the process ends: a stand-in has nothing better to do without memory. */
void *must_calloc(size_t size);
char *must_strdup(const char *text); /* NULL stays NULL */
char *must_strndup(const char *text, size_t len);

#endif
