/* The error record names the innermost place and every caller on the way up. */
#include "fixtures/test.h"

#include "base/sp_error.h"

static sp_status inner(void)
{
    return SP_FAIL(SP_EDATA, "%s: bad %d", "file.h5", 7);
}

static sp_status outer(void)
{
    SP_TRY(inner());
    return SP_OK;
}

static void message_and_trace(void **state)
{
    (void)state;
    assert_int_equal(outer(), SP_EDATA);
    assert_string_equal(sp_error_last()->message, "file.h5: bad 7");
    assert_non_null(strstr(sp_error_last()->trace, " inner < "));
    assert_non_null(strstr(sp_error_last()->trace, " outer"));
}

static void record_travels_between_threads(void **state)
{
    sp_error_record copy;

    (void)state;
    outer();
    sp_error_save(&copy);
    SP_FAIL(SP_EIO, "other");
    assert_int_equal(sp_error_raise(&copy), SP_EDATA);
    assert_string_equal(sp_error_last()->message, "file.h5: bad 7");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(message_and_trace),
        cmocka_unit_test(record_travels_between_threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
