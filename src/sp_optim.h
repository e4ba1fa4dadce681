/* Update rule, schedules and clipping. Local; all ranks compute the same from the same sums. */
#ifndef SP_OPTIM_H
#define SP_OPTIM_H

#include "sp_backend.h"
#include "sp_deck.h"
#include "sp_graph.h"

typedef struct sp_optim {
    const sp_graph *graph;   /* borrowed */
    const sp_config *config; /* borrowed */
    sp_backend *backend;     /* borrowed */
    float *m, *v;            /* [n_floats]; v only for AdamW */
    int64_t t;               /* updates done */
} sp_optim;

sp_status sp_optim_create(sp_optim *optim, const sp_graph *graph, const sp_config *config,
                          sp_backend *backend);
void sp_optim_destroy(sp_optim *optim);

/* Learning rate of the step that begins after samples_seen of total_samples; effective: its
 * batch in samples, world; base = train.lr scaled by train.lr_scale. */
double sp_optim_lr(const sp_config *config, int64_t samples_seen, int64_t total_samples,
                   int64_t effective);
/* w -= ... with the gradient grad / weight_sum, clipped to train.grad_clip if > 0. grad_norm
 * (may be NULL) is that of the mean gradient before clipping. */
sp_status sp_optim_step(sp_optim *optim, float *param, const float *grad,
                        double weight_sum, double lr, double *grad_norm);

#endif
