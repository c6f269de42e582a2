/* Fills the slots of a prepared request at the moment it is used: escaped for where they stand,
 * each secret checked against its own restrictions. The result holds secrets and is wiped when
 * freed. */
#ifndef HOLDFAST_FILL_H
#define HOLDFAST_FILL_H

#include "common/base/buf.h"
#include "common/base/error.h"
#include "common/http/mask.h"
#include "common/http/request.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SECRETS_PER_REQUEST_MAX 16

/* A secret as the vault has it now. Borrowed: stays valid until request_fill returns. */
struct secret_value {
    const char *value;
    size_t len;
    int64_t version;
    const char *const *allowed_hosts; /* NULL: any host. An empty list allows none */
    size_t allowed_host_count;
    unsigned allowed_placements; /* bits of enum place; 0: any */
};

/* False with err: there is no such secret (ERROR_NOT_FOUND), or the vault is away. */
typedef bool (*secret_lookup)(void *opaque, const char *name, struct secret_value *out,
                              struct error *err);

struct secret_used {
    char name[SECRET_NAME_MAX + 1];
    int64_t version;
};

struct filled {
    char method[8];
    bool https;
    char host[254];
    int port;
    bool dev_destination; /* listed as such when it was filled: a private address is fine */
    bool has_body;
    struct buf url;                          /* the whole URL */
    struct buf headers[REQUEST_HEADERS_MAX]; /* "Name: value", or "Name;" when empty */
    size_t header_count;
    struct buf body;
    struct secret_used secrets[SECRETS_PER_REQUEST_MAX]; /* each once, in order of first use */
    size_t secret_count;
    struct mask *mask; /* what must not stand in the answer; NULL: no secret was filled in */
};

/* `effect_id` ("eff_...") and `provider_key` may be NULL where the request has no such slot. Checks
 * the destination (guard.h), every secret's allowedHosts and allowedPlacements, and that no value
 * holds what can't stand in its place. NULL with err: nothing may be sent; ERROR_UNAVAILABLE only
 * as the lookup gave it. The caller frees with filled_free, which overwrites. */
struct filled *request_fill(const struct request *request, const char *effect_id,
                            const char *provider_key, secret_lookup lookup, void *opaque,
                            struct error *err);
void filled_free(struct filled *filled);

/* Whether a host satisfies one allowedHosts entry: equal in any case, or, with a leading dot, a
 * subdomain of it (".a.com" allows x.a.com and not a.com). */
bool host_allowed(const char *host, const char *entry);

#endif
