/* The all-reduce of the gradient, concurrent with the backward pass.
 *
 * The flat gradient is cut, from its end (the last layer's gradient is ready first),
 * into contiguous buckets. A bucket is posted as soon as its last gradient is written.
 * The narrow first layers, which are complete last, have a small bucket of their own,
 * because no computation hides its all-reduce. The tail travels with it: loss sum,
 * weight sum, counts and flags.
 *
 *     | conv1 ... | ...            | ...            | ...      final |  flat gradient
 *     | n-1, tail | bucket n-2     | bucket 1       | bucket 0       |  [n_floats]
 *
 * A bucket with only frozen layers (train.freeze) holds zeros and does not travel.
 *
 * With deterministic = "world" gradients arrive per sample and are summed in fixed
 * point (sp_exact), so the result depends on neither order nor number of ranks. The
 * integers travel from host to host.
 */
#ifndef SP_BUCKET_H
#define SP_BUCKET_H

#include "base/sp_exact.h"
#include "compute/sp_transport.h"
#include "net/sp_graph.h"

/* The numbers that travel with the gradient: after sp_bucket_wait the sums over ranks
 * and micro-batches. The counts are whole numbers below 2^53, which a double sums
 * exactly in any order. One more count is a member here, a double, which
 * sp_buckets_begin clears and step_compute of sp_step.c adds to for each
 * micro-batch; sp_step_result.sum has its sum. */
typedef struct sp_tail {
    double loss_sum, weight_sum; /* sum w * l, sum w over labelled voxels */
    double n_voxels, n_stop;     /* voxels, and ranks asked to stop */
    double sequence; /* of sp_transport; wait uses it to find ranks out of step */
} sp_tail;

enum { SP_LOSS_SUMS = 3 }; /* sum w * l, sum w, rows */

typedef struct sp_buckets {
    sp_comm *comm; /* borrowed */
    const sp_graph *graph;
    /* [n_floats] The gradient of the step, which sp_net_backward writes; after wait the
     * sum over ranks. What no backward pass writes, as of frozen layers, is 0. It is
     * backend memory after sp_buckets_attach, host memory before. */
    float *grad;
    bool is_begun; /* a backward pass of the step has written it: later ones add */
    /* [SP_LOSS_SUMS] The loss, in the same memory, which sp_net_train_loss adds to;
     * wait adds it to the tail. */
    double *loss;
    double squares; /* sum of grad^2 after wait; NAN without sp_buckets_attach */
    int64_t *exact; /* [n_floats][SP_EXACT_LIMBS] exact mode's gradient; else NULL */
    sp_tail tail;
    /* [2] The exact mode's loss_sum and weight_sum, which sp_net_train_loss adds to.
     * wait sums them over the ranks and writes their values to the tail. */
    int64_t tail_exact[2 * SP_EXACT_WIDE];
    bool is_overlapped; /* false, to measure: only sp_bucket_wait posts buckets */
    int n_buckets;
    int64_t *begin; /* [n_buckets + 1] falling: bucket i is begin[i+1] .. begin[i]-1 */
    struct sp_buckets_impl *impl;
} sp_buckets;

/* Cuts the gradient into buckets of whole parameters, each of at least bucket_bytes (0:
 * 16 MiB) as it travels, and rarely above 1.5 times that. A world of one rank has
 * buckets but no communication. The gradient is in host memory. Collective. SP_EMEM;
 * destroy after failure too. */
sp_status sp_buckets_create(sp_buckets *buckets, const sp_graph *graph, sp_comm *comm,
                            bool is_exact, size_t bucket_bytes);
void sp_buckets_destroy(sp_buckets *buckets);
/* Moves the gradient to the memory of the transport's backend and has the transport sum
 * it; in exact mode MPI sums the limbs. Called at most once, before the first use. The
 * transport is borrowed. Local. SP_EMEM. */
sp_status sp_buckets_attach(sp_buckets *buckets, sp_transport *transport);
/* Begins a step, before its first micro-batch: zeroes tail, loss and limbs. The first
 * backward pass overwrites the gradient, whose memory a host without other ranks gives
 * back to the system until then. Local. */
sp_status sp_buckets_begin(sp_buckets *buckets);
/* Posts the buckets that are complete, given that all gradients from flat offset `from`
 * on are final. Every rank makes the same calls in the same order; offsets never rise
 * within a step. */
sp_status sp_bucket_ready(sp_buckets *buckets, int64_t from);
/* Lets posted all-reduces make progress; called between layers. Local. */
sp_status sp_bucket_poll(sp_buckets *buckets);
/* Posts the other buckets and the tail, and waits for all: a step need not call
 * sp_bucket_ready. In exact mode grad is written from the limbs. *exposed_s (may be
 * NULL) is the time that this rank waited for others once its own gradients were
 * complete. This is the only time in a step that the host waits for the device, except
 * for sums over ranks that MPI moves. Collective. SP_EMPI if ranks have asked for other
 * sums, or in another order. */
sp_status sp_bucket_wait(sp_buckets *buckets, double *exposed_s);

#endif
