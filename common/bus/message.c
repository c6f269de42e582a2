/* Writing and reading the messages between the parts. */
#include "common/bus/message.h"

#include "common/base/json.h"

#include <inttypes.h>
#include <openssl/evp.h>
#include <string.h>

#define MESSAGE_VERSION 1
#define DEAD_PAYLOAD_MAX (64 * 1024)

static const char *const PURPOSE_NAMES[READ_PURPOSE_COUNT] = {
    [READ_UNKNOWN] = "unknown", [READ_CONFIRM] = "confirm", [READ_DEMAND] = "demand"};

static const char *const WHAT_NAMES[WHAT_COUNT] = {
    [WHAT_SETTLED] = "settled",   [WHAT_UNKNOWN] = "unknown", [WHAT_PENDING] = "pending",
    [WHAT_REFUSED] = "refused",   [WHAT_EXPIRED] = "expired", [WHAT_CONFIRMED] = "confirmed",
    [WHAT_CONFLICT] = "conflict", [WHAT_READ] = "read"};

const char *read_purpose_name(enum read_purpose purpose)
{
    must(purpose < READ_PURPOSE_COUNT);
    return PURPOSE_NAMES[purpose];
}

const char *outcome_what_name(enum outcome_what what)
{
    must(what < WHAT_COUNT);
    return WHAT_NAMES[what];
}

/* What all three begin with; the object stays open. */
static void put_head(struct buf *out, const struct ulid *effect, int64_t environment)
{
    char id[ULID_PREFIXED_SIZE];
    buf_printf(out, "{\"v\":%d,\"effect\":\"%s\",\"environment\":%" PRId64, MESSAGE_VERSION,
               ulid_format_prefixed("eff", effect, id), environment);
}

bool effect_message_encode(const struct effect_message *message, struct buf *out)
{
    put_head(out, &message->effect, message->environment);
    buf_printf(out, ",\"seq\":%" PRId64 ",\"destination\":", message->seq);
    json_put_string(out, message->destination, strlen(message->destination));
    buf_printf(out, ",\"reply\":%" PRId32 "}", message->reply);
    return !out->failed;
}

bool reconcile_message_encode(const struct reconcile_message *message, struct buf *out)
{
    put_head(out, &message->effect, message->environment);
    buf_printf(out, ",\"purpose\":\"%s\",\"reply\":%" PRId32 "}",
               read_purpose_name(message->purpose), message->reply);
    return !out->failed;
}

bool outcome_message_encode(const struct outcome_message *message, struct buf *out)
{
    put_head(out, &message->effect, message->environment);
    buf_printf(out, ",\"what\":\"%s\"}", outcome_what_name(message->what));
    return !out->failed;
}

/* Parses the object and reads what all three begin with. The version is looked at first, so that a
 * newer message is called that and not "unknown member". NULL with err. */
static json_t *object_open(const char *text, size_t len, const char *const *members,
                           struct ulid *effect, int64_t *environment, struct error *err)
{
    int64_t version = 0;
    const char *id = NULL;
    if (!text || len == 0) {
        error_set(err, ERROR_INVALID, "the message is empty");
        return NULL;
    }
    if (len > MESSAGE_MAX) {
        error_set(err, ERROR_INVALID, "the message is longer than %d bytes", MESSAGE_MAX);
        return NULL;
    }
    json_t *object = json_parse_object(text, len, err);
    if (!object)
        return NULL;
    if (json_field_int(object, "v", true, MESSAGE_VERSION, MESSAGE_VERSION, &version, err) &&
        json_only_members(object, members, err) &&
        json_field_text(object, "effect", true, 1, ULID_PREFIXED_SIZE, &id, err) &&
        json_field_int(object, "environment", true, 1, JSON_EXACT_MAX, environment, err)) {
        if (ulid_parse_prefixed("eff", id, effect))
            return object;
        error_set_at(err, ERROR_INVALID, "/effect", "is not an effect id");
    }
    json_decref(object);
    return NULL;
}

static bool reply_read(const json_t *object, int32_t *reply, struct error *err)
{
    int64_t value = MESSAGE_NO_REPLY;
    if (!json_field_int(object, "reply", true, MESSAGE_NO_REPLY, INT32_MAX, &value, err))
        return false;
    *reply = (int32_t)value;
    return true;
}

/* The index of a member's word in names; place is "/member". */
static bool word_read(const json_t *object, const char *place, const char *const *names, int count,
                      int *index, struct error *err)
{
    const char *word = NULL;
    if (!json_field_text(object, place + 1, true, 1, 32, &word, err))
        return false;
    for (int i = 0; i < count; i++) {
        if (strcmp(names[i], word) == 0) {
            *index = i;
            return true;
        }
    }
    return error_set_at(err, ERROR_INVALID, place, "is not a word that is known here");
}

static bool effect_read(const json_t *object, struct effect_message *out, struct error *err)
{
    const char *destination = NULL;
    if (!json_field_int(object, "seq", true, 1, INT32_MAX, &out->seq, err) ||
        !json_field_text(object, "destination", true, 1, MESSAGE_DESTINATION_SIZE - 1, &destination,
                         err) ||
        !reply_read(object, &out->reply, err))
        return false;
    strcpy(out->destination, destination); /* its length was checked */
    return true;
}

bool effect_message_decode(const char *text, size_t len, struct effect_message *out,
                           struct error *err)
{
    static const char *const members[] = {"v",           "effect", "environment", "seq",
                                          "destination", "reply",  NULL};
    json_t *object = object_open(text, len, members, &out->effect, &out->environment, err);
    bool ok = object && effect_read(object, out, err);
    json_decref(object);
    return ok;
}

bool reconcile_message_decode(const char *text, size_t len, struct reconcile_message *out,
                              struct error *err)
{
    static const char *const members[] = {"v", "effect", "environment", "purpose", "reply", NULL};
    int purpose = 0;
    json_t *object = object_open(text, len, members, &out->effect, &out->environment, err);
    bool ok = object &&
              word_read(object, "/purpose", PURPOSE_NAMES, READ_PURPOSE_COUNT, &purpose, err) &&
              reply_read(object, &out->reply, err);
    out->purpose = (enum read_purpose)purpose;
    json_decref(object);
    return ok;
}

bool outcome_message_decode(const char *text, size_t len, struct outcome_message *out,
                            struct error *err)
{
    static const char *const members[] = {"v", "effect", "environment", "what", NULL};
    int what = 0;
    json_t *object = object_open(text, len, members, &out->effect, &out->environment, err);
    bool ok = object && word_read(object, "/what", WHAT_NAMES, WHAT_COUNT, &what, err);
    out->what = (enum outcome_what)what;
    json_decref(object);
    return ok;
}

/* In pieces of 3 n bytes, so that only the last one is padded. */
static void put_base64(struct buf *out, const char *bytes, size_t len)
{
    unsigned char text[4 * 256 + 1];
    for (size_t at = 0; at < len; at += 3 * 256) {
        size_t piece = len - at < 3 * 256 ? len - at : 3 * 256;
        int n = EVP_EncodeBlock(text, (const unsigned char *)bytes + at, (int)piece);
        buf_put(out, text, (size_t)n);
    }
}

bool message_put_dead_letter(struct buf *out, const char *topic, const struct bus_message *message,
                             const char *reason)
{
    size_t len = message->len < DEAD_PAYLOAD_MAX ? message->len : DEAD_PAYLOAD_MAX;
    buf_printf(out, "{\"v\":%d,\"topic\":", MESSAGE_VERSION);
    json_put_string(out, topic, strlen(topic));
    buf_printf(out,
               ",\"partition\":%" PRId32 ",\"offset\":%" PRId64 ",\"key\":", message->partition,
               message->offset);
    if (message->key)
        json_put_string(out, message->key, message->key_len);
    else
        buf_puts(out, "null");
    buf_puts(out, ",\"payload\":");
    if (message->payload) {
        buf_puts(out, "\"");
        put_base64(out, message->payload, len);
        buf_puts(out, "\"");
    } else {
        buf_puts(out, "null");
    }
    buf_printf(out, ",\"payloadBytes\":%zu,\"reason\":", message->full_len);
    json_put_string(out, reason, strlen(reason));
    return buf_puts(out, "}");
}
