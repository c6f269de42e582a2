/* Finds the secrets that a request was filled with in what the provider answered, and blots them
 * out before anything of the answer is stored, shown or logged.
 *
 * Found are a value as it is, and as JSON (\u002f, \/, also escaped twice), a URL (%2F) or HTML
 * (&#x2f;) spell it; in base64 of any text that holds it (as Basic credentials); in hexadecimal;
 * the two halves of "user:password", plain or in base64; what follows "Bearer " and the like; each
 * long line of one with several lines; and the beginning of one where the answer was cut off.
 * Not found is what the provider transforms otherwise (hashed, encrypted, compressed, another
 * character set), shows in part, or what is shorter than MASK_LEAST bytes. */
#ifndef HOLDFAST_MASK_H
#define HOLDFAST_MASK_H

#include "common/base/buf.h"

#include <stdbool.h>
#include <stddef.h>

/* Shorter texts stand in too many answers by chance. */
#define MASK_LEAST 6

struct mask; /* the texts to look for; one thread at a time */

struct mask *mask_new(void);       /* NULL: out of memory */
void mask_free(struct mask *mask); /* overwrites; NULL is fine */

/* Adds a secret under its name (both borrowed for the call). False: out of memory. */
bool mask_add(struct mask *mask, const char *name, const char *value, size_t len);

/* Replaces what is found by "[masked NAME]". `cut`: the text may end in the middle of a secret.
 * Returns how many places there were. When memory is out the whole text is dropped, never kept. */
size_t mask_buf(const struct mask *mask, struct buf *text, bool cut);
/* The same for a text in an array of `size` bytes; what gets too long is cut. */
size_t mask_text(const struct mask *mask, char *text, size_t size);

#endif
