/* The list of this program's kernels, a part of sp_cuda.h, and their loading.
 *
 * CUDA loads a kernel at its first launch. That launch waits until the device is idle
 * and holds the context's lock meanwhile (CUDA programming guide, "Lazy Loading",
 * hazards): with a kernel there that waits for another rank, planner and training
 * thread would stop. Every kernel is therefore loaded when the device is opened. Each
 * launch in the source (SP_LAUNCH) puts its kernel on the list before main, whether it
 * is ever reached or not. CUDA_MODULE_LOADING=EAGER would load NCCL's and MPI's kernels
 * as well, and it would compile those that the driver has to compile all in one call,
 * with no sign of life between. */
#ifndef SP_CUDA_LOAD_H
#define SP_CUDA_LOAD_H

struct sp_listed_kernel {
    const void *code;
    const sp_listed_kernel *next;

    explicit sp_listed_kernel(const void *kernel);
};

template <auto KERNEL> struct sp_own_kernel {
    static sp_listed_kernel listed;
};
template <auto KERNEL>
sp_listed_kernel sp_own_kernel<KERNEL>::listed((const void *)KERNEL);

/* For SP_LAUNCH: names the kernel's element of the list, so that it exists. */
#define SP_LISTED(kernel) ((void)&sp_own_kernel<kernel>::listed)

/* Loads every kernel of the list on the current device, and those of sp_sort_pairs,
 * with signs of life between. */
cudaError_t sp_kernels_load(void);

#endif
