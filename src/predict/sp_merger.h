/* Merged prediction over all ranks. A point belongs to one sample, the block that owns
 * it, and each sample has one rank that sums its points, its owner: sample % ranks,
 * whichever rank has computed it.
 *
 *     rank that computed a sample                     owner of a sample
 *       probabilities of its voxels --sp_merger_add--> parcels: one to the owner of the
 *       sample itself, with a payload of the caller's, and one to the owner of each
 *       block that owns points of the margin
 *                       --sp_merger_exchange-->       sums of the points (sp_merge.h)
 *                                                      once all blocks that contain
 *                                                      them have passed: `done`
 *
 * A parcel has the probabilities of voxels, not of points, which are several times as
 * many. The sums wait for one or two rows of blocks of a scan, so memory is a strip of
 * the scan divided by the number of ranks. Sums are integers, so the results are the
 * same bits on any number of ranks and for batches of any size. */
#ifndef SP_MERGER_H
#define SP_MERGER_H

#include "comm/sp_gather_buffer.h"
#include "predict/sp_merge.h"
#include "predict/sp_scans.h"

/* A sample with complete points; it is valid during the call of `done`. */
typedef struct sp_merger_sample {
    int64_t id, n_points;
    const uint64_t *sum; /* [n_points][n_classes], for sp_merge_result */
    void *payload;       /* as it was added, 8-byte aligned; the receiver may write */
    size_t payload_bytes;
} sp_merger_sample;

typedef sp_status sp_merger_done(void *arg, const sp_merger_sample *sample);

/* Zero it before the first use. */
typedef struct sp_merger {
    sp_comm *comm; /* borrowed */
    sp_scans scans;
    int n_classes;
    sp_merger_done *done;
    void *arg;
    sp_gather_buffer *to; /* [comm->size] parcels for each rank */
    sp_gather_buffer received;
    /* [n_samples / size + 1] sums of this rank's samples */
    struct sp_merger_home **home;
    int64_t n_passed; /* samples of the set that have passed */
    int64_t next;     /* the first sample of this rank that is not done yet */
    /* Scratch of sp_merger_add, which grows: */
    uint32_t *weight;        /* of voxels */
    int32_t *place;          /* of voxels */
    uint32_t *point, *voxel; /* of points */
    int64_t *owner;          /* of points */
    size_t room[5];          /* bytes of these, in this order */
} sp_merger;

/* Opens a merger over a set with blocks. `done` is called on the owner of each sample,
 * by rising sample, within sp_merger_exchange. Collective, agreed. SP_EDATA if the
 * set does not record its blocks; SP_EMEM. Destroy after a failure too. */
sp_status sp_merger_open(sp_merger *merger, const sp_dataset *set, int n_classes,
                         sp_comm *comm, sp_merger_done *done, void *arg);
void sp_merger_destroy(sp_merger *merger);
/* Adds a sample that was read with its context. voxel_sum [sample->n][n_classes]: the
 * sums over its views (sp_merge_view). The payload, of at most 2^40 bytes, is copied
 * and comes back in `done`. Each sample is added once, on one rank. Local. SP_EDATA: a
 * point of the margin is not in the block that should own it, or that block's range
 * lacks this one; SP_EMEM. */
sp_status sp_merger_add(sp_merger *merger, const sp_sample *sample,
                        const uint64_t *voxel_sum, const void *payload,
                        size_t payload_bytes);
/* Sends the parcels added since the last call, and finishes samples. n_passed: the
 * samples 0 .. n_passed - 1 of the set were all added, on whichever ranks. Collective;
 * a failure of one rank, `done` included, is not agreed on: the caller does that. */
sp_status sp_merger_exchange(sp_merger *merger, int64_t n_passed);

/* The bytes that a rank holds at most, with samples passing `batch` at a time: an
 * estimate that deals points evenly. */
int64_t sp_merger_bytes(const sp_scans *scans, int n_classes, int64_t batch,
                        int n_ranks);

#endif
