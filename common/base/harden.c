/* Memory that is overwritten when freed, and a process that leaves no dump. */
#include "common/base/harden.h"

#include "common/base/config.h"

#include <jansson.h>
#include <malloc.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

void wiping_free(void *block)
{
    if (block != NULL)
        OPENSSL_cleanse(block, malloc_usable_size(block));
    free(block);
}

void *wiping_realloc(void *block, size_t size)
{
    if (block == NULL)
        return malloc(size);
    size_t had = malloc_usable_size(block);
    if (size <= had && size >= had / 2)
        return block;
    void *moved = malloc(size);
    if (moved == NULL)
        return NULL;
    memcpy(moved, block, had < size ? had : size);
    wiping_free(block);
    return moved;
}

static void *openssl_malloc(size_t size, const char *file, int line)
{
    (void)file;
    (void)line;
    return malloc(size);
}

static void *openssl_realloc(void *block, size_t size, const char *file, int line)
{
    (void)file;
    (void)line;
    if (size > 0)
        return wiping_realloc(block, size);
    wiping_free(block);
    return NULL;
}

static void openssl_free(void *block, const char *file, int line)
{
    (void)file;
    (void)line;
    wiping_free(block);
}

void harden_memory(void)
{
    /* Refused when something was allocated before: then its memory is only not overwritten. */
    (void)CRYPTO_set_mem_functions(openssl_malloc, openssl_realloc, openssl_free);
    json_set_alloc_funcs(malloc, wiping_free);
}

/* The leak checker of AddressSanitizer attaches to its own process. */
static bool dumps_allowed(void)
{
#if defined(__SANITIZE_ADDRESS__)
    return true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
    return true;
#endif
#endif
    return config_bool("HOLDFAST_CORE_DUMPS");
}

void harden_process(void)
{
    struct rlimit none = {0, 0};
    if (dumps_allowed())
        return;
    must(setrlimit(RLIMIT_CORE, &none) == 0);
    must(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0);
}
