/* Inside of the consumer: its state, shared by consumer.c, assignment.c (partitions and their
 * windows) and dead_letter.c. */
#ifndef HOLDFAST_BUS_CONSUMER_INTERNAL_H
#define HOLDFAST_BUS_CONSUMER_INTERNAL_H

#include "common/base/metrics.h"
#include "common/bus/client.h"
#include "common/bus/consumer.h"
#include "common/bus/window.h"

/* One partition of the topic. */
struct track {
    bool assigned;
    bool dirty; /* position has moved and is not stored yet; only inside consumer_done_many */
    uint32_t generation;
    int64_t position; /* the first offset not decided; -1 before the first message */
    struct window window;
};

/* A message on its way to the dead-letter topic. */
struct dead_letter {
    struct dead_letter *next;
    struct consumer *consumer; /* a reference is held while it is sent */
    struct bus_message *message;
    char reason[128];
    bool sent;         /* the producer has it and will report */
    int64_t try_at_ms; /* boot time of the next try, when it is not sent */
};

struct consumer {
    struct bus_client client; /* first: see bus_client */
    char topic[BUS_NAME_SIZE];
    rd_kafka_t *rk;
    struct producer *producer;
    size_t in_flight_max;
    size_t payload_max;

    pthread_mutex_t lock; /* guards what follows, up to the next line */
    pthread_cond_t room;  /* in_flight has fallen, or resumed */
    struct track *tracks; /* index is the partition */
    size_t track_count;
    uint32_t generation; /* of the newest assignment */
    size_t in_flight;    /* slots in all windows */
    bool pause_wanted;
    struct dead_letter *letters;
    size_t letter_count;
    int references; /* the owner's, and one for each letter that is sent */

    /* The polling thread alone. */
    bool paused;             /* as librdkafka was told */
    int64_t blocked_at_ms;   /* boot time since which nothing may be given out; 0: it may */
    int64_t error_logged_ms; /* boot time of the last line about an error */

    struct metric *received;
    struct metric *dead;
    struct metric *lag_gauge;
    struct metric *in_flight_gauge;
};

/* assignment.c */
void assignment_rebalance(rd_kafka_t *rk, rd_kafka_resp_err_t code,
                          rd_kafka_topic_partition_list_t *partitions, void *opaque);
/* Tells librdkafka to pause or resume every assigned partition. Polling thread. */
void assignment_pause(struct consumer *c, bool pause);
/* Gives the message its token. False: its partition is not ours (any more). */
bool assignment_track(struct consumer *c, struct bus_message *message);
bool assignment_current(const struct consumer *c, const struct bus_token *token); /* lock held */
void assignment_done(struct consumer *c, const struct bus_token *tokens,
                     size_t count);           /* lock held */
void assignment_drop_all(struct consumer *c); /* lock held */

/* dead_letter.c */
#define DEAD_LETTERS_MAX 64 /* waiting ones; more block the intake */
void dead_letters_send(struct consumer *c, int64_t now_ms); /* polling thread, lock not held */
void dead_letters_close(struct consumer *c);                /* frees those that are not sent */

/* consumer.c: gives one reference up; the last frees. Lock not held. */
void consumer_unref(struct consumer *c);

#endif
