/* Reads a topic as a member of its group. A message counts as read only when it is decided
 * (consumer_done), and an offset is stored only when everything before it in its partition is
 * decided; so a crash, a rebalance or a lost commit redelivers, and never skips. Whoever decides
 * must therefore be able to see a message twice. */
#ifndef HOLDFAST_BUS_CONSUMER_H
#define HOLDFAST_BUS_CONSUMER_H

#include "common/bus/bus.h"
#include "common/bus/producer.h"

struct consumer;

/* Subscribes to the topic, in the group of the same name. `dead_letters` takes unreadable messages;
 * it must be closed after the consumer (NULL: consumer_dead_letter is not used). Connects in the
 * background: brokers that are away, or a topic that is not there yet, are no error. NULL with err
 * for bad settings. */
struct consumer *consumer_new(const struct bus_config *config, enum bus_topic topic,
                              struct producer *dead_letters, struct error *err);

/* Takes 0..max messages, waiting up to timeout_ms for the first; each is yours (bus_message_free).
 * Always called by the same thread, and at least once in a few minutes, also while paused:
 * rebalances are served in here. At most config.in_flight_max messages are out undecided; past that
 * it gives nothing until some are decided. */
size_t consumer_poll(struct consumer *c, struct bus_message **out, size_t max, int timeout_ms);

/* The messages are decided: never wanted again. From any thread, in any order, before or after the
 * messages were freed. Tokens of partitions that went to another member meanwhile are ignored. */
void consumer_done(struct consumer *c, const struct bus_token *token);
void consumer_done_many(struct consumer *c, const struct bus_token *tokens, size_t count);

/* Sends an unreadable message to the dead-letter topic, and counts it as decided once it is there;
 * it is tried for as long as that takes. Takes the message; `reason` is copied (128 bytes). Any
 * thread. */
void consumer_dead_letter(struct consumer *c, struct bus_message *message, const char *reason);
/* The same; the reason is where and what the error says. */
void consumer_unreadable(struct consumer *c, struct bus_message *message, const struct error *err);

/* From now on consumer_poll gives nothing / something again. Any thread. */
void consumer_pause_all(struct consumer *c);
void consumer_resume_all(struct consumer *c);

/* Messages of the assigned partitions that are not decided yet, as far as this member has heard
 * from the broker (stale while paused; 0 for a partition without a message so far). The whole
 * group's lag is in lag.h. Any thread. */
int64_t consumer_lag(struct consumer *c);
size_t consumer_in_flight(struct consumer *c);
size_t consumer_partition_count(struct consumer *c); /* assigned to this member now */
bool consumer_connected(struct consumer *c);
bool consumer_fatal(struct consumer *c);
/* A ready_check for admin_http; opaque is the consumer. Not ready while no broker is connected, nor
 * before the group has said for the first time which partitions this member has (or that it has
 * none). */
bool consumer_ready(void *opaque, char *reason, size_t size);

/* Commits what is stored, leaves the group and frees. The polling thread has ended, nobody uses c
 * any more, its producer is still there. Takes at most timeout_ms, whatever the brokers do. False:
 * it goes on in the background (with the coordinator away for up to the session time-out, or for
 * ever), so the process should end with _exit. */
bool consumer_close(struct consumer *c, int timeout_ms);

#endif
