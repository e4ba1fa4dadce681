/* Clusters, barriers in shared memory and bulk copies, a part of hostcuda.h.
 * cuda/device/sp_cuda_cluster.h has the meanings, hostcuda_cluster.cc the checks. */
#ifndef HOSTCUDA_CLUSTER_H
#define HOSTCUDA_CLUSTER_H

unsigned sp_cluster_rank();
void sp_cluster_arrive(HC_SITE);
void sp_cluster_arrive_relaxed(HC_SITE);
void sp_cluster_wait(HC_SITE);
/* An address in the cluster: of what block `rank` has at an address of its own. */
uint32_t hc_cluster_address(uint32_t at, unsigned rank);
/* The host memory behind such an address, for the current thread. */
char *hc_cluster_at(uint32_t address, const char *file, int line);
void sp_mbarrier_init(uint32_t barrier, int arrivals, HC_SITE);
void sp_mbarrier_fence();
void sp_mbarrier_expect(uint32_t barrier, unsigned bytes, HC_SITE);
void hc_mbarrier_arrive(uint32_t address, const char *file, int line);
void sp_mbarrier_wait(uint32_t barrier, unsigned parity, HC_SITE);
void sp_copy_bulk(uint32_t to, const void *from, unsigned bytes, uint32_t barrier,
                  unsigned ranks, HC_SITE);

void sp_cluster_put(uint32_t at, unsigned rank, uint32_t value, HC_SITE);

static inline void sp_mbarrier_arrive(uint32_t barrier, unsigned rank, HC_SITE)
{
    hc_mbarrier_arrive(hc_cluster_address(barrier, rank), file, line);
}

#endif
