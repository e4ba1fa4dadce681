/* Ranks open a data set together: the same index on all, or the same failure with one
 * message, also where the child that reads headers crashes or hangs. */
#include "fixtures/test.h"

#include <unistd.h>

#include "fixtures/shard_fixture.h"

ON_RANKS(comm)
static const int64_t sizes[] = {40, 0, 7};
static char pattern[] = "together-?.h5";

static sp_status open_together(sp_dataset *set)
{
    char *at[] = {pattern};
    sp_strings patterns = {1, at};

    return sp_dataset_open(set, &patterns, &comm);
}

static void write_files(void)
{
    fixture f = {.n_samples = 3, .voxels = sizes, .seed = 1, .has_points = true};

    if (comm.rank == 0) {
        OK(fixture_write(&f, "together-a.h5"));
        OK(fixture_write(&f, "together-b.h5"));
    }
    OK(sp_comm_barrier(&comm));
}

/* All ranks fail with the same status; the message is rank 0's and is recorded
 * there. */
static void refused(sp_status expected, const char *part)
{
    char message[SP_ERROR_MESSAGE];
    CLOSED_BY(sp_dataset_close) sp_dataset set;
    sp_status rc = open_together(&set), first = rc;

    assert_int_equal(rc, expected);
    snprintf(message, sizeof message, "%s", sp_error_last()->message);
    OK(sp_comm_bcast(&comm, &first, sizeof first, 0));
    OK(sp_comm_bcast(&comm, message, sizeof message, 0));
    assert_int_equal(rc, first);
    assert_string_equal(sp_error_last()->message, message);
    if (!strstr(message, "together-b.h5") || !strstr(message, part))
        fail_msg("message is \"%s\", expected \"%s\" in it", message, part);
}

TEST(ranks_hold_one_index)
{
    sp_sample_request all = {.verify = true, .with_points = true};
    CLOSED_BY(sp_dataset_close) sp_dataset set;
    CLOSED_BY(sp_sample_destroy) sp_sample got = {0};
    uint64_t hash;

    write_files();
    OK(open_together(&set));
    hash = set.hash;
    OK(sp_comm_bcast(&comm, &hash, sizeof hash, 0));
    assert_int_equal(hash, set.hash);
    assert_int_equal(set.n_samples, 6);
    for (int64_t i = 0; i < 6; i++) {
        OK(sp_sample_read(&set, i, &all, &got));
        assert_int_equal(got.n, sizes[i % 3]);
    }
}

/* What one rank writes into the index the other one reads. */
TEST(a_node_holds_one_index)
{
    CLOSED_BY(sp_dataset_close) sp_dataset set;

    write_files();
    OK(open_together(&set));
    assert_true(set.common.mapped > 0);
    OK(sp_comm_barrier(&comm));
    if (comm.rank == 0)
        set.rows->n[1] = 41;
    OK(sp_comm_barrier(&comm));
    assert_int_equal(set.rows->n[1], 41);
}

TEST(damage_fails_on_all)
{
    write_files();
    if (comm.rank == 0)
        assert_int_equal(truncate("together-b.h5", 600), 0);
    OK(sp_comm_barrier(&comm));
    refused(SP_EDATA, "together-b.h5");
}

TEST(crash_of_the_child_fails_on_all)
{
    write_files();
    setenv("SP_H5_CHILD_CRASH", "together-b", 1);
    refused(SP_EDATA, "damaged file (reader ended by signal 11)");
    unsetenv("SP_H5_CHILD_CRASH");
}

TEST(hang_of_the_child_fails_on_all)
{
    write_files();
    setenv("SP_H5_CHILD_HANG", "together-b", 1);
    refused(SP_EIO, "it could not be read: no progress for");
    unsetenv("SP_H5_CHILD_HANG");
}

TEST(a_child_killed_from_outside_blames_no_file)
{
    write_files();
    setenv("SP_H5_CHILD_KILL", "together-b", 1);
    refused(SP_EMEM,
            "together-b.h5: the process that reads it was killed from outside");
    unsetenv("SP_H5_CHILD_KILL");
}
