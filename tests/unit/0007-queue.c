/* The bounded queue: order, limits, waiting, batches, closing, and many threads at once. */
#include "common/base/clock.h"
#include "common/base/queue.h"
#include "tests/test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void *item(size_t n)
{
    return (void *)(uintptr_t)n;
}

/* Lets other threads begin to wait. Nothing can be asked for that; when the time is too short, a
 * test shows less but does not fail. */
static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
}

static void test_order_and_limit(void **state)
{
    struct queue *q = queue_new("order", 3);
    void *items[8];
    (void)state;
    for (size_t round = 0; round < 5; round++) {
        assert_true(queue_try_put(q, item(1)));
        assert_true(queue_try_put(q, item(2)));
        assert_true(queue_try_put(q, item(3)));
        assert_false(queue_try_put(q, item(4)));
        assert_int_equal(queue_length(q), 3);
        assert_int_equal(queue_take(q, items, 2, 0, 0), 2);
        assert_ptr_equal(items[0], item(1));
        assert_ptr_equal(items[1], item(2));
        assert_true(queue_try_put(q, item(4)));
        assert_int_equal(queue_take(q, items, 8, 0, 0), 2);
        assert_ptr_equal(items[0], item(3));
        assert_ptr_equal(items[1], item(4));
        assert_int_equal(queue_take(q, items, 8, 0, 0), 0);
    }
    queue_free(q);
}

static void test_time_outs(void **state)
{
    struct queue *q = queue_new("time", 1);
    void *items[2];
    (void)state;
    int64_t start = clock_boot_ms();
    assert_int_equal(queue_take(q, items, 1, 30, 0), 0);
    assert_true(clock_boot_ms() - start >= 29);
    assert_true(queue_put(q, item(1), 0));
    start = clock_boot_ms();
    assert_false(queue_put(q, item(2), 30));
    assert_true(clock_boot_ms() - start >= 29);
    /* One item is there and the batch does not fill: the linger time passes, not the time-out. */
    start = clock_boot_ms();
    assert_int_equal(queue_take(q, items, 1, 60000, 60000), 1);
    assert_true(clock_boot_ms() - start < 30000);
    queue_free(q);
}

/* A batch larger than the queue could ever hold must not be waited for. */
static void test_linger_ends_when_full(void **state)
{
    struct queue *q = queue_new("full", 2);
    void *items[8];
    (void)state;
    assert_true(queue_try_put(q, item(1)));
    assert_true(queue_try_put(q, item(2)));
    int64_t start = clock_boot_ms();
    assert_int_equal(queue_take(q, items, 8, 0, 60000), 2);
    assert_true(clock_boot_ms() - start < 30000);
    queue_free(q);
}

struct taker {
    struct queue *q;
    size_t max;
    int linger_ms;
    size_t taken;
    void *items[64];
};

static void *take_once(void *opaque)
{
    struct taker *t = opaque;
    t->taken = queue_take(t->q, t->items, t->max, 60000, t->linger_ms);
    return NULL;
}

static void *put_nine_later(void *opaque)
{
    nap();
    for (size_t i = 2; i <= 10; i++)
        queue_put(opaque, item(i), 1000); /* the taker counts them */
    return NULL;
}

/* The taker lingers when the nine come, and goes on at the tenth item, not at the minute. */
static void test_linger_fills_the_batch(void **state)
{
    struct queue *q = queue_new("linger", 100);
    void *items[10];
    pthread_t thread;
    (void)state;
    int64_t start = clock_boot_ms();
    assert_true(queue_try_put(q, item(1)));
    assert_int_equal(pthread_create(&thread, NULL, put_nine_later, q), 0);
    assert_int_equal(queue_take(q, items, 10, 0, 60000), 10);
    assert_true(clock_boot_ms() - start < 30000);
    for (size_t i = 0; i < 10; i++)
        assert_ptr_equal(items[i], item(i + 1));
    pthread_join(thread, NULL);
    queue_free(q);
}

static void *put_one(void *opaque)
{
    return item(queue_put(opaque, item(1), 60000));
}

/* Room for two wakes two who wait for room. */
static void test_room_wakes_all(void **state)
{
    struct queue *q = queue_new("room", 2);
    pthread_t threads[2];
    void *items[2];
    void *put;
    (void)state;
    int64_t start = clock_boot_ms();
    assert_true(queue_try_put(q, item(1)));
    assert_true(queue_try_put(q, item(2)));
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, put_one, q), 0);
    nap();
    assert_int_equal(queue_take(q, items, 2, 0, 0), 2);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], &put);
        assert_ptr_equal(put, item(true));
    }
    assert_true(clock_boot_ms() - start < 30000);
    queue_free(q);
}

/* Closing wakes who waits, at the door and in line; what is there is still drained. */
static void test_close(void **state)
{
    struct taker waiting = {.q = queue_new("close", 4), .max = 4};
    struct taker lingering = {.q = queue_new("close2", 4), .max = 4, .linger_ms = 60000};
    pthread_t threads[2];
    void *items[4];
    (void)state;
    int64_t start = clock_boot_ms();
    assert_true(queue_try_put(lingering.q, item(7)));
    assert_int_equal(pthread_create(&threads[0], NULL, take_once, &waiting), 0);
    assert_int_equal(pthread_create(&threads[1], NULL, take_once, &lingering), 0);
    queue_close(waiting.q);
    queue_close(lingering.q);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    assert_int_equal(waiting.taken, 0);
    assert_int_equal(lingering.taken, 1);
    assert_true(queue_closed(waiting.q));
    assert_false(queue_try_put(waiting.q, item(1)));
    assert_false(queue_put(waiting.q, item(1), 60000));
    assert_int_equal(queue_take(waiting.q, items, 4, 60000, 0), 0);
    queue_free(waiting.q);
    queue_free(lingering.q);
    assert_true(clock_boot_ms() - start < 30000); /* nobody sat out a minute */
}

static void test_close_drains(void **state)
{
    struct queue *q = queue_new("drain", 4);
    void *items[4];
    (void)state;
    int64_t start = clock_boot_ms();
    assert_true(queue_try_put(q, item(1)));
    assert_true(queue_try_put(q, item(2)));
    queue_close(q);
    assert_int_equal(queue_take(q, items, 1, 0, 1000), 1);
    assert_int_equal(queue_take(q, items, 4, 60000, 60000), 1);
    assert_int_equal(queue_take(q, items, 4, 60000, 60000), 0);
    assert_true(clock_boot_ms() - start < 30000);
    queue_free(q);
}

/* ---- many producers, many consumers: each item arrives once, in the order of its producer ---- */

#define PRODUCERS 4
#define CONSUMERS 3
#define ITEMS 5000

struct crowd {
    struct queue *q;
    int linger_ms;
    atomic_int next_producer;
    atomic_uchar seen[PRODUCERS * ITEMS];
    atomic_int taken;
    atomic_int misordered;
};

static void *produce(void *opaque)
{
    struct crowd *crowd = opaque;
    size_t first = (size_t)atomic_fetch_add(&crowd->next_producer, 1) * ITEMS;
    for (size_t i = 0; i < ITEMS; i++)
        while (!queue_put(crowd->q, item(first + i + 1), 10000))
            ;
    return NULL;
}

static void *consume(void *opaque)
{
    struct crowd *crowd = opaque;
    void *items[64];
    size_t last[PRODUCERS] = {0};
    size_t n;
    while ((n = queue_take(crowd->q, items, 64, 60000, crowd->linger_ms)) > 0) {
        for (size_t i = 0; i < n; i++) {
            size_t id = (size_t)(uintptr_t)items[i] - 1;
            atomic_fetch_add(&crowd->seen[id], 1);
            atomic_fetch_add(&crowd->taken, 1);
            if (id + 1 <= last[id / ITEMS])
                atomic_fetch_add(&crowd->misordered, 1);
            last[id / ITEMS] = id + 1;
        }
    }
    return NULL;
}

static void crowd_run(int linger_ms, size_t max)
{
    struct crowd *crowd = calloc(1, sizeof(*crowd));
    pthread_t producers[PRODUCERS];
    pthread_t consumers[CONSUMERS];
    assert_non_null(crowd);
    crowd->q = queue_new("crowd", max);
    crowd->linger_ms = linger_ms;
    for (int i = 0; i < CONSUMERS; i++)
        assert_int_equal(pthread_create(&consumers[i], NULL, consume, crowd), 0);
    for (int i = 0; i < PRODUCERS; i++)
        assert_int_equal(pthread_create(&producers[i], NULL, produce, crowd), 0);
    for (int i = 0; i < PRODUCERS; i++)
        pthread_join(producers[i], NULL);
    queue_close(crowd->q);
    for (int i = 0; i < CONSUMERS; i++)
        pthread_join(consumers[i], NULL);
    assert_int_equal(atomic_load(&crowd->taken), PRODUCERS * ITEMS);
    assert_int_equal(atomic_load(&crowd->misordered), 0);
    for (int i = 0; i < PRODUCERS * ITEMS; i++)
        assert_int_equal(atomic_load(&crowd->seen[i]), 1);
    assert_int_equal(queue_length(crowd->q), 0);
    queue_free(crowd->q);
    free(crowd);
}

static void test_crowd(void **state)
{
    (void)state;
    crowd_run(0, 16);
    crowd_run(1, 16);
    crowd_run(1, 1000);
    crowd_run(0, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_and_limit),       cmocka_unit_test(test_time_outs),
        cmocka_unit_test(test_linger_ends_when_full), cmocka_unit_test(test_linger_fills_the_batch),
        cmocka_unit_test(test_room_wakes_all),        cmocka_unit_test(test_close),
        cmocka_unit_test(test_close_drains),          cmocka_unit_test(test_crowd),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
