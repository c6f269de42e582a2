/* Checked arithmetic on amounts in minor units. */
#include "common/base/money.h"

#include <stddef.h>

bool money_add(int64_t a, int64_t b, int64_t *out)
{
    int64_t sum;
    if (a < 0 || b < 0 || __builtin_add_overflow(a, b, &sum) || sum > MONEY_MAX)
        return false;
    *out = sum;
    return true;
}

bool money_multiply(int64_t a, int64_t b, int64_t *out)
{
    int64_t product;
    if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &product) || product > MONEY_MAX)
        return false;
    *out = product;
    return true;
}

bool money_currency_valid(const char *code)
{
    if (!code)
        return false;
    for (size_t i = 0; i < 3; i++)
        if (code[i] < 'a' || code[i] > 'z')
            return false;
    return code[3] == '\0';
}
