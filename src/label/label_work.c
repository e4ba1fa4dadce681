#include "label/label_work.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sp_list.h"
#include "base/sp_log.h"
#include "base/sp_signal.h"
#include "compute/sp_backend.h"
#include "data/sp_voxel.h"
#include "vox/vox_voxelize.h"

sp_session *label_work_session(const label_work *w)
{
    return &w->model->infer.session;
}

/* ---- open and close ---- */

/* Blocks begin at multiples of the network's coarsest stride from the corner of their
 * scan, so that a point is seen in the same cells from every block. If the training's
 * blocks did, they begin exactly there. */
static sp_status choose_alignment(label_work *w)
{
    const sp_infer *infer = &w->model->infer;
    const sp_recipe *recipe = infer->network.norm.recipe;
    double factor;

    SP_TRY(sp_voxel_factor(infer->session.config, &w->net->set, &factor));
    w->vox.alignment = sp_graph_stride(&infer->network.graph) * (int64_t)factor;
    if (recipe && recipe->alignment > 0 && recipe->alignment % w->vox.alignment == 0)
        w->vox.alignment = recipe->alignment;
    return SP_OK;
}

static void set_reading(label_work *w)
{
    const int threads = w->comm->node_cores / w->comm->local_size;

    w->vox = *w->model->vox;
    w->vox.map.n = 0;
    w->vox.with_points = true;
    w->vox.threads = threads > 1 ? threads : 1;
    w->vox.with_degrees = true; /* if the training scans had them */
    w->vox.is_quiet = true;
    w->vox.without_cost = true;
    w->vox.is_given_up = &w->is_given_up;
}

static sp_status write_output(void *work, const label_job *job);

sp_status label_work_open(label_work *w)
{
    assert(w->model && w->net && w->files && w->options && w->comm);
    set_reading(w);
    w->times.begun_s = w->times.shown_s = sp_now_s();
    SP_TRY(SP_NEW(&w->codes, 1, "scans"));
    SP_TRY(SP_NEW(&w->pending, w->files->n, "scans"));
    SP_TRY(SP_NEW(&w->extent, w->files->n, "scans"));
    SP_TRY(SP_NEW(&w->turn, w->files->n, "scans"));
    memset(w->turn, 0xff, (size_t)w->files->n * sizeof *w->turn);
    for (int i = w->options->task; i < w->files->n; i += w->options->n_tasks)
        if (!w->files->file[i].is_done && !w->files->file[i].is_skipped)
            w->pending[w->turn[i] = w->n_pending++] = i;
    for (int i = 0; i < w->files->n; i++)
        w->extent[i] = w->files->file[i].extent;
    w->vox.extent = w->extent;
    snprintf(w->rims, sizeof w->rims, "%s/%s/rim", w->files->work, w->files->tmp);
    w->vox.rims = w->rims;
    label_ahead_create(&w->ahead);
    w->has_threads = true;
    SP_TRY(label_writer_open(&w->writer, write_output, w));
    return choose_alignment(w);
}

void label_work_free(label_work *w)
{
    __atomic_store_n(&w->is_given_up, true, __ATOMIC_RELAXED);
    label_cut_free(w->cut);
    if (w->has_threads) {
        label_ahead_destroy(&w->ahead);
        label_writer_close(&w->writer);
    }
    vox_cloud_destroy(&w->cloud);
    free(w->sum);
    free(w->codes);
    free(w->pending);
    free(w->extent);
    free(w->turn);
    free(w->stored.block);
}

/* ---- progress ---- */

static void print_progress(const label_work *w, const char *name, double now)
{
    const double rate = (double)w->n_done / (now - w->times.begun_s + 1e-9);
    const double left =
        w->n_all > w->n_done && rate > 0 ? (double)(w->n_all - w->n_done) / rate : 0;

    if (w->n_all > 0)
        sp_log_progress("label %s: %.1f of %.1f million points, %.3f million/s, "
                        "%.0f s left",
                        name, (double)w->n_done / 1e6, (double)w->n_all / 1e6,
                        rate / 1e6, left);
    else
        sp_log_progress("label %s: %.1f million points, %.3f million/s", name,
                        (double)w->n_done / 1e6, rate / 1e6);
}

/* Draws the live line, if it is on, and prints a line now and then, for logs. */
void label_work_progress(label_work *w, const char *name)
{
    enum { EVERY_S = 30 };
    const double now = sp_now_s();

    sp_progress_at(&w->progress, w->n_done, "%s", name);
    if (w->comm->rank != 0 || now - w->times.shown_s < EVERY_S)
        return;
    w->times.shown_s = now;
    print_progress(w, name, now);
}

/* ---- a sample, made by a thread ---- */

/* The cell of the map that a point is counted in. */
static uint32_t cell_of(const label_work *w, const double *xyz)
{
    if (!vox_is_within(&w->vox, xyz))
        return LABEL_OUTSIDE;
    return w->cells.edge > 0 ? label_raster_cell(&w->cells, xyz[0], xyz[1])
                             : LABEL_NO_CELL;
}

/* Notes which of the points that the sample owns are kept, and their cells. Codes are
 * no classes, and labels mean nothing to what follows. */
static sp_status mark_points(label_work *w, label_sample *s)
{
    const bool *keep = w->options->keep;
    vox_cloud *c = &w->cloud;
    int64_t n = 0;

    if (!sp_list_reserve(&s->mark, &s->mark_room, (size_t)c->n * sizeof *s->mark))
        return SP_FAIL(SP_EMEM, "no memory for %" PRId64 " points", c->n);
    for (int64_t i = 0; i < c->n; i++) {
        const int32_t code = c->label[i];

        c->label[i] = SP_IGNORE;
        if (c->is_owned[i] != 1)
            continue;
        s->mark[c->is_block ? c->home_row[i] : n++] =
            (keep && code >= 0 && code <= VOX_MAX_CODE && keep[code]) |
            cell_of(w, c->xyz + 3 * i) << 1;
    }
    return SP_OK;
}

/* ---- maps ---- */

sp_status label_work_lay_out(const label_work *w, int scan, label_raster *raster)
{
    const vox_options *v = &w->vox;
    vox_extent extent = w->extent[scan];

    *raster = (label_raster){0};
    if (w->options->raster <= 0)
        return SP_OK;
    for (int a = 0; v->is_window && a < 2; a++) {
        extent.low[a] = fmax(extent.low[a], v->bounds[a]);
        extent.high[a] = fmin(extent.high[a], v->bounds[a + 2]);
    }
    return label_raster_lay_out(raster, v->input[scan], &extent, w->options->raster,
                                w->model->n_classes);
}

sp_status label_work_map(const label_work *w, int scan, label_raster *raster,
                         sp_comm *comm)
{
    const label_file *file = &w->files->file[scan];
    char path[LABEL_PATH];
    sp_status rc = SP_OK;

    if (raster->edge <= 0)
        return SP_OK;
    if (comm)
        SP_TRY(label_raster_sum(raster, comm));
    snprintf(path, sizeof path, "%s/%s.tif", w->files->dir, file->name);
    if (!comm || comm->rank == 0)
        rc = label_raster_write(raster, path, w->model->infer.network.class_name,
                                file->epsg);
    return comm ? sp_comm_agree(comm, rc) : rc;
}

/* Warns once of coordinates that a writer rounded: a network that has not seen stripes
 * of empty voxels misreads them. */
static void warn_of_steps(label_work *w, const char *name)
{
    char text[256];
    double step[3];

    if (w->has_warned_of_steps)
        return;
    vox_find_steps(&w->cloud, w->vox.voxel_size, step);
    if (!vox_list_steps(step, w->vox.voxel_size, text, sizeof text))
        return;
    w->has_warned_of_steps = true;
    sp_log_warn("%s has coordinates coarser than the model's voxels of %g: %s; scans "
                "after it may too",
                name, w->vox.voxel_size, text);
}

/* Names the scan in a failure of its points. */
static sp_status name_fault(const label_sample *s, sp_status rc)
{
    return rc == SP_EDATA ? SP_FAIL(rc, "%s: %s", s->name, sp_error_last()->message)
                          : rc;
}

/* Makes the sample of the points in the cloud, as spvox convert makes it. */
sp_status label_work_make(label_work *w, label_sample *s)
{
    SP_TRY(mark_points(w, s));
    s->n_points = w->cloud.n;
    s->n_rows = w->cloud.n_rows;
    warn_of_steps(w, s->name);
    return name_fault(s, vox_voxelize(&w->vox, &w->cloud, &s->grid));
}

sp_status label_work_locate(label_work *w, label_sample *s)
{
    SP_TRY(mark_points(w, s));
    s->n_points = w->cloud.n;
    return name_fault(s, vox_locate(&w->vox, &w->cloud, &s->grid));
}

/* Waits for the next sample. */
sp_status label_work_next(label_work *w, label_sample **sample)
{
    const double begun = sp_now_s();
    sp_status rc;

    sp_run_beat(&label_work_session(w)->run, SP_PHASE_READ, 0, 0);
    rc = label_ahead_next(&w->ahead, sample);
    w->times.read_s += sp_now_s() - begun;
    return rc;
}

sp_status label_work_reserve(label_work *w, const label_sample *sample)
{
    const int64_t n = sample->grid.sample.n;
    const size_t sums = (size_t)(n * label_model_sums(w->model));

    return sp_list_reserve(&w->sum, &w->sum_room, sums * sizeof *w->sum)
               ? SP_OK
               : SP_FAIL(SP_EMEM, "%s: no memory for %" PRId64 " voxels", sample->name,
                         n);
}

/* ---- outputs, written by a thread ---- */

/* Lists the paths of the parts of output i; the caller frees it as a whole. */
static sp_status list_parts(const label_work *w, int i, int n, char ***path)
{
    char *text;

    *path = malloc((size_t)n * (sizeof **path + LABEL_PATH));
    if (!*path)
        return SP_FAIL(SP_EMEM, "no memory for %d parts", n);
    text = (char *)(*path + n);
    for (int k = 0; k < n; k++, text += LABEL_PATH) {
        char ending[32];

        snprintf(ending, sizeof ending, ".part.%d", k);
        label_files_unfinished(w->files, i, ending, text);
        (*path)[k] = text;
    }
    return SP_OK;
}

/* Writes the job's part of an output that will be named `path`. */
static sp_status write_rows(const label_work *w, const label_job *job, sp_scan *scan,
                            const char *path)
{
    sp_scan_labels labels = label_result_labels(&job->result);
    const label_deal *deal = &job->result.deal;
    const int writer = label_deal_writer(deal, w->comm->rank), n = deal->n_writers;
    SP_FREED char **part = NULL;
    sp_status rc;

    if (w->vox.is_window)
        labels.window = w->vox.bounds;
    if (job->step == LABEL_WHOLE)
        return sp_scan_write(scan, path, &labels);
    SP_TRY(list_parts(w, job->scan, n, &part));
    if (job->step == LABEL_PART)
        rc = sp_scan_write_part(scan, path, &labels, writer, n, part[writer]);
    else
        rc = sp_scan_join(scan, path, &labels, n, part);
    for (int k = 0; job->step == LABEL_JOIN && k < n; k++)
        unlink(part[k]);
    return rc;
}

static sp_status write_output(void *work, const label_job *job)
{
    const label_work *w = work;
    sp_scan_options options = vox_scan_options(&w->vox);
    char path[LABEL_PATH], chunks[LABEL_PATH];
    sp_scan *scan;
    sp_status rc;

    options.z_unit = SP_SCAN_Z_OF_RECORDS; /* a copy keeps z unchanged */
    label_files_unfinished(w->files, job->scan, "", path);
    label_files_unfinished(w->files, job->scan, LABEL_CHUNKS, chunks);
    SP_TRY(sp_scan_open(&scan, w->vox.input[job->scan], &options));
    rc = vox_scan_keep_near(scan, &w->vox, job->scan);
    if (rc == SP_OK)
        rc = sp_scan_copy_chunks(scan, chunks, true);
    if (rc == SP_OK)
        rc = write_rows(w, job, scan, path);
    sp_scan_close(scan);
    unlink(chunks);
    if (rc == SP_OK && job->step != LABEL_PART)
        rc = label_files_finish(w->files, job->scan);
    return rc;
}

sp_status label_work_job(label_work *w, int scan, label_step step, label_job **job)
{
    SP_TRY(label_writer_make(job, scan, step));
    return label_result_open(&(*job)->result, w->model, w->options);
}

sp_status label_work_push(label_work *w, label_job *job)
{
    const double begun = sp_now_s();
    sp_status rc = label_writer_push(&w->writer, job);

    w->times.write_s += sp_now_s() - begun;
    return rc;
}

sp_status label_work_join(label_work *w, int scan, const label_deal *deal)
{
    label_job *job = NULL;
    sp_status rc = label_work_job(w, scan, LABEL_JOIN, &job);

    if (rc == SP_OK)
        rc = label_result_deal(&job->result, deal, -1);
    if (rc == SP_OK)
        rc = label_work_push(w, job);
    if (rc == SP_OK)
        label_result_complete(&job->result);
    else
        label_writer_free(job);
    return rc;
}

sp_status label_work_wait(label_work *w, int scan)
{
    const double begun = sp_now_s();
    sp_status rc;

    sp_run_beat(&label_work_session(w)->run, SP_PHASE_SAVE, 0, 0);
    rc = label_writer_wait(&w->writer, scan);
    w->times.write_s += sp_now_s() - begun;
    return rc;
}

void label_work_skip(label_work *w, int scan, const char *why)
{
    label_files_skip(w->files, scan, why);
    if (w->vox.block > 0) /* all ranks skip it */
        sp_log_warn0("skipped: %s", why);
    else
        sp_log_warn("skipped: %s", why);
    w->extent[scan] = w->files->file[scan].extent;
    w->n_skipped++;
}

sp_status label_work_check_stop(const label_work *w)
{
    const int number = sp_signal_received();

    return number == 0
               ? SP_OK
               : SP_FAIL(SP_ELIMIT,
                         "stopped by signal %d: the outputs in %s are complete, "
                         "and the same command makes those that are missing",
                         number, w->files->dir);
}
