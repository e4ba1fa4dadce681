/* Update rule, schedules and clipping. Local; all ranks compute the same from the same
 * sums. */
#ifndef SP_OPTIM_H
#define SP_OPTIM_H

#include "compute/sp_backend.h"
#include "deck/sp_deck.h"
#include "net/sp_graph.h"
#include "net/sp_net.h"
#include "net/sp_optim_state.h"

typedef struct sp_optim {
    const sp_graph *graph;   /* borrowed */
    const sp_config *config; /* borrowed */
    sp_backend *backend;     /* borrowed */
    /* [n_floats] each, backend memory; NULL: the optimizer does not keep it */
    float *state[SP_N_OPTIM_STATES];
    int64_t t;         /* updates done */
    bool is_averaging; /* an update has entered the averages of the weights */
    struct sp_optim_impl *impl;
} sp_optim;

/* The schedule's values for one step. */
typedef struct sp_rates {
    double lr;
    double momentum; /* of sgd; the first beta of adamw */
    double keep;     /* share that averages of the weights keep; 0: they begin here */
} sp_rates;

/* Opens an optimizer with kept values of zero. Local. SP_EMEM. */
sp_status sp_optim_create(sp_optim *optim, const sp_graph *graph,
                          const sp_config *config, sp_backend *backend);
void sp_optim_destroy(sp_optim *optim);

/* train.lr scaled as train.lr_scale says, for steps of `effective` samples in the
 * world.
 */
double sp_optim_base_lr(const sp_config *config, int64_t effective);
/* Rates of the step that begins after samples_seen of total_samples; effective: its
 * batch in samples, world. base = sp_optim_base_lr, p = samples_seen / total_samples;
 * the other names are keys of train. Learning rates:
 *   constant  base
 *   step      base gamma^n, n of the milestones are not above p
 *   poly      base (1 - p)^poly_power
 *   cosine    base (cosine_floor + (1 - cosine_floor) (1 + cos(pi p)) / 2)
 * all times w, which rises linearly from warmup_factor (0: 1 / warmup_steps) in the
 * first step to 1 in the last one of warmup_steps full steps, and
 *   onecycle  cosine arcs from base / div_factor up to base at p = s - e and down to
 *             base / div_factor / final_div_factor at p = 1 - e, where e is the share
 *             of one step in the whole (PyTorch's OneCycleLR: of T steps, numbered from
 *             0, step s T - 1 has the maximum and step T - 1 the end); s is pct_start,
 *             or the share of warmup_steps in the whole if that is 0, or 0.3 if both
 *             are.
 * The momentum is the deck's, but in onecycle with cycle_momentum = [low, high]. Then
 * it goes from high to low and back to high by the same arcs.
 *
 * Averages keep d of train.ema. With train.average_tail = q they are the mean over the
 * steps that begin in the last q of the samples (Izmailov et al. 2018): a step of b
 * samples that begins s samples after that place keeps s / (s + b).
 */
sp_rates sp_optim_rates(const sp_config *config, int64_t samples_seen,
                        int64_t total_samples, int64_t effective);
/* True if the momentum is not the same in all steps. */
bool sp_optim_cycles_momentum(const sp_config *config);

/* One update with the gradient g = grad / weight_sum. grad is in backend memory,
 * squares the sum of its squares.
 *   SGD     d = g + decay w, v = momentum v + (1 - dampening) d, w -= lr v; in the
 *           first update v = d; with momentum 0 w -= lr d;
 *           Nesterov: w -= lr (d + momentum v)
 *   AdamW   decoupled decay; its bias correction uses the first beta of this step
 * decay_norm = false leaves batch norm's scale and shift without decay, train.lr_layers
 * multiplies lr layer by layer, and a frozen layer is left out altogether. With
 * grad_clip > 0 g is multiplied by min(1, grad_clip / (|g| + 1e-6)) (PyTorch's
 * clip_grad_norm_). *grad_norm (may be NULL) is |g| before clipping, over all
 * parameters. Nothing changes, t neither, if weight_sum is 0 (no labelled voxel of a
 * class with a weight above 0; norm 0) or the norm is not finite: the caller reads it
 * from *grad_norm. */
sp_status sp_optim_step(sp_optim *optim, float *param, const float *grad,
                        double squares, double weight_sum, sp_rates rates,
                        double *grad_norm);

/* sp_optim_step of a network's weights by the gradient in its buckets. It keeps the
 * packings of the weights (sp_net_packs), or marks them as stale. */
sp_status sp_optim_update(sp_optim *optim, sp_net *net, const sp_buckets *buckets,
                          sp_rates rates, double *grad_norm);

/* The averages of train.ema and train.average_tail, which do nothing without them.
 * sp_optim_begin_average makes them the weights and buffers. sp_optim_average is called
 * after each update, with `keep` of its rates: the first one makes them the weights and
 * buffers, each later one average = keep average + (1 - keep) value
 * (torch.optim.swa_utils.AveragedModel with use_buffers = True: get_ema_multi_avg_fn(d)
 * for train.ema = d, get_swa_multi_avg_fn() for the steps of train.average_tail). param
 * [n_floats], running [n_buffer_floats]: backend memory. Local. */
sp_status sp_optim_begin_average(sp_optim *optim, const float *param,
                                 const float *running);
sp_status sp_optim_average(sp_optim *optim, const float *param, const float *running,
                           double keep);

#endif
