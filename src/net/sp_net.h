/* Forward and backward through the graph on one micro-batch: pure arithmetic in known
 * shapes.
 *
 *   sp_net_forward --> sp_net_train_loss --> sp_net_backward     training
 *   sp_net_forward --> sp_net_loss                               evaluation
 *
 * Owns parameters, running statistics and the activation arena. At creation the graph
 * is lowered: batch norm + add + activation become one pass, concatenations become
 * views. After the largest batch was seen a step allocates nothing.
 */
#ifndef SP_NET_H
#define SP_NET_H

#include "compute/sp_backend.h"
#include "compute/sp_transport.h"
#include "data/sp_loader.h"
#include "net/sp_bucket.h"

typedef struct sp_net {
    const sp_graph *graph;   /* borrowed */
    sp_backend *backend;     /* borrowed */
    sp_comm *comm;           /* borrowed */
    sp_transport *transport; /* borrowed; sums of backend memory over bn_scope */
    float *param;            /* [graph->n_floats] backend memory, 0 at creation */
    float *running;          /* [graph->n_buffer_floats] backend memory, 0 likewise */
    int layer; /* node whose step runs, for whoever times it; -1: none does */
    struct sp_net_impl *impl;
} sp_net;

typedef struct sp_net_options {
    sp_scope bn_scope;
    sp_transport *transport;   /* borrowed; NULL: MPI */
    bool is_exact;             /* order-independent sums */
    bool is_low_memory;        /* less memory for a little more work; the same bits */
    uint64_t seed;             /* dropout */
    const float *class_weight; /* [n_classes] or NULL; copied */
    float label_smoothing;
} sp_net_options;

/* Result of the loss over this rank's micro-batch. */
typedef struct sp_net_loss_out {
    double loss_sum, weight_sum; /* sum w l, sum w: written */
    int64_t *exact; /* [2][SP_EXACT_LIMBS] both sums, added to (tail_exact); NULL */
    int unsummed; /* first sample of the batch whose w l is not finite, or too large for
                       an exact sum; -1: none */
} sp_net_loss_out;

/* Local. SP_EMEM. The caller fills param and running, then calls sp_net_updated. */
sp_status sp_net_create(sp_net *net, const sp_graph *graph, sp_backend *backend,
                        sp_comm *comm, const sp_net_options *options);
void sp_net_destroy(sp_net *net);
/* Weights changed outside (init, load): packed copies are stale. sp_net_updated after
 * each optimizer step too. */
void sp_net_updated(sp_net *net);

/* Training: batch statistics (collective over bn_scope, with no samples too),
 * activations kept. Evaluation: running statistics, local, activations dropped after
 * their last reader. The batch is borrowed until the backward pass. logits (may be
 * NULL) stays valid until the next forward. Statistics that are not finite do not enter
 * the running ones. */
sp_status sp_net_forward(sp_net *net, const sp_batch *batch, bool is_training,
                         sp_tensor *logits);
/* Loss of the last forward and, in training, its gradient. confusion [C][C] added to,
 * prediction [n], both host memory, may be NULL. Waits for the device. Local. */
sp_status sp_net_loss(sp_net *net, const sp_batch *batch, sp_net_loss_out *out,
                      int64_t *confusion, int32_t *prediction);
/* The same in training, without a wait: the sums join buckets->loss (exact mode: wait,
 * and join its tail_exact). Those of each sample are kept until the step's end. */
sp_status sp_net_train_loss(sp_net *net, const sp_batch *batch, sp_buckets *buckets);
/* What sp_net_train_loss left since the step's first micro-batch, by sample: id (-1:
 * none), loss[2] = sum w l, sum w. Host memory, valid until the next forward. Waits. */
sp_status sp_net_sample_losses(sp_net *net, int *n, const int64_t **id,
                               const double (**loss)[2]);
/* Adds the gradient of the summed loss to buckets->grad (exact mode: per sample to
 * buckets->exact); is_last micro-batch: announces finished ranges to the buckets on the
 * way. Collective over bn_scope, and over the world with is_last. */
sp_status sp_net_backward(sp_net *net, const sp_batch *batch, sp_buckets *buckets,
                          bool is_last);
/* To the host what sp_net_sync_running will sum, while the device is idle anyway, at
 * the end of a step: then it works on the update while the host waits for the other
 * ranks. It may be left out; nothing but sync_running until the next forward. Local. */
sp_status sp_net_fetch_running(sp_net *net);
/* Running statistics identical on all ranks (bn_scope below world): the mean of the
 * ranks', weighted by the voxels that each rank has trained on since the last call.
 * Collective over the world; at the end of every step (session/sp_step.c). */
sp_status sp_net_sync_running(sp_net *net);

#endif
