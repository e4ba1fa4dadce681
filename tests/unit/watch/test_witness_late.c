/* A witness that wakes late still tells who died, although the launcher has killed all
 * ranks meanwhile. The program runs itself under the launcher; its witness sleeps
 * first, as on a machine with much else to do. */
#include "config.h"

#include "fixtures/test.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "run/sp_run.h"
#include "watch/sp_witness.h"

enum { RANKS = 3, VICTIM = 1, LATE_S = 2, PATIENCE_S = 60 };

static char top[64] = "/tmp/sp-witness-XXXXXX", dir[80], own_path[4096];

/* Runs ranks of which one is killed. The witness may end after the launcher. */
static void lose_a_rank(sp_run_state *s)
{
    const struct timespec nap = {0, 20000000};
    char command[9000];
    int code;

    snprintf(command, sizeof command, "%s -n %d '%s' rank %s >'%s.out' 2>&1",
             getenv("MPIEXEC") ? getenv("MPIEXEC") : "mpiexec", RANKS, own_path, dir,
             dir);
    code = system(command);
    assert_int_not_equal(code, 0);
    OK(sp_run_read_state(dir, "", s));
    for (int i = 0; i < 50 * PATIENCE_S && strcmp(s->state, "running") == 0; i++) {
        nanosleep(&nap, NULL);
        OK(sp_run_read_state(dir, "", s));
    }
}

TEST(a_late_witness_outlives_the_ranks)
{
    sp_run_state s;

    lose_a_rank(&s);
    assert_string_equal(s.state, "failed");
    assert_int_equal(s.exit_code, SP_EMPI);
    assert_int_equal(s.rank, VICTIM);
    assert_string_equal(s.phase, "forward");
}

/* A rank: the victim dies once the status says that the run is running, the others wait
 * for the launcher. */
static int be_rank(int argc, char **argv)
{
    sp_witness witness = {0};
    sp_comm comm;
    sp_run run;

    OK(sp_comm_open(&comm, &argc, &argv));
    OK(sp_run_open(&run, argv[2], &comm));
    OK(sp_witness_start(&witness, &run));
    if (comm.rank == 0)
        OK(sp_run_status(&run, "running", SP_OK, 0, 0, ""));
    sp_run_beat(&run, SP_PHASE_FORWARD, 0, 1);
    OK(sp_comm_barrier(&comm));
    if (comm.rank == VICTIM)
        raise(SIGKILL);
    sleep(PATIENCE_S);
    return 0;
}

int main(int argc, char **argv)
{
    const bool is_rank = argc == 3 && strcmp(argv[1], "rank") == 0;
    char command[96];
    int n_failed;

    if (argc > 1 && !is_rank)
        sleep(LATE_S);
    sp_witness_main(argc, argv);
    if (is_rank)
        return be_rank(argc, argv);
    if (readlink("/proc/self/exe", own_path, sizeof own_path - 1) < 0 || !mkdtemp(top))
        return 1;
    snprintf(dir, sizeof dir, "%s/run", top);
    n_failed = run_all_tests(NULL, NULL);
    snprintf(command, sizeof command, "rm -rf %s", top);
    if (system(command) != 0)
        n_failed++;
    return n_failed;
}
