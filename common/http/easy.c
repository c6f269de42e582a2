/* The hardened libcurl handle. */
#include "common/http/easy.h"

#include "common/base/config.h"

#include <string.h>
#include <strings.h>

struct long_option {
    CURLoption option;
    long value;
};

/* libcurl's defaults are spelled out where a change of them would break a promise. */
static const struct long_option fixed_options[] = {
    /* HTTP/2 re-sends by itself (REFUSED_STREAM, 421, HTTP_1_1_REQUIRED). */
    {CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1},
    {CURLOPT_HTTP09_ALLOWED, 0},
    {CURLOPT_FOLLOWLOCATION, 0},
    {CURLOPT_MAXREDIRS, 0},
    {CURLOPT_AUTOREFERER, 0},
    /* An authentication method is a second request. */
    {CURLOPT_HTTPAUTH, (long)CURLAUTH_NONE},
    {CURLOPT_PROXYAUTH, (long)CURLAUTH_NONE},
    {CURLOPT_UNRESTRICTED_AUTH, 0},
    {CURLOPT_NETRC, CURL_NETRC_IGNORED},
    {CURLOPT_DISALLOW_USERNAME_IN_URL, 1},
    {CURLOPT_PATH_AS_IS, 1},
    /* TLS. */
    {CURLOPT_SSL_VERIFYPEER, 1},
    {CURLOPT_SSL_VERIFYHOST, 2},
    {CURLOPT_SSLVERSION, CURL_SSLVERSION_TLSv1_2},
    {CURLOPT_SSL_OPTIONS, 0},
    {CURLOPT_HSTS_CTRL, 0},
    /* A byte in the SYN would leave before the gate. */
    {CURLOPT_TCP_FASTOPEN, 0},
    {CURLOPT_TCP_NODELAY, 1},
    {CURLOPT_TCP_KEEPALIVE, 1},
    /* The answer is kept as the bytes that came. */
    {CURLOPT_HTTP_CONTENT_DECODING, 0},
    {CURLOPT_HTTP_TRANSFER_DECODING, 1},
    {CURLOPT_IGNORE_CONTENT_LENGTH, 0},
    {CURLOPT_FAILONERROR, 0},
    {CURLOPT_KEEP_SENDING_ON_ERROR, 0},
    {CURLOPT_HEADER, 0},
    {CURLOPT_NOSIGNAL, 1},
    {CURLOPT_NOPROGRESS, 1},
    {CURLOPT_PIPEWAIT, 0},
    /* Without it a handle that is given up waits for a resolver thread, and its loop with it. */
    {CURLOPT_QUICK_EXIT, 1},
    {CURLOPT_DNS_CACHE_TIMEOUT, 60},
    {CURLOPT_MAXAGE_CONN, 60},
};

static bool set_failed(struct error *err, CURLoption option, CURLcode code)
{
    return error_set(err, ERROR_INTERNAL, "libcurl refuses option %d: %s", (int)option,
                     curl_easy_strerror(code));
}

static bool set_long(CURL *easy, CURLoption option, long value, struct error *err)
{
    CURLcode code = curl_easy_setopt(easy, option, value);
    return code == CURLE_OK || set_failed(err, option, code);
}

static bool set_text(CURL *easy, CURLoption option, const char *value, struct error *err)
{
    CURLcode code = curl_easy_setopt(easy, option, value);
    return code == CURLE_OK || set_failed(err, option, code);
}

const char *easy_ca_file(void)
{
    const char *path = config_text("HOLDFAST_PROVIDER_CA_FILE");
    return path[0] != '\0' ? path : NULL;
}

bool easy_harden(CURL *easy, const char *ca_file, struct error *err)
{
    for (size_t i = 0; i < sizeof(fixed_options) / sizeof(fixed_options[0]); i++)
        if (!set_long(easy, fixed_options[i].option, fixed_options[i].value, err))
            return false;
    if (ca_file && !set_text(easy, CURLOPT_CAINFO, ca_file, err))
        return false;
    /* An empty proxy also switches off http_proxy and its relatives in the environment. */
    return set_text(easy, CURLOPT_PROXY, "", err) && set_text(easy, CURLOPT_NOPROXY, "*", err) &&
           set_text(easy, CURLOPT_REDIR_PROTOCOLS_STR, "https", err) &&
           set_text(easy, CURLOPT_USERAGENT, "Holdfast/" HOLDFAST_VERSION, err);
}

static void headers_add(struct easy_headers *headers, char *line)
{
    must(headers->count < sizeof(headers->nodes) / sizeof(headers->nodes[0]));
    struct curl_slist *node = &headers->nodes[headers->count];
    *node = (struct curl_slist){.data = line};
    if (headers->count > 0)
        headers->nodes[headers->count - 1].next = node;
    headers->count++;
}

/* The nodes are ours (libcurl only reads the list), so no copy of a secret is made here. */
static void headers_list(const struct filled *filled, struct easy_headers *headers)
{
    static char no_expect[] = "Expect:", no_type[] = "Content-Type:";
    bool typed = false;
    headers->count = 0;
    for (size_t i = 0; i < filled->header_count; i++) {
        typed = typed || strncasecmp(filled->headers[i].data, no_type, sizeof(no_type) - 1) == 0;
        headers_add(headers, filled->headers[i].data);
    }
    headers_add(headers, no_expect);
    if (!typed)
        headers_add(headers, no_type); /* else libcurl would call every body a form */
}

static bool set_method(CURL *easy, const struct filled *filled, struct error *err)
{
    const char *method = filled->method;
    if (strcmp(method, "GET") == 0)
        return set_long(easy, CURLOPT_HTTPGET, 1, err);
    if (strcmp(method, "HEAD") == 0)
        return set_long(easy, CURLOPT_NOBODY, 1, err);
    if (strcmp(method, "DELETE") == 0 && !filled->has_body)
        return set_long(easy, CURLOPT_HTTPGET, 1, err) &&
               set_text(easy, CURLOPT_CUSTOMREQUEST, method, err);
    CURLcode code =
        curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)filled->body.len);
    if (code != CURLE_OK)
        return set_failed(err, CURLOPT_POSTFIELDSIZE_LARGE, code);
    const char *body = filled->body.data ? filled->body.data : "";
    return set_long(easy, CURLOPT_POST, 1, err) && set_text(easy, CURLOPT_POSTFIELDS, body, err) &&
           (strcmp(method, "POST") == 0 || set_text(easy, CURLOPT_CUSTOMREQUEST, method, err));
}

bool easy_set_request(CURL *easy, const struct filled *filled, struct easy_headers *headers,
                      struct error *err)
{
    headers_list(filled, headers);
    CURLcode code = curl_easy_setopt(easy, CURLOPT_HTTPHEADER, &headers->nodes[0]);
    if (code != CURLE_OK)
        return set_failed(err, CURLOPT_HTTPHEADER, code);
    return set_text(easy, CURLOPT_PROTOCOLS_STR, filled->https ? "https" : "http", err) &&
           set_text(easy, CURLOPT_URL, filled->url.data, err) && set_method(easy, filled, err);
}
