/* Named entries with a hard maximum: a chained hash table whose entries also stand in one list from
 * the oldest to the newest. */
#include "tests/provider/sandbox/table.h"

#include "common/base/error.h"

#include <stdlib.h>
#include <string.h>

void *must_calloc(size_t size)
{
    void *memory = calloc(1, size ? size : 1);
    must(memory != NULL);
    return memory;
}

char *must_strndup(const char *text, size_t len)
{
    char *copy = must_calloc(len + 1);
    if (len)
        memcpy(copy, text, len);
    return copy;
}

char *must_strdup(const char *text)
{
    return text ? must_strndup(text, strlen(text)) : NULL;
}

static uint64_t name_hash(const char *name)
{
    uint64_t hash = 14695981039346656037ULL;
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 1099511628211ULL;
    return hash;
}

void table_init(struct table *t, size_t max, void (*free_entry)(struct table_entry *entry))
{
    memset(t, 0, sizeof(*t));
    t->max = max;
    t->free_entry = free_entry;
    for (t->slot_count = 64; t->slot_count < max; t->slot_count *= 2)
        ;
    t->slots = must_calloc(t->slot_count * sizeof(t->slots[0]));
}

static struct table_entry **table_slot(const struct table *t, uint64_t hash)
{
    return &t->slots[hash & (t->slot_count - 1)];
}

struct table_entry *table_find(const struct table *t, const char *name)
{
    if (name == NULL)
        return NULL;
    uint64_t hash = name_hash(name);
    struct table_entry *entry = *table_slot(t, hash);
    while (entry && (entry->hash != hash || strcmp(entry->name, name) != 0))
        entry = entry->chain;
    return entry;
}

void table_add(struct table *t, struct table_entry *entry, const char *name)
{
    if (t->count == t->max) {
        table_remove(t, t->oldest);
        t->evicted++;
    }
    entry->name = must_strdup(name);
    entry->hash = name_hash(name);
    struct table_entry **slot = table_slot(t, entry->hash);
    entry->chain = *slot;
    *slot = entry;
    entry->newer = NULL;
    entry->older = t->newest;
    if (t->newest)
        t->newest->newer = entry;
    else
        t->oldest = entry;
    t->newest = entry;
    t->count++;
}

void table_remove(struct table *t, struct table_entry *entry)
{
    struct table_entry **link = table_slot(t, entry->hash);
    while (*link != entry)
        link = &(*link)->chain;
    *link = entry->chain;
    if (entry->older)
        entry->older->newer = entry->newer;
    else
        t->oldest = entry->newer;
    if (entry->newer)
        entry->newer->older = entry->older;
    else
        t->newest = entry->older;
    t->count--;
    free(entry->name);
    t->free_entry(entry);
}

void table_clear(struct table *t)
{
    while (t->oldest)
        table_remove(t, t->oldest);
    t->evicted = 0;
}
