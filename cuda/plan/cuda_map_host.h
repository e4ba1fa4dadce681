/* The device's form of a kernel map, made in host memory from the lists of the host's
 * plan by plain loops. Tests compare plans of the device with it and feed it to
 * kernels; spbench roofline counts the kernels' work with it.
 */
#ifndef CUDA_MAP_HOST_H
#define CUDA_MAP_HOST_H

#include "compute/sp_plan.h"
#include "cuda/plan/cuda_map.h"

/* Makes *to from a map of the host's plan of n_samples samples. All arrays are host
 * memory that cuda_map_host_free frees, after a failure too. SP_EMEM. */
sp_status cuda_map_host(const sp_map *from, int n_samples, cuda_map *to);
void cuda_map_host_free(cuda_map *m);

#endif
