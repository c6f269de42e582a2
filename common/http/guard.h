/* Where requests may go: public addresses over https, and the listed development destinations
 * (HOLDFAST_DEV_DESTINATIONS), which may also be plain http and private. */
#ifndef HOLDFAST_GUARD_H
#define HOLDFAST_GUARD_H

#include "common/base/error.h"

#include <stdbool.h>
#include <sys/socket.h>

/* Whether a host is spelled as we accept it: a lower-case DNS name, a plain dotted IPv4 address or
 * an IPv6 literal (without brackets). Refuses what resolvers read differently: 127.1, 0x7f.1,
 * 2130706433, 010.0.0.1, a trailing dot, an empty label, a zone, anything not ASCII. */
bool guard_host_valid(const char *host);

/* Whether a request may be made to this destination at all: the spelling, https unless it is a
 * development destination, and no private address as a literal unless it is one. A name is judged
 * again by its address when a connection is made. False with err (ERROR_INVALID, place "url"). */
bool guard_destination(bool https, const char *host, int port, struct error *err);

/* Whether an address is on the public internet. Refused are loopback, private, link-local, shared
 * (CGNAT), documentation, benchmark, multicast, reserved and unspecified ranges, and the IPv6 forms
 * that carry an IPv4 address (mapped, compatible, 6to4, Teredo, NAT64). Unknown families are
 * refused. */
bool guard_address_public(const struct sockaddr *address);

#endif
