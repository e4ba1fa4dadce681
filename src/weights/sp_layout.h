/* How other programs lay out the weights of a convolution.
 *
 *     ours, minkowski   kernel [K, c_in, c_out], offsets with x fastest
 *     torchsparse       the same; kernels of even size have z fastest
 *     spconv2           weight [c_out, k0, k1, k2, c_in]
 *     spconv1           weight [k0, k1, k2, c_in, c_out]
 *     torch.nn.Linear   weight [c_out, c_in], for a kernel of 1 in any of them
 *
 * (k0, k1, k2) are the columns of spconv's indices after the batch: (x, y, z) in
 * Pointcept and in mmdet3d's MinkUNet, (z, y, x) in detectors. Sources: MinkowskiEngine
 * 0.5 src/kernel_region.hpp, torchsparse 2.1 nn/utils/kernel.py, spconv 2.3
 * pytorch/conv.py. All functions are pure.
 */
#ifndef SP_LAYOUT_H
#define SP_LAYOUT_H

#include "net/sp_graph.h"
#include "weights/sp_tensors.h"

typedef enum sp_layout_kind {
    SP_LAYOUT_OURS,
    SP_LAYOUT_MINKOWSKI,
    SP_LAYOUT_TORCHSPARSE,
    SP_LAYOUT_SPCONV2,
    SP_LAYOUT_SPCONV1
} sp_layout_kind;
#define SP_LAYOUT_WORDS "ours|minkowski|torchsparse|spconv2|spconv1"

/* The order of spconv's index columns. */
typedef enum sp_layout_axes { SP_AXES_XYZ, SP_AXES_ZYX } sp_layout_axes;

typedef struct sp_layout {
    sp_layout_kind kind;
    sp_layout_axes axes;
} sp_layout;

/* True for the weight of a convolution, which has a layout; all other parameters and
 * statistics are rows of numbers. */
bool sp_layout_is_kernel(const sp_graph *graph, const sp_param *p);
/* Sets the shape that parameter p has in a file. is_linear: as torch.nn.Linear, which
 * only a kernel of 1 can be. Returns the number of dimensions. */
int sp_layout_shape(const sp_layout *layout, const sp_graph *graph, const sp_param *p,
                    bool is_linear, int64_t dim[SP_TENSOR_RANK]);
/* True for shapes that differ in dimensions of 1 only, and have equal element order. */
bool sp_layout_fits(int rank, const int64_t *dim, int want_rank, const int64_t *want);
/* Copies parameter p [count] from a file's order to ours, or back. */
void sp_layout_to_ours(const sp_layout *layout, const sp_graph *graph,
                       const sp_param *p, bool is_linear, const float *from, float *to);
void sp_layout_from_ours(const sp_layout *layout, const sp_graph *graph,
                         const sp_param *p, bool is_linear, const float *from,
                         float *to);
/* Returns why a convolution of this layout's program is another operation than the
 * node's, though the shapes agree; NULL if it is the same one. */
const char *sp_layout_difference(const sp_layout *layout, const sp_graph *graph,
                                 const sp_node *node);

#endif
