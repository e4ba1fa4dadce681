/* Inside of the loader: a slot and its filling. */
#ifndef SP_LOADER_SLOT_H
#define SP_LOADER_SLOT_H

#include "data/sp_loader.h"
#include "data/sp_voxel.h"

/*     FREE --deal--> READING --all read, planned--> READY --next--> TAKEN
 *      ^                                                              |
 *      +---------------------------recycle----------------------------+  */
typedef enum slot_state { SLOT_FREE, SLOT_READING, SLOT_READY, SLOT_TAKEN } slot_state;

typedef struct loader_slot {
    slot_state state;
    sp_batch batch;
    sp_arena host;       /* sample ids, samples as stored, rows of their voxels */
    sp_arena device;     /* plan, features, labels: memory of the backend */
    int64_t *sample_id;  /* in host */
    int n_taken, n_read; /* samples that readers began, ended */
    int n_room;
    sp_sample *sample; /* [n_room] their arrays are in host */
    int failed;        /* lowest sample that could not be read; -1: none */
    sp_error_record error;
    sp_status rc; /* what sp_loader_next returns for this slot */
} loader_slot;

/* What the planner works with. */
typedef struct loader_filler {
    const sp_loader_options *options;
    double factor;    /* voxel edge of the network over that of the shards */
    sp_arena scratch; /* voxels of a batch before their order is known, plans made */
    double plan_s, other_s; /* times of the last slot */
} loader_filler;

/* Copy a deal into a free slot and make room for its samples. */
sp_status sp_loader_slot_deal(loader_slot *slot, const sp_dataset *set,
                              const sp_sample_request *request, const sp_deal *deal,
                              sp_position at);
/* Augment, voxelize, plan and order the samples that were read. */
sp_status sp_loader_slot_fill(loader_filler *filler, loader_slot *slot);
void sp_loader_slot_destroy(loader_slot *slot, const sp_backend *backend);

#endif
