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

TEST(message_and_trace)
{
    assert_int_equal(outer(), SP_EDATA);
    assert_string_equal(sp_error_last()->message, "file.h5: bad 7");
    assert_non_null(strstr(sp_error_last()->trace, " inner < "));
    assert_non_null(strstr(sp_error_last()->trace, " outer"));
    assert_false(sp_error_last()->is_internal);
}

static sp_status without_message(void)
{
    SP_TRY(SP_ENUMERIC);
    return SP_OK;
}

TEST(a_fault_of_the_program_is_marked)
{
    assert_int_equal(SP_FAIL_INTERNAL(SP_EMPI, "rank %d", 3), SP_EMPI);
    assert_true(sp_error_last()->is_internal);
    assert_string_equal(sp_error_last()->message, "rank 3");
    outer();
    assert_false(sp_error_last()->is_internal);
    assert_int_equal(without_message(), SP_ENUMERIC);
    assert_true(sp_error_last()->is_internal);
}

TEST(record_travels_between_threads)
{
    sp_error_record copy;

    outer();
    sp_error_save(&copy);
    SP_FAIL(SP_EIO, "other");
    assert_int_equal(sp_error_raise(&copy), SP_EDATA);
    assert_string_equal(sp_error_last()->message, "file.h5: bad 7");
}
