/* Operands of wgmma in shared memory, under the swizzle of 128 bytes (sp_cuda_wgmma.h). */
#ifndef CUDA_WGMMA_OPERAND_CUH
#define CUDA_WGMMA_OPERAND_CUH

/* Without it, for the other architectures of a binary, the kernels are empty. */
#if !defined __CUDACC__ || defined __CUDA_ARCH_FEAT_SM90_ALL
#define HAS_WGMMA 1
#else
#define HAS_WGMMA 0
#endif

namespace
{

enum { ROW = 128, ATOM = 8 * ROW }; /* bytes */
/* An operand's descriptor has 14 bits of address / 16: the place in the block's own
 * shared memory. In a cluster the address of shared memory has the block's rank in
 * higher bits (from 24 on), which would fall into the descriptor's next field. */
enum { SHARED_MASK = (1 << 18) - 1 };

} // namespace

#endif
