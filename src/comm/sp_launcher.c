#include "comm/sp_launcher.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "config.h"

static const char *variable_text(const char *name)
{
    const char *text = getenv(name);

    return text ? text : "";
}

/* Returns the number in a variable; -1: it is not set, or is no number. */
static int variable_number(const char *name)
{
    const char *text = variable_text(name);
    char *end;
    long n;

    errno = 0;
    n = strtol(text, &end, 10);
    return !*text || *end || errno || n < 0 || n > INT_MAX ? -1 : (int)n;
}

/* ---- launchers of MPI ---- */

/* True if a process manager of MPI waits at the other end. A process in between, such
 * as torchrun under srun, hands its own variables on and has closed the socket. */
static bool has_pmi(void)
{
    const int fd = variable_number("PMI_FD");
    struct stat of;

    return *variable_text("PMI_PORT") ||
           (fd >= 0 && fstat(fd, &of) == 0 && S_ISSOCK(of.st_mode));
}

/* The number of ranks that a launcher of any MPI says it has started; -1: there is no
 * launcher. */
static int launcher_size(void)
{
    static const char *const names[] = {"PMI_SIZE", "OMPI_COMM_WORLD_SIZE",
                                        "MV2_COMM_WORLD_SIZE"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (variable_number(names[i]) >= 0)
            return variable_number(names[i]);
    return -1;
}

static bool has_launcher(void)
{
    if (has_pmi())
        return true;
    return !*variable_text("TORCHELASTIC_RUN_ID") && !*variable_text("PMI_FD") &&
           (launcher_size() > 0 || *variable_text("PMIX_RANK"));
}

/* ---- torchrun ---- */

/* True if RANK, without WORLD_SIZE, can only be one of several processes: each of them
 * would be a world of its own. */
static bool is_rank_of_several(void)
{
    const int rank = variable_number("RANK");

    return rank > 0 || (rank == 0 && (*variable_text("MASTER_ADDR") ||
                                      *variable_text("MASTER_PORT")));
}

sp_status sp_launcher_find_world(sp_launcher_world *world)
{
    static const char *const names[] = {"RANK", "MASTER_ADDR", "MASTER_PORT"};
    const char *size = variable_text("WORLD_SIZE");
    const int n = variable_number("WORLD_SIZE");

    *world =
        (sp_launcher_world){.host = variable_text("MASTER_ADDR"),
                            .run = variable_text("TORCHELASTIC_RUN_ID"),
                            .attempt = variable_text("TORCHELASTIC_RESTART_COUNT")};
    if (has_launcher())
        return SP_OK;
    if (!*size && is_rank_of_several())
        return SP_FAIL(
            SP_EUSAGE,
            "RANK=%s announces several processes, but WORLD_SIZE is not set: "
            "set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in each, start "
            "with mpirun, or unset RANK",
            variable_text("RANK"));
    if (!*size || ((n == 0 || n == 1) && variable_number("RANK") <= 0))
        return SP_OK;
    world->rank = variable_number("RANK");
    world->port = variable_number("MASTER_PORT");
    if (*variable_text("RANK") && (n < 0 || world->rank < 0 || world->rank >= n))
        return SP_FAIL(SP_EUSAGE,
                       "RANK=%s, WORLD_SIZE=%s: expected a number of processes, and "
                       "ranks from 0 to one less than it",
                       variable_text("RANK"), size);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!*variable_text(names[i]))
            return SP_FAIL(SP_EUSAGE,
                           "WORLD_SIZE=%s announces several processes, but %s is not "
                           "set: set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in "
                           "each, start with mpirun, or unset WORLD_SIZE",
                           size, names[i]);
    if (world->port < 1 || world->port > 65535)
        return SP_FAIL(SP_EUSAGE, "MASTER_PORT=%s: expected a port, 1 to 65535",
                       variable_text("MASTER_PORT"));
    world->has_agent =
        strcmp(variable_text("TORCHELASTIC_USE_AGENT_STORE"), "True") == 0;
    world->size = n;
    return SP_OK;
}

int sp_launcher_rank(void)
{
    const int rank = variable_number("RANK"), size = variable_number("WORLD_SIZE");

    return size > 1 && rank > 0 && rank < size && !has_launcher() ? rank : 0;
}

bool sp_launcher_is_task(void)
{
    return has_launcher() || launcher_size() > 0 || variable_number("WORLD_SIZE") > 1;
}

/* ---- tasks of schedulers ---- */

static bool is_slurm_task(void)
{
    /* The batch script itself, and not srun, has started the program, intentionally
     * once. The job then has a number, but no step. */
    return *variable_text("SLURM_STEP_ID") || !*variable_text("SLURM_JOB_ID");
}

/* How many tasks Slurm has started in this step. In the step of an interactive
 * allocation SLURM_NTASKS is the whole job's number, which is yet to be started. */
static int slurm_tasks(void)
{
    const int step = variable_number("SLURM_STEP_NUM_TASKS");

    if (!is_slurm_task())
        return -1;
    return step >= 0 ? step : variable_number("SLURM_NTASKS");
}

static int flux_tasks(void)
{
    return variable_number("FLUX_JOB_SIZE");
}

static int jsrun_tasks(void)
{
    return variable_number("JSM_NAMESPACE_SIZE");
}

/* PBS numbers the processes of a job; the first one is the batch script. */
static int pbs_tasks(void)
{
    return *variable_text("PBS_JOBID") && variable_number("PBS_TASKNUM") > 1 ? INT_MAX
                                                                             : -1;
}

/* PMIx has no variable for the number of ranks. Open MPI speaks PMIx, so it knows. */
static int pmix_tasks(void)
{
    return *variable_text("PMIX_RANK") && !SP_IS_OPENMPI ? INT_MAX : -1;
}

static int torchrun_tasks(void)
{
    return variable_number("WORLD_SIZE");
}

/* Launchers with a number come first: their 1 also holds for those without one. */
static const struct {
    const char *name;
    int (*n_tasks)(void); /* -1: it has started nothing; INT_MAX: number not known */
    const char *advice;
} schedulers[] = {
    {"Slurm", slurm_tasks,
     "start with `srun --mpi=pmi2` (Open MPI: --mpi=pmix), or with mpirun inside the "
     "allocation"},
    {"Flux", flux_tasks, "start with `flux run -o pmi=simple` (Open MPI: -o pmi=pmix)"},
    {"jsrun", jsrun_tasks, "start with the mpirun of the program's MPI"},
    {"PMIx", pmix_tasks, "start with the mpirun of the program's MPI"},
    {"PBS", pbs_tasks, "start with mpirun instead of pbsdsh"},
    {"torchrun", torchrun_tasks,
     "start with mpirun: this MPI makes no world of such processes"},
};

sp_status sp_launcher_check(int world_size)
{
    const int started = launcher_size();

    if (world_size > 1)
        return SP_OK;
    if (started > 1)
        return SP_FAIL(SP_EUSAGE,
                       "the launcher started %d ranks, but MPI sees a world of one: "
                       "it belongs to another MPI than the program; start with the "
                       "mpiexec of the MPI that configure found (the MPICH of Ubuntu "
                       "24.04 has no launcher that works: use Open MPI there)",
                       started);
    if (started >= 0)
        return SP_OK;
    for (size_t i = 0; i < sizeof schedulers / sizeof *schedulers; i++) {
        const int n = schedulers[i].n_tasks();
        char number[16] = "several";

        if (n < 0)
            continue;
        if (n <= 1)
            return SP_OK;
        if (n < INT_MAX)
            snprintf(number, sizeof number, "%d", n);
        return SP_FAIL(SP_EUSAGE,
                       "%s started %s tasks, but MPI sees a world of one: %s",
                       schedulers[i].name, number, schedulers[i].advice);
    }
    return SP_OK;
}

/* ---- allocations ---- */

/* Counts the lines of a file of hosts that differ from the line before, or, with their
 * numbers ("a slots=4", "a:4"), the ranks that fit on them. 0: no such file. */
static int hosts_in_file(const char *path, bool is_ranks)
{
    char line[512], last[512] = "";
    FILE *file = *path ? fopen(path, "re") : NULL;
    int n = 0;

    while (file && fgets(line, sizeof line, file)) {
        const char *number = strpbrk(line, "=:");
        const int ranks = number ? atoi(number + 1) : 1;

        line[strcspn(line, " \t:\n")] = 0;
        if (!*line || *line == '#')
            continue;
        if (is_ranks)
            n += ranks > 0 ? ranks : 1;
        else
            n += strcmp(line, last) != 0;
        memcpy(last, line, sizeof last);
    }
    if (file)
        fclose(file);
    return n;
}

/* Counts LSF's words "host number host number". */
static int lsf_hosts(void)
{
    const char *at = variable_text("LSB_MCPU_HOSTS");
    int n_words = 0;

    for (at += strspn(at, " "); *at; at += strspn(at, " ")) {
        n_words++;
        at += strcspn(at, " ");
    }
    return n_words / 2;
}

/* The job's nodes, unless srun has started this one task. An interactive allocation
 * runs its shell in a step with this number. */
static int slurm_nodes(void)
{
    const char *step = variable_text("SLURM_STEP_ID");

    return !*step || strcmp(step, "4294967290") == 0
               ? variable_number("SLURM_JOB_NUM_NODES")
               : 1;
}

/* The launcher of the MPI Operator has a file of its workers. Its workers start
 * nothing by themselves. */
static int operator_ranks(void)
{
    const char *role = variable_text("K8S_MPI_JOB_ROLE");
    const char *path = variable_text("HYDRA_HOST_FILE");

    if (!*path)
        path = variable_text("I_MPI_HYDRA_HOST_FILE");
    if (!*path)
        path = variable_text("OMPI_MCA_orte_default_hostfile");
    if (strcmp(role, "worker") == 0)
        return INT_MAX;
    return strcmp(role, "launcher") == 0 ? hosts_in_file(path, true) : 0;
}

sp_status sp_launcher_check_hosts(int world_size)
{
    const struct {
        const char *name;
        int n;
    } given[] = {
        {"LSF gave this job several hosts", lsf_hosts()},
        {"PBS gave this job several hosts",
         hosts_in_file(variable_text("PBS_NODEFILE"), false)},
        {"Grid Engine gave this job several hosts", variable_number("NHOSTS")},
        {"Slurm gave this job several nodes", slurm_nodes()},
        {"the MPI Operator has workers for several ranks", operator_ranks()},
    };

    if (world_size > 1 || launcher_size() >= 0)
        return SP_OK;
    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        if (given[i].n > 1)
            return SP_FAIL(
                SP_EUSAGE,
                "%s, but one process was started without a launcher, which would train "
                "alone: start with mpirun or srun (mpirun -n 1 for one rank)",
                given[i].name);
    return SP_OK;
}
