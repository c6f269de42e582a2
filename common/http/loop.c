/* The carrier threads. What is here about kept-alive connections was found by experiment with
 * libcurl 7.88.1: it re-sends a request when a reused connection dies before a byte of the answer,
 * it takes an idle connection with unread bytes for a live one, and it names a connection's socket
 * only after the transfer. So the pre-request callback refuses a second departure, looks at the
 * socket itself, and finds that socket in a table of its own. */
#include "common/http/loop.h"

#include "common/base/clock.h"
#include "common/base/harden.h"
#include "common/base/metrics.h"
#include "common/http/easy.h"
#include "common/http/guard.h"
#include "common/http/sockets.h"

#include <curl/curl.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOOP_TURN_MS 500 /* the longest sleep of a turn */
#define MOVES_MAX 3      /* connections one transfer may give up */
#define ANSWER_READ_FACTOR                                                                         \
    64 /* a body is read, and counted, to this many times what is kept of it */

struct worker;

/* A place for one running transfer. */
struct slot {
    struct worker *worker;
    CURL *easy;
    struct transfer *transfer; /* NULL: free */
    struct slot *next_free;
    struct easy_headers headers;
    int64_t deadline_ms;  /* boot clock */
    bool moving;          /* the peek refused this connection: go on another */
    bool address_refused; /* an address was refused by the guard */
    char error[CURL_ERROR_SIZE];
};

struct worker {
    struct loop *loop;
    pthread_t thread;
    bool started;
    CURLM *multi;
    struct sockets sockets;
    struct slot *slots;
    size_t slot_count;
    struct slot *free_slots;
    size_t running;
    atomic_size_t load; /* running and waiting to run: at most slot_count */
    pthread_mutex_t lock;
    struct transfer *first, *last; /* submitted, under lock; bounded by load */
    bool closed;                   /* under lock */
    int64_t stop_at_ms;            /* under lock */
};

struct loop {
    struct loop_config config;
    struct worker *workers;
    atomic_uint turn; /* where the search for a free slot starts */
    struct metric *moved;
    struct metric *resends_refused;
};

/* -- the callbacks of libcurl, all on the worker's thread -- */

static curl_socket_t on_open_socket(void *opaque, curlsocktype purpose,
                                    struct curl_sockaddr *address)
{
    struct slot *slot = opaque;
    (void)purpose;
    if (!slot->transfer->filled->dev_destination && !guard_address_public(&address->addr)) {
        slot->address_refused = true;
        return CURL_SOCKET_BAD;
    }
    return sockets_open(&slot->worker->sockets, address, slot);
}

static int on_close_socket(void *opaque, curl_socket_t fd)
{
    struct worker *worker = opaque;
    sockets_close(&worker->sockets, fd);
    return 0;
}

/* Bytes that OpenSSL has taken from the socket and nobody has read. */
static bool tls_has_input(CURL *easy)
{
    struct curl_tlssessioninfo *info = NULL;
    if (curl_easy_getinfo(easy, CURLINFO_TLS_SSL_PTR, &info) != CURLE_OK || !info ||
        info->backend != CURLSSLBACKEND_OPENSSL || !info->internals)
        return false;
    return SSL_has_pending(info->internals);
}

static int connection_give_up(struct slot *slot)
{
    slot->moving = true;
    slot->transfer->moves++;
    metric_add(slot->worker->loop->moved, 1);
    return CURL_PREREQFUNC_ABORT; /* libcurl closes an aborted transfer's connection */
}

static int on_prerequest(void *opaque, char *remote_ip, char *local_ip, int remote_port,
                         int local_port)
{
    struct slot *slot = opaque;
    struct transfer *transfer = slot->transfer;
    if (transfer->begun) {
        transfer->resend_refused = true;
        metric_add(slot->worker->loop->resends_refused, 1);
        return CURL_PREREQFUNC_ABORT;
    }
    struct socket_entry *socket =
        sockets_find(&slot->worker->sockets, local_ip, local_port, remote_ip, remote_port);
    if (!socket)
        return connection_give_up(slot);
    /* A new connection may hold what the peer says first (TLS session tickets); a used one must be
     * silent, or what it says would be taken for the answer to this request. */
    if (!socket->opener && (socket_has_input(socket->fd) || tls_has_input(slot->easy)))
        return connection_give_up(slot);
    int64_t now_us = clock_boot_us();
    if (transfer->begin && !transfer->begin(transfer, now_us))
        return CURL_PREREQFUNC_ABORT;
    socket->opener = NULL; /* a used connection from now on */
    sockets_forget(&slot->worker->sockets, slot);
    transfer->begun = true;
    transfer->begun_boot_us = now_us;
    slot->deadline_ms = now_us / 1000 + transfer->timeout_ms;
    return CURL_PREREQFUNC_OK;
}

static size_t on_header(char *line, size_t size, size_t count, void *opaque)
{
    struct slot *slot = opaque;
    curl_off_t sent = 0;
    curl_easy_getinfo(slot->easy, CURLINFO_SIZE_UPLOAD_T, &sent);
    answer_take_line(slot->transfer->answer, line, size * count,
                     (uint64_t)sent >= slot->transfer->filled->body.len);
    return size * count;
}

static size_t on_body(char *bytes, size_t size, size_t count, void *opaque)
{
    struct slot *slot = opaque;
    struct answer *answer = slot->transfer->answer;
    answer_take_body(answer, bytes, size * count);
    if ((uint64_t)answer->body_bytes / ANSWER_READ_FACTOR > answer->body.max)
        return 0; /* no end in sight */
    return size * count;
}

/* -- one transfer -- */

static bool set_callbacks(struct slot *slot)
{
    struct worker *worker = slot->worker;
    CURL *easy = slot->easy;
    return curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, on_open_socket) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, slot) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, on_close_socket) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_CLOSESOCKETDATA, worker) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, on_prerequest) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_PREREQDATA, slot) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_HEADERDATA, slot) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_WRITEDATA, slot) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, slot->error) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_PRIVATE, slot) == CURLE_OK;
}

/* libcurl's own time-outs stand behind ours, which run on the boot clock and start at the gate. */
static bool set_timeouts(struct slot *slot, int64_t now_ms)
{
    struct transfer *transfer = slot->transfer;
    int64_t left_ms = transfer->begin_by_ms - now_ms;
    int64_t connect_ms = slot->worker->loop->config.connect_timeout_ms;
    if (left_ms < 1)
        left_ms = 1;
    if (connect_ms > left_ms)
        connect_ms = left_ms;
    long total_ms = (long)(left_ms + transfer->timeout_ms + LOOP_TURN_MS);
    return curl_easy_setopt(slot->easy, CURLOPT_CONNECTTIMEOUT_MS, (long)connect_ms) == CURLE_OK &&
           curl_easy_setopt(slot->easy, CURLOPT_TIMEOUT_MS, total_ms) == CURLE_OK;
}

static bool slot_set_up(struct slot *slot, int64_t now_ms, struct error *err)
{
    const struct loop_config *config = &slot->worker->loop->config;
    if (!easy_harden(slot->easy, config->ca_file, err) ||
        !easy_set_request(slot->easy, slot->transfer->filled, &slot->headers, err))
        return false;
    if (!set_callbacks(slot) || !set_timeouts(slot, now_ms))
        return error_set(err, ERROR_INTERNAL, "libcurl refuses a callback");
    if (curl_multi_add_handle(slot->worker->multi, slot->easy) != CURLM_OK)
        return error_set(err, ERROR_INTERNAL, "libcurl refuses the transfer");
    return true;
}

/* The handle points into the owner's request until here. A reset keeps its buffers, so what carried
 * a secret is made anew; the connections belong to the multi and stay. */
static void slot_forget(struct slot *slot, bool secret)
{
    CURL *fresh = secret ? curl_easy_init() : NULL;
    if (fresh == NULL) {
        curl_easy_reset(slot->easy);
        return;
    }
    curl_easy_cleanup(slot->easy);
    slot->easy = fresh;
}

/* Ends a slot's transfer; the caller has taken the handle out of the multi. */
static void slot_finish(struct slot *slot, bool ok, const char *cause)
{
    struct worker *worker = slot->worker;
    struct transfer *transfer = slot->transfer;
    snprintf(transfer->cause, sizeof(transfer->cause), "%s", ok ? "" : cause);
    transfer->ok = ok;
    transfer->finished_boot_us = clock_boot_us();
    answer_finish(transfer->answer, ok);
    slot_forget(slot, transfer->filled->secret_count > 0);
    slot->transfer = NULL;
    slot->next_free = worker->free_slots;
    worker->free_slots = slot;
    worker->running--;
    atomic_fetch_sub(&worker->load, 1);
    transfer->done(transfer);
}

static void slot_begin(struct slot *slot, struct transfer *transfer, int64_t now_ms)
{
    struct error err;
    slot->transfer = transfer;
    slot->moving = false;
    slot->address_refused = false;
    slot->error[0] = '\0';
    slot->deadline_ms = transfer->begin_by_ms;
    slot->worker->running++;
    if (!slot_set_up(slot, now_ms, &err))
        slot_finish(slot, false, err.text);
}

/* Why a transfer failed, in words for the evidence: libcurl's own are about the connection and
 * never hold a path, a header or a body. */
static const char *slot_cause(const struct slot *slot, CURLcode code)
{
    if (slot->transfer->resend_refused)
        return "the reused connection died before an answer, and sending again was refused";
    if (slot->address_refused && code == CURLE_COULDNT_CONNECT)
        return "the host's address is not public";
    if (code == CURLE_WRITE_ERROR)
        return "the answer did not end where it is no longer read";
    return slot->error[0] ? slot->error : curl_easy_strerror(code);
}

/* The same transfer on a new connection; nothing has left, so nothing is spent. */
static bool slot_move(struct slot *slot)
{
    struct transfer *transfer = slot->transfer;
    int64_t now_ms = clock_boot_ms();
    if (!slot->moving || transfer->begun || transfer->moves > MOVES_MAX)
        return false;
    slot->moving = false;
    slot->error[0] = '\0';
    return curl_easy_setopt(slot->easy, CURLOPT_FRESH_CONNECT, 1L) == CURLE_OK &&
           set_timeouts(slot, now_ms) &&
           curl_multi_add_handle(slot->worker->multi, slot->easy) == CURLM_OK;
}

static void slot_take_out(struct slot *slot)
{
    must(curl_multi_remove_handle(slot->worker->multi, slot->easy) == CURLM_OK);
    sockets_forget(&slot->worker->sockets, slot);
}

static void slot_ended(struct slot *slot, CURLcode code)
{
    slot_take_out(slot);
    if (slot_move(slot))
        return;
    if (code == CURLE_OK)
        slot_finish(slot, true, NULL);
    else
        slot_finish(slot, false, slot_cause(slot, code));
}

static void slot_give_up(struct slot *slot, const char *cause)
{
    slot_take_out(slot);
    slot_finish(slot, false, cause);
}

/* -- the worker -- */

static struct slot *slot_take_free(struct worker *worker)
{
    struct slot *slot = worker->free_slots;
    must(slot); /* load is counted before a transfer is put */
    worker->free_slots = slot->next_free;
    return slot;
}

static void worker_take(struct worker *worker)
{
    pthread_mutex_lock(&worker->lock);
    struct transfer *transfer = worker->first;
    worker->first = worker->last = NULL;
    pthread_mutex_unlock(&worker->lock);
    while (transfer) {
        struct transfer *next = transfer->next;
        struct slot *slot = slot_take_free(worker);
        transfer->next = NULL;
        slot_begin(slot, transfer, clock_boot_ms());
        transfer = next;
    }
}

static void worker_finish_ended(struct worker *worker)
{
    CURLMsg *message;
    int left;
    while ((message = curl_multi_info_read(worker->multi, &left))) {
        struct slot *slot = NULL;
        if (message->msg != CURLMSG_DONE)
            continue;
        CURLcode code = message->data.result;
        must(curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &slot) == CURLE_OK && slot);
        slot_ended(slot, code);
    }
}

/* Ends what is late and returns how long the loop may sleep. */
static int worker_check_deadlines(struct worker *worker, int64_t now_ms)
{
    int64_t wait_ms = LOOP_TURN_MS;
    for (size_t i = 0; i < worker->slot_count; i++) {
        struct slot *slot = &worker->slots[i];
        if (!slot->transfer)
            continue;
        int64_t left_ms = slot->deadline_ms - now_ms;
        if (left_ms <= 0 && slot->transfer->begun)
            slot_give_up(slot, "the time for an answer ran out");
        else if (left_ms <= 0)
            slot_give_up(slot, "the time to send it ran out before there was a connection");
        else if (left_ms < wait_ms)
            wait_ms = left_ms;
    }
    return (int)wait_ms;
}

static void worker_end_all(struct worker *worker)
{
    for (size_t i = 0; i < worker->slot_count; i++) {
        struct slot *slot = &worker->slots[i];
        if (slot->transfer && slot->transfer->begun)
            slot_give_up(slot, "the process stopped before the answer came");
        else if (slot->transfer)
            slot_give_up(slot, "the process stopped before it was sent");
    }
}

/* Whether the worker is to end: asked to, and nothing is left or the time to drain is over. */
static bool worker_ends(struct worker *worker, int64_t now_ms)
{
    pthread_mutex_lock(&worker->lock);
    bool closed = worker->closed;
    bool over = closed && now_ms >= worker->stop_at_ms;
    bool empty = worker->running == 0 && !worker->first;
    pthread_mutex_unlock(&worker->lock);
    if (closed && over && !empty) {
        worker_take(worker);
        worker_end_all(worker);
        empty = true;
    }
    return closed && empty;
}

static void *worker_run(void *opaque)
{
    struct worker *worker = opaque;
    int running;
    while (!worker_ends(worker, clock_boot_ms())) {
        worker_take(worker);
        must(curl_multi_perform(worker->multi, &running) == CURLM_OK);
        worker_finish_ended(worker);
        int wait_ms = worker_check_deadlines(worker, clock_boot_ms());
        must(curl_multi_poll(worker->multi, NULL, 0, wait_ms, NULL) == CURLM_OK);
    }
    return NULL;
}

/* -- the loop -- */

static bool worker_init(struct worker *worker, struct loop *loop, size_t slots)
{
    worker->loop = loop;
    pthread_mutex_init(&worker->lock, NULL);
    worker->multi = curl_multi_init();
    worker->slots = calloc(slots, sizeof(*worker->slots));
    worker->slot_count = worker->slots ? slots : 0;
    /* Per slot one kept connection, two while IPv6 and IPv4 race for a new one, and what libcurl
     * has closed without a word on the way through a host's addresses. */
    if (!worker->multi || !worker->slots || !sockets_init(&worker->sockets, slots * 16 + 64))
        return false;
    curl_multi_setopt(worker->multi, CURLMOPT_MAXCONNECTS, (long)slots);
    curl_multi_setopt(worker->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
    for (size_t i = 0; i < slots; i++) {
        struct slot *slot = &worker->slots[i];
        slot->worker = worker;
        slot->next_free = worker->free_slots;
        worker->free_slots = slot;
        slot->easy = curl_easy_init();
        if (!slot->easy)
            return false;
    }
    return true;
}

/* The thread has ended, or never started. */
static void worker_free(struct worker *worker)
{
    for (size_t i = 0; i < worker->slot_count; i++)
        curl_easy_cleanup(worker->slots[i].easy);
    free(worker->slots);
    if (worker->multi)
        curl_multi_cleanup(worker->multi); /* closes the kept connections through the table */
    sockets_free(&worker->sockets);
    pthread_mutex_destroy(&worker->lock);
}

static bool worker_start(struct worker *worker, struct error *err)
{
    if (pthread_create(&worker->thread, NULL, worker_run, worker) != 0)
        return error_set(err, ERROR_INTERNAL, "no thread for the %s loop",
                         worker->loop->config.name);
    worker->started = true;
    char name[16];
    snprintf(name, sizeof(name), "%.12s", worker->loop->config.name);
    pthread_setname_np(worker->thread, name);
    return true;
}

static void curl_start(void)
{
    /* What libcurl held of a request is overwritten when it is done with it. */
    must(curl_global_init_mem(CURL_GLOBAL_DEFAULT, malloc, wiping_free, wiping_realloc, strdup,
                              calloc) == CURLE_OK);
}

struct loop *loop_start(const struct loop_config *config, struct error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, curl_start);
    must(config->threads >= 1 && config->threads <= 64 && config->slots >= 1);
    if (config->ca_file && access(config->ca_file, R_OK) != 0) {
        error_set_at(err, ERROR_INVALID, "HOLDFAST_PROVIDER_CA_FILE", "cannot read %s",
                     config->ca_file);
        return NULL;
    }
    struct loop *loop = calloc(1, sizeof(*loop));
    if (!loop)
        goto memory;
    loop->config = *config;
    if (loop->config.threads > config->slots)
        loop->config.threads = (unsigned)config->slots; /* a thread without a slot has no work */
    loop->moved =
        metric_counter("holdfast_http_moved_total", "",
                       "Requests moved off a kept-alive connection before they were sent");
    loop->resends_refused = metric_counter("holdfast_http_resends_refused_total", "",
                                           "Second sends that libcurl asked for and did not get");
    loop->workers = calloc(loop->config.threads, sizeof(*loop->workers));
    if (!loop->workers)
        goto memory;
    for (unsigned i = 0; i < loop->config.threads; i++) {
        size_t slots = loop->config.slots / loop->config.threads +
                       (i < loop->config.slots % loop->config.threads);
        if (!worker_init(&loop->workers[i], loop, slots))
            goto memory;
    }
    /* A libcurl that lacks one of our options must stop the start, not every send. */
    CURL *sample = loop->workers[0].slots[0].easy;
    if (!easy_harden(sample, loop->config.ca_file, err))
        goto fail;
    curl_easy_reset(sample);
    for (unsigned i = 0; i < loop->config.threads; i++)
        if (!worker_start(&loop->workers[i], err))
            goto fail;
    return loop;
memory:
    error_set(err, ERROR_MEMORY, "out of memory for the %s loop", config->name);
fail:
    if (loop)
        loop_stop(loop, 0);
    return NULL;
}

/* Counts a slot of this worker as taken. */
static bool worker_reserve(struct worker *worker)
{
    size_t load = atomic_load(&worker->load);
    while (load < worker->slot_count)
        if (atomic_compare_exchange_weak(&worker->load, &load, load + 1))
            return true;
    return false;
}

/* False, and the slot given back, when the loop is stopping. */
static bool worker_put(struct worker *worker, struct transfer *transfer)
{
    pthread_mutex_lock(&worker->lock);
    bool open = !worker->closed;
    if (open && worker->last)
        worker->last->next = transfer;
    else if (open)
        worker->first = transfer;
    if (open)
        worker->last = transfer;
    if (open) /* under the lock, without which the worker can't end and be freed */
        curl_multi_wakeup(worker->multi);
    else
        atomic_fetch_sub(&worker->load, 1);
    pthread_mutex_unlock(&worker->lock);
    return open;
}

bool loop_submit(struct loop *loop, struct transfer *transfer)
{
    const char *method = transfer->filled->method;
    must(transfer->begin || strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0);
    transfer->begun = transfer->ok = transfer->resend_refused = false;
    transfer->begun_boot_us = transfer->finished_boot_us = 0;
    transfer->moves = 0;
    transfer->cause[0] = '\0';
    transfer->next = NULL;
    transfer->answer->bodiless = strcmp(method, "HEAD") == 0;
    unsigned start = atomic_fetch_add(&loop->turn, 1);
    for (unsigned i = 0; i < loop->config.threads; i++) {
        struct worker *worker = &loop->workers[(start + i) % loop->config.threads];
        if (worker_reserve(worker))
            return worker_put(worker, transfer);
    }
    return false;
}

size_t loop_room(struct loop *loop)
{
    size_t room = 0;
    for (unsigned i = 0; i < loop->config.threads; i++)
        room += loop->workers[i].slot_count - atomic_load(&loop->workers[i].load);
    return room;
}

void loop_stop(struct loop *loop, int64_t drain_ms)
{
    for (unsigned i = 0; loop->workers && i < loop->config.threads; i++) {
        struct worker *worker = &loop->workers[i];
        if (!worker->started)
            continue;
        pthread_mutex_lock(&worker->lock);
        worker->closed = true;
        worker->stop_at_ms = clock_boot_ms() + drain_ms;
        pthread_mutex_unlock(&worker->lock);
        curl_multi_wakeup(worker->multi);
    }
    for (unsigned i = 0; loop->workers && i < loop->config.threads; i++) {
        struct worker *worker = &loop->workers[i];
        if (worker->started)
            pthread_join(worker->thread, NULL);
        if (worker->loop)
            worker_free(worker);
    }
    free(loop->workers);
    free(loop);
}
