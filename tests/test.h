/* What every unit test includes. */
#ifndef TEST_H
#define TEST_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sp_error.h"

/* Fails with the error record's text, not only its number. */
#define OK(expr)                                                                       \
    do {                                                                               \
        sp_status ok_ = (expr);                                                        \
        if (ok_ != SP_OK)                                                              \
            fail_msg("%s: %s: %s\n  %s", #expr, sp_status_name(ok_),                   \
                     sp_error_last()->message, sp_error_last()->trace);                \
    } while (0)

#endif
