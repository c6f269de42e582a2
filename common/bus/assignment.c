/* Which partitions this member has, what of them is out undecided, and the offsets that follow. */
#include "common/base/log.h"
#include "common/bus/consumer_internal.h"

#include <stdlib.h>
#include <string.h>

static void track_drop(struct consumer *c, struct track *track)
{
    if (!track->assigned)
        return;
    c->in_flight -= window_length(&track->window);
    window_free(&track->window);
    track->assigned = false;
}

void assignment_drop_all(struct consumer *c)
{
    for (size_t i = 0; i < c->track_count; i++)
        track_drop(c, &c->tracks[i]);
    pthread_cond_signal(&c->room);
}

static struct track *track_get(struct consumer *c, int32_t partition)
{
    if (partition < 0 || (size_t)partition >= c->track_count)
        return NULL;
    return &c->tracks[partition];
}

static struct track *track_make(struct consumer *c, int32_t partition)
{
    must(partition >= 0);
    size_t wanted = (size_t)partition + 1;
    if (wanted > c->track_count) {
        struct track *grown = realloc(c->tracks, wanted * sizeof(*grown));
        must(grown);
        memset(grown + c->track_count, 0, (wanted - c->track_count) * sizeof(*grown));
        c->tracks = grown;
        c->track_count = wanted;
    }
    return &c->tracks[partition];
}

/* A partition that comes back starts again: what was out from before is redelivered. */
static void assign(struct consumer *c, const rd_kafka_topic_partition_list_t *partitions)
{
    pthread_mutex_lock(&c->lock);
    c->generation++;
    for (int i = 0; i < partitions->cnt; i++) {
        struct track *track = track_make(c, partitions->elems[i].partition);
        track_drop(c, track);
        *track = (struct track){.assigned = true, .generation = c->generation, .position = -1};
    }
    pthread_mutex_unlock(&c->lock);
}

static void revoke(struct consumer *c, const rd_kafka_topic_partition_list_t *partitions)
{
    pthread_mutex_lock(&c->lock);
    for (int i = 0; i < partitions->cnt; i++) {
        struct track *track = track_get(c, partitions->elems[i].partition);
        if (track)
            track_drop(c, track);
    }
    pthread_cond_signal(&c->room);
    pthread_mutex_unlock(&c->lock);
}

/* Runs inside consumer_poll or consumer_close. Revoked: librdkafka commits what is stored for them.
 */
void assignment_rebalance(rd_kafka_t *rk, rd_kafka_resp_err_t code,
                          rd_kafka_topic_partition_list_t *partitions, void *opaque)
{
    struct consumer *c = opaque;
    rd_kafka_error_t *error = NULL;
    if (code == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS) {
        assign(c, partitions);
        error = rd_kafka_incremental_assign(rk, partitions);
        if (c->paused)
            rd_kafka_pause_partitions(rk, partitions);
    } else {
        revoke(c, partitions);
        error = rd_kafka_incremental_unassign(rk, partitions);
    }
    log_event(LOG_INFO, "bus_rebalance", "topic=%s what=%s partitions=%d now=%zu", c->topic,
              code == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS ? "assigned" : "revoked",
              partitions->cnt, consumer_partition_count(c));
    if (error) {
        log_event(LOG_WARN, "bus_rebalance_failed", "topic=%s text=%s", c->topic,
                  rd_kafka_error_string(error));
        rd_kafka_error_destroy(error);
    }
}

void assignment_pause(struct consumer *c, bool pause)
{
    rd_kafka_topic_partition_list_t *partitions = NULL;
    if (rd_kafka_assignment(c->rk, &partitions) != RD_KAFKA_RESP_ERR_NO_ERROR)
        return;
    if (pause)
        rd_kafka_pause_partitions(c->rk, partitions);
    else
        rd_kafka_resume_partitions(c->rk, partitions);
    rd_kafka_topic_partition_list_destroy(partitions);
    c->paused = pause;
}

bool assignment_track(struct consumer *c, struct bus_message *message)
{
    pthread_mutex_lock(&c->lock);
    struct track *track = track_get(c, message->partition);
    bool ours = track && track->assigned;
    if (ours) {
        struct bus_token *token = &message->token;
        *token =
            (struct bus_token){.partition = message->partition, .generation = track->generation};
        must(window_put(&track->window, message->offset, &token->seq));
        if (track->position < 0)
            track->position = message->offset;
        c->in_flight++;
    }
    pthread_mutex_unlock(&c->lock);
    return ours;
}

bool assignment_current(const struct consumer *c, const struct bus_token *token)
{
    if (token->partition < 0 || (size_t)token->partition >= c->track_count)
        return false;
    const struct track *track = &c->tracks[token->partition];
    return track->assigned && track->generation == token->generation;
}

/* Hands the moved positions to librdkafka, which commits them once a second. The lock is held, so
 * that an older position can't overtake a newer one, nor follow a revocation. */
static void positions_store(struct consumer *c, size_t dirty_count)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)dirty_count);
    for (size_t i = 0; i < c->track_count; i++) {
        struct track *track = &c->tracks[i];
        if (track->dirty)
            rd_kafka_topic_partition_list_add(list, c->topic, (int32_t)i)->offset = track->position;
        track->dirty = false;
    }
    rd_kafka_resp_err_t code = rd_kafka_offsets_store(c->rk, list);
    if (code != RD_KAFKA_RESP_ERR_NO_ERROR)
        log_event(LOG_DEBUG, "bus_store_refused", "topic=%s text=%s", c->topic,
                  rd_kafka_err2str(code));
    rd_kafka_topic_partition_list_destroy(list);
}

void assignment_done(struct consumer *c, const struct bus_token *tokens, size_t count)
{
    size_t dirty_count = 0;
    for (size_t i = 0; i < count; i++) {
        if (!assignment_current(c, &tokens[i]))
            continue;
        struct track *track = &c->tracks[tokens[i].partition];
        size_t freed = window_done(&track->window, tokens[i].seq, &track->position);
        c->in_flight -= freed;
        if (freed > 0 && !track->dirty) {
            track->dirty = true;
            dirty_count++;
        }
    }
    if (dirty_count > 0) {
        positions_store(c, dirty_count);
        pthread_cond_signal(&c->room);
    }
}
