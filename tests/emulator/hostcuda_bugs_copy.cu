/* Faults of copies that go on while the threads compute: threads 0 .. CHUNKS - 1 copy 16
 * bytes each; and of ldmatrix. */
#include "emulator/hostcuda_bugs.h"

__global__ static void copy_waited_late(call a)
{
    SP_SHARED(int, tile, [N]);

    begin_copy(tile, a.in, 16);
    sp_copy_wait<1>();
    __syncthreads();
    a.out[threadIdx.x] = tile[threadIdx.x];
    sp_copy_wait<0>();
}

__global__ static void copy_never_waited(call a)
{
    SP_SHARED(int, tile, [N]);

    begin_copy(tile, a.in, 16);
    a.out[threadIdx.x] = a.in[threadIdx.x];
}

/* A wait is for the thread's own copies. */
__global__ static void copy_without_barrier(call a)
{
    SP_SHARED(int, tile, [N]);

    begin_copy(tile, a.in, 16);
    sp_copy_wait<0>();
    a.out[threadIdx.x] = tile[threadIdx.x];
}

/* The next copies begin while others still read. */
__global__ static void copy_too_early(call a)
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

__global__ static void copy_misaligned(call a)
{
    SP_SHARED(int, tile, [N + 4]);

    begin_copy(tile, a.in + 1, 16);
    sp_copy_wait<0>();
    a.out[threadIdx.x] = a.in[threadIdx.x];
}

/* The address counts, though none of its bytes are wanted. */
__global__ static void copy_of_nothing(call a)
{
    SP_SHARED(int, tile, [N + 4]);

    begin_copy(tile, a.in + 1, 0);
    sp_copy_wait<0>();
    a.out[threadIdx.x] = a.in[threadIdx.x];
}

__global__ static void copy_out_of_bounds(call a)
{
    SP_SHARED(int, tile, [2 * N]);

    begin_copy(tile, a.in, 16);
    begin_copy(tile + N, a.in + 4, 16);
    sp_copy_wait<0>();
    a.out[threadIdx.x] = a.in[threadIdx.x];
}

__global__ static void matrix_of_some(call a)
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
__global__ static void copies(call a)
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

void (*find_copy_bug(const char *name))(call)
{
    static const bug all[] = {
#define K(name) {#name, name}
        K(copy_waited_late),   K(copy_never_waited), K(copy_without_barrier),
        K(copy_too_early),     K(copy_misaligned),   K(copy_of_nothing),
        K(copy_out_of_bounds), K(matrix_of_some),    K(copies),
    };

    return find_bug(all, name);
}
