/* Finds the ranks of each node and their shared resources: cores and memory. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/sp_env.h"
#include "base/sp_log.h"
#include "base/sp_machine.h"
#include "comm/sp_comm.h"
#include "comm/sp_comm_internal.h"

/* Ranks that share cores with each other, or by SP_WAIT=sleep with other programs,
 * sleep while they wait. */
static void share_cores(sp_comm *comm, bool is_oversubscribed)
{
    const char *text = sp_env("SP_WAIT");

    comm->is_oversubscribed = is_oversubscribed;
    comm->is_sleeping = is_oversubscribed || (text && strcmp(text, "sleep") == 0);
}

/* Counts the cores of this node: the union over its ranks, which the launcher may have
 * bound to different ones. Called before SP_RANKS_PER_NODE divides nodes. */
static sp_status count_cores(sp_comm *comm)
{
    struct sp_comm_impl *impl = comm->impl;
    uint64_t set[SP_CORE_WORDS];
    int quota = sp_machine_core_quota(), n, ranks;

    sp_machine_cores(set);
    SP_MPI_WAIT(comm, Iallreduce(MPI_IN_PLACE, set, SP_CORE_WORDS, MPI_UINT64_T,
                                 MPI_BOR, impl->node, &request));
    n = sp_machine_count(set);
    comm->node_cores = n < quota ? n : quota;
    SP_MPI(Comm_size(impl->node, &ranks));
    share_cores(comm, ranks > comm->node_cores);
    return SP_OK;
}

/* Divides the node if SP_RANKS_PER_NODE (sp_comm.h) asks for it. */
static sp_status cut_node(const sp_comm *comm)
{
    struct sp_comm_impl *impl = comm->impl;
    const char *text = sp_env("SP_RANKS_PER_NODE");
    char *end = NULL;
    const long n = text ? strtol(text, &end, 10) : 0;
    const bool is_number = !text || (!*end && 0 <= n && n <= INT_MAX);
    int rank;
    MPI_Comm part;

    if (!is_number && comm->rank == 0)
        sp_log_warn("SP_RANKS_PER_NODE=%s: expected a number of ranks: no node is "
                    "divided",
                    text);
    if (!is_number || n == 0)
        return SP_OK;
    SP_MPI(Comm_rank(impl->node, &rank));
    SP_MPI(Comm_split(impl->node, rank / (int)n, rank, &part));
    SP_MPI(Comm_free(&impl->node));
    impl->node = part;
    return SP_OK;
}

/* Numbers the nodes: every rank contributes the lowest rank of its node, its leader,
 * and leaders in ascending order number the nodes. */
static sp_status number_nodes(sp_comm *comm)
{
    struct sp_comm_impl *impl = comm->impl;
    int leader = comm->rank, *leaders = impl->node_of_rank;

    SP_MPI_WAIT(comm, Ibcast(&leader, 1, MPI_INT, 0, impl->node, &request));
    SP_MPI_WAIT(comm, Iallgather(&leader, 1, MPI_INT, leaders, 1, MPI_INT, impl->world,
                                 &request));
    comm->n_nodes = 0;
    for (int r = 0; r < comm->size; r++) {
        /* a leader precedes its followers, so its own entry is its node's number by
         * then */
        leaders[r] = leaders[r] == r ? comm->n_nodes++ : leaders[leaders[r]];
    }
    comm->node_of_rank = leaders;
    comm->node = leaders[comm->rank];
    return SP_OK;
}

sp_status sp_comm_greatest_in_node(sp_comm *comm, int64_t *value, int n)
{
    SP_MPI_WAIT(comm, Iallreduce(MPI_IN_PLACE, value, n, MPI_INT64_T, MPI_MAX,
                                 comm->impl->node, &request));
    return SP_OK;
}

/* Opens the memory that the ranks of a node share, unless SP_NODE_MEMORY (sp_comm.h) is
 * 0. */
static sp_status share_memory(sp_comm *comm)
{
    const char *text = sp_env("SP_NODE_MEMORY");

    if (comm->local_size == 1 || (text && strcmp(text, "0") == 0))
        return SP_OK;
    return sp_node_open(&comm->impl->shared, comm);
}

/* Duplicates the world. MPI_Comm_dup would spin. */
static sp_status duplicate(sp_comm *comm, MPI_Comm *copy)
{
    SP_MPI_WAIT(comm, Comm_idup(comm->impl->world, copy, &request));
    return SP_OK;
}

/* A hash of the names of this rank's node: the system's, Slurm's if several of its
 * nodes are one machine, and the number of the node's shared memory, which differs
 * between containers of one machine. The rank is part of it if the machine is not known
 * or MPICH's launcher started ranks on other hosts too. */
static uint64_t hash_node(const sp_comm *comm)
{
    const char *boot = sp_machine_boot(), *slurm = sp_env("SLURMD_NODENAME");
    const char *beside = sp_env("MPI_LOCALNRANKS");
    const bool is_alike = boot[0] && (!beside || atoi(beside) == comm->size);
    char text[512];

    snprintf(text, sizeof text, "%s %s %s %llu %d", comm->host, boot,
             slurm ? slurm : "", (unsigned long long)sp_machine_shm(),
             is_alike ? -1 : comm->rank);
    return XXH64(text, strlen(text), 0);
}

/* Makes the communicator of this rank's node, and room for the table of the ranks'
 * nodes: all ranks fail if one has no memory. MPI_Comm_split_type spins in a dozen
 * rounds without yielding: with 8 ranks on 2 cores it needed 65 ms of processor time
 * each, half of the start. So it is called only if there are several nodes. */
static sp_status open_node(sp_comm *comm)
{
    struct sp_comm_impl *impl = comm->impl;
    uint64_t hash = hash_node(comm), ends[3] = {hash, ~hash};

    impl->node_of_rank = malloc(sizeof *impl->node_of_rank * (size_t)comm->size);
    ends[2] = !impl->node_of_rank;
    SP_MPI_WAIT(comm, Iallreduce(MPI_IN_PLACE, ends, 3, MPI_UINT64_T, MPI_MAX,
                                 impl->world, &request));
    if (ends[2])
        return SP_FAIL(SP_EMEM, "no memory for a table of %d ranks", comm->size);
    if (ends[0] == ~ends[1])
        return duplicate(comm, &impl->node);
    SP_MPI(Comm_split_type(impl->world, MPI_COMM_TYPE_SHARED, comm->rank, MPI_INFO_NULL,
                           &impl->node));
    return SP_OK;
}

sp_status sp_comm_find_nodes(sp_comm *comm)
{
    struct sp_comm_impl *impl = comm->impl;

    /* until the cores of the node are counted */
    share_cores(comm, comm->size > comm->cores);
    SP_TRY(open_node(comm));
    SP_TRY(count_cores(comm));
    SP_TRY(cut_node(comm));
    SP_MPI(Comm_set_errhandler(impl->node, MPI_ERRORS_RETURN));
    SP_TRY(duplicate(comm, &impl->lane));
    SP_MPI(Comm_rank(impl->node, &comm->local_rank));
    SP_MPI(Comm_size(impl->node, &comm->local_size));
    SP_TRY(number_nodes(comm));
    return share_memory(comm);
}
