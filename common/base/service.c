/* The start and end of a process. */
#include "common/base/service.h"

#include "common/base/admin_http.h"
#include "common/base/config.h"
#include "common/base/crypto.h"
#include "common/base/harden.h"
#include "common/base/log.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static char name[128];
static unsigned char incarnation[16];
static atomic_bool stopping;
static struct admin_http *admin;

static enum log_level level_of(const char *word)
{
    static const char *const words[] = {"debug", "info", "warn", "error"};
    for (int i = LOG_DEBUG; i <= LOG_ERROR; i++)
        if (strcmp(words[i], word) == 0)
            return (enum log_level)i;
    return LOG_INFO;
}

static void signals_block(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
    pthread_sigmask(SIG_BLOCK, set, NULL);
    signal(SIGPIPE, SIG_IGN);
}

bool service_boot(const char *part, struct error *err)
{
    sigset_t set;
    harden_memory();
    snprintf(name, sizeof name, "%s", part);
    log_init(name, LOG_INFO);
    if (!config_load(err))
        return false;
    harden_process();
    if (config_text("HOLDFAST_NAME")[0] != '\0')
        snprintf(name, sizeof name, "%s", config_text("HOLDFAST_NAME"));
    log_init(name, level_of(config_text("HOLDFAST_LOG_LEVEL")));
    crypto_random(incarnation, sizeof incarnation);
    signals_block(&set);
    return true;
}

const char *service_name(void)
{
    return name;
}

const unsigned char *service_incarnation(void)
{
    return incarnation;
}

bool service_stopping(void)
{
    return atomic_load(&stopping);
}

int service_run(bool (*failed)(void))
{
    struct error err = {0};
    sigset_t set;
    int status = 0;
    signals_block(&set);
    admin = admin_http_start(config_text("HOLDFAST_ADMIN_LISTEN"), &err);
    if (admin == NULL) {
        log_error(LOG_ERROR, "admin_port", &err);
        status = 1;
    } else {
        log_event(LOG_INFO, "started", "version=%s admin_port=%d", HOLDFAST_VERSION,
                  admin_http_port(admin));
    }
    while (status == 0) {
        struct timespec half = {.tv_nsec = 500000000};
        if (sigtimedwait(&set, NULL, &half) > 0)
            break;
        if (failed != NULL && failed())
            status = 1;
    }
    log_event(status == 0 ? LOG_INFO : LOG_ERROR, "stopping", "status=%d", status);
    admin_http_draining();
    atomic_store(&stopping, true);
    return status;
}

void service_end(void)
{
    if (admin != NULL)
        admin_http_stop(admin);
    admin = NULL;
    log_event(LOG_INFO, "ended", "reason=%s", "drained");
}

_Noreturn void service_refuse(const struct error *err)
{
    log_error(LOG_ERROR, "start_refused", err);
    fflush(NULL);
    _exit(1);
}
