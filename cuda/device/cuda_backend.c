/* The table of the CUDA backend. */
#include "cuda/device/cuda_ops.h"

#define ROW(slot) .slot = sp_cuda_##slot,
const sp_backend_ops sp_cuda_ops = {
    .name = "cuda",
    .open = sp_cuda_open,
    .close = sp_cuda_close,
    .arena_create = sp_cuda_arena_create,
    .arena_destroy = sp_cuda_arena_destroy,
    .upload = sp_cuda_upload,
    .download = sp_cuda_download,
    .fill = sp_cuda_fill,
    .wait = sp_cuda_wait,
    .arena_pass = sp_cuda_arena_pass,
    .transports = sp_cuda_transports,
    .plan_build = sp_cuda_plan_build,
    .plan_bytes = sp_cuda_plan_bytes,
    .plan_scratch_bytes = sp_cuda_plan_scratch_bytes,
    .conv_pack_floats = sp_cuda_conv_pack_floats,
    .join = sp_cuda_join,
    .conv_grad_weight_bytes = sp_cuda_conv_grad_weight_bytes,
    .norm_finish = sp_cuda_norm_finish,
    .norm_grad_finish = sp_cuda_norm_grad_finish,
    .fused_parts = sp_cuda_fused_parts,
    .add_samples = sp_cuda_add_samples,
    .clock_begin = sp_cuda_clock_begin,
    .clock_end = sp_cuda_clock_end,
    .peak = sp_cuda_peak,
    .memory_used = sp_cuda_memory_used,
    .scratch_drop = sp_cuda_scratch_drop,
    .range_begin = sp_cuda_range_begin,
    .range_end = sp_cuda_range_end,
    SP_OPERATIONS(ROW)
};

const sp_backend_ops *sp_cuda_table(void)
{
    return &sp_cuda_ops;
}
