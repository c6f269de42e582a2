/* Inside of common/cache: resolving a host name within a time limit, which getaddrinfo can't do. */
#ifndef HOLDFAST_CACHE_LOOKUP_H
#define HOLDFAST_CACHE_LOOKUP_H

#include <netdb.h>
#include <stdbool.h>
#include <stdint.h>

struct lookup; /* one resolution, in progress or done */

/* Starts to resolve; NULL when there is no memory or thread for it. */
struct lookup *lookup_start(const char *host, const char *port);

/* Waits until `deadline_ms` of CLOCK_BOOTTIME. True: done, and *addresses is what was found (NULL:
 * nothing), the lookup's own until lookup_free. False: not yet; wait again later. */
bool lookup_wait(struct lookup *lookup, int64_t deadline_ms, const struct addrinfo **addresses);

/* One that is still in progress ends by itself. NULL is fine. */
void lookup_free(struct lookup *lookup);

#endif
