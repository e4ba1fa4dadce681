/* Inside of the loader: a slot of its ring, and how it is filled. */
#ifndef SP_LOADER_SLOT_H
#define SP_LOADER_SLOT_H

#include "data/sp_loader.h"
#include "data/sp_mix.h"
#include "data/sp_paste.h"
#include "data/sp_voxel.h"

/* The states of a slot:
 *     FREE --deal--> READING --all read, planned--> READY --next--> TAKEN
 *      ^                                                              |
 *      +---------------------------recycle----------------------------+
 * A planner owns a FREE slot while it deals, and the one that claims it to fill it, a
 * planner or the caller, a READING one once all samples are read; readers own their
 * samples meanwhile; the caller owns a TAKEN one. */
typedef enum slot_state { SLOT_FREE, SLOT_READING, SLOT_READY, SLOT_TAKEN } slot_state;

typedef struct loader_slot {
    slot_state state;
    sp_batch batch;
    sp_arena host;   /* holds sample ids, samples as stored, and rows of their voxels */
    /* Holds plan, features and labels, in the backend's memory, from the claim to the
     * recycling; else zeroed. */
    sp_arena device;
    int memory; /* the number of `device` among the loader's; -1: the slot has it not */
    int64_t *sample_id;  /* [batch.n_reads], in `host` */
    sp_mix *mix;         /* [batch.n_samples], in `host`; NULL: not mixed */
    int *partner;        /* [batch.n_samples] index of its read; -1: not mixed */
    int n_taken, n_read; /* samples that readers have begun, and have ended */
    size_t room;
    sp_sample *sample; /* [room bytes] samples; their arrays are in `host` */
    /* The first sample, in the order of sample_id, that could not be read, or -1. */
    int failed;
    sp_error_record error;
    /* The status that sp_loader_next returns for this slot, with its record in `error`.
     */
    sp_status rc;
} loader_slot;

/* The voxels of a batch as sp_voxelize gives them, sample after sample. */
typedef struct loader_collation {
    sp_voxels *voxels;   /* [n_samples] */
    int32_t *sample_row; /* [n_samples + 1] */
    int32_t *coords;     /* [n][3] */
    int32_t n;
} loader_collation;

/* The state of a thread that fills slots. */
typedef struct loader_filler {
    const sp_loader_options *options;
    double factor; /* edge of the network's voxels over the shards' voxel edge */
    const bool *is_pasted; /* of sp_mixer; borrowed */
    sp_colors colors;
    const sp_bank *bank; /* NULL: nothing is pasted. Borrowed */
    /* Of a sample without voxels in augment.range or eval.range; of all fillers. NULL:
     * nothing is reported. */
    bool *has_warned;
    /* Holds the voxels of a batch before the plan orders them, and what plan_build
     * needs meanwhile. */
    sp_arena scratch;
    loader_collation all; /* of the slot at hand, in `scratch` */
    /* Seconds that the last slot took: for its plan, and for all else. */
    double plan_s, other_s;
} loader_filler;

/* Copies a deal into a free slot and makes room for its samples. SP_EMEM. */
sp_status sp_loader_slot_assign(loader_slot *slot, const sp_loader_options *options,
                                const sp_sample_request *request,
                                const sp_assignment *assigned, sp_position at);
/* Fills a slot with the samples that were read, in two halves. The first augments,
 * voxelizes and collates on the host, and several fillers may do so at once. The second
 * plans the batch and orders its rows: one thread at a time for a backend. SP_EDATA,
 * SP_EMEM, SP_EDEVICE. */
sp_status sp_loader_slot_voxelize(loader_filler *filler, loader_slot *slot);
sp_status sp_loader_slot_plan(loader_filler *filler, loader_slot *slot);
void sp_loader_slot_destroy(loader_slot *slot, const sp_backend *backend);

#endif
