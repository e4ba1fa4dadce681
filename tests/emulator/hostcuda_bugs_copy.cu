/* Faults of copies that go on while the threads compute: threads 0 .. CHUNKS - 1 copy
 * 16 bytes each; and of ldmatrix. */
#include "emulator/hostcuda_bugs.h"

BUG(copy_waited_late)
{
    SP_SHARED(int, tile, [N]);

    begin_copy(tile, a.in, 16);
    sp_copy_wait<1>();
    __syncthreads();
    a.out[threadIdx.x] = tile[threadIdx.x];
    sp_copy_wait<0>();
}

BUG(copy_never_waited)
{
    SP_SHARED(int, tile, [N]);

    begin_copy(tile, a.in, 16);
    a.out[threadIdx.x] = a.in[threadIdx.x];
}

/* A wait is for the thread's own copies. */
BUG(copy_without_barrier)
{
    SP_SHARED(int, tile, [N]);

    begin_copy(tile, a.in, 16);
    sp_copy_wait<0>();
    a.out[threadIdx.x] = tile[threadIdx.x];
}

/* The next copies begin while others still read. */
BUG(copy_too_early)
{
    SP_SHARED(int, tile, [N]);
    const int t = (int)threadIdx.x;
    int sum = 0;

    for (int k = 0; k < 4; k++) {
        begin_copy(tile, a.in, k % 2 ? 8 : 16); /* two of four, the others 0 */
        sp_copy_wait<0>();
        __syncthreads();
        sum += tile[N - 1 - t];
    }
    a.out[t] = sum == (t % 4 < 2 ? 2 : 4) * a.in[N - 1 - t] ? a.in[t] : -1;
}

BUG(copy_misaligned)
{
    SP_SHARED(int, tile, [N + 4]);

    begin_copy(tile, a.in + 1, 16);
    sp_copy_wait<0>();
    a.out[threadIdx.x] = a.in[threadIdx.x];
}

/* The address counts, though none of its bytes are wanted. */
BUG(copy_of_nothing)
{
    SP_SHARED(int, tile, [N + 4]);

    begin_copy(tile, a.in + 1, 0);
    sp_copy_wait<0>();
    a.out[threadIdx.x] = a.in[threadIdx.x];
}

BUG(copy_out_of_bounds)
{
    SP_SHARED(int, tile, [2 * N]);

    begin_copy(tile, a.in, 16);
    begin_copy(tile + N, a.in + 4, 16);
    sp_copy_wait<0>();
    a.out[threadIdx.x] = a.in[threadIdx.x];
}

BUG(matrix_of_some)
{
    SP_SHARED(uint32_t, tile, [N]);
    uint32_t r[4];

    tile[threadIdx.x] = 0;
    __syncthreads();
    if (threadIdx.x % 2)
        sp_ldmatrix(r, sp_shared_address(tile + threadIdx.x % 32 * 4));
    a.out[threadIdx.x] = a.in[threadIdx.x];
}

/* The next stage is copied while this one is read; sound. */
BUG(copies)
{
    SP_SHARED(int, tile, [2][N]);
    const int t = (int)threadIdx.x;
    int sum = 0;

    begin_copy(tile[0], a.in, 16);
    for (int k = 0; k < 4; k++) {
        begin_copy(tile[(k + 1) % 2], a.in, 8);
        sp_copy_wait<1>();
        __syncthreads();
        sum += tile[k % 2][N - 1 - t];
        __syncthreads();
    }
    sp_copy_wait<0>();
    a.out[t] = sum == (t % 4 < 2 ? 1 : 4) * a.in[N - 1 - t] ? a.in[t] : -1;
}
