/* Update rule, schedules and clipping. Local; all ranks compute the same from the same
 * sums. */
#ifndef SP_OPTIM_H
#define SP_OPTIM_H

#include "compute/sp_backend.h"
#include "deck/sp_deck.h"
#include "graph/sp_graph.h"
#include "memory/sp_kept.h"

typedef struct sp_optim {
    const sp_graph *graph;   /* borrowed */
    const sp_config *config; /* borrowed */
    sp_backend *backend;     /* borrowed */
    /* [n_floats] each, backend memory; NULL: the optimizer does not keep it */
    float *kept[SP_N_KEPT];
    int64_t t; /* updates done */
    struct sp_optim_impl *impl;
} sp_optim;

/* Opens an optimizer whose kept values are zero. Local. SP_EMEM. */
sp_status sp_optim_create(sp_optim *optim, const sp_graph *graph,
                          const sp_config *config, sp_backend *backend);
void sp_optim_destroy(sp_optim *optim);

/* train.lr scaled as train.lr_scale says, for steps of `effective` samples in the
 * world.
 */
double sp_optim_base_lr(const sp_config *config, int64_t effective);
/* Learning rate of the step that begins after samples_seen of total_samples; effective:
 * its batch in samples, world. base = sp_optim_base_lr, p = samples_seen /
 * total_samples:
 *   constant  base
 *   step      base, a tenth from p = 1/2, a hundredth from p = 3/4 (He et al. 2016)
 *   poly      base (1 - p)^0.9
 *   cosine    base (1 + cos(pi p)) / 2
 * all times min(1, (samples_seen + effective) / (warmup_steps effective)), and
 *   onecycle  cosine arcs from base / 25 up to base at p = s and down to
 *             base / 25 / 1e4 at p = 1 (PyTorch's OneCycleLR and its defaults, in
 *             progress rather than steps); s is the share of warmup_steps of the
 *             whole, 0.3 where it is 0.
 */
double sp_optim_lr(const sp_config *config, int64_t samples_seen, int64_t total_samples,
                   int64_t effective);

/* One update with the gradient g = grad / weight_sum. grad is in backend memory,
 * squares the sum of its squares.
 *   SGD     v = momentum v + (g + decay w), w -= lr v;
 *           Nesterov: w -= lr (g + decay w + momentum v)
 *   AdamW   decoupled decay; betas 0.9 and 0.999, eps 1e-8
 * decay_norm = false leaves batch norm's scale and shift without decay, train.lr_layers
 * multiplies lr layer by layer, and a frozen layer is left out altogether. With
 * grad_clip > 0 g is multiplied by min(1, grad_clip / (|g| + 1e-6)) (PyTorch's
 * clip_grad_norm_). *grad_norm (may be NULL) is |g| before clipping, over all
 * parameters. Nothing changes, t neither, where weight_sum is 0 (no labelled voxel of
 * a class with a weight above 0; norm 0) or where the norm is not finite: the caller
 * reads it from *grad_norm. */
sp_status sp_optim_step(sp_optim *optim, float *param, const float *grad,
                        double squares, double weight_sum, double lr,
                        double *grad_norm);

#endif
