/* Configuration: the one table of settings, and reading the environment against it. */
#include "common/base/config.h"

#include "common/base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define PREFIX "HOLDFAST_"
#define DURATIONS_MAX 32
#define HOST_MAX 256
#define SHOWN_MAX 64 /* of a bad value, in a message */
#define DAY_S 86400
#define MONTH_MS (INT64_C(31) * DAY_S * 1000)

enum setting_kind {
    KIND_INT,          /* least..most */
    KIND_BOOL,         /* on/off, true/false, 1/0 */
    KIND_TEXT,         /* least..most bytes */
    KIND_LEVEL,        /* a log level */
    KIND_LISTEN,       /* host:port, port 0 picks one */
    KIND_DESTINATIONS, /* host[:port],... */
    KIND_DURATIONS,    /* 30s,1m,...: each least..most milliseconds */
    KIND_CLIENT        /* for clients of the API; services ignore it */
};

enum setting_secret { SHOWN, HIDE_PASSWORD, HIDE_ALL };

struct setting {
    const char *name;
    enum setting_kind kind;
    const char *standard; /* the default */
    const char *unit;
    int64_t least;
    int64_t most;
    const char *sentence;
    enum setting_secret secret;
};

/* Alphabetical by byte, since look-ups bisect it. */
static const struct setting settings[] = {
    {"HOLDFAST_ACCEPT_BATCH", KIND_INT, "256", "calls", 1, 4096,
     "The most calls that ingest accepts in one transaction."},
    {"HOLDFAST_ACCEPT_LINGER_MS", KIND_INT, "1", "ms", 0, 1000,
     "How long ingest waits for an accept batch to fill once it holds a call; not while calls come "
     "singly."},
    {"HOLDFAST_ACCEPT_QUEUE", KIND_INT, "10000", "calls", 1, 1000000,
     "The most calls that may wait to be accepted; past it ingest answers 503."},
    {"HOLDFAST_ADMIN_LISTEN", KIND_LISTEN, "127.0.0.1:9100", "host:port", 0, 0,
     "Where this process serves /livez, /readyz and /metrics; port 0 picks a free one."},
    {"HOLDFAST_AGENT_KEY", KIND_CLIENT, "", "", 0, 0,
     "An agent's API key, for clients; services ignore it.", HIDE_ALL},
    {"HOLDFAST_ANSWER_MAX_BYTES", KIND_INT, "1048576", "bytes", 1024, 67108864,
     "The most that is kept of one answer's body; up to 64 times that is read."},
    {"HOLDFAST_APPROVAL_EXPIRES_S", KIND_INT, "86400", "s", 1, 31 * DAY_S,
     "How long an approval may be decided and used, unless its request says otherwise."},
    {"HOLDFAST_BODY_MAX_BYTES", KIND_INT, "1048576", "bytes", 1024, 67108864,
     "The largest request body that ingest takes; a larger one is answered 413."},
    {"HOLDFAST_CLAIM_BATCH", KIND_INT, "256", "effects", 1, 4096,
     "The most effects that a dispatcher claims in one transaction."},
    {"HOLDFAST_CLAIM_THREADS", KIND_INT, "2", "threads", 1, 64,
     "Threads of a dispatcher that claim, each with a database connection."},
    {"HOLDFAST_CONFIRM_DELAY_MS", KIND_INT, "2000", "ms", 0, 900000,
     "How long after a success the confirming read-back is due."},
    {"HOLDFAST_CONNECT_TIMEOUT_MS", KIND_INT, "5000", "ms", 10, 600000,
     "How long connecting to a provider, TLS included, may take."},
    {"HOLDFAST_CORE_DUMPS", KIND_BOOL, "off", "on|off", 0, 0,
     "Development only: whether a process may leave a core dump, with secrets in it, and be "
     "debugged."},
    {"HOLDFAST_DATABASE_URL", KIND_TEXT, "postgresql://localhost/holdfast", "URL", 1, 2048,
     "The Postgres database that holds the truth.", HIDE_PASSWORD},
    {"HOLDFAST_DESTINATION_SLOTS", KIND_INT, "64", "sends", 1, 65536,
     "The most sends in flight to one destination from one dispatcher."},
    {"HOLDFAST_DESTINATION_WAITING", KIND_INT, "1024", "effects", 1, 1000000,
     "The most effects that wait in a dispatcher for a slot of one destination; the rest stay "
     "ready."},
    {"HOLDFAST_DEV_DESTINATIONS", KIND_DESTINATIONS, "", "host[:port],...", 0, 4096,
     "Development only: hosts that may be reached by plain http and at private addresses."},
    {"HOLDFAST_DISPATCH_BEFORE_S", KIND_INT, "86400", "s", 1, 31 * DAY_S,
     "How long a call may wait to be sent, unless it says otherwise; then it expires."},
    {"HOLDFAST_DRAIN_MS", KIND_INT, "25000", "ms", 0, 3600000,
     "How long a process that was told to stop may take to finish what it has begun."},
    {"HOLDFAST_HTTP_CONNECTIONS", KIND_INT, "10000", "connections", 1, 1000000,
     "The most client connections that ingest holds open."},
    {"HOLDFAST_HTTP_IDLE_S", KIND_INT, "60", "s", 1, 3600,
     "How long a client connection may stay idle before ingest closes it."},
    {"HOLDFAST_HTTP_LISTEN", KIND_LISTEN, "127.0.0.1:8080", "host:port", 0, 0,
     "Where ingest serves the API; port 0 picks a free one."},
    {"HOLDFAST_HTTP_PER_IP", KIND_INT, "0", "connections", 0, 1000000,
     "The most client connections from one address; 0: no such limit, as behind a proxy."},
    {"HOLDFAST_HTTP_THREADS", KIND_INT, "1", "threads", 1, 64,
     "Threads of ingest that read and write client connections."},
    {"HOLDFAST_INVOKE_WAIT_MS", KIND_INT, "25000", "ms", 0, 600000,
     "How long an invoke waits for its outcome before it answers 202, unless the call says "
     "otherwise."},
    {"HOLDFAST_JOURNAL_DIR", KIND_TEXT, "/var/lib/holdfast", "path", 1, 256,
     "Where a dispatcher keeps its send journal; on a disk of the machine, kept across restarts."},
    {"HOLDFAST_KAFKA_BROKERS", KIND_TEXT, "127.0.0.1:9092", "host:port,...", 1, 4096,
     "The Kafka brokers to begin with."},
    {"HOLDFAST_KAFKA_OPTIONS", KIND_TEXT, "", "name=value;...", 0, 4096,
     "More settings for librdkafka, as TLS and SASL.", HIDE_ALL},
    {"HOLDFAST_KAFKA_PREFIX", KIND_TEXT, "holdfast", "", 1, 64,
     "What the names of our topics and consumer groups begin with."},
    {"HOLDFAST_KAFKA_SESSION_TIMEOUT_MS", KIND_INT, "10000", "ms", 1000, 3600000,
     "How long a silent consumer keeps its partitions."},
    {"HOLDFAST_LOG_LEVEL", KIND_LEVEL, "info", "debug|info|warn|error", 0, 0,
     "The least severe log lines that are written."},
    {"HOLDFAST_MASTER_KEY_FILE", KIND_TEXT, "", "path", 0, 4095,
     "The file with the 64 hex digits that seal the secrets vault; only its owner may have "
     "access."},
    {"HOLDFAST_NAME", KIND_TEXT, "", "", 0, 64,
     "What this process is called in log lines and attempts; empty takes its part and process id."},
    {"HOLDFAST_OPERATOR_KEY", KIND_CLIENT, "", "", 0, 0,
     "An operator's API key, for clients; services ignore it.", HIDE_ALL},
    {"HOLDFAST_OUTCOME_PARTITIONS", KIND_INT, "16", "partitions", 1, 4096,
     "Partitions of the outcomes topic when we create it; at least one for each ingest."},
    {"HOLDFAST_PARTITIONS", KIND_INT, "8", "partitions", 1, 4096,
     "Partitions of the effects and reconcile topics when we create them."},
    {"HOLDFAST_PROVIDER_CA_FILE", KIND_TEXT, "", "path", 0, 4095,
     "A PEM file with the CAs that providers' certificates must chain to; empty: the system's."},
    {"HOLDFAST_PROVIDER_TIMEOUT_MS", KIND_INT, "20000", "ms", 10, 600000,
     "How long a provider may take to answer a write before its outcome is unknown."},
    {"HOLDFAST_READBACK_SCHEDULE", KIND_DURATIONS, "30s,1m,2m,5m,15m,1h,6h,24h", "ms|s|m|h,...", 10,
     MONTH_MS, "The waits before each read-back of an unknown effect; the last one repeats."},
    {"HOLDFAST_READ_LEASE_MS", KIND_INT, "60000", "ms", 100, 3600000,
     "How long a published read belongs to whoever takes it, before it is published again."},
    {"HOLDFAST_READ_SLOTS", KIND_INT, "64", "reads", 1, 65536,
     "The most reads in flight in one reconciler."},
    {"HOLDFAST_READ_TIMEOUT_MS", KIND_INT, "20000", "ms", 10, 600000,
     "How long a provider may take to answer one read."},
    {"HOLDFAST_REDIS_TIMEOUT_MS", KIND_INT, "50", "ms", 1, 10000,
     "How long ingest waits for Redis before it goes on without."},
    {"HOLDFAST_REDIS_URL", KIND_TEXT, "redis://127.0.0.1:6379", "URL", 0, 2048,
     "The Redis that caches replies; empty means none.", HIDE_PASSWORD},
    {"HOLDFAST_REPLAY_EXPIRES_S", KIND_INT, "900", "s", 1, DAY_S,
     "How long a replay that was asked for may wait to be sent; then it ends as not sent."},
    {"HOLDFAST_REPLY_TTL_S", KIND_INT, "60", "s", 1, DAY_S,
     "How long Redis keeps the reply of an invocation."},
    {"HOLDFAST_REPUBLISH_AFTER_MS", KIND_INT, "5000", "ms", 10, 3600000,
     "How old, past the lag of its group, an accepted effect is when it is published again."},
    {"HOLDFAST_REPUBLISH_BATCH", KIND_INT, "1000", "effects", 1, 100000,
     "The most effects that one tick of the scheduler publishes again."},
    {"HOLDFAST_REPUBLISH_MAX_MS", KIND_INT, "300000", "ms", 10, 86400000,
     "Where the doubling interval between republications of one effect ends."},
    {"HOLDFAST_RESOLVER_KEY", KIND_CLIENT, "", "", 0, 0,
     "A resolver's API key, for clients; services ignore it.", HIDE_ALL},
    {"HOLDFAST_RESTORE_GUARD", KIND_BOOL, "on", "on|off", 0, 0,
     "Whether the fleet stops when the database has stepped back; off only for a broker in "
     "memory."},
    {"HOLDFAST_ROUTE_QUEUE", KIND_INT, "4096", "requests", 1, 1000000,
     "The most requests, other than invokes, that may wait for a thread in ingest."},
    {"HOLDFAST_ROUTE_THREADS", KIND_INT, "8", "threads", 1, 256,
     "Threads of ingest that serve requests with a database connection each."},
    {"HOLDFAST_SEND_LEASE_MS", KIND_INT, "10000", "ms", 100, 600000,
     "How long after a claim its send may still begin."},
    {"HOLDFAST_SEND_SLOTS", KIND_INT, "256", "sends", 1, 65536,
     "The most sends in flight in one dispatcher."},
    {"HOLDFAST_SEND_THREADS", KIND_INT, "2", "threads", 1, 64,
     "Threads of a dispatcher that drive sends."},
    {"HOLDFAST_SETTLE_BATCH", KIND_INT, "256", "effects", 1, 4096,
     "The most effects that are settled in one transaction."},
    {"HOLDFAST_SETTLE_LINGER_MS", KIND_INT, "1", "ms", 0, 1000,
     "How long a settle batch waits to fill once it holds an outcome; not while they come singly."},
    {"HOLDFAST_SWEEP_INTERVAL_MS", KIND_INT, "1000", "ms", 10, 3600000,
     "How often the scheduler makes unknowns of writes whose time to answer is over."},
    {"HOLDFAST_TICK_MS", KIND_INT, "200", "ms", 10, 60000,
     "How often the scheduler looks whether a job is due."},
    {"HOLDFAST_URL", KIND_CLIENT, "", "URL", 0, 0,
     "Where ingest is reached, for clients; services ignore it."},
};

#define SETTINGS (sizeof(settings) / sizeof(settings[0]))

/* What the environment said, beside the table: values[i] belongs to settings[i]. */
struct setting_value {
    char *text;
    int64_t number; /* KIND_INT, KIND_BOOL */
    int64_t durations_ms[DURATIONS_MAX];
    size_t durations;
};

static struct setting_value values[SETTINGS];
static bool loaded;

static int setting_compare(const void *name, const void *setting)
{
    return strcmp(name, ((const struct setting *)setting)->name);
}

static const struct setting *setting_find(const char *name)
{
    return bsearch(name, settings, SETTINGS, sizeof(settings[0]), setting_compare);
}

static struct setting_value *value_of(const struct setting *s)
{
    return &values[s - settings];
}

/* The value of a setting that the code names, so it is there. */
static const struct setting_value *value_get(const char *name, enum setting_kind kind)
{
    const struct setting *s = setting_find(name);
    must(loaded && s && (s->kind == kind || kind == KIND_TEXT));
    return value_of(s);
}

/* ---- reading one value; each returns false when the text is not of its kind ---- */

static bool int_read(const struct setting *s, const char *text, int64_t *out)
{
    char *end;
    if ((*text < '0' || *text > '9') && *text != '-')
        return false;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (errno || *end || number < s->least || number > s->most)
        return false;
    *out = number;
    return true;
}

static bool bool_read(const char *text, int64_t *out)
{
    static const char *const words[] = {"off", "on", "false", "true", "0", "1"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcasecmp(text, words[i]) == 0) {
            *out = i % 2;
            return true;
        }
    }
    return false;
}

static bool port_read(const char *text, size_t len, int *port)
{
    int number = 0;
    if (len == 0 || len > 5)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        number = number * 10 + (text[i] - '0');
    }
    *port = number;
    return number <= 65535;
}

/* Splits "host", "host:port" or "[v6]:port". *port is -1 when none is given. The host is kept
 * without its brackets. */
static bool address_read(const char *text, size_t len, char host[HOST_MAX], int *port)
{
    bool brackets = len > 0 && text[0] == '[';
    const char *start = text + brackets;
    const char *end = memchr(start, brackets ? ']' : ':', len - brackets);
    if (brackets && !end)
        return false;
    size_t host_len = end ? (size_t)(end - start) : len;
    if (host_len == 0 || host_len >= HOST_MAX)
        return false;
    const char *rest = start + host_len + brackets;
    size_t rest_len = len - (size_t)(rest - text);
    memcpy(host, start, host_len);
    host[host_len] = '\0';
    *port = -1;
    if (strpbrk(host, " \t/@\"'"))
        return false;
    return rest_len == 0 || (rest[0] == ':' && port_read(rest + 1, rest_len - 1, port));
}

static bool listen_read(const char *text)
{
    char host[HOST_MAX];
    int port;
    return address_read(text, strlen(text), host, &port) && port >= 0;
}

static bool destinations_read(const char *text)
{
    char host[HOST_MAX];
    int port;
    while (*text) {
        size_t len = strcspn(text, ",");
        if (!address_read(text, len, host, &port) || port == 0)
            return false;
        text += len;
        if (*text == ',' && !*++text)
            return false;
    }
    return true;
}

/* Reads "250ms", "30s", "5m" or "6h" up to a comma or the end, and moves *text behind it. */
static bool duration_read(const char **text, int64_t *out_ms)
{
    static const struct {
        const char *word;
        int64_t ms;
    } units[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}};
    size_t digits = strspn(*text, "0123456789");
    const char *word = *text + digits;
    size_t word_len = strcspn(word, ",");
    if (digits == 0 || digits > 9)
        return false;
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (strlen(units[i].word) == word_len && memcmp(units[i].word, word, word_len) == 0) {
            *out_ms = strtoll(*text, NULL, 10) * units[i].ms;
            *text = word + word_len;
            return true;
        }
    }
    return false;
}

static bool durations_read(const struct setting *s, const char *text, struct setting_value *value)
{
    value->durations = 0;
    for (;;) {
        int64_t ms;
        if (value->durations == DURATIONS_MAX || !duration_read(&text, &ms))
            return false;
        if (ms < s->least || ms > s->most)
            return false;
        value->durations_ms[value->durations++] = ms;
        if (!*text)
            return true;
        text++; /* the comma; nothing behind it fails above */
    }
}

static bool value_read(const struct setting *s, const char *text, struct setting_value *value)
{
    enum log_level level;
    int64_t len = (int64_t)strlen(text);
    switch (s->kind) {
    case KIND_INT:
        return int_read(s, text, &value->number);
    case KIND_BOOL:
        return bool_read(text, &value->number);
    case KIND_TEXT:
        return len >= s->least && len <= s->most;
    case KIND_LEVEL:
        return log_level_parse(text, &level);
    case KIND_LISTEN:
        return listen_read(text);
    case KIND_DESTINATIONS:
        return len <= s->most && destinations_read(text);
    case KIND_DURATIONS:
        return durations_read(s, text, value);
    case KIND_CLIENT:
        return true;
    }
    return false;
}

/* What a setting may be, as the end of a sentence. */
static void kind_describe(const struct setting *s, char *out, size_t size)
{
    switch (s->kind) {
    case KIND_INT:
        snprintf(out, size, "an integer from %" PRId64 " to %" PRId64 " (%s)", s->least, s->most,
                 s->unit);
        break;
    case KIND_BOOL:
        snprintf(out, size, "on or off");
        break;
    case KIND_TEXT:
        snprintf(out, size, "text of %" PRId64 " to %" PRId64 " bytes", s->least, s->most);
        break;
    case KIND_LEVEL:
        snprintf(out, size, "debug, info, warn or error");
        break;
    case KIND_LISTEN:
        snprintf(out, size, "host:port or [address]:port");
        break;
    case KIND_DESTINATIONS:
        snprintf(out, size, "a list host[:port],... without blanks");
        break;
    case KIND_DURATIONS:
        snprintf(out, size,
                 "a list of 1 to %d durations such as 250ms,30s,5m,6h, each from %" PRId64
                 " ms to %" PRId64 " ms",
                 DURATIONS_MAX, s->least, s->most);
        break;
    case KIND_CLIENT:
        snprintf(out, size, "anything");
        break;
    }
}

static bool value_refuse(const struct setting *s, const char *text, struct error *err)
{
    char may_be[160];
    kind_describe(s, may_be, sizeof(may_be));
    if (s->secret != SHOWN)
        return error_set_at(err, ERROR_INVALID, s->name, "%s holds a bad value; it must be %s",
                            s->name, may_be);
    return error_set_at(err, ERROR_INVALID, s->name, "%s holds \"%.*s\"; it must be %s", s->name,
                        SHOWN_MAX, text, may_be);
}

static bool names_check(struct error *err)
{
    for (char **entry = environ; entry && *entry; entry++) {
        char name[128];
        size_t len = strcspn(*entry, "=");
        if (strncmp(*entry, PREFIX, strlen(PREFIX)) != 0)
            continue;
        snprintf(name, sizeof(name), "%.*s", (int)(len < sizeof(name) ? len : sizeof(name) - 1),
                 *entry);
        if (len >= sizeof(name) || !setting_find(name))
            return error_set_at(err, ERROR_INVALID, name,
                                "%s is not a setting; `holdfast config` lists them all", name);
    }
    return true;
}

static bool value_load(const struct setting *s, struct error *err)
{
    const char *given = getenv(s->name);
    const char *text = given ? given : s->standard;
    struct setting_value *value = value_of(s);
    if (!value_read(s, text, value))
        return value_refuse(s, text, err);
    free(value->text);
    value->text = strdup(text);
    return value->text || error_set(err, ERROR_MEMORY, "out of memory while reading settings");
}

/* Relations between settings that each are fine alone. */
static bool relations_check(struct error *err)
{
    int64_t after_ms = config_int("HOLDFAST_REPUBLISH_AFTER_MS");
    int64_t most_ms = config_int("HOLDFAST_REPUBLISH_MAX_MS");
    if (after_ms > most_ms)
        return error_set_at(err, ERROR_INVALID, "HOLDFAST_REPUBLISH_MAX_MS",
                            "HOLDFAST_REPUBLISH_MAX_MS is %" PRId64
                            " and must not be below HOLDFAST_REPUBLISH_AFTER_MS (%" PRId64 ")",
                            most_ms, after_ms);
    int64_t provider_ms = config_int("HOLDFAST_PROVIDER_TIMEOUT_MS");
    int64_t wait_ms = config_int("HOLDFAST_INVOKE_WAIT_MS");
    if (provider_ms >= wait_ms)
        log_event(LOG_WARN, "config_wait_short",
                  "provider_timeout_ms=%" PRId64 " invoke_wait_ms=%" PRId64
                  " effect=agents are told running where unknown would be known a little later",
                  provider_ms, wait_ms);
    return true;
}

static void table_check(void)
{
    for (size_t i = 1; i < SETTINGS; i++)
        must(strcmp(settings[i - 1].name, settings[i].name) < 0);
}

bool config_load(struct error *err)
{
    table_check();
    loaded = false;
    if (!names_check(err))
        return false;
    for (size_t i = 0; i < SETTINGS; i++)
        if (!value_load(&settings[i], err))
            return false;
    loaded = true;
    return relations_check(err);
}

int64_t config_int(const char *name)
{
    return value_get(name, KIND_INT)->number;
}

bool config_bool(const char *name)
{
    return value_get(name, KIND_BOOL)->number != 0;
}

const char *config_text(const char *name)
{
    return value_get(name, KIND_TEXT)->text;
}

size_t config_durations(const char *name, int64_t *out_ms, size_t max)
{
    const struct setting_value *value = value_get(name, KIND_DURATIONS);
    size_t count = value->durations < max ? value->durations : max;
    memcpy(out_ms, value->durations_ms, count * sizeof(*out_ms));
    return count;
}

bool config_dev_destination(const char *host, int port)
{
    char listed[HOST_MAX];
    int listed_port;
    const char *text = value_get("HOLDFAST_DEV_DESTINATIONS", KIND_DESTINATIONS)->text;
    size_t host_len = strlen(host);
    if (host_len > 2 && host[0] == '[' && host[host_len - 1] == ']') {
        host++;
        host_len -= 2;
    }
    while (*text) {
        size_t len = strcspn(text, ",");
        if (address_read(text, len, listed, &listed_port) &&
            (listed_port < 0 || listed_port == port) && strlen(listed) == host_len &&
            strncasecmp(listed, host, host_len) == 0)
            return true;
        text += len + (text[len] == ',');
    }
    return false;
}

/* ---- printing ---- */

/* Hides the password of scheme://user:password@host. Where one may stand elsewhere (a conninfo
 * string, a query parameter) everything is hidden. */
static void password_mask(const char *text, char *out, size_t size)
{
    const char *authority = strstr(text, "://");
    const char *at = strrchr(text, '@');
    const char *colon = authority ? strchr(authority + 3, ':') : NULL;
    if (strcasestr(text, "password"))
        snprintf(out, size, "***");
    else if (at && colon && colon < at)
        snprintf(out, size, "%.*s***%s", (int)(colon + 1 - text), text, at);
    else
        snprintf(out, size, "%s", text);
}

static void value_show(const struct setting *s, char *out, size_t size)
{
    const char *text = value_of(s)->text;
    if (s->secret == HIDE_PASSWORD)
        password_mask(text, out, size);
    else
        snprintf(out, size, "%s", s->secret == HIDE_ALL && *text ? "***" : text);
}

void config_print(FILE *out)
{
    must(loaded);
    fprintf(out, "%-34s %-32s %-32s %-22s %s\n", "NAME", "VALUE", "DEFAULT", "UNIT", "MEANING");
    for (size_t i = 0; i < SETTINGS; i++) {
        char shown[4096 + 8];
        const struct setting *s = &settings[i];
        value_show(s, shown, sizeof(shown));
        fprintf(out, "%-34s %-32s %-32s %-22s %s\n", s->name, *shown ? shown : "-",
                *s->standard ? s->standard : "-", *s->unit ? s->unit : "-", s->sentence);
    }
}
