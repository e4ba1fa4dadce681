/* Records of any length come together from all ranks, some of which have none. */
#include "fixtures/test.h"

#include "comm/sp_gather_buffer.h"

ON_RANKS(comm)

/* Rank r gives r records of 5 r, 5 r + 1, ... bytes, so that rank 0 gives none. */
TEST(records_of_any_length_arrive_in_order)
{
    CLOSED_BY(sp_gather_buffer_destroy) sp_gather_buffer all = {0};
    unsigned char *record;
    size_t bytes;

    for (int round = 0; round < 3; round++) {
        sp_gather_buffer_clear(&all);
        for (int i = 0; i < comm.rank; i++) {
            OK(sp_gather_buffer_add(&all, (size_t)(5 * comm.rank + i),
                                    (void **)&record));
            memset(record, 16 * comm.rank + i, (size_t)(5 * comm.rank + i));
        }
        OK(sp_gather_buffer_gather(&all, &comm));
        for (int r = 0; comm.rank == 0 && r < comm.size; r++)
            for (int i = 0; i < r; i++) {
                record = sp_gather_buffer_next(&all, &bytes);
                assert_non_null(record);
                assert_int_equal(bytes, 5 * r + i);
                assert_int_equal((uintptr_t)record % 8, 0);
                for (size_t b = 0; b < bytes; b++)
                    assert_int_equal(record[b], 16 * r + i);
            }
        assert_null(sp_gather_buffer_next(&all, NULL));
    }
}

TEST(an_empty_record_is_a_record)
{
    CLOSED_BY(sp_gather_buffer_destroy) sp_gather_buffer all = {0};
    void *record;
    size_t bytes;

    OK(sp_gather_buffer_add(&all, 0, &record));
    OK(sp_gather_buffer_gather(&all, &comm));
    for (int r = 0; comm.rank == 0 && r < comm.size; r++) {
        assert_non_null(sp_gather_buffer_next(&all, &bytes));
        assert_int_equal(bytes, 0);
    }
    assert_null(sp_gather_buffer_next(&all, NULL));
}
