/* The placement of ranks to devices.
 *
 *     each rank    visible, local rank, run.devices     --choose-->  its device
 *     all ranks    gathered places with UUIDs           --check-->   refused, or shared
 *
 * The rules depend only on their arguments, so that the tests try them on made-up
 * nodes.
 */
#ifndef SP_PLACEMENT_H
#define SP_PLACEMENT_H

#include "comm/sp_comm.h"
#include "compute/sp_backend.h"
#include "deck/sp_deck.h"

/* Description of one rank and of its device, as the rank itself sees them. */
typedef struct sp_place {
    int rank, node, local_rank, local_size;
    char host[64];
    int n_visible;       /* CUDA devices that the rank's process sees */
    int device;          /* index of the rank's device among them; -1: no device */
    sp_device_info what; /* properties of that device */
    int numa_node;       /* NUMA node that the device is attached to; -1: unknown */
} sp_place;

typedef struct sp_placement {
    int n;
    sp_place *place; /* [n] one entry a rank, by rank */
    /* Several ranks are on one GPU, as a whole or in parts (MIG). NCCL and CUDA's
     * sharing of memory between processes refuse both. */
    bool is_shared;
} sp_placement;

/* Chooses the device of a rank: the only device that the process sees; else
 * run.devices[local rank] if the deck has that list; else the device numbered as the
 * local rank. may_share (run.oversubscribe): ranks beyond the last device start again
 * with the first. Sets place->device. Local. SP_EDEVICE if no device is left,
 * SP_EUSAGE if run.devices has no device for the rank. */
sp_status sp_placement_choose(sp_place *place, const sp_doubles *devices,
                              bool may_share);

/* Looks for ranks on one GPU. Unless may_share, the first pair with the same device is
 * named (SP_EDEVICE). Every rank gets the same answer from the same places [n]. */
sp_status sp_placement_check(const sp_place *places, int n, bool may_share,
                             bool *is_shared);

/* Gives advice for the user if the ranks of a node see one device each, and different
 * ones, since sums cannot use the links to devices that control groups keep from a
 * process; else "". */
const char *sp_placement_advice(const sp_place *places, int n);

/* Writes the number of idle devices of the first node that has any, and how to use
 * them; "" if no node has any. Devices that the deck or the launcher left out do not
 * count. */
void sp_placement_idle(const sp_place *places, int n, char *text, size_t bytes);

/* Chooses and checks for the ranks of comm. Collective, agreed. A rank without any
 * device is SP_EDEVICE and named. The caller destroys the placement in any case. */
sp_status sp_placement_make(sp_placement *placement, sp_comm *comm,
                            const sp_doubles *devices, bool may_share);
/* Frees the places and zeroes the struct. Local. */
void sp_placement_destroy(sp_placement *placement);

#endif
