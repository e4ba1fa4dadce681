/* The functions of cuda/ that the list of backends calls. A build with CUDA defines
 * them in cuda/device, a build without in src/backends/no_cuda.c, so that no other file
 * is compiled differently. */
#ifndef SP_CUDA_LINK_H
#define SP_CUDA_LINK_H

#include "compute/sp_backend.h"

#ifdef __cplusplus
extern "C" {
#endif

const sp_backend_ops *sp_cuda_table(void); /* NULL in a build without CUDA */
/* The devices that this process sees; 0 without a driver, or with too old a one. */
int sp_cuda_device_count(void);
void sp_cuda_why_none(char *text, size_t size); /* writes why there are none */
int sp_cuda_toolkit(void); /* its version, 1000 major + 10 minor; 0: no CUDA */
/* Describes device i. SP_EDEVICE. */
sp_status sp_cuda_device(int i, sp_device *device);

#ifdef __cplusplus
}
#endif
#endif
