/* The messages of one partition that were handed out and are not all decided: a ring in the order
 * of delivery, from which the contiguous decided prefix is taken. Not thread-safe. */
#ifndef HOLDFAST_BUS_WINDOW_H
#define HOLDFAST_BUS_WINDOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct window_slot {
    int64_t offset;
    bool done;
};

/* A zeroed one is empty. It grows by doubling; who puts bounds how many are open. */
struct window {
    struct window_slot *slots;
    size_t cap;     /* 0 or a power of two */
    uint64_t first; /* the oldest that is not decided */
    uint64_t next;  /* the one that window_put gives next */
};

/* Adds a message as the youngest. False: out of memory. */
bool window_put(struct window *window, int64_t offset, uint64_t *seq);

/* Marks one as decided. Returns how many left the front (0: an older one is still open, or this one
 * was decided before); then *position is the offset to go on from. */
size_t window_done(struct window *window, uint64_t seq, int64_t *position);

size_t window_length(const struct window *window);
void window_free(struct window *window); /* empty afterwards */

#endif
