/* Decides which launches may begin early (sp_cuda.h): those that follow a kernel of
 * this program in one of the listed streams, with nothing else queued in between.
 *
 * CUDA graphs are not used instead. Grids, numbers of rows and addresses change with
 * every batch, so a captured step would have to be updated node by node. That is
 * expected to cost the host about as much as launching, and the host runs ahead of the
 * device in all but the smallest networks.
 */
#include <stdlib.h>
#include <string.h>

#include "base/sp_env.h"
#include "cuda/device/sp_cuda.h"

namespace
{

enum { MOST = 8 };

/* The one thread that uses a stream writes its is_behind_kernel. Threads search this
 * list for their own streams while it is not changed. */
struct early_stream {
    cudaStream_t stream; /* NULL: this entry is free */
    bool is_behind_kernel;
} streams[MOST];

early_stream *early_find(cudaStream_t stream)
{
    for (early_stream &s : streams)
        if (s.stream == stream)
            return &s;
    return NULL;
}

__global__ void early_any_kernel()
{
    sp_grid_wait();
}

/* Kernels that were compiled for an older device lack the wait, whatever this device
 * can do. */
bool has_wait(int device)
{
    cudaFuncAttributes code = {};
    int major = 0;

    return cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) ==
               cudaSuccess &&
           major >= 9 &&
           cudaFuncGetAttributes(&code, (const void *)early_any_kernel) ==
               cudaSuccess &&
           code.ptxVersion >= 90;
}

} // namespace

void sp_early_allow(cudaStream_t stream, int device)
{
    const char *text = sp_env("SP_EARLY_LAUNCH");
    early_stream *s = early_find(NULL);

    if (s && has_wait(device) && !(text && strcmp(text, "0") == 0))
        *s = {stream, false};
}

void sp_early_forget(cudaStream_t stream)
{
    early_stream *s = stream ? early_find(stream) : NULL;

    if (s)
        *s = {NULL, false};
}

void sp_early_break(cudaStream_t stream)
{
    early_stream *s = early_find(stream);

    if (s)
        s->is_behind_kernel = false;
}

bool sp_early_next(cudaStream_t stream)
{
    early_stream *s = stream ? early_find(stream) : NULL;
    const bool is_early = s && s->is_behind_kernel;

    if (s)
        s->is_behind_kernel = true;
    return is_early;
}
