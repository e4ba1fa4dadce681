/* The internals that the files of sp_comm share. The only header that includes mpi.h.
 */
#ifndef SP_COMM_INTERNAL_H
#define SP_COMM_INTERNAL_H

#include <mpi.h>

#include "comm/sp_comm_node.h"

/* The longest message in bytes. Counts of MPI are int, and some libraries count bytes
 * in an int, so longer vectors are cut into pieces. (A test sets a small number.) */
#ifndef PIECE_BYTES
#define PIECE_BYTES ((size_t)1 << 30)
#endif

/* The operations that one sp_request waits for. Slots are reused, so that a step does
 * not allocate. */
typedef struct sp_comm_slot {
    struct sp_comm_slot *next; /* next in the list of free slots */
    MPI_Request *pieces;
    int n, capacity;
    bool is_shared; /* summed in the node's memory: only `shared` counts */
    sp_node_request shared;
} sp_comm_slot;

struct sp_comm_impl {
    bool has_mpi;
    MPI_Comm world, node, lane;
    MPI_Op max, min; /* of floating-point numbers */
    sp_node *shared; /* shared memory of the node; NULL: MPI does all sums */
    sp_comm_slot *free_slots;
    int *node_of_rank;
};

/* Records an error of MPI as SP_EMPI with MPI's own text. */
sp_status sp_comm_mpi_fail(int error, const char *what);
/* Finds the node of each rank, its cores and its memory: the part of sp_comm_open that
 * follows once MPI has started (sp_comm_find.c). Collective over the world. */
sp_status sp_comm_find_nodes(sp_comm *comm);
/* Creates the operations of MPI that sums use. SP_EMPI. */
sp_status sp_comm_begin_sums(struct sp_comm_impl *impl);
/* Frees what sums used, and the communicators of node and lane. Collective. */
void sp_comm_end_sums(struct sp_comm_impl *impl);
/* Replaces each of n values by the greatest that a rank has. Collective over the node.
 * SP_EMPI. */
sp_status sp_comm_greatest_in_node(sp_comm *comm, int64_t *value, int n);
/* Waits until all n requests are done, as sp_comm_wait does. Local.
 * SP_EMPI. */
sp_status sp_comm_wait_all(sp_comm *comm, int n, MPI_Request *requests);

#define SP_MPI(call)                                                                   \
    do {                                                                               \
        int error_ = MPI_##call;                                                       \
        if (error_ != MPI_SUCCESS)                                                     \
            return sp_comm_mpi_fail(error_, "MPI_" #call);                             \
    } while (0)

/* Calls a non-blocking operation with the last argument &request and waits for it. */
#define SP_MPI_WAIT(comm, call)                                                        \
    do {                                                                               \
        MPI_Request request;                                                           \
        SP_MPI(call);                                                                  \
        SP_TRY(sp_comm_wait_all(comm, 1, &request));                                   \
    } while (0)

#endif
