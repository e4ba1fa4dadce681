/* Which rank computes on which device.
 *
 *     each rank    visible, local rank, run.devices     --choose-->  its device
 *     all ranks    gathered places with UUIDs           --check-->   refused, or shared
 *
 * The rules are functions of their arguments alone, so that the tests try them on
 * made-up nodes.
 */
#ifndef SP_MAPPING_H
#define SP_MAPPING_H

#include "compute/sp_backend.h"
#include "comm/sp_comm.h"
#include "deck/sp_deck.h"

/* What one rank says of itself. */
typedef struct sp_place {
    int rank, node, local_rank, local_size;
    char host[64];
    int n_visible;  /* CUDA devices that its process sees */
    int device;     /* its own among them; -1: none */
    sp_device what; /* that device */
    int numa_node;  /* where it is attached; -1: unknown */
} sp_place;

typedef struct sp_mapping {
    int n;
    sp_place *place; /* [n] of every rank, by rank */
    bool is_shared;  /* some device has several ranks: no NCCL */
} sp_mapping;

/* The device of a rank: run.devices[local rank] where named; the only one that the
 * process sees; else that of its local rank. may_share (run.oversubscribe): ranks
 * beyond the devices begin again with the first. Sets place->device. Local. SP_EDEVICE
 * where none is left, SP_EUSAGE where run.devices names none. */
sp_status sp_mapping_choose(sp_place *place, const sp_doubles *devices, bool may_share);

/* Two ranks with one device: SP_EDEVICE, both named, unless may_share. Every rank gets
 * the same answer from the same places [n]. */
sp_status sp_mapping_check(const sp_place *places, int n, bool may_share,
                           bool *is_shared);

/* Advice where the ranks of a node see one device each, and not the same: NCCL cannot
 * use the links between devices that a process does not see. "" elsewhere. */
const char *sp_mapping_advice(const sp_place *places, int n);

/* Both for the ranks of comm. Collective, agreed. A rank without any device is
 * SP_EDEVICE, named; *who: the rank that failed. The caller destroys the mapping in any
 * case. */
sp_status sp_mapping_make(sp_mapping *mapping, sp_comm *comm, const sp_doubles *devices,
                          bool may_share, int *who);
void sp_mapping_destroy(sp_mapping *mapping);

#endif
