/* The samples of a data set by the scan that they are blocks of, and the time when all
 * blocks that contain a point have passed. It is made from only the index of the data
 * set, so it is the same on every rank. */
#ifndef SP_SCANS_H
#define SP_SCANS_H

#include "data/sp_shard.h"

typedef struct sp_scans {
    const sp_dataset *set; /* borrowed */
    /* [n_samples] the samples by scan, and within a scan by the block's number */
    int64_t *order;
    int64_t *scan; /* [n_samples] number of the sample's scan */
    /* [n_samples] the least `end` so that the points of samples 0 .. i are complete
     * once the samples before `end` have passed; it never falls. */
    int64_t *end;
} sp_scans;

/* Sorts the samples of a set with blocks. Local. SP_EDATA: two samples are the same
 * block, or the set has no blocks (the message says how to convert it); SP_EMEM.
 * Destroy after a failure too. */
sp_status sp_scans_create(sp_scans *scans, const sp_dataset *set);
void sp_scans_destroy(sp_scans *scans);
/* Finds the sample that owns each point of a sample's margin: owners [n_context]; -1: a
 * block that the set does not have. SP_EDATA: that sample has no such point, or does
 * not say that this one's margin has any. Local. */
sp_status sp_scans_owners(const sp_scans *scans, const sp_sample *sample,
                          int64_t *owners);
/* The most points that wait for blocks still to pass, of all ranks together, if samples
 * pass in the order of the set, `batch` >= 1 at a time. */
int64_t sp_scans_waiting(const sp_scans *scans, int64_t batch);

#endif
