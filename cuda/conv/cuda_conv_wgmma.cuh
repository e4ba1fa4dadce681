/* The convolution by wgmma, between cuda_conv.cu, which makes the call, and
 * cuda_conv_wgmma.cu. */
#ifndef CUDA_CONV_WGMMA_CUH
#define CUDA_CONV_WGMMA_CUH

#include "cuda/conv/cuda_conv_table.cuh"

/* Whether a call is worth it: c_y >= 128 and K c_x >= 512; fewer products than that are
 * bound by the L2 or by their launch, whatever multiplies. What counts is t c_x, t the
 * pairs of a row, but that changes with the batch, and a row's bits must not. */
bool cuda_wgmma_suits(const conv_call &a);
/* Of a call in bf16 that suits, where be->is_wgmma. */
sp_status cuda_conv_wgmma(sp_backend *be, const conv_call &a);

#endif
