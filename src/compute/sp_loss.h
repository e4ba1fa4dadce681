/* The arithmetic of losses that are sums of terms, one row of logits z or one place of
 * a sorted class at a time, in double. The backends and no other file share it, so that
 * they compute the same. p is the softmax of z, y the label, w the weight of class y.
 *
 *     cross entropy   w (- sum_j t_j log p_j), t the target of sp_loss_rule
 *     focal           w (- (1 - p_y)^gamma log p_y)
 *                     (Lin et al., "Focal loss for dense object detection", ICCV 2017)
 *     dice            of a sample, C classes:
 *                     1/C sum_c 1 - (2 sum_i p_ic [y_i = c] + 1) /
 *                                   (sum_i p_ic^2 + sum_i [y_i = c] + 1)
 *                     (Milletari et al., "V-Net", 3DV 2016, with 1 added to both as
 *                     usual, so that absent classes are defined)
 *     Lovasz-softmax  of a group of rows: the mean over the classes c with a label of
 *                     the Lovasz extension of the Jaccard loss of c, in the errors
 *                     e_i = 1 - p_ic for y_i = c, else p_ic
 *                     (Berman et al., "The Lovasz-softmax loss", CVPR 2018)
 *
 * Rows without a label, and rows of classes with weight 0, do not count. The extension
 * sorts the errors, the largest first, and is sum_k e_k g_k with g_k = J_k - J_(k-1),
 * J_k the Jaccard loss if the first k rows were wrong. Its gradient with respect to e
 * is g. Equal errors are in the order of their rows, so that the gradient does not
 * depend on the way of sorting.
 */
#ifndef SP_LOSS_H
#define SP_LOSS_H

#include <math.h>

#include "compute/sp_backend.h"

/* An error is sorted as a whole number of this many bits: one step is 1.2e-10. */
enum { SP_LOSS_ERROR_BITS = 33, SP_LOSS_KEY_BITS = SP_LOSS_ERROR_BITS + 1 };
#define SP_LOSS_ERROR_TOP ((1ull << SP_LOSS_ERROR_BITS) - 1)
/* The key of a row that does not count: it is sorted after all others. */
#define SP_LOSS_ABSENT (1ull << SP_LOSS_ERROR_BITS)

/* Before a loop over classes: unrolled, its calls of exp would make a kernel spill. */
#ifdef __NVCC__
#define SP_KEEP_LOOP _Pragma("unroll 1")
#else
#define SP_KEEP_LOOP
#endif

/* p_j = exp(z_j - top) * scale */
typedef struct sp_loss_soft {
    double scale;
    float top;
} sp_loss_soft;

/* A class in a group of rows: its labels, and the factor of g in the gradient of the
 * loss with respect to p, 0 if it is absent. */
typedef struct sp_loss_class {
    int64_t n_labels;
    double factor;
} sp_loss_class;

static inline SP_HOST_DEVICE bool sp_loss_counts(const sp_loss_args *a, int64_t i)
{
    const int label = a->label[i];

    return label != SP_IGNORE && (!a->class_weight || a->class_weight[label] > 0);
}

static inline SP_HOST_DEVICE sp_loss_soft sp_loss_softmax(const float *z, int C)
{
    sp_loss_soft soft = {0, z[0]};

    for (int j = 1; j < C; j++)
        soft.top = z[j] > soft.top ? z[j] : soft.top;
    for (int j = 0; j < C; j++)
        soft.scale += exp((double)z[j] - (double)soft.top);
    soft.scale = 1 / soft.scale;
    return soft;
}

static inline SP_HOST_DEVICE double sp_loss_p(sp_loss_soft soft, float z)
{
    return exp((double)z - (double)soft.top) * soft.scale;
}

/* Returns the focal loss of a row, without w; *slope: its derivative with respect to
 * z_j is slope ([j = y] - p_j). 1 - p_y is summed from the other classes, which keeps
 * its digits if p_y is close to 1. */
static inline SP_HOST_DEVICE double sp_loss_focal(sp_loss_soft soft, const float *z,
                                                  int C, int y, double gamma,
                                                  double *slope)
{
    double rest = 0, log_p, power, ratio;

    SP_KEEP_LOOP
    for (int j = 0; j < C; j++)
        rest += j == y ? 0 : sp_loss_p(soft, z[j]);
    log_p =
        rest < 0.5 ? log1p(-rest) : (double)z[y] - (double)soft.top + log(soft.scale);
    /* pow would be a call in the kernels; rest is 0 or above. */
    power = rest > 0 ? exp(gamma * log(rest)) : gamma > 0 ? 0 : 1;
    ratio = rest > 0 ? log_p / rest : -1; /* log(1 - rest) / rest */
    *slope = gamma * sp_loss_p(soft, z[y]) * power * ratio - power;
    return -power * log_p;
}

/* Writes the gradient of a row that has a label of weight w over dz, which holds the
 * derivatives of dice and Lovasz-softmax with respect to p. slope: sp_loss_focal's. */
static inline SP_HOST_DEVICE void sp_loss_row_grad(const sp_loss_rule *rule,
                                                   sp_loss_soft soft, const float *z,
                                                   int C, int y, double w, double slope,
                                                   float *dz)
{
    const double smoothing = rule->smoothing;
    const double entropy = w * (double)rule->weight[SP_CROSS_ENTROPY];
    const double focal = w * (double)rule->weight[SP_FOCAL] * slope;
    double mean = 0;

    SP_KEEP_LOOP
    for (int j = 0; j < C; j++)
        mean += sp_loss_p(soft, z[j]) * (double)dz[j];
    SP_KEEP_LOOP
    for (int j = 0; j < C; j++) {
        const double p = sp_loss_p(soft, z[j]), is_label = j == y;
        const double target = is_label * (1 - smoothing) + smoothing / C;

        dz[j] = (float)(p * ((double)dz[j] - mean) + entropy * (p - target) +
                        focal * (is_label - p));
    }
}

/* A key that rises as the error falls. An error that is no number counts as 1. */
static inline SP_HOST_DEVICE uint64_t sp_loss_key(double error)
{
    const double top = (double)SP_LOSS_ERROR_TOP, x = error * top + 0.5;

    if (!(x < top))
        return 0;
    return SP_LOSS_ERROR_TOP - (x > 0 ? (uint64_t)x : 0);
}

static inline SP_HOST_DEVICE double sp_loss_error(uint64_t key)
{
    return (double)(SP_LOSS_ERROR_TOP - (key & SP_LOSS_ERROR_TOP)) /
           (double)SP_LOSS_ERROR_TOP;
}

/* Returns g of place k (from 1) of a class with n_labels labels, with n_before of them
 * at earlier places. is_label: the row at k is one of them. The union of truth and the
 * wrong rows is n_labels + k - labels so far; a label subtracts 1 from the
 * intersection, another row adds 1 to the union. */
static inline SP_HOST_DEVICE double sp_loss_jaccard_step(int64_t n_labels, int64_t k,
                                                         int64_t n_before,
                                                         bool is_label)
{
    const double joint = (double)(n_labels + k - n_before - is_label);

    return is_label ? 1 / joint : (double)(n_labels - n_before) / (joint * (joint - 1));
}

/* The derivative of 1 - num / den of the dice of one class with respect to p. */
static inline SP_HOST_DEVICE double sp_loss_dice_step(double num, double den, double p,
                                                      bool is_label)
{
    return 2 * (num * p / den - is_label) / den;
}

#endif
