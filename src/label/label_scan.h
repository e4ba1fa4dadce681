/* The scans of `sptrain label`, from points to outputs, over all ranks.
 *
 *     whole scans   scan k of those to do by rank k % size, without a message
 *     blocks        scan by scan, by all ranks together:
 *
 *         rank k % size   cuts scan k into a temporary file (vox/vox_cloud.h)
 *         all ranks       know its pieces; a round has a few for each rank, dealt by
 *                         their numbers of points, the same on all ranks
 *         each rank       piece --> sample --> label_net --> label_blocks
 *         rank k % size   gets the classes of the round, and writes the output
 *
 * The temporary files are in DIR, which every rank must see. */
#ifndef LABEL_SCAN_H
#define LABEL_SCAN_H

#include "label/label_blocks.h"
#include "label/label_files.h"
#include "label/label_net.h"
#include "scan/sp_gridding.h"
#include "show/sp_progress.h"

/* Seconds of this rank. */
typedef struct label_times {
    double begun_s, shown_s; /* clock at the start; of the last line of progress */
    double read_s, write_s, merge_s, wait_s;
} label_times;

/* One run of the command. */
typedef struct label_work {
    label_model *model;
    label_net *net;
    label_files *files;
    const label_options *options;
    sp_comm *comm;
    vox_options vox;  /* of reading: codes stay codes */
    vox_codes *codes; /* counts that nobody reads */
    vox_cloud cloud;
    sp_grid grid;
    uint8_t *is_kept; /* [kept_room] of the points that the sample owns */
    uint64_t *sum;    /* [sum_room] of the sample's voxels */
    int64_t kept_room, sum_room;
    int64_t n_done,
        n_all;   /* points labelled as far as this rank knows; -1: not known */
    int n_scans; /* made by this run */
    sp_progress progress; /* the live line */
    label_times times;
} label_work;

/* Makes all outputs that are missing. Collective, agreed: blocks fail together, and a
 * rank that fails with a whole scan ends the others (sp_session_run_alone). */
sp_status label_scan_all(label_work *work);
/* Opens and frees what a run needs. Local. SP_EMEM. */
sp_status label_work_open(label_work *work);
void label_work_free(label_work *work);

#endif
