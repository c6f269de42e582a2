/* Listening sockets by name. */
#include "common/base/listen.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Splits "host:port" or "[v6]:port" in place. */
static bool listen_split(char *text, char **host, char **port)
{
    char *colon = strrchr(text, ':');
    if (!colon || colon == text)
        return false;
    *colon = '\0';
    *port = colon + 1;
    *host = text;
    if (text[0] == '[' && colon[-1] == ']') {
        colon[-1] = '\0';
        (*host)++;
    }
    return true;
}

static int socket_bind(const struct addrinfo *address, int backlog)
{
    int on = 1;
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, address->ai_addr, address->ai_addrlen) == 0 && listen(fd, backlog) == 0)
        return fd;
    int saved_errno = errno;
    close(fd);
    errno = saved_errno;
    return -1;
}

int listen_open(const char *what, const char *address, int backlog, struct error *err)
{
    char text[512];
    char *host;
    char *port;
    struct addrinfo *found = NULL;
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    snprintf(text, sizeof(text), "%s", address);
    if (!listen_split(text, &host, &port)) {
        error_set(err, ERROR_INVALID, "%s %s is not host:port", what, address);
        return -1;
    }
    int rc = getaddrinfo(host, port, &hints, &found);
    if (rc != 0) {
        error_set(err, ERROR_INVALID, "%s %s cannot be resolved: %s", what, address,
                  gai_strerror(rc));
        return -1;
    }
    int fd = socket_bind(found, backlog);
    if (fd < 0)
        error_set(err, ERROR_UNAVAILABLE, "cannot listen on %s %s: %s", what, address,
                  strerror(errno));
    freeaddrinfo(found);
    return fd;
}

int listen_port(int fd)
{
    struct sockaddr_storage at;
    socklen_t len = sizeof(at);
    if (getsockname(fd, (struct sockaddr *)&at, &len) != 0)
        return -1;
    return ntohs(at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port
                                          : ((struct sockaddr_in *)&at)->sin_port);
}
