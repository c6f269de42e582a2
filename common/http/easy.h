/* The one place that sets options of libcurl: everything that libcurl would do by itself with a
 * request (redirect, authenticate, re-send, upgrade, use a proxy) is switched off here. */
#ifndef HOLDFAST_EASY_H
#define HOLDFAST_EASY_H

#include "common/base/error.h"
#include "common/http/fill.h"

#include <curl/curl.h>
#include <stdbool.h>

/* The list nodes that a handle points to while it runs; they borrow the filled request's lines. */
struct easy_headers {
    struct curl_slist nodes[REQUEST_HEADERS_MAX + 2];
    size_t count;
};

/* HOLDFAST_PROVIDER_CA_FILE, or NULL for the system's CAs. */
const char *easy_ca_file(void);

/* Sets every fixed option on a handle that is new or was just reset. `ca_file`: PEM file of trusted
 * roots, NULL for the system's. False with err when libcurl lacks one of them. */
bool easy_harden(CURL *easy, const char *ca_file, struct error *err);

/* Sets what this request needs: protocol, URL, method, headers, body. `filled` and `headers` must
 * live until the handle is reset. */
bool easy_set_request(CURL *easy, const struct filled *filled, struct easy_headers *headers,
                      struct error *err);

#endif
