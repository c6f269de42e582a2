/* Opening and sealing secrets, with a small cache for one thread. */
#include "common/vault.h"

#include "common/base/clock.h"
#include "common/base/config.h"
#include "common/base/crypto.h"
#include "common/base/log.h"
#include "common/vault_keys.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ENTRIES_MAX = 256, FRESH_MS = 1000, LIST_MAX = 32, CONTEXT_MAX = 160 };

struct entry {
    int environment;
    char name[SECRET_NAME_MAX + 1];
    int version;
    char *value;
    size_t len;
    char *hosts[LIST_MAX];
    size_t host_count;
    bool any_host;
    unsigned placements;
    int64_t read_at_ms;
};

struct vault {
    struct store *store;
    struct entry entries[ENTRIES_MAX];
    size_t count;
};

static atomic_bool keys_checked; /* against the database; later when it was away at the start */

bool vault_start(const char *name, struct error *err)
{
    struct store_options options = {.url = config_text("HOLDFAST_DATABASE_URL"), .name = name};
    if (!vault_keys_load(err))
        return false;
    struct store *store = store_new(&options);
    bool ok = vault_keys_check(store, err);
    atomic_store(&keys_checked, ok);
    ok = ok || err->code == ERROR_UNAVAILABLE || err->code == ERROR_DOUBTFUL;
    store_free(store);
    return ok;
}

/* A process that lacks a key would end every effect as one that never left, so it ends itself. */
static bool keys_check_late(struct store *store, struct error *err)
{
    if (vault_keys_check(store, err)) {
        atomic_store(&keys_checked, true);
        return true;
    }
    if (err->code == ERROR_INVALID) {
        log_error(LOG_ERROR, "master_key_missing", err);
        _exit(1);
    }
    return false;
}

/* What is authenticated with a value: it opens only where it belongs. */
static size_t seal_context(int environment, const char *name, int version, char out[CONTEXT_MAX])
{
    return (size_t)snprintf(out, CONTEXT_MAX, "%d/%s/%d", environment, name, version);
}

bool vault_seal(int environment, const char *name, int version, const char *value, size_t len,
                struct buf *out, struct error *err)
{
    char context[CONTEXT_MAX];
    size_t context_len = seal_context(environment, name, version, context);
    if (len > SECRET_VALUE_MAX)
        return error_set(err, ERROR_TOO_LARGE, "a secret holds at most %d bytes", SECRET_VALUE_MAX);
    uint8_t *sealed = malloc(len + SEAL_OVERHEAD);
    bool ok = sealed != NULL && vault_keys_seal(context, context_len, value, len, sealed, err) &&
              buf_put(out, sealed, len + SEAL_OVERHEAD);
    free(sealed);
    return ok;
}

struct vault *vault_new(struct store *store)
{
    struct vault *vault = calloc(1, sizeof *vault);
    must(vault != NULL);
    vault->store = store;
    return vault;
}

static void entry_clear(struct entry *entry)
{
    if (entry->value != NULL)
        crypto_wipe(entry->value, entry->len);
    free(entry->value);
    for (size_t i = 0; i < entry->host_count; i++)
        free(entry->hosts[i]);
    memset(entry, 0, sizeof *entry);
}

static void vault_clear(struct vault *vault)
{
    for (size_t i = 0; i < vault->count; i++)
        entry_clear(&vault->entries[i]);
    vault->count = 0;
}

void vault_free(struct vault *vault)
{
    if (vault == NULL)
        return;
    vault_clear(vault);
    free(vault);
}

static bool entry_open(struct entry *entry, const uint8_t *sealed, size_t len, struct error *err)
{

    char context[CONTEXT_MAX];
    size_t context_len = seal_context(entry->environment, entry->name, entry->version, context);
    if (len < SEAL_OVERHEAD)
        return error_set(err, ERROR_INTERNAL, "secret %s is stored damaged", entry->name);
    entry->len = len - SEAL_OVERHEAD;
    entry->value = malloc(entry->len + 1);
    if (entry->value == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for secret %s", entry->name);
    if (!vault_keys_open(context, context_len, sealed, len, (uint8_t *)entry->value, NULL, err))
        return false;
    entry->value[entry->len] = '\0';
    return true;
}

static void entry_take_hosts(struct entry *entry, const PGresult *r)
{
    entry->any_host = row_null(r, 0, 2);
    for (int i = 0; i < row_array_length(r, 0, 2) && entry->host_count < LIST_MAX; i++) {
        size_t len;
        const char *host = row_array_text(r, 0, 2, i, &len);
        char *copy = host != NULL ? strndup(host, len) : NULL;
        if (copy != NULL)
            entry->hosts[entry->host_count++] = copy;
    }
}

static void entry_take_placements(struct entry *entry, const PGresult *r)
{
    static const struct {
        const char *word;
        unsigned bit;
    } words[] = {{"url", PLACE_URL}, {"header", PLACE_HEADER}, {"body", PLACE_BODY}};
    for (int i = 0; i < row_array_length(r, 0, 3); i++) {
        size_t len;
        const char *word = row_array_text(r, 0, 3, i, &len);
        for (size_t j = 0; word != NULL && j < sizeof words / sizeof *words; j++)
            if (strlen(words[j].word) == len && memcmp(words[j].word, word, len) == 0)
                entry->placements |= words[j].bit;
    }
    /* An empty list allows nowhere: a bit that no place has. */
    if (!row_null(r, 0, 3) && entry->placements == 0)
        entry->placements = 1u << 31;
}

/* Reads one secret into *entry: the newest, or the wanted one where it is still there. */
static bool entry_read(struct vault *vault, struct entry *entry, int want, struct error *err)
{
    static const char sql[] =
        "select version, sealed, allowed_hosts, allowed_placements, previous_sealed "
        "from secrets where environment_id = $1::int and name = $2";
    char number[24];
    struct store_param params[] = {store_int(entry->environment, number), store_text(entry->name)};
    if (!atomic_load(&keys_checked) && !keys_check_late(vault->store, err))
        return false;
    PGresult *r = store_query(vault->store, sql, params, 2, true, err);
    bool ok = r != NULL;
    if (ok && (PQntuples(r) == 0 || row_null(r, 0, 1)))
        ok = error_set(err, ERROR_NOT_FOUND, "secret %s does not exist", entry->name);
    if (ok) {
        size_t len;
        int newest = (int)row_int(r, 0, 0);
        bool previous = want == newest - 1 && !row_null(r, 0, 4);
        entry->version = previous ? want : newest;
        if (want != 0 && want != entry->version)
            ok = error_set(err, ERROR_CONFLICT, "secret %s is at version %d, not %d any more",
                           entry->name, newest, want);
        const void *sealed = row_bytes(r, 0, previous ? 4 : 1, &len);
        ok = ok && entry_open(entry, sealed, len, err);
        if (!ok && err->code == ERROR_INVALID) { /* rotated while this process lacks the new key? */
            struct error late;
            keys_check_late(vault->store, &late);
        }
    }
    if (ok) {
        entry_take_hosts(entry, r);
        entry_take_placements(entry, r);
    }
    PQclear(r);
    return ok;
}

static struct entry *entry_find(struct vault *vault, int environment, const char *name)
{
    for (size_t i = 0; i < vault->count; i++)
        if (vault->entries[i].environment == environment &&
            strcmp(vault->entries[i].name, name) == 0)
            return &vault->entries[i];
    return NULL;
}

void vault_forget_old(struct vault *vault)
{
    int64_t now_ms = clock_boot_ms();
    for (size_t i = vault->count; i-- > 0;) {
        struct entry *entry = &vault->entries[i], *last = &vault->entries[vault->count - 1];
        if (now_ms - entry->read_at_ms < FRESH_MS)
            continue;
        entry_clear(entry);
        if (entry != last)
            *entry = *last;
        memset(last, 0, sizeof *last);
        vault->count--;
    }
}

bool vault_get(struct vault *vault, int environment, const char *name, int version,
               struct secret_value *out, struct error *err)
{
    int64_t now_ms = clock_boot_ms();
    struct entry *entry = entry_find(vault, environment, name);
    bool fresh = entry != NULL && now_ms - entry->read_at_ms < FRESH_MS;
    if (!fresh || (version != 0 && entry->version != version)) {
        if (entry == NULL && vault->count == ENTRIES_MAX)
            vault_clear(vault);
        struct entry read = {.environment = environment, .read_at_ms = now_ms};
        snprintf(read.name, sizeof read.name, "%s", name);
        if (!entry_read(vault, &read, version, err)) {
            entry_clear(&read);
            return false;
        }
        if (entry == NULL)
            entry = &vault->entries[vault->count++];
        else
            entry_clear(entry);
        *entry = read;
    }
    *out = (struct secret_value){.value = entry->value,
                                 .len = entry->len,
                                 .version = entry->version,
                                 .allowed_hosts =
                                     entry->any_host ? NULL : (const char *const *)entry->hosts,
                                 .allowed_host_count = entry->host_count,
                                 .allowed_placements = entry->placements};
    return true;
}
