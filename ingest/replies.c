/* Without Redis: nothing is kept and nothing is found. */
#include "ingest/replies.h"

#include <stddef.h>

struct replies *replies_new(void)
{
    return NULL;
}

void replies_free(struct replies *replies)
{
    (void)replies;
}

void replies_ask(struct replies *replies, struct accept_call **calls, size_t count)
{
    (void)replies;
    (void)calls;
    (void)count;
}

void replies_keep(struct replies *replies, const struct reply *list, size_t count)
{
    (void)replies;
    (void)list;
    (void)count;
}
