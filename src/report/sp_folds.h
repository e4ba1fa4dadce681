/* The pooled result of a cross-validation: runs of data.folds = K, one for each fold.
 *
 *     run folder --sp_history--> last evaluation --> confusion of the fold
 *     confusions --sum--> one matrix of all samples, each once --> mIoU, accuracy
 *
 * A mean of the folds' mIoU would weigh a class of few voxels in a fold as much as one of
 * many, and drop the classes that a fold lacks. Local; used on one rank. */
#ifndef SP_FOLDS_H
#define SP_FOLDS_H

#include "base/sp_error.h"

/* Prints a line for each fold, the classes of all folds together, and a last line
 * "folds=K miou=... accuracy=..." (and point_miou=... point_accuracy=...). SP_EUSAGE: the
 * folders are not the K folds of one cross-validation, each once; SP_EIO, SP_EDATA: a
 * folder is no run, or has no evaluation; SP_EMEM. */
sp_status sp_folds_print(int n, char *const *dirs);

#endif
