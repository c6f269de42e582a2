/* The sender: a gate in front of the carrier threads, and the judgement behind them. */
#include "dispatcher/sender.h"

#include "common/base/clock.h"
#include "common/base/metrics.h"

#include <stdio.h>
#include <stdlib.h>

#define RESULT_COUNT (SEND_UNKNOWN + 1)

struct sender {
    struct sender_config config;
    struct loop *loop;
    struct metric *results[RESULT_COUNT];
    struct metric *seconds;
};

/* At the moment the first byte would leave. */
static bool send_begin(struct transfer *transfer, int64_t now_boot_us)
{
    struct send *send = transfer->owner;
    return gate_pass(&send->record, now_boot_us, clock_wall_us());
}

static void send_judge(struct send *send)
{
    const struct transfer *transfer = &send->transfer;
    const char *cause = gate_cause(&send->record);
    if (!cause && transfer->cause[0])
        cause = transfer->cause;
    struct answer_facts facts = {.left = gate_opened(&send->record),
                                 .dropped = send->drop_response_after_send,
                                 .cause = cause};
    send->result = answer_classify(&send->answer, &facts, send->evidence, sizeof(send->evidence));
    if (facts.dropped && facts.left)
        answer_reset(&send->answer); /* lost is lost: nobody may read it later */
}

static void send_finished(struct transfer *transfer)
{
    struct send *send = transfer->owner;
    struct sender *sender = send->sender;
    send_judge(send);
    send->sent_at_us = gate_opened(&send->record) ? send->record.opened_wall_us : 0;
    send->finished_at_us = clock_wall_us();
    metric_add(sender->results[send->result], 1);
    if (transfer->begun)
        metric_observe_us(sender->seconds, transfer->finished_boot_us - transfer->begun_boot_us);
    sender->config.on_done(send, sender->config.opaque);
}

static void metrics_init(struct sender *sender)
{
    for (int i = 0; i < RESULT_COUNT; i++) {
        char labels[32];
        snprintf(labels, sizeof(labels), "result=\"%s\"", send_result_name(i));
        sender->results[i] =
            metric_counter("holdfast_sends_total", labels, "Sends that ended, by what is known");
    }
    sender->seconds =
        metric_histogram("holdfast_send_seconds", "", "From the gate to the end of the answer");
}

struct sender *sender_start(const struct sender_config *config, struct error *err)
{
    struct sender *sender = calloc(1, sizeof(*sender));
    if (!sender) {
        error_set(err, ERROR_MEMORY, "out of memory for the sender");
        return NULL;
    }
    sender->config = *config;
    metrics_init(sender);
    struct loop_config loop = {.name = "sender",
                               .threads = config->threads,
                               .slots = config->slots,
                               .connect_timeout_ms = config->connect_timeout_ms,
                               .ca_file = config->ca_file};
    sender->loop = loop_start(&loop, err);
    if (!sender->loop) {
        free(sender);
        return NULL;
    }
    return sender;
}

bool sender_submit(struct sender *sender, struct send *send)
{
    send->sender = sender;
    answer_init(&send->answer, sender->config.answer_max);
    send->transfer = (struct transfer){.filled = send->filled,
                                       .answer = &send->answer,
                                       .begin_by_ms = send->record.send_by_ms,
                                       .timeout_ms = send->timeout_ms,
                                       .begin = send_begin,
                                       .done = send_finished,
                                       .owner = send};
    return loop_submit(sender->loop, &send->transfer);
}

size_t sender_room(struct sender *sender)
{
    return loop_room(sender->loop);
}

void sender_stop(struct sender *sender, int64_t drain_ms)
{
    loop_stop(sender->loop, drain_ms);
    free(sender);
}
