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
const sp_backend_ops sp_ref_ops = {.name = "reference",
                                   .open = ref_open,
                                   .close = ref_close,
                                   .conv_pack_floats = sp_ref_conv_pack_floats,
                                   SP_CPU_SHARED_OPS,
                                   SP_OPERATIONS(ROW)};
