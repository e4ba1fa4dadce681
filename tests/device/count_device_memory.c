/* Linked with sptrain on an emulated device (the linker's --wrap). At the end of each
 * optimizer step standard error says how often device memory was allocated so far, and
 * for each arena that is destroyed how much of it was in use at most. */
#include <stdio.h>

#include "cuda/device/cuda_ops.h"
#include "fixtures/wrapped.h"
#include "net/sp_bucket.h"

long hc_memory_calls(void);

/* NOLINTBEGIN: names given by the linker */
WRAPPED(sp_status, sp_bucket_wait, sp_buckets *buckets, double *exposed_s)
{
    static long step;

    fprintf(stderr, "step %ld memory calls %ld\n", ++step, hc_memory_calls());
    return __real_sp_bucket_wait(buckets, exposed_s);
}

WRAPPED(void, sp_cuda_arena_destroy, sp_arena *arena)
{
    if (arena->base)
        fprintf(stderr, "arena %s: %zu bytes of %zu\n", arena->name, arena->high,
                arena->committed);
    __real_sp_cuda_arena_destroy(arena);
}
/* NOLINTEND */
