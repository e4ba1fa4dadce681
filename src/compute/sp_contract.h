/* The duties of a caller of the operations in sp_backend.h, as predicates for the
 * asserts at the entry of each backend's functions. They look at shapes, at the ends of
 * lists in host memory and at pointers that must not be NULL, never at elements, so
 * their cost is negligible against an operation's. */
#ifndef SP_CONTRACT_H
#define SP_CONTRACT_H

#include "compute/sp_backend.h"

/* Rows do not overlap, and a tensor with rows has memory. */
static inline bool sp_tensor_is_sound(sp_tensor t)
{
    return t.n >= 0 && t.c >= 0 && (t.n == 0 || (t.ld >= t.c && (t.data || t.c == 0)));
}

/* Two tensors of one shape; their elements may be of different types. */
static inline bool sp_tensors_match(sp_tensor a, sp_tensor b)
{
    return sp_tensor_is_sound(a) && sp_tensor_is_sound(b) && a.n == b.n &&
           (a.c == b.c || a.n == 0);
}

/* sample_row [n_samples + 1] divides n rows among the samples. */
static inline bool sp_samples_cover(const int32_t *sample_row, int n_samples, int64_t n)
{
    return n_samples >= 0 && (n_samples == 0 ? n == 0
                                             : sample_row && sample_row[0] == 0 &&
                                                   sample_row[n_samples] == n);
}

/* A map, NULL for kernel 1 on one level, leads from n_in to n_out rows. */
static inline bool sp_map_leads(const sp_map *map, int64_t n_in, int64_t n_out)
{
    return map ? map->n_in == n_in && map->n_out == n_out : n_in == n_out;
}

/* Either direction of a convolution. */
static inline bool sp_conv_is_sound(const sp_conv_args *a)
{
    return sp_tensor_is_sound(a->x) && sp_tensor_is_sound(a->y) &&
           sp_map_leads(a->map, a->x.n, a->y.n) && (a->w || a->w_packed);
}

static inline bool sp_conv_wgrad_is_sound(const sp_conv_wgrad_args *a)
{
    return sp_tensor_is_sound(a->x) && sp_tensor_is_sound(a->dy) &&
           sp_map_leads(a->map, a->x.n, a->dy.n) && a->dw && 0 <= a->sample0 &&
           a->sample0 <= a->sample1 && (a->map || a->sample_row) &&
           (!a->sample_row || a->sample_row[a->sample1] <= a->dy.n);
}

static inline bool sp_norm_is_sound(const sp_norm_args *a)
{
    return sp_tensors_match(a->x, a->y) &&
           (!a->res.data || sp_tensors_match(a->res, a->y)) && a->scale && a->shift &&
           !a->res_scale == !a->res_shift && a->slope >= 0;
}

/* The first pass of a norm's backward. */
static inline bool sp_norm_grad_sums_are_sound(const sp_norm_grad_args *a)
{
    return sp_tensors_match(a->x, a->dy) && a->slope >= 0 && a->mean && a->inv_std &&
           (a->slope == 1 || a->scale || sp_tensors_match(a->y, a->dy)) &&
           !a->scale == !a->shift && a->sums &&
           sp_samples_cover(a->sample_row, a->n_samples, a->x.n);
}

/* The second pass. */
static inline bool sp_norm_grad_is_sound(const sp_norm_grad_args *a)
{
    return sp_tensors_match(a->x, a->dy) && sp_tensors_match(a->dx, a->dy) && a->a &&
           a->b && a->c;
}

static inline bool sp_norm_finish_is_sound(const sp_norm_finish_args *a)
{
    return a->c >= 0 && a->eps > 0 && a->momentum >= 0 && a->momentum <= 1 &&
           a->gamma && a->beta && a->scale && a->shift &&
           (a->sums.part ? a->sums.n_parts >= 0 && a->mean && a->inv_std
                         : a->running_mean && a->running_var);
}

static inline bool sp_norm_grad_finish_is_sound(const sp_norm_grad_finish_args *a)
{
    return a->c >= 0 && a->gamma && a->mean && a->inv_std && a->abc &&
           a->all.n_parts >= 0 && (!a->own.part || (a->dgamma && a->dbeta));
}

static inline bool sp_pool_is_sound(const sp_pool_args *a)
{
    return a->map && sp_tensor_is_sound(a->x) && sp_tensor_is_sound(a->y) &&
           sp_map_leads(a->map, a->x.n, a->y.n) && (a->argmax || !a->is_max);
}

static inline bool sp_pool_grad_is_sound(const sp_pool_args *a)
{
    return a->map && sp_tensor_is_sound(a->dx) && sp_tensor_is_sound(a->dy) &&
           sp_map_leads(a->map, a->dx.n, a->dy.n) && (a->argmax || !a->is_max);
}

/* x is the coarse side, y the fine one. */
static inline bool sp_interpolate_is_sound(const sp_interpolate_args *a, sp_tensor x,
                                           sp_tensor y)
{
    return a->map && a->map->key.kernel == 2 && a->steps >= 1 &&
           sp_tensor_is_sound(x) && sp_tensor_is_sound(y) &&
           sp_map_leads(a->map, x.n, x.n) && a->level[0].n == y.n &&
           a->level[a->steps].n == x.n;
}

static inline bool sp_loss_rule_is_sound(const sp_loss_rule *rule)
{
    return rule->smoothing >= 0 && rule->smoothing <= 1 &&
           (!rule->is_sum || rule->focal_gamma >= 0);
}

static inline bool sp_loss_is_sound(const sp_loss_args *a)
{
    return sp_tensor_is_sound(a->logits) && a->sums &&
           sp_loss_rule_is_sound(&a->rule) &&
           (!a->dlogits.data || sp_tensors_match(a->dlogits, a->logits)) &&
           sp_samples_cover(a->sample_row, a->n_samples, a->logits.n);
}

static inline bool sp_update_is_sound(const sp_optim_args *a)
{
    return a->n >= 0 && (a->n == 0 || (a->w && a->g)) && a->t >= 0 && a->lr >= 0 &&
           (a->dampening == 0 || !a->nesterov);
}

#endif
