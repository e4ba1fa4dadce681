/* Gradient all-reduce beside the backward pass.
 *
 * The flat gradient is cut, from its end (the last layer, whose gradient is ready
 * first), into contiguous buckets. A bucket is posted as soon as its last gradient is
 * written. The narrow first layers, which are complete last, have a small one of their
 * own, whose way nothing hides: with it goes the tail, loss sum, weight sum, counts and
 * flags.
 *
 *     | conv1 ... | ...            | ...            | ...      final |  flat gradient
 *     | n-1, tail | bucket n-2     | bucket 1       | bucket 0       |  [n_floats]
 *
 * deterministic = "world": gradients arrive per sample and are summed in fixed point
 * (sp_exact), so the result depends on neither order nor number of ranks; the integers
 * are what travels, from host to host.
 */
#ifndef SP_BUCKET_H
#define SP_BUCKET_H

#include "base/sp_exact.h"
#include "compute/sp_transport.h"
#include "graph/sp_graph.h"

/* What travels beside the gradient. Sums over ranks and micro-batches after
 * sp_bucket_wait. */
typedef struct sp_tail {
    double loss_sum, weight_sum;        /* sum w * l, sum w over labelled voxels */
    double n_voxels, n_samples, n_stop; /* counts, and ranks asked to stop */
    double spare[3];
} sp_tail;

enum { SP_LOSS_SUMS = 3 }; /* the third: rows */

typedef struct sp_buckets {
    sp_comm *comm; /* borrowed */
    const sp_graph *graph;
    float *grad;    /* [n_floats] backend memory after sp_buckets_attach, else host:
                     * sums; over ranks after wait */
    double *loss;   /* [SP_LOSS_SUMS] likewise: sum w * l, sum w, added to by
                     * sp_net_train_loss; wait adds them to the tail */
    double squares; /* sum of grad^2 after wait; NAN without sp_buckets_attach */
    int64_t *exact; /* [n_floats][SP_EXACT_LIMBS] or NULL */
    sp_tail tail;
    /* [2] the exact mode's loss_sum and weight_sum, added to by sp_net_train_loss: wait
     * sums them over the ranks and overwrites the tail's two doubles with their values. */
    int64_t tail_exact[2 * SP_EXACT_LIMBS];
    bool is_overlapped; /* true; false: sp_bucket_wait posts everything (to measure) */
    int n_buckets;
    int64_t
        *begin; /* [n_buckets + 1] descending: bucket i is begin[i+1] .. begin[i]-1 */
    struct sp_buckets_impl *impl;
} sp_buckets;

/* Buckets are whole parameters of together at least bucket_bytes (0: 16 MiB) of what
 * travels, and hardly more than half as much again. A world of one has buckets but no
 * communication. The gradient is in host memory. Collective. SP_EMEM. */
sp_status sp_buckets_create(sp_buckets *buckets, const sp_graph *graph, sp_comm *comm,
                            bool is_exact, size_t bucket_bytes);
void sp_buckets_destroy(sp_buckets *buckets);
/* Gradients in the memory of the transport's backend, summed by it; in exact mode MPI
 * sums the limbs. Once, before the first use; the transport lives longer. Local.
 * SP_EMEM. */
sp_status sp_buckets_attach(sp_buckets *buckets, sp_transport *transport);
/* Zero gradients and tail: before the first micro-batch of a step. */
sp_status sp_buckets_zero(sp_buckets *buckets);
/* All gradients from flat offset `from` on are final: post what is complete. Collective
 * in the sense that every rank makes the same calls in the same order; offsets never
 * rise within a step. */
sp_status sp_bucket_ready(sp_buckets *buckets, int64_t from);
/* Let posted all-reduces progress; called between layers. */
sp_status sp_bucket_poll(sp_buckets *buckets);
/* Post what is left with the tail and wait for everything: a step may skip
 * sp_bucket_ready. Collective. *exposed_s (may be NULL): seconds waited for other ranks
 * once this one's gradients were there. In exact mode grad is filled from the limbs.
 * Here the host waits for the device, the only time in a step but for sums over ranks
 * that MPI moves. */
sp_status sp_bucket_wait(sp_buckets *buckets, double *exposed_s);

#endif
