/* The device of a rank: where its network computes, and how it sums over the ranks.
 *
 *     sp_device_begin             deck, ranks
 *     sp_device_open              rank --> device or cores; tested (sp_selftest.h)
 *     sp_device_open_transport    sums over the ranks
 *     sp_device_close
 *
 * Functions are collective and agreed unless they are marked local. */
#ifndef SP_DEVICE_H
#define SP_DEVICE_H

#include "api/sp_placement.h"
#include "compute/sp_transport.h"

/* Allowed in a program, but not for a library in another program's process. */
typedef struct sp_liberties {
    bool binds; /* binds the process to its share of the node's cores */
    /* Has a child process try wgmma on a device (train/sp_wgmma_probe.h); NULL: no
     * trial. */
    sp_status (*try_wgmma)(int device);
} sp_liberties;

/* Memory of the device for each rank on it, of all ranks' values the least. 0: the
 * ranks compute on the host. */
typedef struct sp_device_memory {
    int64_t total;
    int64_t own;  /* the part that this program may use on an idle device */
    int64_t free; /* the part that was free at the start */
} sp_device_memory;

typedef struct sp_device {
    const sp_config *config; /* borrowed */
    sp_comm *comm;           /* borrowed */
    sp_placement placement;  /* ranks to devices; empty if no device was asked for */
    sp_backend backend;
    sp_transport transport; /* zeroed: not opened */
    char text[128];         /* description of the device for messages */
    /* Cores of this rank if the node's cores were divided, else "". */
    char cores[200];
    sp_device_memory memory;
    /* Instead of run.memory_mb: MiB that a rank may use, the same on all ranks. It is
     * the deck's, then the checkpoint's if the deck has none, then the bound that
     * sp_memory_bound chose. 0: no bound. */
    double memory_mb;
    /* Instead of train.bf16_sums: this process's order of sums. SP_SUMS_AUTO: its
     * device has one order only, or its precision. */
    sp_bf16_sums sums;
} sp_device;

/* Local. */
void sp_device_begin(sp_device *device, const sp_config *config, sp_comm *comm);
/* Chooses and opens the device, the same kind on every rank, and tests it. */
sp_status sp_device_open(sp_device *device, const sp_liberties *may);
/* Chooses and opens the transport of the sums over ranks; in a training before the
 * network is opened. */
sp_status sp_device_open_transport(sp_device *device);
/* The threads of this rank that compute: run.threads, or by default the node's cores
 * divided by its ranks, or fewer if the launcher bound this rank to fewer. Local. */
int sp_device_threads(const sp_config *config, const sp_comm *comm);
/* The config with the values that depend on the machine or on a checkpoint instead of
 * the deck's, as checkpoints have it. It borrows the config's memory and is not
 * destroyed. Local. */
sp_config sp_device_resolved(const sp_device *device);
/* Local; after the network is closed. */
void sp_device_close(sp_device *device);

#endif
