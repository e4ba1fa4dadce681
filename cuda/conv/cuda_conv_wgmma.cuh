/* The convolution by wgmma: interface between cuda_conv.cu, which calls it, and
 * cuda_conv_wgmma.cu. */
#ifndef CUDA_CONV_WGMMA_CUH
#define CUDA_CONV_WGMMA_CUH

#include "cuda/conv/cuda_conv_table.cuh"

/* Runs a call in bf16 that cuda_wgmma_gains accepts, where be->is_wgmma. */
sp_status cuda_conv_wgmma(sp_backend *be, const conv_call &a);

#endif
