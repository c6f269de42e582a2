/* Rules of misbehaviour: which requests they meet, and what is done to them. */
#include "tests/provider/sandbox/fault.h"

#include "common/base/json.h"
#include "tests/provider/sandbox/table.h"

#include <stdlib.h>
#include <string.h>

#define BODY_BYTES_MAX ((size_t)32 << 20)

static const struct kind_row {
    const char *name;
    bool apply; /* the default */
    bool early;
} kinds[FAULT_KINDS] = {
    [FAULT_STATUS] = {"status", false, false},
    [FAULT_DROP] = {"drop", true, false},
    [FAULT_RESET] = {"reset", true, false},
    [FAULT_RESET_EARLY] = {"reset_early", false, true},
    [FAULT_HANG] = {"hang", true, false},
    [FAULT_DELAY] = {"delay_ms", true, false},
    [FAULT_DRIP] = {"drip", true, false},
    [FAULT_GARBAGE] = {"garbage", true, false},
    [FAULT_TRUNCATE_HEAD] = {"truncate_head", true, false},
    [FAULT_TRUNCATE_BODY] = {"truncate_body", true, false},
    [FAULT_TRUNCATE_CHUNK] = {"truncate_chunk", true, false},
    [FAULT_EARLY_200] = {"early_200", false, true},
    [FAULT_RAW] = {"raw", true, false},
    [FAULT_BODY_RAW] = {"body_raw", true, false},
    [FAULT_HTML] = {"html", false, false},
    [FAULT_STALE_KEEPALIVE] = {"stale_keepalive", true, false},
    [FAULT_DOUBLE] = {"double", true, false},
    [FAULT_STATUS_FIELD] = {"status_field", true, false},
    [FAULT_LAG] = {"lag", true, false},
    [FAULT_EMPTY_LIST] = {"empty_list", false, false},
    [FAULT_WRONG_AMOUNT] = {"wrong_amount", true, false},
    [FAULT_WRONG_CURRENCY] = {"wrong_currency", true, false},
};

static struct {
    struct fault *first;
    size_t count;
    int64_t next_id;
} faults;

const char *fault_kind_name(enum fault_kind kind)
{
    return kinds[kind].name;
}

bool fault_is_early(const struct fault *fault)
{
    return kinds[fault->kind].early;
}

static void fault_free(struct fault *fault)
{
    free(fault->method);
    free(fault->path_prefix);
    free(fault->intent);
    free(fault->key);
    free(fault->effect);
    free(fault->value);
    json_decref(fault->headers);
    json_decref(fault->source);
    buf_free(&fault->body);
    free(fault);
}

/* Reads an optional string; *out is a copy. */
static bool text_read(const json_t *object, const char *name, char **out, struct error *err)
{
    const char *text = NULL;
    if (!json_field_text(object, name, false, 0, 4096, &text, err))
        return false;
    *out = must_strdup(text);
    return true;
}

/* One word of a NULL-terminated list; *out stays as it is when the member is absent. */
static bool word_read(const json_t *object, const char *name, const char *const *words, int *out,
                      struct error *err)
{
    const char *text = NULL;
    if (!json_field_text(object, name, false, 0, 100, &text, err))
        return false;
    if (text == NULL)
        return true;
    for (int i = 0; words[i]; i++) {
        if (strcmp(words[i], text) == 0) {
            *out = i;
            return true;
        }
    }
    return error_set_at(err, ERROR_INVALID, name, "\"%s\" is not one of its words", text);
}

static bool fault_read_match(struct fault *fault, const json_t *match, struct error *err)
{
    static const char *const members[] = {"method", "path_prefix", "intent", "key",
                                          "effect", "kind",        NULL};
    static const char *const sorts[] = {"read", "write", NULL};
    if (match == NULL)
        return true;
    if (!json_is_object(match))
        return error_set_at(err, ERROR_INVALID, "/match", "is not an object");
    return json_only_members(match, members, err) &&
           text_read(match, "method", &fault->method, err) &&
           text_read(match, "path_prefix", &fault->path_prefix, err) &&
           text_read(match, "intent", &fault->intent, err) &&
           text_read(match, "key", &fault->key, err) &&
           text_read(match, "effect", &fault->effect, err) &&
           word_read(match, "kind", sorts, &fault->write, err);
}

static bool fault_read_kind(struct fault *fault, const json_t *rule, struct error *err)
{
    const char *name = json_string_value(json_object_get(rule, "do"));
    for (int kind = 0; name && kind < FAULT_KINDS; kind++) {
        if (strcmp(kinds[kind].name, name) == 0) {
            fault->kind = (enum fault_kind)kind;
            fault->apply = kinds[kind].apply;
            return true;
        }
    }
    return error_set_at(err, ERROR_INVALID, "/do", "is not one of the kinds of fault");
}

/* The body: "body" is text as it stands or a JSON value, "body_base64" any bytes. */
static bool fault_read_body(struct fault *fault, const json_t *rule, struct error *err)
{
    json_t *body = json_object_get(rule, "body");
    const char *base64 = json_string_value(json_object_get(rule, "body_base64"));
    if (base64 && !base64_decode(base64, &fault->body))
        return error_set_at(err, ERROR_INVALID, "/body_base64", "is not base64");
    if (json_is_string(body)) {
        buf_put(&fault->body, json_string_value(body), json_string_length(body));
    } else if (body) {
        char *text = json_dumps(body, JSON_COMPACT | JSON_ENCODE_ANY);
        buf_puts(&fault->body, text);
        free(text);
    }
    fault->has_body = base64 || body;
    if (fault->body.failed || fault->body.len * (size_t)fault->body_repeat > BODY_BYTES_MAX)
        return error_set_at(err, ERROR_INVALID, "/body", "is larger than 32 MiB");
    return true;
}

static bool fault_read_headers(struct fault *fault, const json_t *rule, struct error *err)
{
    json_t *headers = json_object_get(rule, "headers");
    const char *name;
    json_t *value;
    if (headers && !json_is_object(headers))
        return error_set_at(err, ERROR_INVALID, "/headers", "is not an object");
    json_object_foreach(headers, name, value)
    {
        if (!json_is_string(value))
            return error_set_at(err, ERROR_INVALID, name, "is not a string");
    }
    fault->headers = json_incref(headers);
    return true;
}

/* A status in the answer that stands for a decision is what a provider keeps under the key. */
static enum fault_record record_default(const struct fault *fault)
{
    if (fault->kind == FAULT_STATUS && (fault->status == 402 || fault->status == 500))
        return RECORD_SENT;
    return fault->apply ? RECORD_APPLIED : RECORD_NONE;
}

static bool fault_read_words(struct fault *fault, const json_t *rule, struct error *err)
{
    static const char *const closes[] = {"fin", "rst", NULL};
    static const char *const modes[] = {"whole", "unread", "idle", NULL};
    static const char *const chunks[] = {"mid_chunk", "no_last", NULL};
    static const char *const records[] = {"none", "sent", "applied", NULL};
    int close = -1, mode = STALE_WHOLE, chunk = 0, record = (int)record_default(fault);
    bool is_chunk = fault->kind == FAULT_TRUNCATE_CHUNK;
    if (!word_read(rule, "close", closes, &close, err) ||
        !word_read(rule, "mode", is_chunk ? chunks : modes, is_chunk ? &chunk : &mode, err) ||
        !word_read(rule, "record", records, &record, err))
        return false;
    fault->close = close >= 0;
    fault->rst = close == 1;
    fault->mode = (enum stale_mode)mode;
    fault->last_chunk_only = chunk == 1;
    fault->record = (enum fault_record)record;
    return true;
}

static bool fault_read_numbers(struct fault *fault, const json_t *rule, struct error *err)
{
    int64_t status = fault->status;
    if (!json_field_int(rule, "times", false, -1, INT32_MAX, &fault->times, err) ||
        !json_field_int(rule, "skip", false, 0, INT32_MAX, &fault->skip, err) ||
        !json_field_bool(rule, "apply", false, &fault->apply, err) ||
        !json_field_int(rule, "status", fault->kind == FAULT_STATUS, 100, 999, &status, err) ||
        !json_field_int(rule, "body_repeat", false, 1, INT32_MAX, &fault->body_repeat, err) ||
        !json_field_int(rule, "bytes", false, 0, INT32_MAX, &fault->bytes, err) ||
        !json_field_int(rule, "ms", false, 0, 3600000, &fault->ms, err) ||
        !json_field_int(rule, "delay_ms", false, 0, 3600000, &fault->delay_ms, err) ||
        !json_field_int(rule, "amount", false, 1, JSON_EXACT_MAX, &fault->amount, err) ||
        !json_field_int(rule, "reads", false, 1, INT32_MAX, &fault->reads, err))
        return false;
    fault->status = (int)status;
    if (fault->kind == FAULT_DELAY && fault->ms >= 0)
        fault->delay_ms = fault->ms;
    return true;
}

static bool fault_check(const struct fault *fault, const json_t *rule, struct error *err)
{
    if (fault_is_early(fault) && fault->intent)
        return error_set_at(err, ERROR_INVALID, "/match/intent",
                            "stands in the body, which this fault does not wait for; match by key");
    if (fault_is_early(fault) && fault->apply)
        return error_set_at(err, ERROR_INVALID, "/apply", "is not possible without the body");
    if (fault->kind == FAULT_RAW && !fault->has_body)
        return error_set_at(err, ERROR_INVALID, "/body_base64", "is missing: what is to be sent");
    if (fault->kind == FAULT_STATUS_FIELD && json_object_get(rule, "value") == NULL)
        return error_set_at(err, ERROR_INVALID, "/value", "is missing: the refund's status");
    return true;
}

static bool fault_read(struct fault *fault, const json_t *rule, struct error *err)
{
    static const char *const members[] = {
        "match", "times",       "skip",        "do",     "apply", "status", "headers",
        "body",  "body_base64", "body_repeat", "bytes",  "ms",    "close",  "delay_ms",
        "mode",  "record",      "value",       "amount", "reads", NULL};
    return json_only_members(rule, members, err) && fault_read_kind(fault, rule, err) &&
           fault_read_match(fault, json_object_get(rule, "match"), err) &&
           fault_read_numbers(fault, rule, err) && fault_read_body(fault, rule, err) &&
           fault_read_headers(fault, rule, err) && fault_read_words(fault, rule, err) &&
           text_read(rule, "value", &fault->value, err) && fault_check(fault, rule, err);
}

int64_t fault_add(const json_t *rule, struct error *err)
{
    if (faults.count == FAULTS_MAX) {
        error_set(err, ERROR_TOO_LARGE, "there are %d rules already", FAULTS_MAX);
        return 0;
    }
    struct fault *fault = must_calloc(sizeof(*fault));
    fault->write = fault->bytes = fault->ms = -1;
    fault->times = fault->body_repeat = fault->reads = 1;
    fault->status = 200;
    buf_init(&fault->body, BODY_BYTES_MAX);
    if (!fault_read(fault, rule, err)) {
        fault_free(fault);
        return 0;
    }
    fault->id = ++faults.next_id;
    fault->source = json_deep_copy(rule);
    struct fault **end = &faults.first;
    while (*end)
        end = &(*end)->next;
    *end = fault;
    faults.count++;
    return fault->id;
}

static bool text_matches(const char *want, const char *have)
{
    return want == NULL || (have && strcmp(want, have) == 0);
}

static bool fault_matches(const struct fault *fault, const struct request *r,
                          const struct facts *facts)
{
    return fault->times != 0 && (fault->write < 0 || (fault->write == 1) == facts->write) &&
           text_matches(fault->method, r->method) && text_matches(fault->key, facts->key) &&
           text_matches(fault->intent, facts->intent) &&
           text_matches(fault->effect, facts->effect) &&
           (fault->path_prefix == NULL ||
            strncmp(r->target, fault->path_prefix, strlen(fault->path_prefix)) == 0);
}

const struct fault *fault_take(const struct request *r, const struct facts *facts, bool early)
{
    for (struct fault *fault = faults.first; fault; fault = fault->next) {
        if (fault_is_early(fault) != early || !fault_matches(fault, r, facts))
            continue;
        if (fault->skip > 0) {
            fault->skip--;
            continue;
        }
        if (fault->times > 0)
            fault->times--;
        fault->used++;
        return fault;
    }
    return NULL;
}

json_t *fault_list(void)
{
    json_t *list = json_array();
    for (const struct fault *fault = faults.first; fault; fault = fault->next)
        json_array_append_new(list, json_pack("{s:I,s:I,s:I,s:O}", "id", (json_int_t)fault->id,
                                              "used", (json_int_t)fault->used, "timesLeft",
                                              (json_int_t)fault->times, "rule", fault->source));
    return list;
}

bool fault_remove(int64_t id)
{
    for (struct fault **link = &faults.first; *link; link = &(*link)->next) {
        if ((*link)->id == id) {
            struct fault *fault = *link;
            *link = fault->next;
            faults.count--;
            fault_free(fault);
            return true;
        }
    }
    return false;
}

void fault_clear(void)
{
    while (faults.first)
        fault_remove(faults.first->id);
}

const struct fault *fault_magic(const char *intent, bool first)
{
    static const struct magic_row {
        const char *prefix;
        bool once;
        struct fault fault;
    } rows[] = {
        {"pi_drop_", true, {.kind = FAULT_DROP, .apply = true, .record = RECORD_APPLIED}},
        {"pi_hang_",
         false,
         {.kind = FAULT_HANG, .apply = true, .record = RECORD_APPLIED, .ms = -1}},
        {"pi_500_", false, {.kind = FAULT_STATUS, .status = 500, .record = RECORD_SENT}},
        {"pi_402_", false, {.kind = FAULT_STATUS, .status = 402, .record = RECORD_SENT}},
        {"pi_pending_",
         false,
         {.kind = FAULT_STATUS_FIELD, .apply = true, .record = RECORD_APPLIED, .value = "pending"}},
        {"pi_slow_",
         false,
         {.kind = FAULT_DELAY, .apply = true, .record = RECORD_APPLIED, .delay_ms = 200}},
    };
    for (size_t i = 0; intent && i < sizeof(rows) / sizeof(rows[0]); i++)
        if (strncmp(intent, rows[i].prefix, strlen(rows[i].prefix)) == 0 &&
            (first || !rows[i].once))
            return &rows[i].fault;
    return NULL;
}
