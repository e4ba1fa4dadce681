#include "weights/sp_layout.h"

#include <assert.h>
#include <string.h>

bool sp_layout_is_kernel(const sp_graph *graph, const sp_param *p)
{
    return p->fan_out > 0 && graph->node[p->node].op == SP_OP_CONV;
}

static bool is_bias_of_conv(const sp_graph *graph, const sp_param *p)
{
    return p->fan_out == 0 && !p->is_norm && graph->node[p->node].op == SP_OP_CONV;
}

int sp_layout_shape(const sp_layout *layout, const sp_graph *graph, const sp_param *p,
                    bool is_linear, int64_t dim[SP_TENSOR_RANK])
{
    const sp_node *node = &graph->node[p->node];
    const int64_t n = node->kernel, in = node->c_in, out = node->c_out;

    if (!sp_layout_is_kernel(graph, p)) {
        const bool is_row = layout->kind == SP_LAYOUT_MINKOWSKI && !is_linear &&
                            is_bias_of_conv(graph, p);

        dim[0] = 1;
        dim[is_row] = p->count;
        return 1 + is_row;
    }
    if (is_linear) {
        assert(n == 1);
        dim[0] = out;
        dim[1] = in;
        return 2;
    }
    switch (layout->kind) {
    case SP_LAYOUT_SPCONV2:
        memcpy(dim, (int64_t[]){out, n, n, n, in}, 5 * sizeof *dim);
        return 5;
    case SP_LAYOUT_SPCONV1:
        memcpy(dim, (int64_t[]){n, n, n, in, out}, 5 * sizeof *dim);
        return 5;
    default:
        if (n == 1) {
            memcpy(dim, (int64_t[]){in, out}, 2 * sizeof *dim);
            return 2;
        }
        memcpy(dim, (int64_t[]){n * n * n, in, out}, 3 * sizeof *dim);
        return 3;
    }
}

bool sp_layout_fits(int rank, const int64_t *dim, int want_rank, const int64_t *want)
{
    for (int i = 0, j = 0;; i++, j++) {
        while (i < rank && dim[i] == 1)
            i++;
        while (j < want_rank && want[j] == 1)
            j++;
        if (i == rank || j == want_rank)
            return i == rank && j == want_rank;
        if (dim[i] != want[j])
            return false;
    }
}

/* The file's number of our row k of an n^3 kernel. */
static int64_t row_in_file(const sp_layout *layout, int64_t n, int64_t k)
{
    const int64_t x = k % n, y = k / n % n, z = k / (n * n);
    bool is_z_fastest = false;

    if (layout->kind == SP_LAYOUT_TORCHSPARSE)
        is_z_fastest = n % 2 == 0;
    else if (layout->kind == SP_LAYOUT_SPCONV1 || layout->kind == SP_LAYOUT_SPCONV2)
        is_z_fastest = layout->axes == SP_AXES_XYZ;
    return is_z_fastest ? (x * n + y) * n + z : k;
}

/* The file's element for our element [k][i][o] is
 * row * by[0] + i * by[1] + o * by[2]. spconv 2 multiplies by the memory of a kernel of
 * 1^3 and stride 1 as [c_in, c_out], though its shape is [c_out, 1, 1, 1, c_in]
 * (spconv/pytorch/conv.py, conv1x1; 2.2 to 2.3.8). */
static void element_strides(const sp_layout *layout, const sp_node *node,
                            bool is_linear, int64_t by[3])
{
    const int64_t n3 = (int64_t)node->kernel * node->kernel * node->kernel;
    const int64_t in = node->c_in, out = node->c_out;
    const bool is_product = node->kernel == 1 && node->stride == 1;

    if (is_linear || (layout->kind == SP_LAYOUT_SPCONV2 && !is_product))
        memcpy(by, (int64_t[]){in, 1, n3 * in}, 3 * sizeof *by);
    else
        memcpy(by, (int64_t[]){in * out, out, 1}, 3 * sizeof *by);
}

static void copy_kernel(const sp_layout *layout, const sp_node *node, bool is_linear,
                        bool is_to_ours, const float *from, float *to)
{
    const int64_t n = node->kernel, in = node->c_in, out = node->c_out;
    int64_t by[3], at = 0;

    element_strides(layout, node, is_linear, by);
    for (int64_t k = 0; k < n * n * n; k++)
        for (int64_t i = 0; i < in; i++)
            for (int64_t o = 0; o < out; o++, at++) {
                const int64_t there =
                    row_in_file(layout, n, k) * by[0] + i * by[1] + o * by[2];

                if (is_to_ours)
                    to[at] = from[there];
                else
                    to[there] = from[at];
            }
}

static void copy_param(const sp_layout *layout, const sp_graph *graph,
                       const sp_param *p, bool is_linear, bool is_to_ours,
                       const float *from, float *to)
{
    if (sp_layout_is_kernel(graph, p))
        copy_kernel(layout, &graph->node[p->node], is_linear, is_to_ours, from, to);
    else
        memcpy(to, from, (size_t)p->count * sizeof *to);
}

void sp_layout_to_ours(const sp_layout *layout, const sp_graph *graph,
                       const sp_param *p, bool is_linear, const float *from, float *to)
{
    copy_param(layout, graph, p, is_linear, true, from, to);
}

void sp_layout_from_ours(const sp_layout *layout, const sp_graph *graph,
                         const sp_param *p, bool is_linear, const float *from,
                         float *to)
{
    copy_param(layout, graph, p, is_linear, false, from, to);
}

/* True if the coarser of a strided layer's two levels is dilated. */
static bool layout_is_dilated(const sp_graph *graph, const sp_node *node)
{
    const int from = node->in[0] < 0 ? 0 : graph->node[node->in[0]].level;

    return graph->spec.is_dilated[from > node->level ? from : node->level];
}

const char *sp_layout_difference(const sp_layout *layout, const sp_graph *graph,
                                 const sp_node *node)
{
    const bool is_odd = node->kernel % 2 == 1 && node->kernel > 1;
    const bool is_spconv =
        layout->kind == SP_LAYOUT_SPCONV1 || layout->kind == SP_LAYOUT_SPCONV2;

    if (node->op != SP_OP_CONV || node->stride == 1)
        return NULL;
    if (is_spconv && node->kernel != 2 &&
        !(node->kernel == 3 && node->stride == 2 && layout_is_dilated(graph, node)))
        return "spconv's SparseConv3d of this kernel and stride generates an output "
               "voxel wherever its kernel reaches an input voxel; with kernel 3 and "
               "stride 2 coordinates = \"dilated\" does";
    if (!is_spconv && layout->kind != SP_LAYOUT_OURS && layout_is_dilated(graph, node))
        return "coordinates = \"dilated\" is spconv's; the file's program takes floor "
               "coordinates";
    if (layout->kind == SP_LAYOUT_TORCHSPARSE && is_odd)
        return "TorchSparse's Conv3d of an odd kernel with stride 2 has its offsets "
               "from 0 on, sptrain's are centred";
    return NULL;
}
