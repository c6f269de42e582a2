/* The destination rules. What is not known to be public is refused. */
#include "common/http/guard.h"

#include "common/base/config.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <string.h>

struct range4 {
    uint32_t base;
    int bits;
};

#define IP4(a, b, c, d)                                                                            \
    ((uint32_t)(a) << 24 | (uint32_t)(b) << 16 | (uint32_t)(c) << 8 | (uint32_t)(d))

/* IANA IPv4 special-purpose registry, multicast and reserved space. */
static const struct range4 refused4[] = {
    {IP4(0, 0, 0, 0), 8},       /* this network, unspecified */
    {IP4(10, 0, 0, 0), 8},      /* private */
    {IP4(100, 64, 0, 0), 10},   /* shared, carrier NAT */
    {IP4(127, 0, 0, 0), 8},     /* loopback */
    {IP4(169, 254, 0, 0), 16},  /* link-local, cloud metadata */
    {IP4(172, 16, 0, 0), 12},   /* private */
    {IP4(192, 0, 0, 0), 24},    /* protocol assignments */
    {IP4(192, 0, 2, 0), 24},    /* documentation */
    {IP4(192, 88, 99, 0), 24},  /* 6to4 relays */
    {IP4(192, 168, 0, 0), 16},  /* private */
    {IP4(198, 18, 0, 0), 15},   /* benchmark */
    {IP4(198, 51, 100, 0), 24}, /* documentation */
    {IP4(203, 0, 113, 0), 24},  /* documentation */
    {IP4(224, 0, 0, 0), 4},     /* multicast */
    {IP4(240, 0, 0, 0), 4},     /* reserved, broadcast */
};

struct range6 {
    uint8_t base[16];
    int bits;
};

/* Only 2000::/3 is handed out; inside it these are not public either. Everything outside it
 * (loopback, mapped, compatible, NAT64 64:ff9b::, unique local, link-local, multicast) is refused
 * as a whole. */
static const struct range6 public6 = {{0x20}, 3};
static const struct range6 refused6[] = {
    {{0x20, 0x01}, 23},             /* protocol assignments, Teredo, ORCHID */
    {{0x20, 0x01, 0x0d, 0xb8}, 32}, /* documentation */
    {{0x20, 0x02}, 16},             /* 6to4 */
    {{0x3f, 0xff}, 20},             /* documentation */
};

static bool public4(uint32_t address)
{
    for (size_t i = 0; i < sizeof(refused4) / sizeof(refused4[0]); i++) {
        uint32_t mask = UINT32_MAX << (32 - refused4[i].bits);
        if ((address & mask) == refused4[i].base)
            return false;
    }
    return true;
}

static bool range6_holds(const struct range6 *range, const uint8_t address[16])
{
    int whole = range->bits / 8, rest = range->bits % 8;
    if (memcmp(range->base, address, (size_t)whole) != 0)
        return false;
    uint8_t mask = (uint8_t)(0xff00 >> rest);
    return ((range->base[whole] ^ address[whole]) & mask) == 0;
}

static bool public_ip6(const uint8_t address[16])
{
    if (!range6_holds(&public6, address))
        return false;
    for (size_t i = 0; i < sizeof(refused6) / sizeof(refused6[0]); i++)
        if (range6_holds(&refused6[i], address))
            return false;
    return true;
}

bool guard_address_public(const struct sockaddr *address)
{
    /* Copies, since libcurl's buffer promises no alignment. */
    if (address->sa_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, address, sizeof(in));
        return public4(ntohl(in.sin_addr.s_addr));
    }
    if (address->sa_family == AF_INET6) {
        struct sockaddr_in6 in6;
        memcpy(&in6, address, sizeof(in6));
        return public_ip6(in6.sin6_addr.s6_addr);
    }
    return false;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool label_valid(const char *label, size_t len)
{
    if (len == 0 || len > 63 || label[0] == '-' || label[len - 1] == '-')
        return false;
    for (size_t i = 0; i < len; i++) {
        char c = label[i];
        if (!is_digit(c) && !(c >= 'a' && c <= 'z') && c != '-' && c != '_')
            return false;
    }
    return true;
}

/* A last label that inet_aton would read as a number makes the whole name an IPv4 address to some
 * resolvers: decimal, octal or 0x hexadecimal. */
static bool label_is_number(const char *label)
{
    if (label[0] == '0' && label[1] == 'x')
        return label[2 + strspn(label + 2, "0123456789abcdef")] == '\0';
    return label[strspn(label, "0123456789")] == '\0';
}

static bool name_valid(const char *host)
{
    for (const char *label = host;;) {
        size_t len = strcspn(label, ".");
        if (!label_valid(label, len))
            return false;
        if (label[len] == '\0')
            return !label_is_number(label);
        label += len + 1;
    }
}

/* The address of a literal host, or false for a name. inet_pton takes only the plain dotted form.
 */
static bool literal_address(const char *host, struct sockaddr_storage *out)
{
    memset(out, 0, sizeof(*out));
    struct sockaddr_in *in = (struct sockaddr_in *)out;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)out;
    if (inet_pton(AF_INET, host, &in->sin_addr) == 1) {
        out->ss_family = AF_INET;
        return true;
    }
    if (inet_pton(AF_INET6, host, &in6->sin6_addr) == 1) {
        out->ss_family = AF_INET6;
        return true;
    }
    return false;
}

bool guard_host_valid(const char *host)
{
    struct sockaddr_storage address;
    size_t len = strlen(host);
    if (len == 0 || len > 253)
        return false;
    return literal_address(host, &address) || name_valid(host);
}

bool guard_destination(bool https, const char *host, int port, struct error *err)
{
    if (!guard_host_valid(host))
        return error_set_at(err, ERROR_INVALID, "url",
                            "the URL's host is not a plain lower-case name or address");
    if (port < 1 || port > 65535)
        return error_set_at(err, ERROR_INVALID, "url", "the URL's port is not in 1 to 65535");
    if (config_dev_destination(host, port))
        return true;
    if (!https)
        return error_set_at(err, ERROR_INVALID, "url",
                            "plain http is only for development destinations, and %s:%d is none",
                            host, port);
    struct sockaddr_storage address;
    if (literal_address(host, &address) && !guard_address_public((struct sockaddr *)&address))
        return error_set_at(err, ERROR_INVALID, "url", "%s is not a public address", host);
    return true;
}
