/* Operands in the form that the convolutions read. Weights are packed here if they come
 * from anywhere but an update, which keeps the order (cuda_optim.cu):
 *
 *     packed [units][n][CUDA_UNIT_BYTES]     n: channels of the result
 *
 * Weights for wgmma with offsets of whole k-tiles (cuda_wgmma_tiled) are in the order of
 * a stage instead, so that one bulk copy brings adjacent channels' weights. A k-tile is
 * a part of four units, or, if it is deep, three parts of two. Chunk q of channel n is
 * at q ^ n % 8, or q ^ n / 2 % 4: the swizzle of 128 or 64 bytes (sp_cuda_wgmma.h; tiles
 * of channels begin at multiples of 8).
 *
 *     packed [parts][n][8 or 4 chunks]
 *
 * Element e of unit u and channel n is W at the unit's offset and its e-th inner
 * channel (or at the two offsets that share the unit), 0 after the last; in bf16, fp32
 * rounded to tf32, or fp32. The inner dimension is c_in and n is c_out forward; for the
 * input gradient they are exchanged.
 *
 * Bytes, counted: 4 read for each weight, and 2 or 4 written by the precision. Adjacent
 * threads handle chunks of adjacent channels; their reads are adjacent forward, their
 * writes backward. One launch packs the weights of many convolutions.
 */
#include <assert.h>

#include "cuda/conv/cuda_conv_pack.cuh"

namespace
{

enum { MAX_PACKS = 52, PACK_THREADS = 256, PACK_CHUNKS = 4 /* chunks of a thread */ };

struct pack_call {
    sp_pack_args a;
    cuda_packing to;
};

/* Convolution i has blocks first[i] .. first[i + 1] - 1 of the launch. */
struct pack_calls {
    int n;
    unsigned first[MAX_PACKS + 1];
    pack_call call[MAX_PACKS];
};
static_assert(sizeof(pack_calls) <= 4096, "arguments of a launch");

/* The weight of inner channel `inner` of packed offset k and channel n of the result. */
__device__ float pack_weight(const sp_pack_args &a, int k, int inner, int n)
{
    const int depth = a.is_grad_input ? a.c_out : a.c_in;
    const int at = a.is_mirrored ? a.K - 1 - k : k;
    const int i = a.is_grad_input ? n : inner, o = a.is_grad_input ? inner : n;

    if (k >= a.K || inner >= depth)
        return 0;
    return a.w[((size_t)at * a.c_in + i) * a.c_out + o];
}

template <sp_precision P>
__global__ void __launch_bounds__(PACK_THREADS) pack_kernel(pack_calls l)
{
    typedef cuda_pack_order<P> packed;
    int i = 0, at;

    while (l.first[i + 1] <= blockIdx.x)
        i++;
    const sp_pack_args &a = l.call[i].a;
    const packed to = {l.call[i].to};
    const int chunks = to.chunks() * to.p.width;

    at = (int)((blockIdx.x - l.first[i]) * PACK_THREADS * PACK_CHUNKS + threadIdx.x);
    sp_grid_wait();
    for (int e = 0; e < PACK_CHUNKS; e++, at += PACK_THREADS) {
        const int n = at % to.p.width;
        const cuda_packed_chunk chunk = to.chunk(at / to.p.width);
        float w[packed::operand::CHUNK];

        if (at >= chunks)
            continue;
        for (int j = 0; j < packed::operand::CHUNK; j++)
            w[j] = pack_weight(a, chunk.k, chunk.inner + j, n);
        to.put(at / to.p.width, n, w);
    }
}

struct to_bf16 {
    sp_tensor from, to;

    __device__ void operator()(int64_t i, int j) const
    {
        cuda_put(to, i, j, cuda_get(from, i, j));
    }
};

} // namespace

size_t sp_cuda_conv_pack_floats(const sp_backend *be, int K, int c_in, int c_out,
                                bool is_grad_input)
{
    const int depth = is_grad_input ? c_out : c_in, n = is_grad_input ? c_in : c_out;

    return cuda_conv_units(be->precision, K, depth).n * (size_t)n *
           (CUDA_UNIT_BYTES / sizeof(float));
}

static sp_status pack_some(sp_backend *be, const pack_calls &l)
{
    const dim3 blocks(l.first[l.n]);
    cudaStream_t stream = cuda_of(be)->compute;

    if (blocks.x == 0)
        return SP_OK;
    if (be->precision == SP_BF16)
        return CUDA_LAUNCH((pack_kernel<SP_BF16>), blocks, PACK_THREADS, stream, l);
    if (be->precision == SP_TF32)
        return CUDA_LAUNCH((pack_kernel<SP_TF32>), blocks, PACK_THREADS, stream, l);
    return CUDA_LAUNCH((pack_kernel<SP_FP32>), blocks, PACK_THREADS, stream, l);
}

sp_status sp_cuda_conv_pack(sp_backend *be, const sp_pack_args *args, int n_args)
{
    assert(n_args >= 0 && (args || n_args == 0));
    for (int done = 0; done < n_args;) {
        pack_calls l = {};

        for (; l.n < MAX_PACKS && done < n_args; l.n++, done++) {
            const sp_pack_args &a = args[done];
            const size_t each = PACK_THREADS * PACK_CHUNKS;
            const size_t chunks =
                sp_cuda_conv_pack_floats(be, a.K, a.c_in, a.c_out, a.is_grad_input) *
                sizeof(float) / CUDA_CHUNK_BYTES;

            assert((uintptr_t)a.packed % CUDA_CHUNK_BYTES == 0 && chunks <= INT32_MAX);
            l.call[l.n] = {a,
                           cuda_packing_of((char *)a.packed, a.K, a.c_in, a.c_out,
                                           a.is_grad_input, cuda_packs_tiles(be, a))};
            l.first[l.n + 1] = l.first[l.n] + (unsigned)((chunks + each - 1) / each);
        }
        SP_TRY(pack_some(be, l));
    }
    return SP_OK;
}

sp_status cuda_as_operand(sp_backend *be, sp_tensor *x)
{
    assert(x->elem == SP_ELEM_F32 || be->precision == SP_BF16);
    if (x->elem == SP_ELEM_BF16 || be->precision != SP_BF16)
        return SP_OK;
    return cuda_copy_operand(be, x);
}

sp_status cuda_copy_operand(sp_backend *be, sp_tensor *x)
{
    sp_tensor to = *x;

    to.elem = SP_ELEM_BF16;
    to.ld = (x->c + 7) / 8 * 8;
    SP_TRY(sp_arena_alloc(&cuda_of(be)->scratch, (size_t)to.n * (size_t)to.ld * 2,
                          (void **)&to.data));
    SP_TRY(cuda_each(be, to_bf16{*x, to}, x->n, x->c));
    *x = to;
    return SP_OK;
}
