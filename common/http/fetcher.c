/* The read client. */
#include "common/http/fetcher.h"

#include "common/base/clock.h"

#include <stdio.h>
#include <stdlib.h>

struct fetcher {
    struct fetcher_config config;
    struct loop *loop;
};

struct fetcher *fetcher_start(const struct fetcher_config *config, struct error *err)
{
    struct fetcher *fetcher = calloc(1, sizeof(*fetcher));
    if (!fetcher) {
        error_set(err, ERROR_MEMORY, "out of memory for the fetcher");
        return NULL;
    }
    fetcher->config = *config;
    struct loop_config loop = {.name = "fetcher",
                               .threads = config->threads,
                               .slots = config->slots,
                               .connect_timeout_ms = config->connect_timeout_ms,
                               .ca_file = config->ca_file};
    fetcher->loop = loop_start(&loop, err);
    if (!fetcher->loop) {
        free(fetcher);
        return NULL;
    }
    return fetcher;
}

static void fetch_finished(struct transfer *transfer)
{
    struct fetch *fetch = transfer->owner;
    fetch->complete = answer_complete(&fetch->answer);
    const char *cause = transfer->cause[0] ? transfer->cause : "the answer is not valid HTTP";
    snprintf(fetch->cause, sizeof(fetch->cause), "%s", fetch->complete ? "" : cause);
    fetch->finished_at_us = clock_wall_us();
    fetch->done(fetch);
}

bool fetcher_submit(struct fetcher *fetcher, struct fetch *fetch)
{
    answer_init(&fetch->answer, fetcher->config.answer_max);
    fetch->transfer = (struct transfer){.filled = fetch->filled,
                                        .answer = &fetch->answer,
                                        .begin_by_ms = clock_boot_ms() + fetch->timeout_ms,
                                        .timeout_ms = fetch->timeout_ms,
                                        .done = fetch_finished,
                                        .owner = fetch};
    return loop_submit(fetcher->loop, &fetch->transfer);
}

size_t fetcher_room(struct fetcher *fetcher)
{
    return loop_room(fetcher->loop);
}

void fetcher_stop(struct fetcher *fetcher, int64_t drain_ms)
{
    loop_stop(fetcher->loop, drain_ms);
    free(fetcher);
}
