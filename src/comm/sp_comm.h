/* The ranks and their messages. The only module that includes mpi.h
 * (sp_comm_internal.h).
 *
 *   sp_comm_open        starts MPI, finds nodes, cores and memory that a node shares
 *                       (sp_comm_find.c)
 *   sp_comm_iallreduce  --+--> sp_node: ranks of one node; short vectors, and vectors
 *                         |       in memory of sp_comm_alloc (sp_comm_node.h)
 *                         +--> MPI_Iallreduce: all others, in pieces of at most 1 GiB
 *   sp_comm_test, wait  poll both; count polls for the watchdog (sp_liveness.h)
 *   sp_comm_agree       one status for all ranks, and the first failing rank's record
 *   sp_comm_close       barriers, MPI_Finalize
 *
 * Waiting never spins for long on a node with more ranks than cores: every collective
 * is posted non-blocking and tested in a loop that yields, then sleeps (MPICH itself
 * spins without yielding; measured, a small all-reduce with 8 ranks on 2 cores then
 * needs 50 ms).
 *
 * Collective functions are marked as such: all ranks (of the scope) call them in the
 * same order with the same counts, types and operations. All calls come from one
 * thread, the one that called sp_comm_open (the training thread of sptrain); the
 * threads of loader, saver, watchdog and the tasks of `label` make no call. A failure
 * of MPI is SP_EMPI with MPI's own text; the other ranks may then wait for ever, so the
 * caller ends the program through sp_comm_abort.
 *
 * Sums of floating-point numbers are the same bits on all ranks, and the same from run
 * to run for the same ranks on the same nodes.
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

/* The ranks of a collective: only this rank, its node's ranks, or all. SP_SCOPE_LANE is
 * all ranks in a second communicator. Its collectives need no common order with
 * SP_SCOPE_WORLD's. */
typedef enum sp_scope {
    SP_SCOPE_RANK,
    SP_SCOPE_NODE,
    SP_SCOPE_WORLD,
    SP_SCOPE_LANE
} sp_scope;

/* Element types and operations of a reduction. */
typedef enum sp_type { SP_F32, SP_F64, SP_I64, SP_U8 } sp_type;
typedef enum sp_reduce_op { SP_SUM, SP_MAX, SP_MIN } sp_reduce_op;

/* The ranks as this rank sees them. */
typedef struct sp_comm {
    int rank, size;             /* of all ranks that were started */
    int local_rank, local_size; /* on this node; the local rank picks the device */
    int node, n_nodes;          /* nodes are numbered by their lowest rank */
    const int *node_of_rank;    /* [size] number of each rank's node */
    char host[64];
    bool is_oversubscribed; /* more ranks than cores on this node */
    bool is_sleeping;       /* waits sleep soon: ranks share cores, or SP_WAIT=sleep */
    int cores;              /* cores usable by this process (affinity, cgroup) */
    int node_cores;         /* cores usable by the ranks of this node together */
    int failed_rank;        /* at the last failure agreed on; 0 without a failure */
    struct sp_comm_impl *impl;
} sp_comm;

/* A posted non-blocking all-reduce. Zero before it is posted and after it has
 * completed. */
typedef struct sp_request {
    void *handle;
} sp_request;

/* Starts MPI (MPI_THREAD_FUNNELED is enough) and fills comm. Collective over all ranks.
 * SP_EUSAGE, with advice, if the environment announces several tasks, but MPI sees a
 * world of one (sp_launcher.h); SP_EMPI, SP_EMEM. The
 * caller calls sp_comm_close after a failure too. Two variables of the environment:
 * SP_RANKS_PER_NODE=n treats every n ranks of a node as a node of their own, to test on
 * one machine how ranks behave on several nodes; SP_NODE_MEMORY=0 leaves all sums to
 * MPI. */
sp_status sp_comm_open(sp_comm *comm, int *argc, char ***argv);
/* Fills comm with a world of one rank without MPI. Local. */
void sp_comm_open_self(sp_comm *comm);
/* Fills comm with the ranks of the caller's communicator, *(MPI_Comm *)of, which is
 * duplicated. The caller starts and ends MPI. Collective over it. SP_EUSAGE: MPI is not
 * initialized for threads; SP_EMPI, SP_EMEM. The caller calls sp_comm_detach after a
 * failure too. */
sp_status sp_comm_attach(sp_comm *comm, const void *of);
/* Releases comm after sp_comm_attach or sp_comm_open_self. Collective. */
void sp_comm_detach(sp_comm *comm);
/* Ends MPI. Collective over all ranks. With SP_UCX_DISCONNECT=0 in the environment
 * MPICH does not close its connections of UCX one by one. Closing one over TCP needs an
 * answer of the peer, but MPICH 4.0 and 4.1 then wait in a barrier of the process
 * manager, if a rank answers nobody (pmodels/mpich pull request 6596). Nothing is under
 * way any more by then, and the connections end with the process. Measured with MPICH
 * 4.0.2 on 2 hosts of 2 ranks: 5 of 12 ends lasted 31 s (the program's limit) with the
 * library's function and 0 of 12 without it, with the same exit status. */
void sp_comm_close(sp_comm *comm);
/* Ends all ranks with this exit status; does not return. Local. */
void sp_comm_abort(sp_comm *comm, sp_status code) __attribute__((noreturn));

/* Called by a wait when the watchdog has ordered the process to end (sp_liveness.h):
 * sp_comm_abort in a program, since sp_comm_open sets it; elsewhere NULL. */
extern void (*sp_comm_on_leave)(sp_comm *comm, sp_status code);

/* Returns the status of the lowest failing rank on every rank. Each rank then has its
 * error record too, so that one of them can print it. Collective over the world. `mine`
 * is this rank's status; its record is the thread's last one. After a failure
 * comm->failed_rank is the rank that failed. */
sp_status sp_comm_agree(sp_comm *comm, sp_status mine);

/* The name and version of the MPI library, one line. Local. */
const char *sp_comm_library(void);
/* Number of ranks in scope. Local. */
int sp_comm_scope_size(const sp_comm *comm, sp_scope scope);

/* Reduces data [count] over the ranks of scope, in place; any count. A NaN of one rank
 * makes sums, maxima and minima NaN, on every rank, so that all ranks decide the same.
 * Collective over scope. SP_EMPI, SP_EMEM. */
sp_status sp_comm_allreduce(sp_comm *comm, sp_scope scope, void *data, size_t count,
                            sp_type type, sp_reduce_op op);
/* Posts the same and returns at once; `data` must not be touched until the request has
 * completed. Many requests may be under way. They advance only within calls of this
 * module, so the caller tests now and then. */
sp_status sp_comm_iallreduce(sp_comm *comm, sp_scope scope, void *data, size_t count,
                             sp_type type, sp_reduce_op op, sp_request *request);
/* Advances the request, local. *is_done is true once it has completed, and *request is
 * then zero again. sp_comm_wait returns when it has completed. */
sp_status sp_comm_test(sp_comm *comm, sp_request *request, bool *is_done);
sp_status sp_comm_wait(sp_comm *comm, sp_request *request);

/* Waits, as sp_comm_wait does, until `test` reports that something outside of MPI is
 * done, or fails; the process ends if a rank is lost meanwhile. is_for_others: other
 * ranks contribute to it, so the watchdog counts the time as waiting, and otherwise as
 * this rank's work. Local. */
typedef sp_status sp_comm_test_fn(void *arg, bool *is_done);
/* Every wait of this module runs in this loop. */
sp_status sp_comm_wait_for(sp_comm *comm, bool is_for_others, sp_comm_test_fn *test,
                           void *arg);

/* Allocates zeroed memory, in whole large pages unless the ranks share it, for vectors
 * that are summed over the ranks in place. Within a node the ranks can reach each
 * other's, if the system allows it. Collective over the world. SP_EMEM. sp_comm_free is
 * local and is called when no request is under way; NULL is allowed. */
sp_status sp_comm_alloc(sp_comm *comm, size_t bytes, void **out);
void sp_comm_free(sp_comm *comm, void *data);

/* A barrier, and a broadcast of bytes from root, in place. Collective over the world.
 */
sp_status sp_comm_barrier(sp_comm *comm);
sp_status sp_comm_bcast(sp_comm *comm, void *data, size_t bytes, int root);
/* Broadcasts an array that root may have or not. On other ranks *data is malloc'd and
 * filled, or becomes NULL if root's is NULL. Only the pointer says if root has an
 * array: an array of no bytes is not NULL. `bytes` is the same on all ranks. Collective
 * over the world; all ranks return the same status. SP_EMEM. */
sp_status sp_comm_bcast_array(sp_comm *comm, void **data, size_t bytes, int root);
/* Broadcasts the bytes that rank 0 has written to its buffer (base/sp_serial.h), or its
 * failure; every rank can then read them. The caller frees serial->data, after a
 * failure too. Collective over the world, agreed. SP_EMEM. */
struct sp_serial;
sp_status sp_comm_bcast_serial(sp_comm *comm, struct sp_serial *serial);
/* Bytes that all ranks read, of which a node has one copy. Zero it to begin. */
typedef struct sp_common {
    void *data;
    size_t mapped; /* bytes of the node's memory; 0: data is this rank's, malloc'd */
} sp_common;

/* Allocates them, zeroed; each rank has a copy of its own if the ranks of a node cannot
 * share memory. Rank 0 then fills its copy, and sp_comm_common_send gives the same
 * bytes to all. Collective over the world, agreed. With comm NULL local. SP_EMEM. */
sp_status sp_comm_common_alloc(sp_comm *comm, size_t bytes, sp_common *common);
sp_status sp_comm_common_send(sp_comm *comm, size_t bytes, sp_common *common);
/* Local, also after the communicator has been closed. */
void sp_comm_common_free(sp_common *common);
/* Gathers bytes; the ranks may give different numbers of bytes. On rank 0 *all is their
 * concatenation in the order of the ranks (malloc'd, freed by the caller, never NULL)
 * and *n_all (may be NULL) their number; elsewhere *all is NULL. Collective over the
 * world. SP_EMEM, agreed. */
sp_status sp_comm_gather(sp_comm *comm, const void *data, size_t bytes, void **all,
                         size_t *n_all);
/* Sends bytes[r] bytes of data[r] to each rank r, this one included. *all receives the
 * bytes sent to this rank, in the order of the ranks (malloc'd, freed by the caller,
 * never NULL after success), *n_all its number of bytes. Collective over the world.
 * SP_EMEM. */
sp_status sp_comm_exchange(sp_comm *comm, const void *const *data, const size_t *bytes,
                           void **all, size_t *n_all);
/* *is_same is true on every rank if the bytes are the same on all of them; a hash of
 * 128 bits is compared. Collective over the world. */
sp_status sp_comm_is_same(sp_comm *comm, const void *data, size_t bytes, bool *is_same);

#ifdef __cplusplus
}
#endif
#endif
