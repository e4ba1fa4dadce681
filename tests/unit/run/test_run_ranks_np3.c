/* All ranks share one run folder: each has its heartbeat, and a failure of rank 0 is a
 * failure of all. */
#include "fixtures/test.h"

#include <unistd.h>

#include "base/sp_file.h"
#include "run/sp_run.h"

ON_RANKS(comm)
static const char dir[] = "run", path[] = "run/heartbeat.bin";

TEST(every_rank_beats_in_one_file)
{
    sp_heartbeat *records;
    sp_run run;
    int n, first, last;

    OK(sp_run_open(&run, dir, &comm));
    sp_run_beat(&run, (sp_phase)(SP_PHASE_READ + comm.rank), 1, 10 + comm.rank);
    OK(sp_comm_barrier(&comm));
    OK(sp_heartbeat_read(path, &records, &n));
    assert_int_equal(n, comm.size);
    for (int r = 0; r < n; r++) {
        assert_int_equal(records[r].phase, SP_PHASE_READ + r);
        assert_int_equal(records[r].step, 10 + r);
        assert_string_equal(records[r].host, comm.host);
        assert_int_equal(records[r].counter, 2);
        assert_string_equal(sp_heartbeat_process(&records[r]), "");
    }
    assert_int_equal(records[comm.rank].pid, getpid());
    sp_heartbeat_ends(records, n, &first, &last);
    assert_true(records[first].time <= records[last].time);
    free(records);
    OK(sp_comm_barrier(&comm));
    sp_run_close(&run);
    OK(sp_comm_barrier(&comm));
}

TEST(set_aside_takes_every_rank_along)
{
    sp_heartbeat *records;
    sp_run run;
    int n;

    OK(sp_run_open(&run, dir, &comm));
    OK(sp_run_event(&run, "{}", NULL));
    OK(sp_run_set_aside(&run));
    sp_run_beat(&run, SP_PHASE_SAVE, 5, 50 + comm.rank);
    OK(sp_comm_barrier(&comm));
    OK(sp_heartbeat_read(path, &records, &n));
    for (int r = 0; r < n; r++)
        assert_int_equal(records[r].step, 50 + r);
    free(records);
    OK(sp_comm_barrier(&comm));
    sp_run_close(&run);
    OK(sp_comm_barrier(&comm));
}

TEST(the_rank_that_failed_may_say_so)
{
    sp_run run;
    sp_run_state s;

    OK(sp_run_open(&run, dir, &comm));
    if (comm.rank == 2)
        OK(sp_run_status(&run, "failed", SP_EDEVICE, 1, 2, "gone"));
    OK(sp_comm_barrier(&comm));
    OK(sp_run_read_state(dir, "", &s));
    assert_int_equal(s.rank, 2);
    assert_int_equal(s.exit_code, SP_EDEVICE);
    OK(sp_comm_barrier(&comm));
    sp_run_close(&run);
    OK(sp_comm_barrier(&comm));
}

TEST(a_folder_that_cannot_be_made_fails_on_all)
{
    CLOSED_BY(sp_run_close) sp_run run;

    FAILS(sp_run_open(&run, "/proc/no-such", &comm), SP_EIO, "/proc/no-such");
}
