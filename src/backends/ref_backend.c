/* The table of the reference backend: plain loops. */
#include "cpu/cpu.h"

static sp_status ref_open(sp_backend *be, int device, int threads)
{
    be->device = device;
    be->threads = threads;
    be->impl = NULL;
    return SP_OK;
}

static void ref_close(sp_backend *be)
{
    (void)be;
}

#define ROW(slot) .slot = sp_ref_##slot,
const sp_backend_ops sp_ref_ops = {
    .name = "reference",
    .is_host = true,
    .open = ref_open,
    .close = ref_close,
    .arena_create = sp_cpu_arena_create,
    .arena_destroy = sp_cpu_arena_destroy,
    .upload = sp_cpu_move,
    .download = sp_cpu_move,
    .fill = sp_cpu_fill,
    .wait = sp_cpu_wait,
    .arena_pass = sp_cpu_arena_pass,
    .plan_build = sp_cpu_plan_build,
    .plan_bytes = sp_cpu_plan_bytes,
    .plan_scratch_bytes = sp_cpu_plan_scratch_bytes,
    .conv_pack_floats = sp_ref_conv_pack_floats,
    .join = sp_ref_join,
    .conv_grad_weight_bytes = sp_cpu_conv_grad_weight_bytes,
    .norm_finish = sp_ref_norm_finish,
    .norm_grad_finish = sp_ref_norm_grad_finish,
    .fused_parts = sp_cpu_fused_parts,
    .add_samples = sp_ref_add_samples,
    .clock_begin = sp_cpu_clock_begin,
    .clock_end = sp_cpu_clock_end,
    .peak = sp_cpu_peak,
    .memory_used = sp_cpu_memory_used,
    SP_OPERATIONS(ROW)
};
