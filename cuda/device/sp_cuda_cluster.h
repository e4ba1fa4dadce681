/* Clusters of blocks, barriers in shared memory and bulk copies (sm_90), a part of
 * sp_cuda.h: wrappers of the PTX, as described from PTX ISA 8.0 on in "Parallel
 * Synchronization and Communication Instructions" (mbarrier, barrier.cluster) and "Data
 * Movement and Conversion Instructions" (cp.async.bulk, mapa).
 *
 * The blocks of a cluster run at the same time, and each reaches the shared memory of
 * the others. All have the same layout of shared memory, so that an array is named by
 * its own shared address (sp_shared_address) and the rank of a block in the cluster.
 *
 *     sp_cluster_rank       of this block, 0 .. size of the cluster - 1
 *     sp_cluster_arrive,    a barrier of all threads of all blocks of the cluster:
 *     sp_cluster_wait       their writes to shared memory, their own or others', are
 *                           visible to all then. A thread may do other things between
 *                           the two
 *     sp_cluster_arrive_relaxed   the same without passing on writes: an arrival before
 *                           this block has written anything that another one reads, but
 *                           for barriers, which sp_mbarrier_fence passes on. The fence
 *                           of the other one is a MEMBAR of the whole device
 *     sp_cluster_put        stores a word in the shared memory of a block
 *
 * A block may access the shared memory of another only after a first barrier of the
 * cluster, because the other may not have begun before it. A block may end only after a
 * last barrier, because others may access its shared memory until then.
 *
 * A barrier in shared memory (mbarrier, 8 bytes) goes through phases. A phase ends when
 * the number of arrivals that sp_mbarrier_init named has come, and when all bytes that
 * these arrivals announced have come. Phases are named by their parity, 0 for the
 * first.
 *
 *     sp_mbarrier_init      makes one, for `arrivals` of each phase; by one thread
 *     sp_mbarrier_fence     that thread, when it has made all; then a barrier of the
 *                           cluster, or of the block if no other block uses them
 *     sp_mbarrier_expect    an arrival that announces bytes, which may come before it
 *     sp_mbarrier_arrive    an arrival at the barrier of the block `rank`
 *     sp_mbarrier_wait      returns when the phase of that parity has ended: its bytes
 *                           are visible, and so are the writes of this block's threads
 *                           before their arrivals. Another block's writes are not: that
 *                           would need the scope of the cluster, and its fences pass
 *                           through the L2 (counted in the machine code). Waiting for
 *                           its products needs no fence
 *
 *     sp_copy_bulk          copies a multiple of 16 bytes from device memory to the same
 *                           place of the shared memory of each block of the cluster
 *                           that has its bit in `ranks`, and counts them as come at
 *                           the barrier at `barrier` of each. Issued by one thread; it
 *                           writes through the async proxy, as wgmma reads, so that no
 *                           fence is needed between the two. Both addresses are aligned
 *                           to 16
 */
#ifndef SP_CUDA_CLUSTER_H
#define SP_CUDA_CLUSTER_H

#ifdef __CUDACC__

__device__ __forceinline__ unsigned sp_cluster_rank()
{
    unsigned rank;

    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

__device__ __forceinline__ void sp_cluster_arrive()
{
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

__device__ __forceinline__ void sp_cluster_arrive_relaxed()
{
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

__device__ __forceinline__ void sp_cluster_wait()
{
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* The address in the cluster of what block `rank` has at a shared address. */
__device__ __forceinline__ uint32_t sp_cluster_address(uint32_t at, unsigned rank)
{
    uint32_t there;

    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(there)
                 : "r"(at), "r"(rank));
    return there;
}

__device__ __forceinline__ void sp_cluster_put(uint32_t at, unsigned rank,
                                               uint32_t value)
{
    asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(sp_cluster_address(at, rank)),
                 "r"(value)
                 : "memory");
}

__device__ __forceinline__ void sp_mbarrier_init(uint32_t barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals)
                 : "memory");
}

__device__ __forceinline__ void sp_mbarrier_fence()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void sp_mbarrier_expect(uint32_t barrier, unsigned bytes)
{
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
        "r"(bytes)
        : "memory");
}

__device__ __forceinline__ void sp_mbarrier_arrive(uint32_t barrier, unsigned rank)
{
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(
                     sp_cluster_address(barrier, rank))
                 : "memory");
}

/* True if the phase has ended; the hardware waits a while before it returns false. */
__device__ __forceinline__ bool sp_mbarrier_ended(uint32_t barrier, unsigned parity)
{
    unsigned has_ended;

    asm volatile("{\n\t.reg .pred ended;\n\t"
                 "mbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2;\n\t"
                 "selp.b32 %0, 1, 0, ended;\n\t}"
                 : "=r"(has_ended)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    return has_ended != 0;
}

__device__ __forceinline__ void sp_mbarrier_wait(uint32_t barrier, unsigned parity)
{
    while (!sp_mbarrier_ended(barrier, parity))
        ;
}

__device__ __forceinline__ void sp_copy_bulk(uint32_t to, const void *from,
                                             unsigned bytes, uint32_t barrier,
                                             unsigned ranks)
{
    if (ranks == 1)
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
            "[%0], [%1], %2, [%3];" ::"r"(to),
            "l"(from), "r"(bytes), "r"(barrier)
            : "memory");
    else
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                     ".multicast::cluster [%0], [%1], %2, [%3], %4;" ::"r"(to),
                     "l"(from), "r"(bytes), "r"(barrier), "h"((uint16_t)ranks)
                     : "memory");
}

#endif
#endif
