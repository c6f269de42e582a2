/* dev-broker: librdkafka's own mock cluster as a process, so that a first try of Holdfast needs no
 * Java. Everything it holds is memory and ends with it; it must never carry a ledger that counts.
 *
 * It serves idempotent producers, groups (range and cooperative-sticky) and their commits, but not
 * the admin API, nor offsets by time; the first join of a group takes 3 s, a further one 5 to 10 s.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { TOPICS_MAX = 32, PARTITIONS_MAX = 1024 };

static int wanted_port; /* set before the cluster exists, read by bind_wanted_port */

/* The mock binds port 0 on the loopback address and offers no other way, but a fleet needs an
 * address that survives the broker's restart. A program's own bind() comes before libc's for every
 * library in the process, so this one fills in the port and makes the same system call. main checks
 * that the cluster really listens there. */
int bind_wanted_port(int fd, const struct sockaddr *address, socklen_t length) __asm__("bind")
    __attribute__((used));

int bind_wanted_port(int fd, const struct sockaddr *address, socklen_t length)
{
    struct sockaddr_in in;
    if (address->sa_family != AF_INET || length != sizeof in)
        return (int)syscall(SYS_bind, fd, address, length);
    memcpy(&in, address, sizeof in);
    if (in.sin_port == 0)
        in.sin_port = htons((uint16_t)wanted_port);
    int on = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    return (int)syscall(SYS_bind, fd, &in, sizeof in);
}

static const char usage[] =
    "dev-broker --port PORT [--ready-file FILE] TOPIC:PARTITIONS...\n"
    "Serves librdkafka's mock Kafka cluster on 127.0.0.1:PORT with these topics until SIGTERM.\n"
    "Nothing is written to disk. FILE gets the address once clients may connect.\n";

static _Noreturn void die(const char *what, const char *detail)
{
    fprintf(stderr, "dev-broker: %s: %s\n", what, detail);
    exit(1);
}

/* A decimal number in 1..most, else -1. */
static int number_read(const char *text, long most)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    return errno || end == text || *end || value < 1 || value > most ? -1 : (int)value;
}

static void topic_create(rd_kafka_mock_cluster_t *cluster, const char *spec)
{
    char name[256];
    const char *colon = strrchr(spec, ':');
    int partitions = colon ? number_read(colon + 1, PARTITIONS_MAX) : -1;
    if (partitions < 0 || colon == spec || (size_t)(colon - spec) >= sizeof name)
        die("not TOPIC:PARTITIONS", spec);
    memcpy(name, spec, (size_t)(colon - spec));
    name[colon - spec] = '\0';
    rd_kafka_resp_err_t failed = rd_kafka_mock_topic_create(cluster, name, partitions, 1);
    if (failed)
        die(name, rd_kafka_err2str(failed));
}

/* The handle that the mock cluster lives in; it is never used as a client. */
static rd_kafka_t *host_new(void)
{
    char why[256];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    /* It would warn that it has no broker to talk to, which is so by design. */
    rd_kafka_t *host =
        rd_kafka_conf_set(conf, "log_level", "3", why, sizeof why) == RD_KAFKA_CONF_OK
            ? rd_kafka_new(RD_KAFKA_PRODUCER, conf, why, sizeof why)
            : NULL;
    if (!host)
        die("no librdkafka handle", why);
    return host;
}

static rd_kafka_mock_cluster_t *cluster_start(rd_kafka_t *host, int port)
{
    wanted_port = port;
    rd_kafka_mock_cluster_t *cluster = rd_kafka_mock_cluster_new(host, 1);
    char address[32];
    snprintf(address, sizeof address, "127.0.0.1:%d", port);
    if (!cluster)
        die(address, "cannot listen there; is the port taken?");
    if (strcmp(rd_kafka_mock_cluster_bootstraps(cluster), address) != 0)
        die("the mock cluster chose its own address", rd_kafka_mock_cluster_bootstraps(cluster));
    return cluster;
}

/* The rename shows the file only when it is complete. */
static void ready_tell(const char *path, const char *address)
{
    char partial[4096];
    if (snprintf(partial, sizeof partial, "%s.partial", path) >= (int)sizeof partial)
        die("the path is too long", path);
    FILE *file = fopen(partial, "w");
    if (!file || fprintf(file, "%s\n", address) < 0 || fclose(file) != 0 ||
        rename(partial, path) != 0)
        die(path, strerror(errno));
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"port", required_argument, NULL, 'p'},
                                            {"ready-file", required_argument, NULL, 'r'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    int port = -1;
    const char *ready_file = NULL;
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (option == 'p')
            port = number_read(optarg, 65535);
        else if (option == 'r')
            ready_file = optarg;
        else
            return fputs(usage, option == 'h' ? stdout : stderr), option == 'h' ? 0 : 2;
    }
    if (port < 0 || optind == argc || argc - optind > TOPICS_MAX)
        return fputs(usage, stderr), 2;

    sigset_t stop; /* blocked before librdkafka's threads start, so that only sigwait sees them */
    sigemptyset(&stop);
    sigaddset(&stop, SIGTERM);
    sigaddset(&stop, SIGINT);
    sigprocmask(SIG_BLOCK, &stop, NULL);

    rd_kafka_t *host = host_new();
    rd_kafka_mock_cluster_t *cluster = cluster_start(host, port);
    for (int i = optind; i < argc; i++)
        topic_create(cluster, argv[i]);
    fprintf(stderr, "dev-broker: serving %s\n", rd_kafka_mock_cluster_bootstraps(cluster));
    if (ready_file)
        ready_tell(ready_file, rd_kafka_mock_cluster_bootstraps(cluster));

    int signal_number;
    sigwait(&stop, &signal_number);
    rd_kafka_mock_cluster_destroy(cluster);
    rd_kafka_destroy(host);
    return 0;
}
