#include "label/label_scan.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sp_log.h"
#include "compute/sp_backend.h"
#include "data/sp_voxel.h"
#include "vox/vox_voxelize.h"

enum { PER_RANK = 2 /* pieces of a rank in a round */ };

/* ---- open and close ---- */

/* Blocks begin at multiples of the network's coarsest stride from the corner of their
 * scan, so that a point is seen in the same cells from every block. Where the training's
 * did, they begin exactly there. */
static sp_status settle_alignment(label_work *w)
{
    const sp_resources *r = &w->model->infer.resources;
    const sp_recipe *recipe = r->norm.recipe;
    double factor;

    SP_TRY(sp_voxel_factor(r->session.config, &w->net->set, &factor));
    w->vox.alignment = sp_graph_stride(&r->graph) * (int64_t)factor;
    if (recipe && recipe->alignment > 0 && recipe->alignment % w->vox.alignment == 0)
        w->vox.alignment = recipe->alignment;
    return SP_OK;
}

sp_status label_work_open(label_work *w)
{
    const sp_comm *comm = w->comm;
    const int threads = comm->node_cores / comm->local_size;

    assert(w->model && w->net && w->files && w->options && w->comm);
    w->vox = *w->model->vox;
    w->vox.map.n = 0;
    w->vox.with_points = true;
    w->vox.threads = threads > 1 ? threads : 1;
    w->codes = calloc(1, sizeof *w->codes);
    w->times.begun_s = w->times.shown_s = sp_now_s();
    return w->codes ? settle_alignment(w) : SP_FAIL(SP_EMEM, "no memory for a scan");
}

void label_work_free(label_work *w)
{
    sp_grid_destroy(&w->grid);
    vox_cloud_destroy(&w->cloud);
    free(w->sum);
    w->sum = NULL;
    free(w->is_kept);
    free(w->codes);
    w->is_kept = NULL;
    w->codes = NULL;
}

static sp_session *session_of(const label_work *w)
{
    return &w->model->infer.resources.session;
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

/* Draws the live line, where there is one, and prints a line now and then, for logs. */
static void progress(label_work *w, const char *name)
{
    enum { EVERY_S = 30 };
    const double now = sp_now_s();

    sp_progress_at(&w->progress, w->n_done, "%s", name);
    if (w->comm->rank != 0 || now - w->times.shown_s < EVERY_S)
        return;
    w->times.shown_s = now;
    print_progress(w, name, now);
}

/* ---- a sample ---- */

/* Notes which of the points that the sample owns are kept. Codes are no classes, and
 * labels mean nothing to what follows. */
static sp_status mark_points(label_work *w)
{
    const bool *keep = w->options->keep;
    vox_cloud *c = &w->cloud;
    int64_t n = 0;

    if (w->kept_room < c->n) {
        free(w->is_kept);
        w->is_kept = malloc((size_t)c->n);
        w->kept_room = w->is_kept ? c->n : 0;
        if (!w->is_kept)
            return SP_FAIL(SP_EMEM, "no memory for %" PRId64 " points", c->n);
    }
    for (int64_t i = 0; i < c->n; i++) {
        const int32_t code = c->label[i];

        c->label[i] = SP_IGNORE;
        if (c->is_owned[i])
            w->is_kept[n++] = keep && code >= 0 && code <= VOX_MAX_CODE && keep[code];
    }
    return SP_OK;
}

/* Makes the sample of the points in the cloud, as spvox convert makes it. */
static sp_status make_sample(label_work *w, const char *name)
{
    sp_status rc;

    SP_TRY(mark_points(w));
    rc = vox_voxelize(&w->vox, &w->cloud, &w->grid);
    if (rc == SP_EDATA)
        return SP_FAIL(rc, "%s: %s%s", name, sp_error_last()->message,
                       w->vox.block > 0 ? "" : " (--block cuts large scans)");
    SP_TRY(rc);
    return SP_OK;
}

/* ---- outputs ---- */

static sp_status write_output(label_work *w, int i, const label_result *result)
{
    const sp_scan_options options = {w->vox.columns, w->vox.label_field,
                                     w->vox.threads};
    const sp_scan_labels labels = label_result_labels(result);
    const double begun = sp_now_s();
    char path[LABEL_PATH];
    sp_scan *scan;
    sp_status rc;

    sp_run_beat(&session_of(w)->run, SP_PHASE_SAVE, 0, 0);
    label_files_unfinished(w->files, i, "", path);
    SP_TRY(sp_scan_open(&scan, w->vox.input[i], &options));
    rc = sp_scan_write(scan, path, &labels);
    sp_scan_close(scan);
    if (rc == SP_OK)
        rc = label_files_finish(w->files, w->options, i);
    w->times.write_s += sp_now_s() - begun;
    return rc;
}

/* ---- whole scans ---- */

/* Predicts the sample at hand into w->sum. */
static sp_status predict(label_work *w, const char *name)
{
    const sp_sample *s = &w->grid.sample;
    const int64_t n = s->n * w->model->n_classes;

    if (n > w->sum_room) {
        free(w->sum);
        w->sum = malloc((size_t)(n + n / 4) * sizeof *w->sum);
        w->sum_room = w->sum ? n + n / 4 : 0;
        if (!w->sum)
            return SP_FAIL(SP_EMEM, "%s: no memory for %" PRId64 " voxels", name, s->n);
    }
    return label_net_run(w->net, s, name, w->sum);
}

static sp_status label_sample(label_work *w, const char *name, label_result *result)
{
    const sp_sample *s = &w->grid.sample;
    const size_t c = (size_t)w->model->n_classes;

    SP_TRY(predict(w, name));
    SP_TRY(label_result_size(result, w->cloud.n));
    for (int64_t i = 0; i < s->n_points; i++)
        label_result_put(result, (int64_t)s->point_index[i],
                         w->sum + s->point_voxel[i] * c, w->is_kept[i]);
    return SP_OK;
}

static sp_status label_whole(label_work *w, int i)
{
    const char *name = w->vox.input[i];
    const double begun = sp_now_s();
    label_result result = {0};
    sp_status rc;

    sp_run_beat(&session_of(w)->run, SP_PHASE_READ, 0, 0);
    SP_TRY(vox_cloud_load(&w->cloud, &w->vox, i, w->codes));
    SP_TRY(make_sample(w, name));
    w->times.read_s += sp_now_s() - begun;
    rc = label_result_open(&result, w->model, w->options);
    if (rc == SP_OK)
        rc = label_sample(w, name, &result);
    if (rc == SP_OK)
        rc = write_output(w, i, &result);
    label_result_free(&result);
    w->n_done += w->cloud.n;
    w->n_scans++;
    progress(w, name);
    return rc;
}

static sp_status label_whole_scans(void *arg)
{
    label_work *w = arg;

    for (int i = 0, k = 0; i < w->files->n; i++)
        if (!w->files->file[i].is_done && k++ % w->comm->size == w->comm->rank)
            SP_TRY(label_whole(w, i));
    return SP_OK;
}

/* ---- blocks ---- */

/* One scan that is shared. */
typedef struct shared {
    label_work *work;
    int scan, owner; /* number of the scan; rank that cuts, collects and writes it */
    char path[LABEL_PATH]; /* its points, by blocks */
    vox_piece *piece;      /* [n_pieces] the same on all ranks */
    int64_t n_pieces;
    label_result result; /* the owner's */
    label_blocks blocks;
} shared;

static bool is_owner(const shared *s)
{
    return s->work->comm->rank == s->owner;
}

/* The owner cuts the scan, and all ranks get the list of its pieces. */
static sp_status cut_scan(shared *s)
{
    label_work *w = s->work;
    const double begun = sp_now_s();
    void *piece;
    sp_status rc = SP_OK;

    sp_run_beat(&session_of(w)->run, SP_PHASE_READ, 0, 0);
    if (is_owner(s))
        rc = vox_spill_write(&w->vox, s->scan, s->path, w->codes, &s->piece,
                             &s->n_pieces);
    SP_TRY(sp_session_agree(session_of(w), rc));
    SP_TRY(sp_comm_bcast(w->comm, &s->n_pieces, sizeof s->n_pieces, s->owner));
    piece = s->piece;
    rc = sp_comm_bcast_array(w->comm, &piece, (size_t)s->n_pieces * sizeof *s->piece,
                             s->owner);
    s->piece = piece;
    w->times.read_s += sp_now_s() - begun;
    return rc;
}

/* Predicts one piece and adds it to the blocks. */
static sp_status predict_piece(shared *s, int64_t i)
{
    label_work *w = s->work;
    const vox_piece *piece = &s->piece[i];
    const double begun = sp_now_s();
    char name[LABEL_PATH];
    double merging;

    snprintf(name, sizeof name, "%s[%d,%d]", w->vox.input[s->scan], piece->bx,
             piece->by);
    SP_TRY(vox_spill_read(&w->cloud, &w->vox, s->path, piece));
    SP_TRY(make_sample(w, name));
    w->grid.sample.id = i;
    w->times.read_s += sp_now_s() - begun;
    SP_TRY(predict(w, name));
    merging = sp_now_s();
    SP_TRY(label_blocks_add(&s->blocks, &w->grid.sample, w->sum, w->is_kept));
    w->times.merge_s += sp_now_s() - merging;
    return SP_OK;
}

/* Deals the pieces first .. end - 1 of a round: each, in falling order of its number of
 * points, to the rank that has the fewest so far. rank_of [end - first]. */
static void deal(const shared *s, int64_t first, int64_t end, int *rank_of,
                 int64_t *load)
{
    const int size = s->work->comm->size;

    memset(load, 0, (size_t)size * sizeof *load);
    for (int64_t i = first; i < end; i++)
        rank_of[i - first] = -1;
    for (int64_t n = first; n < end; n++) {
        int64_t largest = -1;
        int least = 0;

        for (int64_t i = first; i < end; i++)
            if (rank_of[i - first] < 0 &&
                (largest < 0 || s->piece[i].n > s->piece[largest].n))
                largest = i;
        for (int r = 1; r < size; r++)
            least = load[r] < load[least] ? r : least;
        rank_of[largest - first] = least;
        load[least] += s->piece[largest].n;
    }
}

static sp_status predict_round(shared *s, int64_t first, int64_t end,
                               const int *rank_of)
{
    label_work *w = s->work;

    for (int64_t i = first; i < end; i++)
        if (rank_of[i - first] == w->comm->rank)
            SP_TRY(predict_piece(s, i));
    return SP_OK;
}

static sp_status run_rounds(shared *s, int *rank_of, int64_t *load)
{
    label_work *w = s->work;
    const int64_t most = (int64_t)PER_RANK * w->comm->size;

    for (int64_t first = 0; first < s->n_pieces; first += most) {
        int64_t end = first + most < s->n_pieces ? first + most : s->n_pieces;
        sp_status rc;
        double begun;

        deal(s, first, end, rank_of, load);
        rc = predict_round(s, first, end, rank_of);
        begun = sp_now_s();
        SP_TRY(sp_session_agree(session_of(w), rc));
        w->times.wait_s += sp_now_s() - begun;
        begun = sp_now_s();
        rc = label_blocks_exchange(&s->blocks, end);
        SP_TRY(sp_session_agree(session_of(w), rc));
        w->times.merge_s += sp_now_s() - begun;
        for (int64_t i = first; i < end; i++)
            w->n_done += s->piece[i].n_own;
        progress(w, w->vox.input[s->scan]);
    }
    return SP_OK;
}

static sp_status predict_scan(shared *s)
{
    const size_t size = (size_t)s->work->comm->size;
    int *rank_of = calloc(PER_RANK * size, sizeof *rank_of);
    int64_t *load = calloc(size, sizeof *load);
    sp_status rc =
        rank_of && load ? SP_OK : SP_FAIL(SP_EMEM, "no memory for %zu ranks", size);

    rc = sp_session_agree(session_of(s->work), rc);
    if (rc == SP_OK)
        rc = run_rounds(s, rank_of, load);
    free(rank_of);
    free(load);
    return rc;
}

static sp_status label_cut_scan(shared *s)
{
    label_work *w = s->work;
    sp_status rc = label_result_open(&s->result, w->model, w->options);

    SP_TRY(sp_session_agree(session_of(w), rc));
    SP_TRY(label_blocks_open(&s->blocks, w->vox.input[s->scan], w->model, w->options,
                             s->piece, s->n_pieces, w->comm, s->owner, &s->result));
    SP_TRY(predict_scan(s));
    label_blocks_close(&s->blocks);
    if (is_owner(s))
        unlink(s->path);
    rc = is_owner(s) ? write_output(w, s->scan, &s->result) : SP_OK;
    return sp_session_agree(session_of(w), rc);
}

static sp_status label_shared(label_work *w, int scan, int owner)
{
    shared *s = calloc(1, sizeof *s);
    sp_status rc = s ? SP_OK : SP_FAIL(SP_EMEM, "no memory for a scan");

    SP_TRY_GOTO(rc, sp_session_agree(session_of(w), rc), end);
    *s = (shared){.work = w, .scan = scan, .owner = owner};
    label_files_unfinished(w->files, scan, ".points", s->path);
    rc = cut_scan(s);
    if (rc == SP_OK)
        rc = label_cut_scan(s);
    if (is_owner(s))
        unlink(s->path);
    label_blocks_close(&s->blocks);
    label_result_free(&s->result);
    free(s->piece);
    w->n_scans++;
end:
    free(s);
    return rc;
}

/* ---- all ---- */

/* The points of the scans that are to be made, on this rank or on all; -1: not known.
 */
static int64_t count_all(const label_work *w)
{
    const bool is_shared = w->vox.block > 0;
    int64_t n = 0;

    for (int i = 0, k = 0; i < w->files->n; i++) {
        const label_file *f = &w->files->file[i];

        if (f->is_done || (k++ % w->comm->size != w->comm->rank && !is_shared))
            continue;
        if (f->n_points < 0)
            return -1;
        n += f->n_points;
    }
    return n;
}

static sp_status label_cut_scans(label_work *w)
{
    for (int i = 0, k = 0; i < w->files->n; i++)
        if (!w->files->file[i].is_done)
            SP_TRY(label_shared(w, i, k++ % w->comm->size));
    return SP_OK;
}

sp_status label_scan_all(label_work *w)
{
    sp_status rc = SP_OK;

    assert(w->codes && "label_work_open comes first");
    w->n_all = count_all(w);
    sp_progress_begin(&w->progress, "labelling", "points", w->n_all > 0 ? w->n_all : 0);
    if (w->vox.block > 0)
        rc = label_cut_scans(w);
    else
        sp_session_run_alone(session_of(w), label_whole_scans, w);
    rc = sp_session_agree(session_of(w), rc);
    sp_progress_end(&w->progress);
    return rc;
}
