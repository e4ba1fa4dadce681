/* Products of warpgroups (wgmma, sm_90a), a part of sp_cuda.h: wrappers of the PTX, as
 * described from PTX ISA 8.0 on in "Asynchronous Warpgroup Level Matrix Instructions"
 * (9.7.15 in ISA 9). A warpgroup is four consecutive warps of a block; the rank of the
 * first is a multiple of four. All threads of the warpgroup call each of these
 * together.
 *
 *     sp_fence_async        each thread, when its own copies to shared memory have
 *                           landed; a barrier follows. Products read their operands
 *                           through the async proxy ("Async Proxy"), which sees the
 *                           copies only after this fence
 *     sp_wgmma_fence        before the first product that follows any other access to
 *                           the sums' registers
 *     sp_wgmma, ...         D += A B, in the order in which they are issued
 *     sp_wgmma_transposed   the same with operands that lie the other way
 *     sp_wgmma_commit       closes a group of the products since the last commit
 *     sp_wgmma_wait<P>      returns when all but the latest P groups are complete. Only
 *                           then, and after a barrier, since other warps read them too,
 *                           may their operands be overwritten. The sums may be read
 *                           only after P = 0
 *
 * Thread fragments of the sums D[64][2 N], d[N] in each thread ("Register Fragments",
 * figure of D for m64nNk16), with g = lane / 4, t = lane % 4, in warp w of the
 * warpgroup:
 *     d[4 j + v] = D[16 w + g + 8 (v / 2)][8 j + 2 t + v % 2]
 *
 * The operands A[64][16] and B[2 N][16] of bf16, with a contiguous inner dimension of
 * 16 ("K-major"), are named by descriptors ("Matrix Descriptor Format"):
 *     bits  0-13   start address / 16          32-45  stride byte offset / 16
 *          16-29   leading byte offset / 16    49-51  base offset
 *          62-63   swizzle: 1 = 128 bytes, 2 = 64
 * Under the swizzle of 128 bytes ("Shared Memory Matrix Layout", "Strides") a row has
 * 128 bytes, and eight rows form an atom, which begins at a multiple of 1024 bytes
 * (base offset 0). The stride is the distance from one atom to the next; the leading
 * byte offset is not used. Chunk q (16 bytes) of row r is at chunk q ^ r % 8. The 16
 * elements of the inner dimension that a product reads begin at the start address; for
 * the next 16 the start address advances by 32 bytes within the first row. Under the
 * swizzle of 64 bytes a row has 64, so an atom 512, and chunk q is at q ^ r / 2 % 4.
 *
 * sp_wgmma_transposed reads operands with contiguous rows of A and columns of B
 * ("M-major", "N-major"), for 16-bit elements only. Under the same swizzle an atom has
 * 64 of these contiguous elements for 8 of the inner dimension, 128 bytes each. The
 * stride is the distance to the next 8 of the inner dimension, the leading byte offset
 * the distance to the next 64 elements. For the next 16 of the inner dimension the
 * start address advances by two strides.
 */
#ifndef SP_CUDA_WGMMA_H
#define SP_CUDA_WGMMA_H

#ifdef __CUDACC__

__device__ __forceinline__ void sp_fence_async()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void sp_wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void sp_wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

#define SP_SUMS_8(d, i)                                                                \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]),        \
        "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define SP_SUMS_32(d, i)                                                               \
    SP_SUMS_8(d, i), SP_SUMS_8(d, i + 8), SP_SUMS_8(d, i + 16), SP_SUMS_8(d, i + 24)
#define SP_SUMS_64(d)  SP_SUMS_32(d, 0), SP_SUMS_32(d, 32)
#define SP_SUMS_128(d) SP_SUMS_64(d), SP_SUMS_32(d, 64), SP_SUMS_32(d, 96)

/* With PENDING 0 the empty asm tells the compiler that the sums have changed. */
template <int PENDING, int N>
__device__ __forceinline__ void sp_wgmma_wait(float (&d)[N])
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
    if (PENDING == 0)
#pragma unroll
        for (int i = 0; i < N; i++)
            asm volatile("" : "+f"(d[i])::"memory");
}

/* D += A B. a and b are descriptors; D has 2 N columns. */
template <int N>
__device__ __forceinline__ void sp_wgmma(float (&d)[N], uint64_t a, uint64_t b);

template <>
__device__ __forceinline__ void sp_wgmma(float (&d)[48], uint64_t a, uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,"
                 "%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,"
                 "%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47}, "
                 "%48, %49, 1, 1, 1, 0, 0;"
                 : SP_SUMS_32(d, 0), SP_SUMS_8(d, 32), SP_SUMS_8(d, 40)
                 : "l"(a), "l"(b));
}

template <>
__device__ __forceinline__ void sp_wgmma(float (&d)[64], uint64_t a, uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
                 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
                 "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
                 "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, "
                 "%64, %65, 1, 1, 1, 0, 0;"
                 : SP_SUMS_64(d)
                 : "l"(a), "l"(b));
}

/* TRANSPOSED: "0" or "1", of A and of B. */
#define SP_WGMMA_256(TRANSPOSED)                                                       \
    asm volatile(                                                                      \
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "                       \
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"                      \
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"             \
        "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"             \
        "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,"             \
        "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,"             \
        "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,"             \
        "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,"      \
        "%111,%112,%113,%114,%115,%116,%117,%118,%119,"                                \
        "%120,%121,%122,%123,%124,%125,%126,%127}, "                                   \
        "%128, %129, 1, 1, 1, " TRANSPOSED ", " TRANSPOSED ";"                         \
        : SP_SUMS_128(d)                                                               \
        : "l"(a), "l"(b))

template <>
__device__ __forceinline__ void sp_wgmma(float (&d)[128], uint64_t a, uint64_t b)
{
    SP_WGMMA_256("0");
}

__device__ __forceinline__ void sp_wgmma_transposed(float (&d)[128], uint64_t a,
                                                    uint64_t b)
{
    SP_WGMMA_256("1");
}

#endif
#endif
