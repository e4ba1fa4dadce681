/* The convolution by wgmma: interface between cuda_conv.cu, which calls it, and
 * cuda_conv_wgmma.cu. */
#ifndef CUDA_CONV_WGMMA_CUH
#define CUDA_CONV_WGMMA_CUH

#include "cuda/conv/cuda_conv_table.cuh"

/* Whether a call is expected to gain from wgmma: c_y >= 128 and K c_x >= 512. Smaller
 * products are bound by the L2 or by their launch, whatever multiplies. The exact
 * measure would be t c_x, t the pairs of a row, but t changes with the batch, and the
 * bits of a row must not depend on the batch. */
bool cuda_wgmma_suits(const conv_call &a);
/* Runs a call in bf16 that suits, where be->is_wgmma. */
sp_status cuda_conv_wgmma(sp_backend *be, const conv_call &a);

#endif
