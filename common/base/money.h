/* Checked arithmetic on amounts in minor units. */
#ifndef HOLDFAST_MONEY_H
#define HOLDFAST_MONEY_H

#include <stdbool.h>
#include <stdint.h>

#define MONEY_MAX 9007199254740991LL /* 2^53-1 minor units: what a JSON reader can hold exactly */

/* *out = a + b (or a * b); false and *out untouched when either is negative or the result is past
 * MONEY_MAX. */
bool money_add(int64_t a, int64_t b, int64_t *out);
bool money_multiply(int64_t a, int64_t b, int64_t *out);
/* ISO 4217 code in lower case: three letters. Says nothing on whether it exists. */
bool money_currency_valid(const char *code);

#endif
