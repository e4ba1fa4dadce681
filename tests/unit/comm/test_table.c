/* Tables of named numbers, and records of any length, come together from all ranks,
 * some of which have none. */
#include "fixtures/test.h"

#include "base/sp_exact.h"
#include "comm/sp_records.h"
#include "comm/sp_table.h"

ON_RANKS(comm)
static const char *const names[] = {"all", "some", "none", "odd", "broken"};
enum { ALL, SOME, NONE, ODD, BROKEN, N_ROWS };

/* Rank r has the values 0.1 * i for i = r, r + P, ...: on any number of ranks these are
 * the same 30 values. */
static void fill(sp_table *t)
{
    for (int i = comm.rank; i < 30; i += comm.size)
        sp_table_add(t, ALL, 0.1 * i);
    if (comm.rank == comm.size - 1) {
        sp_table_add(t, SOME, -2.5);
        sp_table_add(t, SOME, 7);
    }
    sp_table_add(t, ODD, comm.rank % 2 ? 4 : 5);
    if (comm.rank == 0)
        sp_table_add(t, BROKEN, NAN);
    sp_table_add(t, BROKEN, 1);
}

TEST(rows_are_those_of_all_ranks)
{
    const int last = comm.size - 1;
    double sum = 0;
    CLOSED_BY(sp_table_destroy) sp_table t;

    for (int i = 0; i < 30; i++)
        sum += 0.1 * i;
    OK(sp_table_create(&t, &comm, N_ROWS, names));
    for (int round = 0; round < 2; round++) {
        sp_table_zero(&t);
        fill(&t);
        OK(sp_table_reduce(&t));
        assert_string_equal(t.row[ALL].name, "all");
        assert_int_equal(t.row[ALL].count, 30);
        assert_true(fabs(t.row[ALL].sum - sum) < 1e-12);
        assert_true(t.row[ALL].min == 0 && t.row[ALL].max == 0.1 * 29);
        assert_int_equal(t.row[ALL].min_rank, 0);
        assert_int_equal(t.row[ALL].max_rank, 29 % comm.size);
        assert_true(t.row[SOME].count == 2 && t.row[SOME].sum == 4.5);
        assert_true(t.row[SOME].min == -2.5 && t.row[SOME].max == 7);
        assert_true(t.row[SOME].min_rank == last && t.row[SOME].max_rank == last);
        assert_true(t.row[NONE].count == 0 && t.row[NONE].sum == 0);
        assert_true(isnan(t.row[NONE].min) && isnan(t.row[NONE].max));
        assert_true(t.row[NONE].min_rank == -1);
        assert_true(t.row[ODD].max == 5 && t.row[ODD].max_rank == 0);
        assert_true(t.row[ODD].min == (comm.size > 1 ? 4 : 5));
        assert_int_equal(t.row[ODD].min_rank, comm.size > 1 ? 1 : 0);
        assert_true(isnan(t.row[BROKEN].sum) && t.row[BROKEN].max == 1);
        assert_int_equal(t.row[BROKEN].count, comm.size + 1);
        assert_int_equal(t.row[BROKEN].min_rank, 0); /* of equal ones the lowest */
        assert_int_equal(t.row[BROKEN].max_rank, 0);
    }
}

/* The results have the bits that one rank makes of all values. */
TEST(sums_do_not_depend_on_the_ranks)
{
    int64_t limbs[SP_EXACT_LIMBS] = {0};
    const char *one = "x";
    double expected;
    CLOSED_BY(sp_table_destroy) sp_table t;

    OK(sp_table_create(&t, &comm, 1, &one));
    for (int i = 0; i < 1000; i++) {
        double x = 1.0 / (i + 3);

        sp_exact_add_f64(limbs, &x, 1);
        if (i % comm.size == comm.rank)
            sp_table_add(&t, 0, x);
    }
    sp_exact_get_f64(limbs, &expected, 1);
    OK(sp_table_reduce(&t));
    assert_true(t.row[0].sum == expected);
}

TEST(other_rows_are_refused)
{
    const char *other[] = {comm.rank == 0 ? "a" : "b"};
    sp_table t;

    if (comm.size == 1)
        return;
    assert_int_equal(sp_table_create(&t, &comm, 1, other), SP_EMPI);
    sp_table_destroy(&t);
}

/* Rank r gives r records of 5 r, 5 r + 1, ... bytes, so that rank 0 gives none. */
TEST(records_of_any_length_arrive_in_order)
{
    CLOSED_BY(sp_records_destroy) sp_records all = {0};
    unsigned char *record;
    size_t bytes;

    for (int round = 0; round < 3; round++) {
        const int root = round % comm.size;

        sp_records_clear(&all);
        for (int i = 0; i < comm.rank; i++) {
            OK(sp_records_add(&all, (size_t)(5 * comm.rank + i), (void **)&record));
            memset(record, 16 * comm.rank + i, (size_t)(5 * comm.rank + i));
        }
        OK(sp_records_gather(&all, &comm, root));
        for (int r = 0; comm.rank == root && r < comm.size; r++)
            for (int i = 0; i < r; i++) {
                record = sp_records_next(&all, &bytes);
                assert_non_null(record);
                assert_int_equal(bytes, 5 * r + i);
                assert_int_equal((uintptr_t)record % 8, 0);
                for (size_t b = 0; b < bytes; b++)
                    assert_int_equal(record[b], 16 * r + i);
            }
        assert_null(sp_records_next(&all, NULL));
    }
}

TEST(an_empty_record_is_a_record)
{
    CLOSED_BY(sp_records_destroy) sp_records all = {0};
    void *record;
    size_t bytes;

    OK(sp_records_add(&all, 0, &record));
    OK(sp_records_gather(&all, &comm, 0));
    for (int r = 0; comm.rank == 0 && r < comm.size; r++) {
        assert_non_null(sp_records_next(&all, &bytes));
        assert_int_equal(bytes, 0);
    }
    assert_null(sp_records_next(&all, NULL));
}
