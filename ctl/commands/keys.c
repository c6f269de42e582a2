/* holdfast keys: creates, lists and revokes API keys. Only a key's hash is stored; the key is
 * printed once. */
#include "common/base/clock.h"
#include "common/base/config.h"
#include "common/base/crypto.h"
#include "common/base/ulid.h"
#include "common/scopes.h"
#include "ctl/commands.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_RANDOM_BYTES = 32, SCOPE_LIST_SIZE = 1024 };

struct key_options {
    const char *environment, *agent, *name, *actions, *days, *user, *tags, *per_minute, *per_month;
    uint32_t scopes;
};

static struct store *owner_store(void)
{
    struct store_options options = {
        .url = config_text("HOLDFAST_DATABASE_URL"), .name = "holdfast keys", .as_owner = true};
    return store_new(&options);
}

/* "a,b,c" to bits. */
static bool scopes_read(const char *list, uint32_t *out, struct error *err)
{
    uint32_t set = 0;
    for (const char *at = list;;) {
        size_t len = strcspn(at, ",");
        enum scope scope;
        if (!scope_parse(at, len, &scope))
            return error_set(err, ERROR_INVALID, "%.*s is no scope", (int)(len < 64 ? len : 64),
                             at);
        set |= SCOPE_BIT(scope);
        if (at[len] == '\0')
            break;
        at += len + 1;
    }
    *out = set;
    return true;
}

/* A number of calls that a budget may have. */
static bool number_given(const char *value)
{
    size_t digits = strspn(value, "0123456789");
    return digits > 0 && digits <= 9 && value[digits] == '\0' && strtol(value, NULL, 10) > 0;
}

/* Reads `--option value` pairs. */
static bool options_read(int argc, char **argv, struct key_options *o, struct error *err)
{
    for (int i = 0; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (value == NULL)
            return error_set(err, ERROR_INVALID, "%s needs a value", argv[i]);
        if (strcmp(argv[i], "--env") == 0)
            o->environment = value;
        else if (strcmp(argv[i], "--agent") == 0)
            o->agent = value;
        else if (strcmp(argv[i], "--name") == 0)
            o->name = value;
        else if (strcmp(argv[i], "--actions") == 0)
            o->actions = value;
        else if (strcmp(argv[i], "--user") == 0)
            o->user = value;
        else if (strcmp(argv[i], "--tags") == 0)
            o->tags = value;
        else if (strcmp(argv[i], "--calls-per-minute") == 0 && number_given(value))
            o->per_minute = value;
        else if (strcmp(argv[i], "--calls-per-month") == 0 && number_given(value))
            o->per_month = value;
        else if (strcmp(argv[i], "--expires-days") == 0 &&
                 strspn(value, "0123456789") == strlen(value))
            o->days = value;
        else if (strcmp(argv[i], "--preset") == 0) {
            if (!scope_preset(value, &o->scopes))
                return error_set(err, ERROR_INVALID, "%s is no preset: agent, operator or resolver",
                                 value);
        } else if (strcmp(argv[i], "--scopes") == 0) {
            if (!scopes_read(value, &o->scopes, err))
                return false;
        } else {
            return error_set(err, ERROR_INVALID, "%s is no option with such a value", argv[i]);
        }
    }
    return o->agent != NULL ||
           error_set(err, ERROR_INVALID, "--agent is required: whose calls these are");
}

static void scope_list(uint32_t scopes, char out[SCOPE_LIST_SIZE])
{
    out[0] = '\0';
    for (int i = 0; i < SCOPE_COUNT; i++) {
        if ((scopes & SCOPE_BIT(i)) == 0)
            continue;
        if (out[0] != '\0')
            strcat(out, ",");
        strcat(out, scope_name((enum scope)i));
    }
}

static bool key_store(const struct key_options *o, const struct ulid *id,
                      const uint8_t digest[SHA256_SIZE], struct error *err)
{
    static const char sql[] =
        "with env as (insert into environments (name) values ($1) on conflict (name) do update set "
        "name = $1 "
        "returning id), made as ("
        "insert into api_keys (id, environment_id, name, agent_id, scopes, actions, secret_hash, "
        "expires_at, user_id, tags, calls_per_minute, calls_per_month) "
        "select $2, id, $3, $4, string_to_array($5, ','), string_to_array($6, ','), $7, "
        "hf_now() + make_interval(days => $8::int), $9, "
        "coalesce(string_to_array($10, ','), '{}'), $11::int, $12::bigint from env "
        "returning id, environment_id) "
        "insert into audit (environment_id, agent_id, act, target) "
        "select environment_id, 'holdfast keys', 'key.create', prefixed('key', id) from made";
    char scopes[SCOPE_LIST_SIZE];
    struct store *store = owner_store();
    scope_list(o->scopes, scopes);
    struct store_param params[] = {store_text(o->environment),
                                   store_uuid(id),
                                   store_text(o->name),
                                   store_text(o->agent),
                                   store_text(scopes),
                                   store_text(o->actions),
                                   store_bytes(digest, SHA256_SIZE),
                                   store_text(o->days),
                                   store_text(o->user),
                                   store_text(o->tags),
                                   store_text(o->per_minute),
                                   store_text(o->per_month)};
    PGresult *r = store_query(store, sql, params, 12, false, err);
    bool ok = r != NULL;
    PQclear(r);
    store_free(store);
    return ok;
}

/* The key is 256 random bits behind a word that secret scanners can look for. */
static int key_create(int argc, char **argv)
{
    struct error err = {0};
    struct key_options o = {.environment = "default", .name = "key"};
    uint8_t random[KEY_RANDOM_BYTES], digest[SHA256_SIZE];
    char key[16 + 2 * KEY_RANDOM_BYTES] = "holdfast_";
    struct ulid id;
    scope_preset("agent", &o.scopes);
    if (!options_read(argc, argv, &o, &err))
        return command_fail(&err);
    crypto_random(random, sizeof random);
    crypto_hex(random, sizeof random, key + strlen(key));
    crypto_sha256(key, strlen(key), digest);
    ulid_new(&id, clock_wall_ms());
    if (!key_store(&o, &id, digest, &err))
        return command_fail(&err);
    printf("%s\n", key);
    return 0;
}

static int key_list(void)
{
    static const char sql[] =
        "select prefixed('key', k.id), e.name, k.agent_id, k.name, array_to_string(k.scopes, ','), "
        "coalesce(array_to_string(k.actions, ','), '*'), coalesce(iso(k.expires_at), 'never'), "
        "coalesce(k.calls_per_minute || '/min ', '') || coalesce(k.calls_per_month || '/month', "
        "''), "
        "case when k.revoked_at is not null then 'revoked ' || iso(k.revoked_at) "
        "when k.expires_at <= hf_now() then 'expired' else 'valid' end "
        "from api_keys k join environments e on e.id = k.environment_id order by k.created_at";
    struct error err = {0};
    struct store *store = owner_store();
    PGresult *r = store_query(store, sql, NULL, 0, false, &err);
    if (r != NULL)
        printf("id\tenvironment\tagent\tname\tscopes\tactions\texpires\tbudget\tstate\n");
    for (int i = 0; i < PQntuples(r); i++)
        for (int j = 0; j < PQnfields(r); j++)
            printf("%s%c", PQgetvalue(r, i, j), j + 1 < PQnfields(r) ? '\t' : '\n');
    int status = r != NULL ? 0 : command_fail(&err);
    PQclear(r);
    store_free(store);
    return status;
}

static int key_revoke(const char *text)
{
    static const char sql[] =
        "with gone as (update api_keys set revoked_at = coalesce(revoked_at, hf_now()) where id = "
        "$1 "
        "returning id, environment_id), told as (insert into audit (environment_id, agent_id, act, "
        "target) "
        "select environment_id, 'holdfast keys', 'key.revoke', prefixed('key', id) from gone) "
        "select 1 from gone";
    struct error err = {0};
    struct ulid id;
    if (!ulid_parse_prefixed("key", text, &id)) {
        error_set(&err, ERROR_INVALID, "%s is no key id (key_...)", text);
        return command_fail(&err);
    }
    struct store *store = owner_store();
    struct store_param param = store_uuid(&id);
    PGresult *r = store_query(store, sql, &param, 1, false, &err);
    bool found = r != NULL && PQntuples(r) == 1;
    if (r != NULL && !found)
        error_set(&err, ERROR_NOT_FOUND, "there is no key %s", text);
    PQclear(r);
    store_free(store);
    if (found)
        printf("%s is revoked\n", text);
    return found ? 0 : command_fail(&err);
}

int command_keys(int argc, char **argv)
{
    if (argc >= 1 && strcmp(argv[0], "create") == 0)
        return key_create(argc - 1, argv + 1);
    if (argc == 1 && strcmp(argv[0], "list") == 0)
        return key_list();
    if (argc == 2 && strcmp(argv[0], "revoke") == 0)
        return key_revoke(argv[1]);
    return command_usage(
        "holdfast keys create --agent AGENT [--env NAME] [--name NAME] [--preset "
        "agent|operator|resolver | --scopes a,b] [--actions a,b] [--user U] [--tags a,b] "
        "[--expires-days N] [--calls-per-minute N] [--calls-per-month N] "
        "| list | revoke KEY_ID");
}
