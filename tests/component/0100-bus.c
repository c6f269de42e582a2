/* The bus against a real broker: HOLDFAST_KAFKA_BROKERS names it. Tests that stop the broker also
 * need TEST_KAFKA_CONTROL, a program that takes "kill" and "start" and acts on that broker. */
#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/bus/consumer.h"
#include "common/bus/lag.h"
#include "common/bus/producer.h"
#include "common/bus/reader.h"
#include "common/bus/topics.h"
#include "tests/test.h"

#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PARTITIONS 4
#define SETTLE_MS 30000 /* the most that anything on a loaded machine may take */
#define NOWHERE "127.0.0.1:1"

extern char **environ;

static const char *program;

/* One fleet's worth of names, new for each test. */
struct world {
    struct bus_config config;
    char prefix[48];
    struct producer *producer;
};

static const char *brokers_or_skip(void)
{
    const char *brokers = getenv("HOLDFAST_KAFKA_BROKERS");
    if (!brokers)
        skip();
    return brokers;
}

static const char *control_or_skip(void)
{
    const char *control = getenv("TEST_KAFKA_CONTROL");
    brokers_or_skip();
    if (!control)
        skip();
    return control;
}

static void config_make(struct bus_config *config, const char *brokers, const char *prefix)
{
    bus_config_init(config, brokers, "test");
    config->prefix = prefix;
    config->session_timeout_ms = 3000;
}

static void world_open(struct world *world)
{
    static int count;
    struct error err = {0};
    const char *brokers = brokers_or_skip();
    snprintf(world->prefix, sizeof(world->prefix), "t%ld-%d", (long)clock_wall_ms(), ++count);
    config_make(&world->config, brokers, world->prefix);
    if (!topics_create(&world->config, PARTITIONS, PARTITIONS, SETTLE_MS, &err))
        fail_msg("%s", err.text);
    world->producer = producer_new(&world->config, &err);
    assert_non_null(world->producer);
}

static void world_close(struct world *world)
{
    assert_true(producer_close(world->producer, 5000));
}

/* Waits until the expression is true. */
#define await(condition)                                                                           \
    do {                                                                                           \
        int64_t await_end = clock_boot_ms() + SETTLE_MS;                                           \
        while (!(condition)) {                                                                     \
            if (clock_boot_ms() > await_end)                                                       \
                fail_msg("never: %s", #condition);                                                 \
            usleep(2000);                                                                          \
        }                                                                                          \
    } while (0)

/* Payloads "first".."first+count-1", acknowledged. */
static void send_numbers(struct world *world, int32_t partition, int first, int count)
{
    for (int i = first; i < first + count; i++) {
        char text[16];
        struct error err = {0};
        snprintf(text, sizeof(text), "%d", i);
        if (!producer_send(world->producer, BUS_EFFECTS, partition, text, text, strlen(text), NULL,
                           NULL, &err))
            fail_msg("%s", err.text);
    }
    await(producer_queue_length(world->producer) == 0);
}

static struct consumer *consumer_open(struct world *world)
{
    struct error err = {0};
    struct consumer *c = consumer_new(&world->config, BUS_EFFECTS, world->producer, &err);
    if (!c)
        fail_msg("%s", err.text);
    return c;
}

/* Takes exactly `want` messages; the caller frees them. */
static void take(struct consumer *c, struct bus_message **out, size_t want)
{
    size_t have = 0;
    int64_t end = clock_boot_ms() + SETTLE_MS;
    while (have < want) {
        have += consumer_poll(c, out + have, want - have, 100);
        if (clock_boot_ms() > end)
            fail_msg("%zu of %zu messages came", have, want);
    }
}

static void nothing_comes(struct consumer *c, int for_ms)
{
    struct bus_message *message;
    int64_t end = clock_boot_ms() + for_ms;
    while (clock_boot_ms() < end)
        assert_int_equal(consumer_poll(c, &message, 1, 50), 0);
}

static int number_of(const struct bus_message *message)
{
    return atoi(message->payload);
}

static void done_and_free(struct consumer *c, struct bus_message **messages, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        consumer_done(c, &messages[i]->token);
        bus_message_free(messages[i]);
    }
}

static void count_report(void *opaque, bool delivered)
{
    atomic_int *counts = opaque;
    atomic_fetch_add(&counts[delivered], 1);
}

static void test_topics(void **state)
{
    (void)state;
    struct world world;
    struct error err = {0};
    world_open(&world);
    assert_true(topics_create(&world.config, PARTITIONS, PARTITIONS, SETTLE_MS, &err));
    for (int topic = 0; topic < BUS_DEAD_LETTERS; topic++)
        assert_int_equal(topics_partition_count(&world.config, topic, SETTLE_MS, &err), PARTITIONS);
    world_close(&world);
}

static void test_reports(void **state)
{
    (void)state;
    struct world world;
    struct error err = {0};
    atomic_int counts[2] = {0, 0};
    world_open(&world);
    for (int i = 0; i < 1000; i++)
        assert_true(producer_send(world.producer, BUS_EFFECTS, BUS_ANY_PARTITION, "k", "x", 1,
                                  count_report, counts, &err));
    await(counts[true] == 1000);
    assert_true(producer_send_wait(world.producer, BUS_LEDGER, BUS_ANY_PARTITION, NULL, "x", 1,
                                   SETTLE_MS, &err));
    await(producer_connected(world.producer));
    assert_false(producer_fatal(world.producer));
    assert_int_equal(counts[false], 0);
    world_close(&world);
}

static void test_what_can_not_be_sent(void **state)
{
    (void)state;
    struct world world;
    struct error err = {0};
    world_open(&world);
    char *large = calloc(1, 2 << 20);
    assert_false(producer_send(world.producer, BUS_EFFECTS, BUS_ANY_PARTITION, "k", large, 2 << 20,
                               NULL, NULL, &err));
    assert_int_equal(err.code, ERROR_TOO_LARGE);
    free(large);
    assert_false(producer_send_wait(world.producer, BUS_EFFECTS, PARTITIONS + 9, "k", "x", 1,
                                    SETTLE_MS, &err));
    /* Neither stands in the way of the next. */
    assert_true(producer_send_wait(world.producer, BUS_EFFECTS, 0, "k", "x", 1, SETTLE_MS, &err));
    world_close(&world);
}

/* Ten out, all but the fourth decided, in any order: the next member begins with the fourth. */
static void test_only_the_prefix_is_stored(void **state)
{
    (void)state;
    struct world world;
    struct bus_message *out[10];
    world_open(&world);
    send_numbers(&world, 0, 0, 10);
    struct consumer *c = consumer_open(&world);
    take(c, out, 10);
    assert_int_equal(consumer_in_flight(c), 10);
    for (int i = 9; i >= 0; i--) {
        assert_int_equal(number_of(out[i]), i);
        if (i != 3)
            consumer_done(c, &out[i]->token);
        bus_message_free(out[i]);
    }
    assert_int_equal(consumer_in_flight(c), 7);
    assert_true(consumer_close(c, SETTLE_MS));

    c = consumer_open(&world);
    take(c, out, 7);
    for (int i = 0; i < 7; i++)
        assert_int_equal(number_of(out[i]), i + 3);
    done_and_free(c, out, 7);
    assert_true(consumer_close(c, SETTLE_MS));

    c = consumer_open(&world);
    await(consumer_partition_count(c) == PARTITIONS || consumer_poll(c, out, 1, 20) > 0);
    nothing_comes(c, 500);
    assert_true(consumer_close(c, SETTLE_MS));
    world_close(&world);
}

/* What the killed process does: takes all, decides the first three, waits for the commit, dies. */
static _Noreturn void crash_main(const char *prefix)
{
    struct world world;
    struct bus_message *out[10];
    log_init("crasher", LOG_ERROR);
    config_make(&world.config, brokers_or_skip(), prefix);
    struct consumer *c = consumer_new(&world.config, BUS_EFFECTS, NULL, NULL);
    take(c, out, 10);
    done_and_free(c, out, 3);
    for (int i = 0; i < 20; i++) /* the commit goes out once a second */
        consumer_poll(c, out, 1, 100);
    raise(SIGKILL);
    abort();
}

static void test_crash_redelivers_what_was_not_decided(void **state)
{
    (void)state;
    struct world world;
    struct bus_message *out[7];
    pid_t pid;
    int status;
    world_open(&world);
    send_numbers(&world, 0, 0, 10);
    char *argv[] = {(char *)program, "crash", world.prefix, NULL};
    assert_int_equal(posix_spawn(&pid, program, NULL, NULL, argv, environ), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);

    struct consumer *c = consumer_open(&world);
    take(c, out, 7);
    for (int i = 0; i < 7; i++)
        assert_int_equal(number_of(out[i]), i + 3);
    done_and_free(c, out, 7);
    assert_true(consumer_close(c, SETTLE_MS));
    world_close(&world);
}

/* A takes everything and decides nothing; B comes and gets half of the partitions with all of their
 * messages. What A decides of these afterwards changes nothing. */
static void test_rebalance(void **state)
{
    (void)state;
    enum { EACH = 25, ALL = PARTITIONS * EACH };
    struct world world;
    struct bus_message *from_a[ALL], *from_b[ALL], *more;
    size_t count_b = 0;
    world_open(&world);
    for (int32_t partition = 0; partition < PARTITIONS; partition++)
        send_numbers(&world, partition, partition * EACH, EACH);
    struct consumer *a = consumer_open(&world);
    take(a, from_a, ALL);
    assert_int_equal(consumer_partition_count(a), PARTITIONS);
    assert_int_equal(consumer_lag(a), ALL);

    struct consumer *b = consumer_open(&world);
    int64_t end = clock_boot_ms() + SETTLE_MS;
    while (count_b < ALL / 2 && clock_boot_ms() < end) {
        assert_int_equal(consumer_poll(a, &more, 1, 10), 0);
        count_b += consumer_poll(b, from_b + count_b, ALL - count_b, 10);
    }
    assert_int_equal(count_b, ALL / 2);
    assert_int_equal(consumer_partition_count(a), PARTITIONS / 2);
    assert_int_equal(consumer_in_flight(a), ALL / 2);

    done_and_free(a, from_a, ALL); /* half of them are of an older assignment */
    assert_int_equal(consumer_in_flight(a), 0);
    assert_true(consumer_close(a, SETTLE_MS));

    /* B gets A's partitions without A's messages; its own it has still to decide. */
    end = clock_boot_ms() + SETTLE_MS;
    while (consumer_partition_count(b) < PARTITIONS && clock_boot_ms() < end)
        assert_int_equal(consumer_poll(b, &more, 1, 10), 0);
    nothing_comes(b, 300);
    assert_int_equal(consumer_in_flight(b), ALL / 2);
    for (size_t i = 0; i < count_b; i++)
        bus_message_free(from_b[i]);
    assert_true(consumer_close(b, SETTLE_MS));

    /* B decided nothing. */
    struct consumer *last = consumer_open(&world);
    take(last, from_b, ALL / 2);
    done_and_free(last, from_b, ALL / 2);
    assert_true(consumer_close(last, SETTLE_MS));
    world_close(&world);
}

static void letter_check(struct bus_message *letter, struct world *world, int32_t partition,
                         int64_t offset, const char *payload)
{
    char name[BUS_NAME_SIZE];
    struct error err = {0};
    json_t *object = json_parse_object(letter->payload, letter->len, &err);
    assert_non_null(object);
    assert_string_equal(json_string_value(json_object_get(object, "topic")),
                        bus_topic_name(&world->config, BUS_EFFECTS, name));
    assert_int_equal(json_integer_value(json_object_get(object, "partition")), partition);
    assert_int_equal(json_integer_value(json_object_get(object, "offset")), offset);
    assert_string_equal(json_string_value(json_object_get(object, "reason")), "it is garbage");
    if (payload)
        assert_string_equal(json_string_value(json_object_get(object, "payload")), payload);
    json_decref(object);
    bus_message_free(letter);
}

/* Null, garbage and a megabyte among good ones: the good ones pass, the others end as dead letters.
 */
static void test_dead_letters(void **state)
{
    (void)state;
    struct world world;
    struct error err = {0};
    struct bus_message *out[5], *letters[3];
    enum { LARGE = 900 * 1024 };
    world_open(&world);
    char *large = calloc(1, LARGE);
    send_numbers(&world, 2, 0, 1);
    assert_true(producer_send(world.producer, BUS_EFFECTS, 2, NULL, NULL, 0, NULL, NULL, &err));
    assert_true(producer_send(world.producer, BUS_EFFECTS, 2, "k", "{\"v\":", 5, NULL, NULL, &err));
    assert_true(producer_send(world.producer, BUS_EFFECTS, 2, "k", large, LARGE, NULL, NULL, &err));
    free(large);
    send_numbers(&world, 2, 4, 1);

    struct consumer *c = consumer_open(&world);
    take(c, out, 5);
    assert_null(out[1]->payload);
    assert_null(out[1]->key);
    assert_int_equal(out[3]->full_len, LARGE);
    assert_int_equal(out[3]->len, world.config.payload_max);
    assert_int_equal(number_of(out[4]), 4);
    for (int i = 1; i < 4; i++)
        consumer_dead_letter(c, out[i], "it is garbage");
    consumer_done(c, &out[0]->token);
    consumer_done(c, &out[4]->token);
    bus_message_free(out[0]);
    bus_message_free(out[4]);
    struct bus_message *more;
    await(consumer_poll(c, &more, 1, 10) == 0 && consumer_in_flight(c) == 0);
    assert_true(consumer_close(c, SETTLE_MS));

    world.config.payload_max = 256 * 1024;
    c = consumer_new(&world.config, BUS_DEAD_LETTERS, NULL, &err);
    take(c, letters, 3);
    for (int i = 0; i < 3; i++)
        consumer_done(c, &letters[i]->token);
    for (int i = 0; i < 3; i++) {
        int offset = strstr(letters[i]->payload, "\"offset\":1,")   ? 1
                     : strstr(letters[i]->payload, "\"offset\":2,") ? 2
                                                                    : 3;
        letter_check(letters[i], &world, 2, offset, offset == 2 ? "eyJ2Ijo=" : NULL);
    }
    assert_true(consumer_close(c, SETTLE_MS));
    world_close(&world);
}

static void test_back_pressure(void **state)
{
    (void)state;
    struct world world;
    struct bus_message *out[10];
    bool seen[100] = {false};
    world_open(&world);
    for (int32_t partition = 0; partition < PARTITIONS; partition++)
        send_numbers(&world, partition, partition * 25, 25);
    world.config.in_flight_max = 10;
    struct consumer *c = consumer_open(&world);
    for (int taken = 0; taken < 100; taken += 10) {
        take(c, out, 10);
        if (taken < 20)
            nothing_comes(c, 1200); /* long enough that it is paused in earnest */
        for (int i = 0; i < 10; i++) {
            assert_false(seen[number_of(out[i])]);
            seen[number_of(out[i])] = true;
        }
        done_and_free(c, out, 10);
    }
    assert_int_equal(consumer_in_flight(c), 0);
    assert_true(consumer_close(c, SETTLE_MS));
    world_close(&world);
}

static void test_pause_and_resume(void **state)
{
    (void)state;
    struct world world;
    struct bus_message *out[10];
    world_open(&world);
    struct consumer *c = consumer_open(&world);
    consumer_pause_all(c);
    send_numbers(&world, 1, 0, 10);
    nothing_comes(c, 2500); /* a paused member joins the group all the same */
    assert_int_equal(consumer_partition_count(c), PARTITIONS);
    consumer_resume_all(c);
    take(c, out, 10);
    done_and_free(c, out, 10);
    assert_true(consumer_close(c, SETTLE_MS));
    world_close(&world);
}

static void reader_take_one(struct reader *r, const char *text)
{
    struct bus_message *message = NULL;
    await(reader_poll(r, &message, 1, 50) == 1);
    assert_string_equal(message->payload, text);
    bus_message_free(message);
}

static void test_reader_sees_its_partition_from_now_on(void **state)
{
    (void)state;
    struct world world;
    struct error err = {0};
    struct bus_message *message;
    world_open(&world);
    assert_true(
        producer_send_wait(world.producer, BUS_OUTCOMES, 1, NULL, "before", 6, SETTLE_MS, &err));
    struct reader *r = reader_new(&world.config, BUS_OUTCOMES, 1, &err);
    await(reader_poll(r, &message, 1, 20) == 0 && reader_started(r));
    assert_true(
        producer_send_wait(world.producer, BUS_OUTCOMES, 2, NULL, "other", 5, SETTLE_MS, &err));
    assert_true(
        producer_send_wait(world.producer, BUS_OUTCOMES, 1, NULL, "mine", 4, SETTLE_MS, &err));
    reader_take_one(r, "mine");
    assert_int_equal(reader_poll(r, &message, 1, 300), 0);
    assert_true(reader_close(r, SETTLE_MS));
    world_close(&world);
}

static void test_lag_of_the_group(void **state)
{
    (void)state;
    struct world world;
    struct error err = {0};
    struct bus_message *out[20];
    struct lag lag;
    world_open(&world);
    struct lag_watch *watch = lag_watch_new(&world.config, BUS_EFFECTS, &err);
    await(lag_watch_read(watch, 3000, &lag, &err));
    assert_int_equal(lag.messages, 0);
    assert_int_equal(lag.age_ms, 0);

    send_numbers(&world, 0, 0, 10);
    send_numbers(&world, 3, 10, 10);
    usleep(300 * 1000);
    assert_true(lag_watch_read(watch, SETTLE_MS, &lag, &err));
    assert_int_equal(lag.messages, 20);
    assert_in_range(lag.age_ms, 250, SETTLE_MS);

    struct consumer *c = consumer_open(&world);
    take(c, out, 20);
    done_and_free(c, out, 20);
    assert_true(consumer_close(c, SETTLE_MS));
    assert_true(lag_watch_read(watch, SETTLE_MS, &lag, &err));
    assert_int_equal(lag.messages, 0);
    lag_watch_close(watch, 5000);
    world_close(&world);
}

static void test_nobody_there_from_the_start(void **state)
{
    (void)state;
    enum { QUEUE = 50 };
    struct bus_config config;
    struct error err = {0};
    struct bus_message *message;
    char reason[256];
    atomic_int counts[2] = {0, 0};
    config_make(&config, NOWHERE, "nowhere");
    config.message_timeout_ms = 1000;
    config.queue_max_messages = QUEUE;
    assert_false(topics_create(&config, 1, 1, 500, &err));
    assert_int_equal(err.code, ERROR_UNAVAILABLE);

    struct producer *p = producer_new(&config, &err);
    struct consumer *c = consumer_new(&config, BUS_EFFECTS, p, &err);
    struct reader *r = reader_new(&config, BUS_OUTCOMES, 0, &err);
    struct lag_watch *watch = lag_watch_new(&config, BUS_EFFECTS, &err);
    assert_true(p && c && r && watch);
    for (int i = 0; i < QUEUE; i++)
        assert_true(producer_send(p, BUS_EFFECTS, BUS_ANY_PARTITION, "k", "x", 1, count_report,
                                  counts, &err));
    assert_false(
        producer_send(p, BUS_EFFECTS, BUS_ANY_PARTITION, "k", "x", 1, count_report, counts, &err));
    assert_int_equal(err.code, ERROR_UNAVAILABLE);
    assert_int_equal(consumer_poll(c, &message, 1, 100), 0);
    assert_int_equal(reader_poll(r, &message, 1, 100), 0);
    struct lag lag;
    assert_false(lag_watch_read(watch, 300, &lag, &err));
    await(counts[false] == QUEUE); /* each is reported once its time is over */
    assert_false(producer_ready(p, reason, sizeof(reason)));
    assert_non_null(strstr(reason, "no connection"));

    int64_t start = clock_boot_ms();
    consumer_close(c, 3000);
    reader_close(r, 3000);
    lag_watch_close(watch, 3000);
    producer_close(p, 500);
    assert_in_range(clock_boot_ms() - start, 0, 11000);
    print_message("closing with nobody there took %d ms\n", (int)(clock_boot_ms() - start));
}

static void test_close_reports_what_was_not_sent(void **state)
{
    (void)state;
    struct bus_config config;
    struct error err = {0};
    atomic_int counts[2] = {0, 0};
    config_make(&config, NOWHERE, "nowhere");
    struct producer *p = producer_new(&config, &err);
    struct producer_ticket *ticket =
        producer_send_begin(p, BUS_LEDGER, BUS_ANY_PARTITION, NULL, "x", 1, &err);
    assert_non_null(ticket);
    for (int i = 0; i < 10; i++)
        assert_true(producer_send(p, BUS_EFFECTS, BUS_ANY_PARTITION, "k", "x", 1, count_report,
                                  counts, &err));
    assert_int_equal(producer_ticket_wait(ticket, 100), PRODUCER_LATE);
    assert_true(producer_close(p, 200));
    assert_int_equal(counts[false], 10);
}

static void broker(const char *what)
{
    char command[512];
    snprintf(command, sizeof(command), "%s %s >&2", control_or_skip(), what);
    assert_int_equal(system(command), 0);
}

/* Killed while messages are on their way and started again: everybody goes on without a restart. */
static void test_broker_killed_and_back(void **state)
{
    (void)state;
    struct world world;
    struct error err = {0};
    struct bus_message *out[20], *message;
    atomic_int counts[2] = {0, 0};
    control_or_skip();
    world_open(&world);
    struct consumer *c = consumer_open(&world);
    struct reader *r = reader_new(&world.config, BUS_OUTCOMES, 0, &err);
    send_numbers(&world, 0, 0, 10);
    take(c, out, 10);
    await(reader_poll(r, &message, 1, 20) == 0 && reader_started(r));

    broker("kill");
    await(consumer_poll(c, &message, 1, 20) == 0 && !consumer_connected(c));
    await(!producer_connected(world.producer));
    assert_true(
        producer_send(world.producer, BUS_EFFECTS, 0, "k", "10", 2, count_report, counts, &err));
    done_and_free(c, out, 10); /* decided while nobody can be told */
    assert_int_equal(reader_poll(r, &message, 1, 20), 0);
    broker("start");

    await(counts[true] + counts[false] == 1);
    send_numbers(&world, 0, 11, 1);
    do
        take(c, out, 1);
    while (number_of(out[0]) != 11 && (done_and_free(c, out, 1), true));
    done_and_free(c, out, 1);
    assert_true(
        producer_send_wait(world.producer, BUS_OUTCOMES, 0, NULL, "back", 4, SETTLE_MS, &err));
    reader_take_one(r, "back");
    await(producer_connected(world.producer));
    assert_false(producer_fatal(world.producer));
    assert_true(consumer_close(c, SETTLE_MS));
    assert_true(reader_close(r, SETTLE_MS));

    /* What was decided while it was away is stored. */
    c = consumer_open(&world);
    nothing_comes(c, 3000);
    assert_true(consumer_close(c, SETTLE_MS));
    world_close(&world);
}

static void test_close_while_the_broker_is_down(void **state)
{
    (void)state;
    struct world world;
    struct error err = {0};
    struct bus_message *out[10], *message;
    control_or_skip();
    world_open(&world);
    struct consumer *c = consumer_open(&world);
    struct reader *r = reader_new(&world.config, BUS_OUTCOMES, 0, &err);
    send_numbers(&world, 0, 0, 10);
    take(c, out, 10);
    broker("kill");
    done_and_free(c, out, 10);
    await(consumer_poll(c, &message, 1, 20) == 0 && !consumer_connected(c));
    int64_t start = clock_boot_ms();
    bool left = consumer_close(c, 3000);
    int64_t consumer_ms = clock_boot_ms() - start;
    reader_close(r, 3000);
    producer_close(world.producer, 500);
    int64_t all_ms = clock_boot_ms() - start;
    broker("start");
    print_message("consumer_close %s after %d ms, all after %d ms\n", left ? "ended" : "gave up",
                  (int)consumer_ms, (int)all_ms);
    assert_in_range(consumer_ms, 0, 3500);
    assert_in_range(all_ms, 0, 8500);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_topics),
        cmocka_unit_test(test_reports),
        cmocka_unit_test(test_what_can_not_be_sent),
        cmocka_unit_test(test_only_the_prefix_is_stored),
        cmocka_unit_test(test_crash_redelivers_what_was_not_decided),
        cmocka_unit_test(test_rebalance),
        cmocka_unit_test(test_dead_letters),
        cmocka_unit_test(test_back_pressure),
        cmocka_unit_test(test_pause_and_resume),
        cmocka_unit_test(test_reader_sees_its_partition_from_now_on),
        cmocka_unit_test(test_lag_of_the_group),
        cmocka_unit_test(test_nobody_there_from_the_start),
        cmocka_unit_test(test_close_reports_what_was_not_sent),
        cmocka_unit_test(test_broker_killed_and_back),
        cmocka_unit_test(test_close_while_the_broker_is_down),
    };
    program = argv[0];
    if (argc == 3 && strcmp(argv[1], "crash") == 0)
        crash_main(argv[2]);
    if (!getenv("HOLDFAST_KAFKA_BROKERS")) {
        fprintf(stderr, "skipped: HOLDFAST_KAFKA_BROKERS is not set\n");
        return 77;
    }
    log_init("test", getenv("TEST_VERBOSE") ? LOG_DEBUG : LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
