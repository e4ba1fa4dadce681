/* The table of the CUDA backend. */
#include "cuda/device/cuda_ops.h"

#define ROW(slot) .slot = sp_cuda_##slot,
const sp_backend_ops sp_cuda_ops = {
    .name = "cuda",
    .transports = sp_cuda_transports,
    SP_CUDA_SLOTS(ROW)
    SP_OPERATIONS(ROW)
};

const sp_backend_ops *sp_cuda_table(void)
{
    return &sp_cuda_ops;
}
