/* The sockets that one libcurl loop has open: which connections have carried a request before, and
 * whether anything waits to be read on one. libcurl does not tell a connection's socket before its
 * request is sent, so the table finds it by its two addresses. It also closes a socket that never
 * got connected without a word, so each belongs to the transfer it was opened for until it is used.
 */
#ifndef HOLDFAST_SOCKETS_H
#define HOLDFAST_SOCKETS_H

#include <curl/curl.h>
#include <stdbool.h>
#include <stddef.h>

struct socket_entry {
    int fd;
    const void *opener; /* the transfer it was opened for; NULL once it has carried a request */
    bool named;         /* the fields below are known */
    char local_ip[46];
    char remote_ip[46];
    int local_port;
    int remote_port;
};

struct sockets {
    struct socket_entry *entries;
    size_t count;
    size_t max;
};

bool sockets_init(struct sockets *sockets, size_t max); /* false: out of memory */
void sockets_free(struct sockets *sockets);

/* For CURLOPT_OPENSOCKETFUNCTION: a new socket for the address, or CURL_SOCKET_BAD when the table
 * is full or the kernel refuses. The caller has judged the address. */
curl_socket_t sockets_open(struct sockets *sockets, const struct curl_sockaddr *address,
                           const void *opener);
/* For CURLOPT_CLOSESOCKETFUNCTION. */
void sockets_close(struct sockets *sockets, curl_socket_t fd);

/* Forgets what was opened for this transfer and never used: libcurl has closed it by the time that
 * the transfer's request leaves or the transfer is taken out. */
void sockets_forget(struct sockets *sockets, const void *opener);

/* The connected socket with these addresses (as CURLOPT_PREREQFUNCTION gives them), or NULL. Valid
 * until the next open or close. */
struct socket_entry *sockets_find(struct sockets *sockets, const char *local_ip, int local_port,
                                  const char *remote_ip, int remote_port);

/* Whether anything can be read: data, the peer's end, a reset. */
bool socket_has_input(int fd);

#endif
