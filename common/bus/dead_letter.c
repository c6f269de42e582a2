/* Unreadable messages on their way to the dead-letter topic. They block no partition for longer
 * than that takes, and are never counted as decided before they are there. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/bus/consumer_internal.h"
#include "common/bus/message.h"

#include <stdio.h>
#include <stdlib.h>

#define DEAD_LETTER_RETRY_MS 1000
#define DEAD_LETTER_JSON_MAX (256 * 1024)

void consumer_dead_letter(struct consumer *c, struct bus_message *message, const char *reason)
{
    must(c->producer);
    struct dead_letter *letter = calloc(1, sizeof(*letter));
    must(letter);
    letter->consumer = c;
    letter->message = message;
    snprintf(letter->reason, sizeof(letter->reason), "%s", reason);
    log_event(LOG_WARN, "bus_dead_letter", "topic=%s partition=%d offset=%lld reason=%s", c->topic,
              (int)message->partition, (long long)message->offset, letter->reason);
    pthread_mutex_lock(&c->lock);
    letter->next = c->letters;
    c->letters = letter;
    c->letter_count++;
    pthread_mutex_unlock(&c->lock);
}

void consumer_unreadable(struct consumer *c, struct bus_message *message, const struct error *err)
{
    char reason[sizeof(err->place) + sizeof(err->text) + 2];
    snprintf(reason, sizeof(reason), "%s%s%s", err->place, err->place[0] ? ": " : "", err->text);
    consumer_dead_letter(c, message, reason);
}

static void letter_free(struct dead_letter *letter)
{
    bus_message_free(letter->message);
    free(letter);
}

/* Takes it out of the list; lock held. */
static void letter_unlink(struct consumer *c, const struct dead_letter *letter)
{
    struct dead_letter **at = &c->letters;
    while (*at != letter)
        at = &(*at)->next;
    *at = letter->next;
    c->letter_count--;
}

/* On the producer's thread. */
static void letter_report(void *opaque, bool delivered)
{
    struct dead_letter *letter = opaque;
    struct consumer *c = letter->consumer;
    pthread_mutex_lock(&c->lock);
    letter->sent = false;
    letter->try_at_ms = clock_boot_ms() + DEAD_LETTER_RETRY_MS;
    if (delivered) {
        assignment_done(c, &letter->message->token, 1);
        letter_unlink(c, letter);
        pthread_cond_signal(&c->room);
    }
    pthread_mutex_unlock(&c->lock);
    if (delivered) {
        metric_add(c->dead, 1);
        letter_free(letter);
    }
    consumer_unref(c);
}

static bool letter_send(struct consumer *c, struct dead_letter *letter)
{
    struct buf json;
    char key[BUS_NAME_SIZE + 64];
    const struct bus_message *message = letter->message;
    buf_init(&json, DEAD_LETTER_JSON_MAX);
    snprintf(key, sizeof(key), "%s/%d/%lld", c->topic, (int)message->partition,
             (long long)message->offset);
    bool ok = message_put_dead_letter(&json, c->topic, message, letter->reason) &&
              producer_send(c->producer, BUS_DEAD_LETTERS, BUS_ANY_PARTITION, key, json.data,
                            json.len, letter_report, letter, NULL);
    buf_free(&json);
    return ok;
}

/* The next that may be sent now, marked as sent; NULL when there is none. Letters of partitions
 * that went away are dropped: who has the partition now sees the message again. Lock held. */
static struct dead_letter *letter_next(struct consumer *c, int64_t now_ms)
{
    struct dead_letter *next;
    for (struct dead_letter *letter = c->letters; letter; letter = next) {
        next = letter->next;
        if (letter->sent || letter->try_at_ms > now_ms)
            continue;
        if (assignment_current(c, &letter->message->token)) {
            letter->sent = true;
            c->references++;
            return letter;
        }
        letter_unlink(c, letter);
        letter_free(letter);
    }
    return NULL;
}

void dead_letters_send(struct consumer *c, int64_t now_ms)
{
    struct dead_letter *letter;
    do {
        pthread_mutex_lock(&c->lock);
        letter = letter_next(c, now_ms);
        pthread_mutex_unlock(&c->lock);
        if (letter && !letter_send(c, letter))
            letter_report(letter, false); /* the same as a failed delivery: later again */
    } while (letter);
}

void dead_letters_close(struct consumer *c)
{
    struct dead_letter *next;
    pthread_mutex_lock(&c->lock);
    for (struct dead_letter *letter = c->letters; letter; letter = next) {
        next = letter->next;
        if (letter->sent)
            continue;
        letter_unlink(c, letter);
        letter_free(letter);
    }
    pthread_mutex_unlock(&c->lock);
}
