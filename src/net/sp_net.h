/* Forward and backward through the graph on one micro-batch: pure arithmetic in known
 * shapes.
 *
 *   sp_net_forward --> sp_net_train_loss --> sp_net_backward     training
 *   sp_net_forward --> sp_net_loss                               evaluation
 *
 * A net owns parameters, running statistics and the memory of activations. At creation
 * the graph is lowered: batch norm, addition and activation become one pass (in
 * evaluation one with the convolution), and concatenations become views. A step
 * allocates nothing once the largest batch was seen.
 */
#ifndef SP_NET_H
#define SP_NET_H

#include "data/sp_loader.h"
#include "compute/sp_backend.h"
#include "compute/sp_transport.h"
#include "net/sp_bucket.h"

/* The last layer's output on this rank, in host memory; see sp_logits of
 * include/sptrain.h. */
typedef struct sp_net_rows {
    int64_t n;
    int n_classes;
    const float *logits;         /* [n][n_classes] */
    const int32_t *labels;       /* [n]; NULL: the rows are not voxels */
    int n_samples;
    const int64_t *sample;       /* [n_samples] */
    const int32_t *sample_row;   /* [n_samples + 1] */
} sp_net_rows;

/* A loss of the calling program; see sp_loss_fn of include/sptrain.h. fn NULL: the
 * backend's loss. */
typedef struct sp_net_own_loss {
    int (*fn)(void *arg, const sp_net_rows *rows, float *gradient, double *loss_sum,
              double *weight_sum);
    void *arg; /* borrowed */
} sp_net_own_loss;

/* What the last layer reads, in host memory. */
typedef struct sp_net_features {
    sp_arena *arena; /* where forward puts them, set by the user; NULL: not wanted */
    int64_t n;
    int c;
    const float *data; /* [n][c] of the last forward, until the arena is reset */
} sp_net_features;

typedef struct sp_net {
    const sp_graph *graph;   /* borrowed */
    sp_backend *backend;     /* borrowed */
    sp_comm *comm;           /* borrowed */
    sp_transport *transport; /* borrowed; it sums batch statistics over bn_scope */
    float *param;            /* [graph->n_floats] backend memory, 0 at creation */
    float *running;          /* [graph->n_buffer_floats] backend memory, 0 likewise */
    int layer; /* the node of the running step, for measurements; -1: no step runs */
    sp_net_own_loss own_loss; /* set by the user before the first step */
    sp_net_features features; /* of evaluations */
    struct sp_net_impl *impl;
} sp_net;

typedef struct sp_net_options {
    sp_scope bn_scope;       /* the ranks that batch statistics are formed over */
    sp_transport *transport; /* borrowed; NULL: the net opens MPI */
    bool is_exact;           /* sums over rows and ranks do not depend on any order */
    /* Batch norms and light convolutions (sp_lower_mark_light) are computed again in the
     * backward pass instead of being stored, one room serves the packed weights of all
     * layers, and pages that the backward pass frees hold the gradient (of one rank). The
     * bits stay the same. */
    bool is_low_memory;
    bool is_inference; /* sp_net_backward is never called */
    /* The backward pass computes about half of the activations again (train.recompute,
     * sp_lower_mark_recomputed). The bits stay the same. */
    bool is_recomputed;
    uint64_t seed;             /* key of dropout's random numbers */
    const float *class_weight; /* [n_classes] weights of the loss, copied; NULL: 1 */
    sp_loss_rule loss;
} sp_net_options;

/* The loss over this rank's micro-batch. */
typedef struct sp_net_loss_out {
    double loss_sum, weight_sum; /* sum w l and sum w, written */
    int64_t *exact; /* [2][SP_EXACT_WIDE] both sums, added to; NULL: not wanted */
} sp_net_loss_out;

/* The loss that a deck asks for. Pure. */
sp_loss_rule sp_net_loss_rule(const sp_config *config);
/* Creates a net; the caller fills its param and running and then calls sp_net_updated.
 * Local. SP_EMEM; destroy it after a failure too. */
sp_status sp_net_create(sp_net *net, const sp_graph *graph, sp_backend *backend,
                        sp_comm *comm, const sp_net_options *options);
void sp_net_destroy(sp_net *net);
/* Marks packed copies of the weights as stale. The caller calls it whenever it has
 * changed the weights: after initialization, loading, and each optimizer step that did
 * not keep the packings. */
void sp_net_updated(sp_net *net);
/* Lends the gradients' memory to a net with little memory, on the host, where each step
 * zeroes it: evaluations keep packed weights there from batch to batch. Their contents
 * are lost, and no training step may run until the call with NULL. Local. */
void sp_net_lend(sp_net *net, const sp_buckets *buckets);
/* Takes back the pages that the last backward pass has lent to the gradient, whose bytes
 * are lost: a step calls it before sp_buckets_begin, which would return them to the system.
 * Local. */
void sp_net_regain(sp_net *net);
/* The packings of the weights that the next step reads, for an update to keep. The list
 * is empty if they are stale, as before the first step, and with little memory; it is
 * borrowed until the next call of the net. */
sp_packs sp_net_packs(const sp_net *net);

/* Computes the logits of a batch. In training, batch norms use the statistics of the
 * batch (collective over bn_scope, also without samples), which move the running ones
 * if they are finite, and activations stay for the backward pass. In evaluation they
 * use the running statistics (local) and run with the convolution before them, and the
 * memory of an activation is used again after its last reader. The batch is borrowed
 * until the backward pass. *logits (may be NULL) is valid until the next forward, in
 * training until the backward pass. SP_EMEM. */
sp_status sp_net_forward(sp_net *net, const sp_batch *batch, bool is_training,
                         sp_tensor *logits);
/* Computes the loss of the last forward and, in training, its gradient. confusion
 * [C][C] is added to and prediction [n] is written; both are host memory and may be
 * NULL. Waits for the device. Local. */
sp_status sp_net_loss(sp_net *net, const sp_batch *batch, sp_net_loss_out *out,
                      int64_t *confusion, int32_t *prediction);
/* The same for training. The sums are added to buckets->loss without a wait, in exact
 * mode to buckets->tail_exact with one. The sums of each sample stay until the end of
 * the step, for sp_net_sample_losses. Local. */
sp_status sp_net_train_loss(sp_net *net, const sp_batch *batch, sp_buckets *buckets);
/* Copies the logits of the last forward and the labels to host memory of `arena`. Waits
 * for the device. Local. SP_EMEM. */
sp_status sp_net_fetch_rows(sp_net *net, const sp_batch *batch, sp_arena *arena,
                            sp_net_rows *rows);
/* Fetches the losses of the n samples of the step so far: id (-1: padding, no sample)
 * and loss, sum w l and sum w. Both are host memory, valid until the next forward.
 * Waits for the device. Local. */
sp_status sp_net_sample_losses(sp_net *net, int *n, const int64_t **id,
                               const double (**loss)[2]);
/* Writes the gradient of the summed loss to buckets->grad, or adds it in the later
 * micro-batches of a step; in exact mode adds it to buckets->exact, sample by sample.
 * In the last micro-batch of a step it reports final gradients to the buckets as it
 * goes. Collective over bn_scope; with is_last over the world. */
sp_status sp_net_backward(sp_net *net, const sp_batch *batch, sp_buckets *buckets,
                          bool is_last);
/* Copies the running statistics to the host for sp_net_sync_running, before the update
 * is queued: so the device updates while the host waits for the other ranks. The call
 * may be left out. Between it and the next forward only sp_net_sync_running may follow.
 * Local. */
sp_status sp_net_fetch_running(sp_net *net);
/* Makes the running statistics equal on all ranks if bn_scope is less than the world:
 * they become the mean of the ranks', weighted by the rows that each rank has trained
 * on since the last call. Called at the end of every step. Collective over the
 * world. */
sp_status sp_net_sync_running(sp_net *net);

#endif
