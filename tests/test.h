/* What every cmocka program includes: cmocka wants these headers, in this order, before its own. */
#ifndef HOLDFAST_TEST_H
#define HOLDFAST_TEST_H

/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#endif
