/* The device's form of a kernel map, made in host memory from the lists of the host's
 * plan by plain loops. Tests compare plans of the device with it, and feed it to
 * kernels. */
#ifndef CUDA_MAP_HOST_H
#define CUDA_MAP_HOST_H

#include "compute/sp_plan.h"
#include "cuda/plan/cuda_map.h"

/* All arrays but pair_start (NULL) are host memory that cuda_map_host_free frees. */
cuda_map cuda_map_host(const sp_map *m, int n_samples);
void cuda_map_host_free(cuda_map *m);

#endif
