/* What keeps the secrets in a process from being left behind or looked at from outside it. */
#ifndef HOLDFAST_HARDEN_H
#define HOLDFAST_HARDEN_H

#include <stddef.h>

/* First thing in main, before OpenSSL, jansson or libcurl have allocated anything: their memory is
 * overwritten when it is freed. */
void harden_memory(void);
/* No core dump, and none of the user's other processes may attach or read the memory; unless
 * HOLDFAST_CORE_DUMPS is on. After config_load. */
void harden_process(void);

/* For libraries that take allocators: as free and realloc, but what is given back is overwritten.
 */
void wiping_free(void *block);
void *wiping_realloc(void *block, size_t size);

#endif
