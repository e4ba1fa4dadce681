/* All-reduce within a node, through memory that its ranks share. Part of sp_comm.
 *
 * Every rank has a set of flags (its lane) and a ring of slots in one segment. A short
 * vector is copied into a slot, and every rank adds up the slots by itself. A long
 * vector must lie in a region (sp_node_alloc), where each rank adds up its slice of all
 * ranks' vectors and writes the sum to all of them: nothing is copied to a buffer, and
 * no rank waits for a partner at each step of a tree.
 *
 *     segment  | lanes of rank 0, 1 ... | slots of rank 0 | slots of rank 1 | ...
 *     region   | vector of rank 0           | vector of rank 1           | ...
 *              | slice 0 | slice 1 | ...    | slice 0 | slice 1 | ...
 *
 * Sums are formed in the order of the ranks, so they are the same bits on all ranks and
 * from run to run. The memory has no name in any file system: it is freed when the last
 * process ends, in whatever way. No function here waits except the collective ones: a
 * rank that waits calls sp_node_progress, also while it waits for something else, since
 * other ranks may need its slice.
 */
#ifndef SP_COMM_NODE_H
#define SP_COMM_NODE_H

#include "comm/sp_comm.h"

typedef struct sp_node sp_node;

/* A posted all-reduce. The caller owns it and keeps it in place until it is done. */
typedef struct sp_node_request {
    struct sp_node_request *next;
    int64_t number; /* counts from 1 in its queue */
    char *data;
    size_t count;
    sp_type type;
    sp_reduce_op op;
    /* is_given: this rank has done its part of the work; is_done: the sum is there */
    bool is_given, is_done;
} sp_node_request;

/* Opens the memory of comm's node; its ranks are known. comm is borrowed until the
 * close. Collective over the node. *node is NULL on all its ranks if memory cannot be
 * shared; MPI then does the sums. SP_EMPI. */
sp_status sp_node_open(sp_node **node, sp_comm *comm);
/* Unmaps all memory. Local; all sums are done by then. */
void sp_node_close(sp_node *node);

/* Allocates a region with `bytes` of each rank, zeroed; *out is this rank's part, or
 * NULL on all ranks if memory cannot be shared. Collective over the node. SP_EMPI.
 * sp_node_free is local and is called once all sums in the region are done; it returns
 * true if data was a region's. */
sp_status sp_node_alloc(sp_node *node, size_t bytes, void **out);
bool sp_node_free(sp_node *node, void *data);

/* Allocates `bytes` for the node together, zeroed, in memory that outlives sp_node_close
 * and that munmap frees: *mapped bytes at *out, or NULL on all ranks if memory cannot
 * be shared. Collective over the node. SP_EMPI. */
sp_status sp_node_map(sp_node *node, size_t bytes, void **out, size_t *mapped);

/* True if data lies in this rank's part of a region. Local. */
bool sp_node_holds(const sp_node *node, const void *data);

/* True if sp_node_post can do this all-reduce; the same answer on all ranks. Local. */
bool sp_node_takes(const sp_node *node, sp_scope scope, const void *data, size_t count,
                   sp_type type);
/* Posts an all-reduce of data [count], in place. All ranks of the node post the
 * all-reduces of one scope in the same order. Local; returns at once. */
void sp_node_post(sp_node *node, sp_node_request *request, sp_scope scope, void *data,
                  size_t count, sp_type type, sp_reduce_op op);
/* Does all work on posted requests that is possible now, without waiting, and sets
 * is_done of those that are finished. Local. */
void sp_node_progress(sp_node *node);

/* Bytes of an element of this type. */
size_t sp_type_bytes(sp_type type);

#endif
