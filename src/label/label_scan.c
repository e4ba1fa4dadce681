#include "label/label_scan.h"

#include <assert.h>
#include <stdio.h>

#include "base/sp_log.h"
#include "label/label_table.h"

enum { LARGE_SCAN = 4 << 20 /* points of a scan that is not read ahead as a whole */ };

/* ---- whole scans ---- */

/* The k-th scan of this rank. */
static int scan_of(const label_work *w, int64_t k)
{
    return w->pending[k * w->comm->size + w->comm->rank];
}

static sp_status make_whole(void *arg, int64_t k, label_sample *s)
{
    label_work *w = arg;
    const int i = scan_of(w, k);
    sp_status rc;

    snprintf(s->name, sizeof s->name, "%s", w->vox.input[i]);
    s->fault[0] = '\0';
    rc = vox_cloud_load(&w->cloud, &w->vox, i, w->codes);
    if (rc == SP_OK)
        rc = label_work_lay_out(w, i, &w->cells);
    if (rc == SP_OK)
        rc = label_work_make(w, s);
    if (rc != SP_EDATA || w->n_pending == 1)
        return rc;
    snprintf(s->fault, sizeof s->fault, "%s", sp_error_last()->message);
    return SP_OK;
}

static bool is_large(void *arg, int64_t k)
{
    const label_work *w = arg;
    const int64_t n = w->files->file[scan_of(w, k)].n_points;

    return n < 0 || n > LARGE_SCAN;
}

static sp_status label_sample_whole(label_work *w, const label_sample *sample,
                                    label_job *job)
{
    const sp_sample *s = &sample->grid.sample;
    const size_t c = (size_t)label_model_sums(w->model);
    const double begun = sp_now_s();
    label_tally tally = {0};
    label_raster map;
    sp_status rc;

    SP_TRY(label_work_reserve(w, sample));
    SP_TRY(label_net_run(w->net, s, sample->name, w->sum));
    SP_TRY(label_result_size(&job->result, sample->n_rows));
    job->result.tally = &tally;
    rc = label_work_lay_out(w, job->scan, &map);
    if (rc == SP_OK && map.edge > 0)
        rc = label_raster_open(&map);
    job->result.raster = map.edge > 0 ? &map : NULL;
    for (int64_t i = 0; rc == SP_OK && i < s->n_points; i++)
        label_result_put(&job->result, (int64_t)s->point_index[i],
                         w->sum + s->point_voxel[i] * c, sample->mark[i]);
    job->result.tally = NULL;
    job->result.raster = NULL;
    if (rc == SP_OK)
        rc = label_work_map(w, job->scan, &map, NULL);
    label_raster_free(&map);
    SP_TRY(rc);
    SP_TRY(label_table_keep(w->files, job->scan, &tally, sp_now_s() - begun));
    return label_work_push(w, job);
}

static sp_status label_whole(label_work *w, int64_t k)
{
    label_sample *sample;
    label_job *job = NULL;
    sp_status rc;

    SP_TRY(label_work_next(w, &sample));
    if (sample->fault[0]) {
        label_work_skip(w, scan_of(w, k), sample->fault);
        return SP_OK;
    }
    rc = label_work_job(w, scan_of(w, k), LABEL_WHOLE, &job);
    if (rc == SP_OK)
        rc = label_sample_whole(w, sample, job);
    if (rc == SP_OK)
        label_result_complete(&job->result);
    else
        label_writer_free(job);
    SP_TRY(rc);
    w->n_done += sample->n_points;
    w->n_scans++;
    label_work_progress(w, sample->name);
    return SP_OK;
}

static int64_t count_mine(const label_work *w)
{
    const int size = w->comm->size;

    return (w->n_pending - w->comm->rank + size - 1) / size;
}

static sp_status label_whole_scans(void *arg)
{
    label_work *w = arg;
    const label_ahead_jobs jobs = {
        .n = count_mine(w), .make = make_whole, .is_large = is_large, .arg = w};

    SP_TRY(label_ahead_start(&w->ahead, &jobs));
    for (int64_t k = 0; k < jobs.n && label_work_check_stop(w) == SP_OK; k++)
        SP_TRY(label_whole(w, k));
    label_ahead_stop(&w->ahead);
    return label_work_wait(w, LABEL_ALL_SCANS);
}

/* Labels the scans of this rank. Once it was asked to stop it begins no other, and the
 * other ranks, which hear of it at the end, do theirs. */
static sp_status label_whole_all(label_work *w)
{
    sp_session_run_or_abort(label_work_session(w), label_whole_scans, w);
    return w->n_scans + w->n_skipped < count_mine(w) ? label_work_check_stop(w) : SP_OK;
}

/* ---- all ---- */

/* The points of the scans that are to be made, on this rank or on all; -1: not known.
 */
static int64_t count_all(const label_work *w)
{
    int64_t n = 0;

    for (int t = 0; t < w->n_pending; t++) {
        const label_file *f = &w->files->file[w->pending[t]];

        if (t % w->comm->size != w->comm->rank && w->vox.block <= 0)
            continue;
        if (f->n_points < 0)
            return -1;
        n += f->n_points;
    }
    return n;
}

/* Warns of scans that need much memory, since each is one sample. */
static void warn_of_large(const label_work *w)
{
    enum { POINT_BYTES = 200 /* about: points, sort keys, voxels */ };
    const double gib = 1 << 30;

    for (int t = 0; w->vox.block <= 0 && t < w->n_pending; t++) {
        const double n = (double)w->files->file[w->pending[t]].n_points;

        if (n * POINT_BYTES > gib)
            sp_log_warn0("%s: %.1f million points are one sample, which takes about "
                         "%.1f GiB of a rank, and more in the network; --block M cuts "
                         "it into blocks of M metres",
                         w->vox.input[w->pending[t]], n / 1e6, n * POINT_BYTES / gib);
    }
}

sp_status label_scan_all(label_work *w)
{
    sp_status rc = SP_OK;

    assert(w->codes && "label_work_open comes first");
    w->n_all = count_all(w);
    warn_of_large(w);
    sp_progress_begin(&w->progress, "labelling", "points", w->n_all > 0 ? w->n_all : 0);
    if (w->vox.block > 0)
        rc = label_scan_blocks(w);
    else
        rc = label_whole_all(w);
    rc = sp_comm_agree(label_work_session(w)->comm, rc);
    sp_progress_end(&w->progress);
    return rc;
}
