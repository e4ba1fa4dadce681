/* One run of `sptrain label` on this rank: what its parts share, the threads beside the
 * one that computes, the way of a sample, the progress. */
#ifndef LABEL_WORK_H
#define LABEL_WORK_H

#include "label/label_ahead.h"
#include "label/label_blocks.h"
#include "label/label_cut.h"
#include "label/label_files.h"
#include "label/label_net.h"
#include "label/label_raster.h"
#include "label/label_writer.h"
#include "report/sp_progress.h"

/* Seconds of this rank. Only waits that other threads do not hide count. */
typedef struct label_times {
    double begun_s, shown_s; /* clock at the start; of the last line of progress */
    double read_s, write_s;  /* waited for samples and cuts; for outputs */
    double merge_s, wait_s;  /* merged; waited for other ranks */
} label_times;

/* One run of the command. */
typedef struct label_work {
    label_model *model;
    label_net *net;
    label_files *files;
    const label_options *options;
    sp_comm *comm;
    vox_options vox;  /* of reading: codes stay codes */
    vox_codes *codes; /* also counts the missing points, for a warning */
    bool is_given_up; /* the cut need not go on; by __atomic_store_n */
    label_cut *cut;   /* of the next scan; NULL: not begun */
    label_ahead ahead;
    label_raster cells;       /* of the scan that samples are made of; edge 0: no map */
    vox_cloud cloud;          /* of the thread that makes samples */
    bool has_warned_of_steps; /* of coordinates coarser than voxels, by that thread */
    label_writer writer;
    bool has_threads; /* ahead and writer are open */
    bool has_parts;   /* the output of this scan waits for its parts to be joined: */
    int parts_scan;
    label_deal parts_deal;
    int *pending; /* [n_pending] scans to make, of all ranks, in their order */
    int n_pending;
    int *turn; /* [files->n] the place of a scan in `pending`; -1 if it is not there */
    vox_extent *extent;    /* [files->n] */
    label_stored stored;   /* blocks that later scans have too (label_store.h) */
    char rims[LABEL_PATH]; /* prefix of the names of rims (vox/vox_rim.h) */
    uint64_t *sum;         /* [sum_room bytes] of the voxels of the sample at hand */
    size_t sum_room;
    int64_t n_done;       /* points labelled as far as this rank knows */
    int64_t n_all;        /* points to label, on this rank or on all; -1: not known */
    int n_scans;          /* made by this run */
    int64_t n_blocks[2];  /* of this rank: predicted; read from the store */
    int n_skipped;        /* since they are damaged */
    sp_progress progress; /* the live line */
    label_times times;
} label_work;

/* Opens the parts of a run: the caller has set model, net, files, options and comm,
 * which are borrowed, and zeroed the rest. The work must not be moved until it is
 * freed, which follows after a failure too and ends the threads of a run that failed.
 * Local. SP_EMEM. */
sp_status label_work_open(label_work *work);
void label_work_free(label_work *work);

/* The rest is local, too. */
sp_session *label_work_session(const label_work *work);
/* Draws the live line, if it is on, with the name of the scan at hand; rank 0 also
 * prints a line every 30 s, for logs. */
void label_work_progress(label_work *work, const char *name);

/* Lays out the map of a scan; without --raster its edge is 0. SP_EDATA. */
sp_status label_work_lay_out(const label_work *work, int scan, label_raster *raster);
/* Sums the counts of a map over the ranks, with comm (else NULL), and rank 0 of it
 * writes it. Collective, agreed; with comm NULL local. Without --raster nothing is
 * done. */
sp_status label_work_map(const label_work *work, int scan, label_raster *raster,
                         sp_comm *comm);
/* Makes the sample of the points in work->cloud, as spvox convert makes it. Called by
 * the thread that makes samples. SP_EDATA; SP_EMEM. */
sp_status label_work_make(label_work *work, label_sample *sample);
/* The same if the voxels of the sample, without features, are those of other scans
 * (label_store.h). */
sp_status label_work_locate(label_work *work, label_sample *sample);
/* Waits for the next sample that work->ahead makes; its errors. */
sp_status label_work_next(label_work *work, label_sample **sample);
/* Makes room for the sums of a sample, work->sum [voxels][label_model_sums]. SP_EMEM. */
sp_status label_work_reserve(label_work *work, const label_sample *sample);

/* Makes the job of a scan's output, with an empty result. SP_EMEM; free after failure
 * too. */
sp_status label_work_job(label_work *work, int scan, label_step step, label_job **job);
/* label_writer_push and label_writer_wait with their errors; the seconds that they wait
 * are added to times.write_s. */
sp_status label_work_push(label_work *work, label_job *job);
sp_status label_work_wait(label_work *work, int scan);
/* Hands the output of a scan over when its parts, as `deal` has them, are complete: the
 * writer's thread joins them. SP_EMEM; errors of label_writer_push. */
sp_status label_work_join(label_work *work, int scan, const label_deal *deal);

/* Notes and warns that a scan is damaged, as `why` says, and is not labelled. */
void label_work_skip(label_work *work, int scan, const char *why);

/* SP_ELIMIT, once this process was asked to stop (base/sp_signal.h). The ranks agree
 * on it. */
sp_status label_work_check_stop(const label_work *work);

#endif
