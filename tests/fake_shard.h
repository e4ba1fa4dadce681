/* A data set without files: the functions of sp_shard that a loader calls, with samples
 * made from their numbers. They can be slow and can fail. Linked instead of sp_shard.c.
 */
#ifndef FAKE_SHARD_H
#define FAKE_SHARD_H

#include "sp_shard.h"

enum { FAKE_FEATURES = 2, FAKE_CLASSES = 4 };

typedef struct fake_state {
    bool is_slow;         /* reads take 0 to 2 ms, in no order */
    int64_t bad[2];       /* samples that cannot be read; -1: none */
    int64_t slow;         /* takes 20 ms; -1: none */
    int n_reads[1 << 10]; /* by sample */
} fake_state;
extern fake_state fake;

void fake_reset(void);
/* n samples, every seventh without voxels; borrows nothing, needs no closing. */
void fake_dataset(sp_dataset *set, int64_t n);

#endif
