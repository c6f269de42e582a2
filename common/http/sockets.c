/* The socket table and the peek. */
#include "common/http/sockets.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

bool sockets_init(struct sockets *sockets, size_t max)
{
    *sockets = (struct sockets){.max = max};
    sockets->entries = calloc(max, sizeof(*sockets->entries));
    return sockets->entries != NULL;
}

void sockets_free(struct sockets *sockets)
{
    free(sockets->entries);
    *sockets = (struct sockets){0};
}

static struct socket_entry *entry_of(struct sockets *sockets, int fd)
{
    for (size_t i = 0; i < sockets->count; i++)
        if (sockets->entries[i].fd == fd)
            return &sockets->entries[i];
    return NULL;
}

static void entry_remove(struct sockets *sockets, struct socket_entry *entry)
{
    *entry = sockets->entries[--sockets->count];
}

curl_socket_t sockets_open(struct sockets *sockets, const struct curl_sockaddr *address,
                           const void *opener)
{
    if (sockets->count == sockets->max)
        return CURL_SOCKET_BAD;
    int fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    if (fd < 0)
        return CURL_SOCKET_BAD;
    struct socket_entry *entry = entry_of(sockets, fd); /* closed without a word */
    if (!entry)
        entry = &sockets->entries[sockets->count++];
    *entry = (struct socket_entry){.fd = fd, .opener = opener};
    return fd;
}

void sockets_close(struct sockets *sockets, curl_socket_t fd)
{
    struct socket_entry *entry = entry_of(sockets, fd);
    if (entry)
        entry_remove(sockets, entry);
    close(fd);
}

void sockets_forget(struct sockets *sockets, const void *opener)
{
    for (size_t i = sockets->count; i-- > 0;)
        if (sockets->entries[i].opener == opener)
            entry_remove(sockets, &sockets->entries[i]);
}

static bool name_address(const struct sockaddr_storage *address, char ip[46], int *port)
{
    if (address->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)address;
        *port = ntohs(in->sin_port);
        return inet_ntop(AF_INET, &in->sin_addr, ip, 46) != NULL;
    }
    if (address->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)address;
        *port = ntohs(in6->sin6_port);
        return inet_ntop(AF_INET6, &in6->sin6_addr, ip, 46) != NULL;
    }
    return false;
}

/* Asks the kernel once per socket; one that is still connecting has no peer and is asked again
 * later. */
static bool entry_name(struct socket_entry *entry)
{
    struct sockaddr_storage local, remote;
    socklen_t local_len = sizeof(local), remote_len = sizeof(remote);
    if (entry->named)
        return true;
    if (getsockname(entry->fd, (struct sockaddr *)&local, &local_len) < 0 ||
        getpeername(entry->fd, (struct sockaddr *)&remote, &remote_len) < 0)
        return false;
    entry->named = name_address(&local, entry->local_ip, &entry->local_port) &&
                   name_address(&remote, entry->remote_ip, &entry->remote_port);
    return entry->named;
}

struct socket_entry *sockets_find(struct sockets *sockets, const char *local_ip, int local_port,
                                  const char *remote_ip, int remote_port)
{
    for (size_t i = 0; i < sockets->count; i++) {
        struct socket_entry *entry = &sockets->entries[i];
        if (entry_name(entry) && entry->local_port == local_port &&
            entry->remote_port == remote_port && strcmp(entry->local_ip, local_ip) == 0 &&
            strcmp(entry->remote_ip, remote_ip) == 0)
            return entry;
    }
    return NULL;
}

bool socket_has_input(int fd)
{
    struct pollfd pollfd = {.fd = fd, .events = POLLIN | POLLRDHUP};
    return poll(&pollfd, 1, 0) != 0; /* a failing poll is no proof of silence */
}
