/* What the files of sp_run share. */
#ifndef SP_RUN_INTERNAL_H
#define SP_RUN_INTERNAL_H

#include <limits.h>

#include "base/sp_child.h"
#include "run/sp_run.h"

struct sp_run_impl {
    int lock, metrics; /* descriptors; -1: not open (other ranks, no folder) */
    sp_heartbeats beats;
    sp_heartbeat own;
    bool has_failed, is_stopped;
    sp_child child;
    /* Lines of metrics.jsonl that could not be written, as on a full disk, and wait. */
    char *kept;
    size_t n_kept;
    char record[PATH_MAX]; /* path of after_save.log */
};

/* True on rank 0 of a run with a folder, which writes the files. */
bool sp_run_is_owner(const sp_run *run);
/* SP_EIO if the folder's lock was deleted or replaced. */
sp_status sp_run_check_ours(const sp_run *run);
/* Rank 0: opens metrics.jsonl and removes an incomplete last line. SP_EIO. */
sp_status sp_run_open_metrics(sp_run *run);

#endif
