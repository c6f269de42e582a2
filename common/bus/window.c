/* The contiguous decided prefix of a partition: an offset is stored only when all before it are
 * decided, so that a crash redelivers whatever was not. */
#include "common/bus/window.h"

#include <stdlib.h>

#define WINDOW_FIRST_CAP 64

static struct window_slot *slot_at(const struct window *window, uint64_t seq)
{
    return &window->slots[seq & (window->cap - 1)];
}

static bool window_grow(struct window *window)
{
    struct window grown = *window;
    grown.cap = window->cap == 0 ? WINDOW_FIRST_CAP : window->cap * 2;
    grown.slots = calloc(grown.cap, sizeof(*grown.slots));
    if (!grown.slots)
        return false;
    for (uint64_t seq = window->first; seq < window->next; seq++)
        *slot_at(&grown, seq) = *slot_at(window, seq);
    free(window->slots);
    *window = grown;
    return true;
}

bool window_put(struct window *window, int64_t offset, uint64_t *seq)
{
    if (window_length(window) == window->cap && !window_grow(window))
        return false;
    *seq = window->next++;
    *slot_at(window, *seq) = (struct window_slot){.offset = offset};
    return true;
}

size_t window_done(struct window *window, uint64_t seq, int64_t *position)
{
    if (seq < window->first || seq >= window->next)
        return 0;
    slot_at(window, seq)->done = true;
    uint64_t from = window->first;
    while (window->first < window->next && slot_at(window, window->first)->done) {
        *position = slot_at(window, window->first)->offset + 1;
        window->first++;
    }
    return (size_t)(window->first - from);
}

size_t window_length(const struct window *window)
{
    return (size_t)(window->next - window->first);
}

void window_free(struct window *window)
{
    free(window->slots);
    *window = (struct window){0};
}
