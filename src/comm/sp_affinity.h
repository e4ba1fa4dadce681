/* Which cores a rank's threads run on. The only module that includes hwloc.h.
 *
 * A launcher that binds ranks is left alone. Where ranks of a node may run on the same
 * cores, those cores are divided among them: whole cores with their hyperthreads, and
 * neighbours (one cache, one memory) together. A rank's threads move freely within its
 * share, because readers and planner work beside the computing ones.
 *
 *     allowed (affinity, cgroup)  --near-->  those beside the device  --share-->  bound
 *
 * Nothing here is an error: a machine that cannot be understood is left as it is.
 */
#ifndef SP_AFFINITY_H
#define SP_AFFINITY_H

#include "comm/sp_comm.h"
#include "base/sp_machine.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The cores of `allowed` that are nearest to the device with this PCI id
 * ("0000:3b:00.0"); all of them where the machine does not tell. */
void sp_affinity_near(const uint64_t allowed[SP_CORE_WORDS], const char *pci,
                      uint64_t near[SP_CORE_WORDS]);

/* The share of one of n ranks in `set`; the shares do not overlap. Their number of
 * cores; 0: there are fewer cores than ranks, or the machine does not tell. */
int sp_affinity_share(const uint64_t set[SP_CORE_WORDS], int index, int n,
                      uint64_t share[SP_CORE_WORDS]);

/* Bind this process to its share; call before threads are started, which inherit it.
 * pci: of the device it works with, or NULL. Collective over the node; comm->cores
 * becomes the share's. The environment's SP_BIND=no keeps the process where it is.
 * text: the cores as "0-3 of 0-7", "" where nothing was done. SP_EMPI, SP_EMEM. */
sp_status sp_affinity_bind(sp_comm *comm, const char *pci, char *text, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
