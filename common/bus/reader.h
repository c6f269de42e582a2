/* Follows one partition from its end, outside of any group: how an ingest hears of the outcomes
 * that it waits for. What was sent before it was there, or while the broker lost it, is never seen:
 * the messages are hints, and who waits looks in the database too. */
#ifndef HOLDFAST_BUS_READER_H
#define HOLDFAST_BUS_READER_H

#include "common/bus/bus.h"

struct reader;

/* Connects in the background, and again whenever the broker comes back. NULL with err for bad
 * settings. */
struct reader *reader_new(const struct bus_config *config, enum bus_topic topic, int32_t partition,
                          struct error *err);

/* Takes 0..max messages, waiting up to timeout_ms for the first; each is yours (bus_message_free).
 * Always called by the same thread. Tokens mean nothing here. */
size_t reader_poll(struct reader *r, struct bus_message **out, size_t max, int timeout_ms);

/* True once the end of the partition was found: what is sent from now on will be seen. */
bool reader_started(struct reader *r);
/* A ready_check for admin_http; opaque is the reader. */
bool reader_ready(void *opaque, char *reason, size_t size);

/* As consumer_close. */
bool reader_close(struct reader *r, int timeout_ms);

#endif
