/* The ranks and what they say to each other. The only module that includes mpi.h. Sums
 * of ranks of one node, short ones and those in memory of sp_comm_alloc, go through
 * memory that they share (sp_comm_node.h) instead of MPI.
 *
 * Waiting never spins on a node with more ranks than cores: every collective is posted
 * non-blocking and tested in a loop that yields, then sleeps (MPICH itself spins
 * without yielding, which costs 50 ms per small all-reduce with 8 ranks on 2 cores).
 *
 * Collective functions say so: all ranks (of the scope) call them in the same order
 * with the same counts, types and operations. All calls come from the training thread.
 * A failure of MPI is SP_EMPI with MPI's own text; the other ranks may then be stuck,
 * so the caller ends through sp_comm_abort.
 *
 * Sums of floating-point numbers are the same bits on all ranks, and from run to run
 * for the same ranks on the same nodes.
 */
#ifndef SP_COMM_H
#define SP_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/sp_error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which ranks take part: this rank alone, those of its node, all; all once more, in a
 * lane of their own, whose collectives have no order with those of SP_SCOPE_WORLD. */
typedef enum sp_scope {
    SP_SCOPE_RANK,
    SP_SCOPE_NODE,
    SP_SCOPE_WORLD,
    SP_SCOPE_LANE
} sp_scope;

typedef enum sp_type { SP_F32, SP_F64, SP_I64, SP_U8 } sp_type;
typedef enum sp_reduce_op { SP_SUM, SP_MAX, SP_MIN } sp_reduce_op;

typedef struct sp_comm {
    int rank, size;             /* in the world */
    int local_rank, local_size; /* on this node */
    int node, n_nodes;          /* nodes numbered by their lowest rank */
    const int *node_of_rank;    /* [size] */
    char host[64];
    bool is_oversubscribed; /* more ranks than cores on this node: waits sleep */
    int cores;              /* usable by this process (affinity, cgroup) */
    int node_cores;         /* usable by the ranks of this node together */
    struct sp_comm_impl *impl;
} sp_comm;

/* A posted non-blocking all-reduce. Zero before the post and after it completed. */
typedef struct sp_request {
    void *handle;
} sp_request;

/* Collective: starts MPI (MPI_THREAD_FUNNELED is enough). Fails with SP_EUSAGE where
 * the launcher started several single ranks (SLURM_NTASKS > 1 and a world of 1), with
 * advice. After a failure sp_comm_close is to be called all the same. The environment's
 * SP_RANKS_PER_NODE=n takes every n ranks of a node for a node of their own, to try
 * what depends on nodes on one machine; SP_NODE_MEMORY=0 leaves all sums to MPI. */
sp_status sp_comm_open(sp_comm *comm, int *argc, char ***argv);
/* A world of one without MPI, for tools and tests. */
void sp_comm_open_self(sp_comm *comm);
/* Collective: ends MPI. With SP_UCX_DISCONNECT=0 in the environment MPICH closes no
 * connection of UCX by itself: over TCP that takes an answer of the peer, but MPICH 4.0
 * and 4.1 then wait in a barrier of the process manager, where a rank answers nobody
 * (pmodels/mpich pull request 6596). Nothing is under way any more by then, and
 * connections go down with the process. Measured, MPICH 4.0.2, 2 hosts of 2 ranks: 5 ends
 * of 12 took 31 s (the program's limit) with the library's function, none of 12 without,
 * the same exit status. */
void sp_comm_close(sp_comm *comm);
/* Ends all ranks with this exit status; does not return. Local. */
void sp_comm_abort(sp_comm *comm, sp_status code) __attribute__((noreturn));

/* Collective: every rank returns the status of the lowest failing rank and has its
 * error record too, so that one of them can print it; *who (may be NULL) is that rank,
 * -1 and SP_OK where none failed. `mine` is this rank's status, its record the thread's
 * last one. */
sp_status sp_comm_agree(sp_comm *comm, sp_status mine, int *who);

/* The MPI library and its version, one line. */
const char *sp_comm_library(void);
/* Number of ranks in scope. */
int sp_comm_scope_size(const sp_comm *comm, sp_scope scope);

/* Collective over scope, in place. Any count. */
sp_status sp_comm_allreduce(sp_comm *comm, sp_scope scope, void *data, size_t count,
                            sp_type type, sp_reduce_op op);
/* data is MPI's until the request completed. Many requests may be under way; it
 * progresses only within calls of this module, so test now and then. */
sp_status sp_comm_iallreduce(sp_comm *comm, sp_scope scope, void *data, size_t count,
                             sp_type type, sp_reduce_op op, sp_request *request);
/* Progress; *is_done once the request completed (it is then zero again). */
sp_status sp_comm_test(sp_comm *comm, sp_request *request, bool *is_done);
sp_status sp_comm_wait(sp_comm *comm, sp_request *request);

/* Waits as the calls above do (left when a rank is lost) until `test` says that
 * something outside of MPI is done, or fails. is_for_others: other ranks have a part in
 * it, and the watchdog hears of the wait; else it is work of this rank. Local. */
typedef sp_status sp_comm_test_fn(void *arg, bool *is_done);
sp_status sp_comm_wait_for(sp_comm *comm, bool is_for_others, sp_comm_test_fn *test,
                           void *arg);

/* Zeroed memory for what is summed over the ranks in place: within a node the ranks
 * reach each other's, where the system lets them. Collective over the world. SP_EMEM.
 * sp_comm_free is local, when no request is under way; NULL is fine. */
sp_status sp_comm_alloc(sp_comm *comm, size_t bytes, void **out);
/* Zero again; memory of this rank alone is given back until it is touched. Local. */
void sp_comm_clear(sp_comm *comm, void *data, size_t bytes);
void sp_comm_free(sp_comm *comm, void *data);

/* Collective over the world. */
sp_status sp_comm_barrier(sp_comm *comm);
sp_status sp_comm_bcast(sp_comm *comm, void *data, size_t bytes, int root);
/* An array that root may have or not: elsewhere *data is malloc'd and filled, or NULL
 * where root's is. The pointer alone says whether there is one: an array of no bytes is
 * not NULL. `bytes` is the same on all ranks. Collective over the world, agreed.
 * SP_EMEM. */
sp_status sp_comm_bcast_array(sp_comm *comm, void **data, size_t bytes, int root);
/* The same of n texts; free with each of them. */
sp_status sp_comm_bcast_texts(sp_comm *comm, char ***texts, int n, int root);
/* Every rank gives `bytes` bytes (may differ); root gets them concatenated in rank
 * order in *all (malloc'd, caller frees, never NULL) and sizes[size] (may be NULL);
 * NULL elsewhere. */
sp_status sp_comm_gather(sp_comm *comm, const void *data, size_t bytes, int root,
                         void **all, size_t *sizes);
/* True on every rank if the bytes are the same on all ranks (hash compared). */
sp_status sp_comm_is_same(sp_comm *comm, const void *data, size_t bytes, bool *is_same);

#ifdef __cplusplus
}
#endif
#endif
