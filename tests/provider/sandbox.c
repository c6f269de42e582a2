/* The sandbox provider: a stand-in for Stripe's refund calls and for any declared action's
 * provider, which counts what arrives per key and per effect, and misbehaves on request. Plain HTTP
 * on loopback; one thread.
 *
 *   dev-sandbox --listen 127.0.0.1:PORT [--keep N]          SIGTERM ends it
 *
 * It is a server of its own, since tests need a say in every byte that goes back. README.md beside
 * this file is the manual of its calls: what is served, what is counted, and every kind of fault.
 *
 * Without any control call, the name of the payment intent of a new refund asks for these:
 *   pi_drop_...     applied, then closed without a byte; once per intent
 *   pi_hang_...     applied, never answered
 *   pi_500_...      answered 500, nothing applied (and 500 again for the same key)
 *   pi_402_...      answered 402 card_declined, nothing applied
 *   pi_pending_...  applied, the refund's status is pending
 *   pi_slow_...     applied, answered after 200 ms
 */
#include "common/base/log.h"
#include "tests/provider/sandbox/generic.h"
#include "tests/provider/sandbox/ledger.h"
#include "tests/provider/sandbox/refunds.h"
#include "tests/provider/sandbox/replies.h"
#include "tests/provider/sandbox/server.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/signalfd.h>

#define KEEP_DEFAULT                                                                               \
    200000 /* refunds, keys, intents, and names counted, each; the oldest go first */

struct options {
    const char *listen_at;
    size_t keep;
};

static bool options_parse(int argc, char **argv, struct options *options)
{
    static const struct option known[] = {{"listen", required_argument, NULL, 'l'},
                                          {"keep", required_argument, NULL, 'k'},
                                          {NULL, 0, NULL, 0}};
    *options = (struct options){NULL, KEEP_DEFAULT};
    for (int c = getopt_long(argc, argv, "", known, NULL); c != -1;
         c = getopt_long(argc, argv, "", known, NULL)) {
        if (c == 'l')
            options->listen_at = optarg;
        else if (c == 'k')
            options->keep = strtoul(optarg, NULL, 10);
        else
            return false;
    }
    return options->listen_at && optind == argc && options->keep >= 1000;
}

/* A descriptor that is readable once the process is asked to end. */
static int stop_fd_open(void)
{
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    must(sigprocmask(SIG_BLOCK, &signals, NULL) == 0);
    int fd = signalfd(-1, &signals, SFD_CLOEXEC);
    must(fd >= 0);
    return fd;
}

int main(int argc, char **argv)
{
    struct options options;
    struct error err = {0};
    if (!options_parse(argc, argv, &options)) {
        fprintf(stderr, "usage: dev-sandbox --listen ADDRESS:PORT [--keep N]  (N at least 1000)\n");
        return 2;
    }
    log_init("sandbox", LOG_INFO);
    ledger_init(options.keep);
    replies_init(options.keep);
    refunds_init(options.keep);
    generic_init(options.keep);
    if (!server_run(options.listen_at, stop_fd_open(), &err)) {
        log_error(LOG_ERROR, "sandbox_failed", &err);
        return 1;
    }
    log_event(LOG_INFO, "sandbox_ended", "%s", "");
    return 0;
}
