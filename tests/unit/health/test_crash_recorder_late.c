/* A crash recorder that wakes late still tells who died, although the launcher has
 * killed all ranks meanwhile. The program runs itself under the launcher; its crash
 * recorder sleeps first, as on a machine with much else to do. */
#include "base/sp_program.h"
#include "fixtures/test.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "health/sp_crash_recorder.h"
#include "run/sp_run.h"

enum { RANKS = 3, VICTIM = 1, LATE_S = 2, PATIENCE_S = 1000 };

static char dir[80], own_path[4096];

/* Runs ranks in this role, of which one is killed, and reads the status of their task,
 * which tells who. The crash recorder may end after the launcher. */
static void lose_a_rank(const char *role, sp_run_state *s)
{
    const char *task = strcmp(role, "eval") == 0 ? role : "";
    const struct timespec nap = {0, 20000000};
    char command[9000];
    int code;

    snprintf(command, sizeof command, "%s -n %d '%s' %s %s >'%s.out' 2>&1",
             getenv("MPIEXEC") ? getenv("MPIEXEC") : "mpiexec", RANKS, own_path, role,
             dir, dir);
    code = system(command);
    assert_int_not_equal(code, 0);
    OK(sp_run_read_state(dir, task, s));
    for (int i = 0; i < 50 * PATIENCE_S && strcmp(s->state, "failed") != 0; i++) {
        nanosleep(&nap, NULL);
        OK(sp_run_read_state(dir, task, s));
    }
    assert_string_equal(s->state, "failed");
    assert_int_equal(s->rank, VICTIM);
}

TEST(a_late_crash_recorder_outlives_the_ranks)
{
    sp_run_state s;

    lose_a_rank("train", &s);
    assert_int_equal(s.exit_code, SP_EMPI);
    assert_string_equal(s.phase, "forward");
}

/* An earlier start says "stopped", which a script would take for this start's end. */
TEST(a_start_lost_before_its_first_status_has_one)
{
    const sp_heartbeat earlier = {.pid = 1, .host = "earlier"};
    sp_run_state s;

    OK(sp_run_write_status(dir, "", 0, &earlier, "stopped", SP_ELIMIT, ""));
    lose_a_rank("early", &s);
    assert_int_equal(s.exit_code, SP_EMPI);
}

/* Ranks in a container may have the host and pids of those of an earlier start. */
TEST(a_status_of_another_task_with_these_pids_explains_nothing)
{
    sp_run_state s;

    lose_a_rank("eval", &s);
    OK(sp_run_read_state(dir, "", &s));
    assert_string_equal(s.state, "done");
}

/* A rank: the victim dies once the status says that the run is running, or before that
 * as "early"; the others wait for the launcher. */
static int be_rank(const char *role, sp_comm *comm)
{
    sp_crash_recorder *recorder;
    sp_run run;

    OK(sp_run_open(&run, dir, comm));
    if (strcmp(role, "eval") == 0) { /* as if a training had had these pids */
        if (comm->rank == 0)
            OK(sp_run_status(&run, "done", SP_OK, 0, 0, ""));
        run.task = "eval";
    }
    OK(sp_crash_recorder_start(&recorder, &run));
    if (comm->rank == 0 && strcmp(role, "early") != 0)
        OK(sp_run_status(&run, "running", SP_OK, 0, 0, ""));
    sp_run_beat(&run, SP_PHASE_FORWARD, 0, 1);
    OK(sp_comm_barrier(comm));
    if (comm->rank == VICTIM)
        raise(SIGKILL);
    sleep(PATIENCE_S);
    return 0;
}

/* PROGRAM: the tests. PROGRAM ROLE DIR: a rank. All else: a crash recorder. */
int main(int argc, char **argv)
{
    sp_comm comm;

    sp_program_begin("sptrain");
    if (argc > 3)
        sleep(LATE_S);
    sp_crash_recorder_main(argc, argv);
    if (argc == 3) {
        snprintf(dir, sizeof dir, "%s", argv[2]);
        OK(sp_comm_open(&comm, &argc, &argv));
        return be_rank(argv[1], &comm);
    }
    if (readlink("/proc/self/exe", own_path, sizeof own_path - 1) < 0)
        return 1;
    snprintf(dir, sizeof dir, "%s/run", test_folder());
    return run_all_tests();
}
