/* The ranks and what they say to each other. The only module that includes mpi.h.
 *
 * Waiting never spins on a node with more ranks than cores: every collective is posted
 * non-blocking and tested in a loop that yields, then sleeps (MPICH itself spins without
 * yielding, which costs 50 ms per small all-reduce with 8 ranks on 2 cores).
 *
 * Collective functions say so. All calls come from the training thread.
 */
#ifndef SP_COMM_H
#define SP_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sp_error.h"

/* Which ranks take part: this rank alone, those of its node, all. */
typedef enum sp_scope { SP_SCOPE_RANK, SP_SCOPE_NODE, SP_SCOPE_WORLD } sp_scope;

typedef enum sp_type { SP_F32, SP_F64, SP_I64, SP_U8 } sp_type;
typedef enum sp_reduce_op { SP_SUM, SP_MAX, SP_MIN } sp_reduce_op;

typedef struct sp_comm {
    int rank, size;            /* in the world */
    int local_rank, local_size; /* on this node */
    int node, n_nodes;          /* nodes numbered by their lowest rank */
    const int *node_of_rank;    /* [size] */
    char host[64];
    bool is_oversubscribed; /* more ranks than cores on this node: waits sleep */
    int cores;              /* usable by this process */
    struct sp_comm_impl *impl;
} sp_comm;

/* A posted non-blocking all-reduce. Zero before the post and after it completed. */
typedef struct sp_request {
    void *handle;
} sp_request;

/* Collective: starts MPI (MPI_THREAD_FUNNELED is enough). Fails with SP_EUSAGE where the
 * launcher started several single ranks (SLURM_NTASKS > 1 and a world of 1), with advice. */
sp_status sp_comm_open(sp_comm *comm, int *argc, char ***argv);
/* A world of one without MPI, for tools and tests. */
void sp_comm_open_self(sp_comm *comm);
/* Collective: ends MPI. */
void sp_comm_close(sp_comm *comm);
/* Ends all ranks with this exit status; does not return. Local. */
void sp_comm_abort(sp_comm *comm, sp_status code) __attribute__((noreturn));

/* Collective: every rank gets the status of the lowest failing rank, and its record too, so
 * that the caller can print it once (only ranks with comm->rank == *who printed nothing yet;
 * who may be NULL). SP_OK where no rank failed. */
sp_status sp_comm_agree(sp_comm *comm, sp_status mine, int *who);

/* Number of ranks in scope; index of this rank in it. */
int sp_comm_scope_size(const sp_comm *comm, sp_scope scope);

/* Collective over scope, in place. */
sp_status sp_comm_allreduce(sp_comm *comm, sp_scope scope, void *data, size_t count,
                            sp_type type, sp_reduce_op op);
sp_status sp_comm_iallreduce(sp_comm *comm, sp_scope scope, void *data, size_t count,
                             sp_type type, sp_reduce_op op, sp_request *request);
/* Progress; *is_done once the request completed (it is then zero again). */
sp_status sp_comm_test(sp_comm *comm, sp_request *request, bool *is_done);
sp_status sp_comm_wait(sp_comm *comm, sp_request *request);

/* Collective over the world. */
sp_status sp_comm_barrier(sp_comm *comm);
sp_status sp_comm_bcast(sp_comm *comm, void *data, size_t bytes, int root);
/* Every rank gives `bytes` bytes (may differ); root gets them concatenated in rank order in
 * *all (malloc'd, caller frees) and sizes[size] (may be NULL); NULL elsewhere. */
sp_status sp_comm_gather(sp_comm *comm, const void *data, size_t bytes, int root,
                         void **all, size_t *sizes);
/* True on every rank if the bytes are the same on all ranks (hash compared). */
sp_status sp_comm_is_same(sp_comm *comm, const void *data, size_t bytes, bool *is_same);

#endif
