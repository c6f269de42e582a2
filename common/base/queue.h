/* A bounded queue of pointers between threads: many producers, many consumers, batch take. */
#ifndef HOLDFAST_QUEUE_H
#define HOLDFAST_QUEUE_H

#include <stdbool.h>
#include <stddef.h>

struct queue;

/* `name` shows in metrics (holdfast_queue_length{queue="..."}); at most `max` items. */
struct queue *queue_new(const char *name, size_t max);
bool queue_try_put(struct queue *q, void *item); /* false: full or closed; item stays yours */
bool queue_put(struct queue *q, void *item,
               int timeout_ms); /* waits for room; false: time-out or closed */
/* Takes 1..max items, waiting up to timeout_ms for the first, and then up to linger_ms for the
 * batch to fill. 0: time-out, or closed and empty. */
size_t queue_take(struct queue *q, void **items, size_t max, int timeout_ms, int linger_ms);
size_t queue_length(struct queue *q);
void queue_close(struct queue *q); /* no more puts; takers drain what is there */
bool queue_closed(struct queue *q);
void queue_free(struct queue *q); /* must be empty or its items owned elsewhere */

#endif
