/* Operands in the form that the convolutions read. Weights, once a step:
 *
 *     packed [units][n][CUDA_UNIT_BYTES]     n: channels of the result
 *
 * element e of unit u, n is W of the unit's offset and its e-th channel there (or of
 * the two offsets that share the unit), 0 behind the last; bf16, fp32 rounded to tf32,
 * or fp32. Forward the inner dimension is c_in and n is c_out, for the input gradient
 * the other way about.
 *
 * Bytes: 4 read, and as many written as the precision has, of each weight. A thread has
 * one chunk; forward the reads of neighbours lie side by side, backward their writes.
 */
#include <assert.h>

#include "cuda_conv.cuh"

namespace
{

struct pack_call {
    const float *w;
    int K, c_in, c_out;
    bool is_grad_input, is_mirrored;
    cuda_units units;
    char *packed;
};

template <sp_precision P> struct pack_chunk {
    typedef cuda_operand<P> operand;
    pack_call a;

    __device__ float weight(int k, int inner, int n) const
    {
        const int depth = a.is_grad_input ? a.c_out : a.c_in;
        const int at = a.is_mirrored ? a.K - 1 - k : k;
        const int i = a.is_grad_input ? n : inner, o = a.is_grad_input ? inner : n;

        if (k >= a.K || inner >= depth)
            return 0;
        return a.w[((size_t)at * a.c_in + i) * a.c_out + o];
    }

    /* i: unit and half, n: channel of the result. */
    __device__ void operator()(int64_t i, int n) const
    {
        const int unit = (int)(i / 2), half = (int)(i % 2);
        const int width = a.is_grad_input ? a.c_in : a.c_out;
        const int k = a.units.is_shared ? (int)i : unit / (int)a.units.per_offset;
        const int inner = a.units.is_shared
                              ? 0
                              : unit % (int)a.units.per_offset * operand::UNIT +
                                    half * operand::CHUNK;
        uint32_t v[4];

        for (int e = 0; e < 4; e++)
            if (P == SP_BF16)
                v[e] = sp_pack_bf16(weight(k, inner + 2 * e, n),
                                    weight(k, inner + 2 * e + 1, n));
            else if (P == SP_TF32)
                v[e] = sp_round_tf32(__float_as_uint(weight(k, inner + e, n)));
            else
                v[e] = __float_as_uint(weight(k, inner + e, n));
        *(uint4 *)(a.packed + ((size_t)unit * width + n) * CUDA_UNIT_BYTES +
                   half * CUDA_CHUNK_BYTES) = make_uint4(v[0], v[1], v[2], v[3]);
    }
};

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

sp_status sp_cuda_conv_pack(sp_backend *be, const float *w, int K, int c_in, int c_out,
                            bool is_grad_input, bool is_mirrored, float *packed)
{
    const int depth = is_grad_input ? c_out : c_in, n = is_grad_input ? c_in : c_out;
    const pack_call a = {w,
                         K,
                         c_in,
                         c_out,
                         is_grad_input,
                         is_mirrored,
                         cuda_conv_units(be->precision, K, depth),
                         (char *)packed};
    const int64_t chunks = 2 * (int64_t)a.units.n;

    assert((uintptr_t)packed % CUDA_CHUNK_BYTES == 0);
    switch (be->precision) {
    case SP_BF16:
        return cuda_each(be, pack_chunk<SP_BF16>{a}, chunks, n);
    case SP_TF32:
        return cuda_each(be, pack_chunk<SP_TF32>{a}, chunks, n);
    default:
        return cuda_each(be, pack_chunk<SP_FP32>{a}, chunks, n);
    }
}

sp_status cuda_as_operand(sp_backend *be, sp_tensor *x)
{
    sp_tensor to = *x;

    assert(x->elem == SP_ELEM_F32 || be->precision == SP_BF16);
    if (x->elem == SP_ELEM_BF16 || be->precision != SP_BF16)
        return SP_OK;
    to.elem = SP_ELEM_BF16;
    to.ld = (x->c + 7) / 8 * 8;
    SP_TRY(sp_arena_take(&cuda_of(be)->scratch, (size_t)to.n * (size_t)to.ld * 2,
                         (void **)&to.data));
    SP_TRY(cuda_each(be, to_bf16{*x, to}, x->n, x->c));
    *x = to;
    return SP_OK;
}
