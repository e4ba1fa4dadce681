/* Chooses the cores that a rank's threads run on. The only module that includes
 * hwloc.h.
 *
 * If the launcher binds ranks, its binding is kept. If ranks of a node may run on the
 * same cores, those cores are divided among them: whole cores with their hyperthreads,
 * and neighbours (one cache, one memory) together. A rank's threads move freely within
 * its share, because readers and planner work at the same time as the computing
 * threads.
 *
 *     allowed (affinity, cgroup) --near--> those next to the device --share--> bound
 *
 * A topology that hwloc cannot read is no error: the process is then not bound.
 */
#ifndef SP_AFFINITY_H
#define SP_AFFINITY_H

#include "base/sp_machine.h"
#include "comm/sp_comm.h"

/* Writes to near those cores of `allowed` that are nearest to the device with this PCI
 * id ("0000:3b:00.0"), or all of them if the topology does not show it. Local. */
void sp_affinity_near(const uint64_t allowed[SP_CORE_WORDS], const char *pci,
                      uint64_t near[SP_CORE_WORDS]);

/* Writes the share of rank `index` of n in `set`; the shares of different ranks do not
 * overlap. Returns its number of cores, or 0 if there are fewer cores than ranks or the
 * topology cannot be read. Local. */
int sp_affinity_share(const uint64_t set[SP_CORE_WORDS], int index, int n,
                      uint64_t share[SP_CORE_WORDS]);

/* The number of NUMA nodes with cores that this process may use; 1 if the topology
 * cannot be read. Local. */
int sp_affinity_memories(void);

/* Binds this process to its share and sets comm->cores to it. Collective over the node;
 * called before other threads start, which inherit the binding. pci is the id of the
 * device that the process uses, or NULL. text receives the cores as "0-3 of 0-7", or ""
 * if the process was not bound. The environment variable SP_BIND=no prevents the
 * binding. SP_EMPI. */
sp_status sp_affinity_bind(sp_comm *comm, const char *pci, char *text, size_t bytes);

#endif
