/* Clusters, barriers in shared memory and bulk copies, a part of hostcuda.h.
 * cuda/device/sp_cuda_cluster.h has the meanings, hostcuda_cluster.cc the checks. */
#ifndef HOSTCUDA_CLUSTER_H
#define HOSTCUDA_CLUSTER_H

unsigned hc_cluster_rank();
void hc_cluster_arrive(const char *file, int line);
void hc_cluster_wait(const char *file, int line);
/* An address in the cluster: of what block `rank` has at an address of its own. */
uint32_t hc_cluster_address(uint32_t at, unsigned rank);
/* The host memory behind such an address, for the current thread. */
char *hc_cluster_at(uint32_t address, const char *file, int line);
void hc_mbarrier_init(uint32_t barrier, int arrivals, const char *file, int line);
void hc_mbarrier_fence();
void hc_mbarrier_expect(uint32_t barrier, unsigned bytes, const char *file, int line);
void hc_mbarrier_arrive(uint32_t address, const char *file, int line);
void hc_mbarrier_wait(uint32_t barrier, unsigned parity, const char *file, int line);
void hc_copy_bulk(uint32_t to, const void *from, unsigned bytes, uint32_t barrier,
                  unsigned ranks, const char *file, int line);

static inline unsigned sp_cluster_rank()
{
    return hc_cluster_rank();
}

static inline void sp_cluster_arrive(HC_SITE)
{
    hc_cluster_arrive(file, line);
}

static inline void sp_cluster_wait(HC_SITE)
{
    hc_cluster_wait(file, line);
}

void hc_cluster_put(uint32_t at, unsigned rank, uint32_t value, const char *file,
                    int line);

static inline void sp_cluster_put(uint32_t at, unsigned rank, uint32_t value, HC_SITE)
{
    hc_cluster_put(at, rank, value, file, line);
}

static inline void sp_mbarrier_init(uint32_t barrier, int arrivals, HC_SITE)
{
    hc_mbarrier_init(barrier, arrivals, file, line);
}

static inline void sp_mbarrier_fence()
{
    hc_mbarrier_fence();
}

static inline void sp_mbarrier_expect(uint32_t barrier, unsigned bytes, HC_SITE)
{
    hc_mbarrier_expect(barrier, bytes, file, line);
}

static inline void sp_mbarrier_arrive(uint32_t barrier, unsigned rank, HC_SITE)
{
    hc_mbarrier_arrive(hc_cluster_address(barrier, rank), file, line);
}

static inline void sp_mbarrier_wait(uint32_t barrier, unsigned parity, HC_SITE)
{
    hc_mbarrier_wait(barrier, parity, file, line);
}

static inline void sp_copy_bulk(uint32_t to, const void *from, unsigned bytes,
                                uint32_t barrier, unsigned ranks, HC_SITE)
{
    hc_copy_bulk(to, from, bytes, barrier, ranks, file, line);
}

#endif
