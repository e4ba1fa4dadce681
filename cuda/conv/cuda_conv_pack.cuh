/* Where the weights of a convolution lie in the order that one of its directions reads
 * (cuda_conv_pack.cu). Two kernels write there: the one that packs them, and the update
 * of the optimizer.
 */
#ifndef CUDA_CONV_PACK_CUH
#define CUDA_CONV_PACK_CUH

#include "cuda/conv/cuda_conv.cuh"

/* The packed weights of one direction: K offsets of `depth` inner channels, `width`
 * channels of the result. */
typedef struct cuda_packing {
    char *packed;
    int K, depth, width;
    int tiled; /* chunks of a row of a stage of wgmma, 0: by units (cuda_packs_tiles) */
} cuda_packing;

static inline SP_HOST_DEVICE cuda_packing cuda_packing_of(char *packed, int K, int c_in,
                                                          int c_out, bool is_grad_input,
                                                          int tiled)
{
    return {packed, K, is_grad_input ? c_out : c_in, is_grad_input ? c_in : c_out,
            tiled};
}

/* The chunks of a row of wgmma's stages, if conv_pack puts these weights into their
 * order; else 0. */
static inline int cuda_packs_tiles(const sp_backend *be, const sp_pack_args &a)
{
    const int depth = be->precision == SP_BF16 && be->is_wgmma
                          ? cuda_wgmma_tiled(a.K, a.is_grad_input ? a.c_out : a.c_in,
                                             a.is_grad_input ? a.c_in : a.c_out)
                          : 0;

    return depth == CUDA_WGMMA_DEEP ? 4 : depth ? 8 : 0;
}

/* A chunk: inner channels inner .. inner + CHUNK - 1 of offset k. */
struct cuda_packed_chunk {
    int k, inner;
};

/* The chunks of a channel of the result are numbered: two of a unit, the units of an
 * offset one after another; if offsets share a unit, chunk k is that of offset k. */
template <sp_precision P> struct cuda_pack_order {
    typedef cuda_operand<P> operand;
    const cuda_packing &p;

    __device__ bool is_shared() const { return p.depth <= operand::CHUNK; }
    __device__ int of_offset() const
    {
        return is_shared() ? 1 : (p.depth + operand::UNIT - 1) / operand::UNIT * 2;
    }

    /* Of a channel of the result; the last unit is whole. */
    __device__ int chunks() const { return (p.K * of_offset() + 1) / 2 * 2; }

    __device__ int number(const cuda_packed_chunk &c) const
    {
        return c.k * of_offset() + c.inner / operand::CHUNK;
    }
    __device__ cuda_packed_chunk chunk(int number) const
    {
        return {number / of_offset(), number % of_offset() * operand::CHUNK};
    }

    /* Writes the weights of a chunk of channel n of the result. */
    __device__ void put(int number, int n, const float (&w)[operand::CHUNK]) const
    {
        const int chunks = p.tiled ? p.tiled : 2;
        const int swizzle = p.tiled ? n * chunks / 8 % chunks : 0;
        const int q = number % chunks ^ swizzle;
        const size_t at =
            (((size_t)(number / chunks) * p.width + n) * chunks + q) * CUDA_CHUNK_BYTES;
        uint32_t v[4];

        for (int e = 0; e < 4; e++)
            if constexpr (P == SP_BF16)
                v[e] = sp_pack_bf16(w[2 * e], w[2 * e + 1]);
            else if (P == SP_TF32)
                v[e] = sp_round_tf32(__float_as_uint(w[e]));
            else
                v[e] = __float_as_uint(w[e]);
        *(uint4 *)(p.packed + at) = make_uint4(v[0], v[1], v[2], v[3]);
    }
};

#endif
