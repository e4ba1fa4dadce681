/* Faults of kernels that begin before the kernel ahead of them in the stream has
 * ended. */
#include "emulator/hostcuda_bugs.h"

__global__ static void waits_first(call a)
{
    sp_grid_wait();
    a.out[threadIdx.x] = a.in[threadIdx.x];
}

__global__ static void reads_ahead_of_the_wait(call a)
{
    const int v = a.in[threadIdx.x];

    sp_grid_wait();
    a.out[threadIdx.x] = v;
}

/* The input may be read ahead, since the kernel before does not write it. */
__global__ static void looks_ahead(call a)
{
    sp_reads_ahead();
    const int v = a.in[threadIdx.x];

    sp_grid_begin(true);
    a.out[threadIdx.x] = v;
}

__global__ static void looks_ahead_at_what_is_written(call a)
{
    sp_reads_ahead();
    const int v = a.out[threadIdx.x];

    sp_grid_wait();
    a.out[threadIdx.x] = v;
}

__global__ static void copies_ahead_what_is_written(call a)
{
    SP_SHARED(int, tile, [N]);

    sp_reads_ahead();
    begin_copy(tile, a.out, 16);
    sp_grid_wait();
    sp_copy_wait<0>();
    __syncthreads();
    a.out[threadIdx.x] = tile[threadIdx.x];
}

__global__ static void writes_ahead(call a)
{
    sp_reads_ahead();
    a.out[threadIdx.x] = a.in[threadIdx.x];
    sp_grid_wait();
}

__global__ static void lets_ahead(call a)
{
    hc_grid_let();
    sp_grid_wait();
    a.out[threadIdx.x] = a.in[threadIdx.x];
}

__global__ static void leaves_without_the_wait(call a)
{
    if (threadIdx.x == 3)
        return;
    sp_grid_wait();
    a.out[threadIdx.x] = a.in[threadIdx.x];
}

/* It never waits for the kernel before it. */
__global__ static void never_waits(call a)
{
    a.out[threadIdx.x] = a.in[threadIdx.x];
}

void run_early_bug(const char *name, call a, cudaStream_t stream, cudaEvent_t event)
{
    static const struct {
        const char *name;
        void (*kernel)(call);
    } all[] = {{"reads_ahead", reads_ahead_of_the_wait},
               {"leaves", leaves_without_the_wait},
               {"never_waits", never_waits},
               {"looks_at_written", looks_ahead_at_what_is_written},
               {"copies_written", copies_ahead_what_is_written},
               {"looks", looks_ahead},
               {"writes", writes_ahead},
               {"lets_ahead", lets_ahead}};
    void (*kernel)(call) = waits_first;

    for (const auto &k : all)
        if (kernel == waits_first && strstr(name, k.name))
            kernel = k.kernel;
    sp_early_allow(stream, 0);
    SP_LAUNCH(waits_first, dim3(1), dim3(N), stream, a);
    if (strstr(name, "_later")) /* what is read is the last kernel's no more */
        SP_LAUNCH(waits_first, dim3(1), dim3(N), stream, (call{a.in, a.out + N}));
    if (strstr(name, "behind_a_fill"))
        cudaMemsetAsync(a.out, 0, N * sizeof(int), stream);
    if (strstr(name, "behind_a_record"))
        cudaEventRecord(event, stream);
    SP_LAUNCH(kernel, dim3(1), dim3(N), stream, a);
}
