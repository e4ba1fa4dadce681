/* Faults of kernels that begin before the kernel ahead of them in the stream has
 * ended. */
#include "emulator/hostcuda_bugs.h"

BUG(launch_waits)
{
    sp_grid_wait();
    a.out[threadIdx.x] = a.in[threadIdx.x];
}

BUG(launch_reads_ahead)
{
    const int v = a.in[threadIdx.x];

    sp_grid_wait();
    a.out[threadIdx.x] = v;
}

/* The input may be read ahead, since the kernel before does not write it. */
BUG(launch_looks_ahead)
{
    sp_reads_ahead();
    const int v = a.in[threadIdx.x];

    sp_grid_begin(true);
    a.out[threadIdx.x] = v;
}

BUG(launch_looks_at_written)
{
    sp_reads_ahead();
    const int v = a.out[threadIdx.x];

    sp_grid_wait();
    a.out[threadIdx.x] = v;
}

BUG(launch_copies_written)
{
    SP_SHARED(int, tile, [N]);

    sp_reads_ahead();
    begin_copy(tile, a.out, 16);
    sp_grid_wait();
    sp_copy_wait<0>();
    __syncthreads();
    a.out[threadIdx.x] = tile[threadIdx.x];
}

BUG(launch_writes)
{
    sp_reads_ahead();
    a.out[threadIdx.x] = a.in[threadIdx.x];
    sp_grid_wait();
}

BUG(launch_lets_ahead)
{
    hc_grid_let();
    sp_grid_wait();
    a.out[threadIdx.x] = a.in[threadIdx.x];
}

BUG(launch_leaves)
{
    if (threadIdx.x == 3)
        return;
    sp_grid_wait();
    a.out[threadIdx.x] = a.in[threadIdx.x];
}

/* It never waits for the kernel before it. */
BUG(launch_never_waits)
{
    a.out[threadIdx.x] = a.in[threadIdx.x];
}

void run_early_bug(const char *name, call a, cudaStream_t stream, cudaEvent_t event)
{
    const bug *b = bug::last;

    while (b && strncmp(name, b->name, strlen(b->name)))
        b = b->before;
    void (*const kernel)(call) = b ? b->kernel : launch_waits;
    sp_early_allow(stream, 0);
    SP_LAUNCH(launch_waits, dim3(1), dim3(N), stream, a);
    if (strstr(name, "_later")) /* what is read is the last kernel's no more */
        SP_LAUNCH(launch_waits, dim3(1), dim3(N), stream, (call{a.in, a.out + N}));
    if (strstr(name, "behind_a_fill"))
        cudaMemsetAsync(a.out, 0, N * sizeof(int), stream);
    if (strstr(name, "behind_a_record"))
        cudaEventRecord(event, stream);
    hc_launch_kernel(b ? b->name : name, kernel, dim3(1), dim3(N), 0, 1, stream, a);
}
