/* Products of warpgroups, a part of hostcuda.h. cuda/device/sp_cuda_wgmma.h has the
 * meanings, hostcuda_wgmma.cc the checks. */
#ifndef HOSTCUDA_WGMMA_H
#define HOSTCUDA_WGMMA_H

/* is_transposed: rows of A and columns of B are contiguous. is_at_once: for translated
 * PTX, whose registers are local variables. */
void hc_wgmma(float *d, int n, uint64_t a, uint64_t b, bool is_transposed,
              bool is_at_once, const char *file, int line);
void sp_fence_async();
uint32_t sp_shared_address(const void *p);

void sp_trap(HC_SITE);

static inline uint32_t sp_shared_base(const void *p)
{
    return sp_shared_address(p);
}

static inline int sp_opaque(int value)
{
    return value;
}

template <int N>
static inline void sp_wgmma(float (&d)[N], uint64_t a, uint64_t b, HC_SITE)
{
    hc_wgmma(d, 2 * N, a, b, false, false, file, line);
}

template <int N>
static inline void sp_wgmma_transposed(float (&d)[N], uint64_t a, uint64_t b, HC_SITE)
{
    hc_wgmma(d, 2 * N, a, b, true, false, file, line);
}

static inline void sp_wgmma_fence(HC_SITE)
{
    hc_tensor(HC_WGMMA_FENCE, NULL, NULL, 0, file, line);
}

static inline void sp_wgmma_commit(HC_SITE)
{
    hc_tensor(HC_WGMMA_COMMIT, NULL, NULL, 0, file, line);
}

template <int PENDING, int N> static inline void sp_wgmma_wait(float (&)[N], HC_SITE)
{
    hc_tensor(HC_WGMMA_WAIT, NULL, NULL, PENDING, file, line);
}

#endif
