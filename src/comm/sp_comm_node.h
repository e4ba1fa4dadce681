/* All-reduce within a node, through memory that its ranks share. Part of sp_comm.
 *
 * Every rank has a lane of flags and a ring of slots in one segment. A short vector is
 * copied into a slot; every rank adds up the slots by itself. A long one must lie in a
 * region (sp_node_alloc), where each rank adds up its slice of all ranks' vectors and
 * writes the sum to all of them: nothing is copied, and nobody waits for a partner in
 * step.
 *
 *     segment  | lanes of rank 0, 1 ... | slots of rank 0 | slots of rank 1 | ...
 *     region   | vector of rank 0           | vector of rank 1           | ...
 *              | slice 0 | slice 1 | ...    | slice 0 | slice 1 | ...
 *
 * Sums run by rank, so they are the same bits on all ranks and from run to run. The
 * memory has no name in any file system: it goes when the last process does, however
 * that ends. Nothing here waits: who waits calls sp_node_progress, and ranks that wait
 * for something else must too, since others may need their slice.
 */
#ifndef SP_COMM_NODE_H
#define SP_COMM_NODE_H

#include "comm/sp_comm.h"

typedef struct sp_node sp_node;

/* A posted all-reduce; the caller's until it is done. */
typedef struct sp_node_request {
    struct sp_node_request *next;
    int64_t number; /* from 1, of its queue */
    char *data;
    size_t count;
    sp_type type;
    sp_reduce_op op;
    bool is_long, is_given,
        is_done; /* is_given: this rank's part of the work is done */
} sp_node_request;

/* Collective over the node: `all` [size][bytes] gets every rank's `mine`. */
typedef sp_status sp_node_exchange(void *arg, const void *mine, size_t bytes,
                                   void *all);

/* Collective over the node. *node NULL (on all its ranks) where memory cannot be
 * shared: then MPI has to do. Errors are the exchange's. */
sp_status sp_node_open(sp_node **node, int rank, int size, sp_node_exchange *exchange,
                       void *arg);
void sp_node_close(sp_node *node);

/* A region with `bytes` of each rank, zero; *out is this rank's, NULL (on all) where
 * there is none to share. Collective over the node. sp_node_free is local, once all
 * sums in the region are done; true if it was one. */
sp_status sp_node_alloc(sp_node *node, size_t bytes, void **out);
bool sp_node_free(sp_node *node, void *data);

bool sp_node_holds(const sp_node *node, const void *data);

/* Whether this all-reduce is one for sp_node_post: the same answer on all ranks. */
bool sp_node_takes(const sp_node *node, sp_scope scope, const void *data, size_t count,
                   sp_type type);
void sp_node_post(sp_node *node, sp_node_request *request, sp_scope scope, void *data,
                  size_t count, sp_type type, sp_reduce_op op);
/* What can be done now for all posted requests; sets is_done. */
void sp_node_progress(sp_node *node);

size_t sp_type_bytes(sp_type type);

#endif
