/* A world that the launcher did not make is refused, ranks find their nodes, and an
 * abort ends all ranks with its code. The program runs itself in these roles. */
#include "base/sp_program.h"
#include "fixtures/test.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sp_machine.h"
#include "comm/sp_comm.h"
#include "comm/sp_launcher.h"
#include "comm/sp_world.h"
#include "comm/sp_world_internal.h"

/* Gives the exit status of `prefix PROGRAM role suffix`, a shell's line, in which
 * $MPIEXEC is the launcher and $PROGRAM this program. */
static int run_self(const char *prefix, const char *role, const char *suffix)
{
    char command[4600];

    snprintf(command, sizeof command, "%s \"$PROGRAM\" %s %s", prefix, role, suffix);
    return WEXITSTATUS(system(command));
}

TEST(several_single_ranks_are_refused)
{
    assert_int_equal(run_self("SLURM_NTASKS=3", "open", ""), SP_EUSAGE);
    assert_int_equal(run_self("SLURM_NTASKS=1", "open", ""), SP_OK);
    assert_int_equal(run_self("SLURM_NTASKS=3 PMI_SIZE=1", "open", ""), SP_OK);
    /* The batch script itself, and not srun, has started the program. */
    assert_int_equal(
        run_self("env -u SLURM_STEP_ID SLURM_NTASKS=3 SLURM_JOB_ID=1", "open", ""),
        SP_OK);
    assert_int_equal(
        run_self("SLURM_STEP_ID=0 SLURM_NTASKS=3 SLURM_JOB_ID=1", "open", ""),
        SP_EUSAGE);
    /* The step of an interactive allocation, whose tasks are yet to be started. */
    assert_int_equal(run_self("SLURM_STEP_ID=4294967290 SLURM_NTASKS=3 "
                              "SLURM_STEP_NUM_TASKS=1 SLURM_JOB_ID=1",
                              "open", ""),
                     SP_OK);
    /* A launcher of another MPI, whose words this MPI does not understand. */
    assert_int_equal(run_self("OMPI_COMM_WORLD_SIZE=2", "open", ""), SP_EUSAGE);
    assert_int_equal(run_self("OMPI_COMM_WORLD_SIZE=1", "open", ""), SP_OK);
}

/* As mpirun of Open MPI binds one rank, unless it is told how to. */
TEST(a_binding_that_nobody_asked_for_is_told)
{
#define BOUND                                                                          \
    " OMPI_MCA_orte_bound_at_launch=1 taskset -c "                                     \
    "$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//')"
    const char *told = "2>&1 | grep -q 'has bound the ranks of this node to 1 of its'";
    uint64_t set[SP_CORE_WORDS];

    if (sp_machine_cores(set) < 2 || sp_machine_core_quota() < 2)
        skip();
    assert_int_equal(
        run_self("env -u OMPI_MCA_hwloc_base_binding_policy" BOUND, "open", told), 0);
    assert_int_equal(
        run_self("OMPI_MCA_hwloc_base_binding_policy=core" BOUND, "open", told), 1);
}

TEST(a_wrong_number_of_ranks_is_told)
{
    const char *told = "2>&1 | grep -q 'SP_RANKS_PER_NODE=.*: expected a number'";

    assert_int_equal(run_self("SP_RANKS_PER_NODE=two", "open", told), 0);
    assert_int_equal(run_self("SP_RANKS_PER_NODE=-2", "open", told), 0);
    assert_int_equal(run_self("SP_RANKS_PER_NODE=2", "open", told), 1);
}

/* Other names than the machine's only have MPI asked, which knows where they are. */
TEST(ranks_of_one_machine_are_one_node)
{
    assert_int_equal(run_self("$MPIEXEC -n 4", "one-node", ""), 0);
    assert_int_equal(run_self("$MPIEXEC -n 1 env SLURMD_NODENAME=a \"$PROGRAM\" "
                              "one-node : -n 3 env SLURMD_NODENAME=b",
                              "one-node", ""),
                     0);
}

/* Hydra takes two addresses of this machine for two hosts, as it would take two
 * machines of the same name. */
TEST(hosts_of_the_launcher_are_nodes)
{
    char launch[200], ssh[] = "/tmp/sp-ssh-XXXXXX";
    const int fd = mkstemp(ssh);

    if (system("$MPIEXEC --version 2>/dev/null | grep -q HYDRA") == 0) {
        assert_true(fd >= 0 && fchmod(fd, 0700) == 0);
        dprintf(fd, "#!/bin/sh\n"
                    "while test \"${1#-}\" != \"$1\"; do shift; done\n"
                    "shift\nexec sh -c \"$*\"\n");
        close(fd);
        snprintf(launch, sizeof launch,
                 "$MPIEXEC -launcher ssh -launcher-exec %s -hosts "
                 "127.0.0.1:2,127.0.0.2:2 -n 4",
                 ssh);
        assert_int_equal(run_self(launch, "two-nodes", ""), 0);
    }
    unlink(ssh);
}

/* Plays a rank 0 that ends the start after the first of a process's two connections. */
static void end_between_connections(int listener)
{
    sp_launcher_world is;
    char line[SP_WORLD_LINE];
    const int fd = accept(listener, NULL, NULL);

    close(listener);
    if (fd < 0 || sp_launcher_find_world(&is) != SP_OK)
        _exit(1);
    snprintf(line, sizeof line, "sptrain-world 1 %llx\n",
             (unsigned long long)sp_world_run(&is));
    if (write(fd, line, strlen(line)) < 0 || read(fd, line, sizeof line) <= 0)
        _exit(2);
    usleep(100000); /* the second connection has been refused by then */
    _exit(write(fd, "end 2 the reason\n", 17) == 17 ? 0 : 3);
}

TEST(the_reason_arrives_between_two_connections)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    char port[16];
    pid_t child;
    int status;

    if (strstr(sp_comm_library(), "Open MPI"))
        skip();
    assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(listener, 4), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &bytes), 0);
    snprintf(port, sizeof port, "%d", ntohs(at.sin_port));
    setenv("RANK", "1", 1);
    setenv("WORLD_SIZE", "2", 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", port, 1);
    child = fork();
    if (child == 0)
        end_between_connections(listener);
    close(listener);
    assert_int_equal(sp_world_join(3), SP_EUSAGE);
    assert_string_equal(sp_error_last()->message, "the reason");
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    for (const char *const *name =
             (const char *const[]){"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
                                   NULL};
         *name; name++)
        unsetenv(*name);
}

TEST(abort_ends_all_ranks_with_its_code)
{
    const char *launch = "$MPIEXEC -n 3";
    int code = 1;

    assert_int_equal(run_self(launch, "abort", "2>/dev/null | grep -q '^last words$'"),
                     0);
    /* MPICH's launcher says 1 where it has collected the status before it has seen the
     * rank's connection closed, which is rare (is_forgotten in tests/fixtures/program.sh). */
    for (int i = 0; i < 3 && code == 1; i++)
        code = run_self(launch, "abort", ">/dev/null 2>&1");
    assert_int_equal(code, SP_EDATA);
}

TEST(abort_without_mpi_exits)
{
    assert_int_equal(run_self("", "abort-self", ">/dev/null"), SP_EIO);
}

/* True if the ranks are dealt to n nodes of the same size in their order. */
static bool is_placed(const sp_comm *comm, int n)
{
    const int each = comm->size / n;

    return comm->n_nodes == n && comm->node == comm->rank / each &&
           comm->local_size == each && comm->local_rank == comm->rank % each &&
           comm->node_of_rank[comm->size - 1] == n - 1 &&
           comm->is_oversubscribed == (each > comm->node_cores);
}

static int act(const char *role, int argc, char **argv)
{
    CLOSED_BY(sp_comm_close) sp_comm comm;
    sp_status rc;

    if (strcmp(role, "abort-self") == 0) {
        sp_comm_open_self(&comm);
        sp_comm_abort(&comm, SP_EIO);
    }
    rc = sp_comm_open(&comm, &argc, &argv);
    if (rc == SP_EUSAGE &&
        !strstr(sp_error_last()->message,
                getenv("SLURM_NTASKS") ? "srun --mpi=pmi2" : "another MPI"))
        rc = SP_EDATA;
    if (strcmp(role, "abort") == 0 && comm.rank == 1) {
        printf("last words\n"); /* a pipe is buffered */
        sp_comm_abort(&comm, SP_EDATA);
    }
    if (strcmp(role, "abort") == 0)
        sp_comm_barrier(&comm); /* rank 0 never passes it */
    if (strcmp(role, "one-node") == 0 && !is_placed(&comm, 1))
        rc = SP_EMPI;
    if (strcmp(role, "two-nodes") == 0 && !is_placed(&comm, 2))
        rc = SP_EMPI;
    return (int)rc;
}

int main(int argc, char **argv)
{
    char own_path[4096] = "";

    sp_program_begin("sptrain");
    if (argc == 2)
        return act(argv[1], argc, argv);
    if (readlink("/proc/self/exe", own_path, sizeof own_path - 1) < 0)
        return 1;
    setenv("PROGRAM", own_path, 1);
    return run_all_tests();
}
