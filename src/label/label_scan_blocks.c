/* Scans in blocks, which all ranks share. */
#include "label/label_scan.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_fault.h"
#include "base/sp_list.h"
#include "base/sp_log.h"
#include "label/label_table.h"
#include "vox/vox_rim.h"

enum {
    PER_RANK = 4,  /* pieces of a rank in a round */
    READ_COST = 16 /* predicting a piece over reading its sums, about */
};

/* One scan that is shared. */
typedef struct shared {
    label_work *work;
    int scan, first_rank; /* number of the scan; rank that begins with its rows */
    label_deal deal;      /* which rank writes a row */
    label_cut *cut;
    int *rank_of;  /* [cut->n_pieces] the rank that predicts each */
    int64_t *mine; /* [n_mine] the pieces of this rank, in their order */
    int64_t n_mine;
    label_job *job; /* of the rows of this rank; the writer's once it is pushed */
    bool is_pushed;
    label_blocks blocks;
    label_tally tally; /* of this rank's points, later of all */
    label_raster map;  /* the same by cells; edge 0: not wanted */
    double begun_s;
} shared;

/* Opens the store of the scan number t with the scans that come later. */
static sp_status open_store(const label_work *w, int t, label_store *store)
{
    const double most = 2 * (w->vox.block + 2 * w->vox.overlap);
    SP_FREED int *near = NULL;
    int n = 0;

    SP_TRY(label_store_open(store, &w->vox, w->files, w->pending[t],
                            label_model_sums(w->model), &w->stored));
    if (w->vox.buffer > 0)
        SP_TRY(label_files_near(w->files, w->pending[t], most, &near, &n));
    for (int i = 0; i < n; i++)
        if (w->turn[near[i]] > t)
            SP_TRY(label_store_add_later(store, &w->extent[near[i]]));
    return SP_OK;
}

/* Begins to cut the scan that is number t of those to do, if there is one. */
static sp_status begin_cut(label_work *w, int t)
{
    char path[LABEL_PATH];
    label_store store;
    sp_status rc;

    if (t >= w->n_pending)
        return SP_OK;
    assert(!w->cut);
    label_files_unfinished(w->files, w->pending[t], ".points", path);
    rc = open_store(w, t, &store);
    if (rc == SP_OK)
        rc = label_cut_begin(&w->cut, w->comm, &store, path, t % w->comm->size,
                             w->codes);
    if (!w->cut)
        label_store_close(&store);
    return rc;
}

/* Removes the rims of an input, if no scan after number t of those to do needs them. */
static sp_status remove_rim(const label_work *w, int input, int t)
{
    SP_FREED int *near = NULL;
    int n = 0;
    bool is_needed = w->turn[input] > t;

    SP_TRY(label_files_near(w->files, input, w->vox.buffer, &near, &n));
    for (int i = 0; i < n && !is_needed; i++)
        is_needed = w->turn[near[i]] > t;
    if (!is_needed)
        vox_rim_remove(&w->vox, input, w->comm->size);
    return SP_OK;
}

/* Rank 0, once all ranks have cut the scan that is number t of those to do: removes the
 * rims that no later scan needs. */
static sp_status remove_rims(const label_work *w, int t)
{
    SP_FREED int *near = NULL;
    int n = 0;

    if (w->vox.buffer <= 0)
        return SP_OK;
    SP_TRY(label_files_near(w->files, w->pending[t], w->vox.buffer, &near, &n));
    for (int i = 0; i < n; i++)
        SP_TRY(remove_rim(w, near[i], t));
    return remove_rim(w, w->pending[t], t);
}

/* Removes rims, notes which blocks of the scan at hand, number t, will be stored, and
 * begins to cut the next one. */
static sp_status begin_next(const shared *s, int t, bool is_skipped)
{
    label_work *w = s->work;

    if (w->comm->rank == 0)
        SP_TRY(remove_rims(w, t));
    if (!is_skipped)
        SP_TRY(label_store_note(&s->cut->store, s->cut->piece, s->cut->n_pieces,
                                &w->stored));
    SP_TRY(label_work_check_stop(w));
    return begin_cut(w, t + 1);
}

/* Waits until the scan is cut. */
static sp_status blocks_wait_for_cut(shared *s)
{
    label_work *w = s->work;
    const double begun = sp_now_s();
    sp_status rc;

    sp_run_beat(&label_work_session(w)->run, SP_PHASE_READ, 0, 0);
    sp_progress_at(&w->progress, w->n_done, "cutting %s", w->vox.input[s->scan]);
    assert(w->cut && w->cut->scan == s->scan);
    rc = label_cut_finish(w->cut);
    s->cut = w->cut;
    w->cut = NULL;
    w->times.read_s += sp_now_s() - begun;
    return rc;
}

/* ---- pieces ---- */

/* The points of a piece; fewer if its sums are in the store. */
static int64_t piece_cost(const shared *s, int64_t i)
{
    const vox_piece *piece = &s->cut->piece[i];

    return label_store_is_done(&s->cut->store, piece) ? piece->n / READ_COST : piece->n;
}

/* Deals the pieces first .. end - 1 of a round: each, in falling order of its cost, to
 * the rank that has the least so far. cost [n_pieces]; load [size] is scratch. */
static void deal_round(shared *s, int64_t first, int64_t end, const int64_t *cost,
                       int64_t *load)
{
    const int size = s->work->comm->size;

    memset(load, 0, (size_t)size * sizeof *load);
    for (int64_t i = first; i < end; i++)
        s->rank_of[i] = -1;
    for (int64_t n = first; n < end; n++) {
        int64_t largest = -1;
        int least = 0;

        for (int64_t i = first; i < end; i++)
            if (s->rank_of[i] < 0 && (largest < 0 || cost[i] > cost[largest]))
                largest = i;
        for (int r = 1; r < size; r++)
            least = load[r] < load[least] ? r : least;
        s->rank_of[largest] = least;
        load[least] += cost[largest];
    }
}

/* The end of the round that begins with piece `first`. */
static int64_t end_of_round(const shared *s, int64_t first)
{
    const int64_t end = first + (int64_t)PER_RANK * s->work->comm->size;

    return end < s->cut->n_pieces ? end : s->cut->n_pieces;
}

/* Deals all rounds. */
static sp_status deal(shared *s)
{
    const sp_comm *comm = s->work->comm;
    const int64_t n = s->cut->n_pieces;
    SP_FREED int64_t *load = NULL, *cost = NULL;

    SP_TRY(SP_NEW(&load, comm->size, "the ranks"));
    SP_TRY(SP_NEW(&cost, n, "the blocks"));
    SP_TRY(SP_NEW(&s->rank_of, n, "the blocks"));
    SP_TRY(SP_NEW(&s->mine, n, "the blocks"));
    for (int64_t i = 0; i < s->cut->n_pieces; i++)
        cost[i] = piece_cost(s, i);
    for (int64_t i = 0; i < s->cut->n_pieces; i = end_of_round(s, i))
        deal_round(s, i, end_of_round(s, i), cost, load);
    for (int64_t i = 0; i < s->cut->n_pieces; i++)
        if (s->rank_of[i] == comm->rank)
            s->mine[s->n_mine++] = i;
    return SP_OK;
}

static sp_status make_piece(void *arg, int64_t k, label_sample *sample)
{
    const shared *s = arg;
    label_work *w = s->work;
    const vox_piece *piece = &s->cut->piece[s->mine[k]];

    snprintf(sample->name, sizeof sample->name, "%s[%d,%d]", w->vox.input[s->scan],
             piece->bx, piece->by);
    SP_TRY(label_cut_read(s->cut, &w->cloud, s->mine[k]));
    if (label_store_is_done(&s->cut->store, piece)) {
        SP_TRY(label_store_get(&s->cut->store, piece, &sample->grid));
        SP_TRY(label_work_locate(w, sample));
    } else {
        SP_TRY(label_work_make(w, sample));
    }
    sample->grid.sample.id = s->mine[k];
    return SP_OK;
}

/* Forms the sums of a piece: by the network, unless a scan before this one did. */
static sp_status sum_piece(shared *s, const label_sample *sample)
{
    label_work *w = s->work;
    const sp_sample *of = &sample->grid.sample;
    const vox_piece *piece = &s->cut->piece[of->id];
    const bool is_done = label_store_is_done(&s->cut->store, piece);

    SP_TRY(label_work_reserve(w, sample));
    w->n_blocks[is_done]++;
    if (is_done)
        return label_store_sums(&s->cut->store, piece, w->sum);
    SP_TRY(label_net_run(w->net, of, sample->name, w->sum));
    return label_store_put(&s->cut->store, piece, of, w->sum);
}

/* Predicts the next piece of this rank and adds it to the blocks. */
static sp_status predict_piece(shared *s)
{
    label_work *w = s->work;
    label_sample *sample;
    double merging;

    SP_TRY(label_work_next(w, &sample));
    SP_TRY(sum_piece(s, sample));
    merging = sp_now_s();
    SP_TRY(label_blocks_add(&s->blocks, &sample->grid.sample, w->sum, sample->mark));
    w->times.merge_s += sp_now_s() - merging;
    return SP_OK;
}

/* Predicts this rank's pieces of a round. A failure of the outputs before is met here
 * too. */
static sp_status predict_round(shared *s, int64_t first, int64_t end)
{
    for (int64_t i = first; i < end; i++)
        if (s->rank_of[i] == s->work->comm->rank)
            SP_TRY(predict_piece(s));
    SP_TRY(label_work_check_stop(s->work));
    return label_writer_check(&s->work->writer);
}

static sp_status run_rounds(shared *s)
{
    label_work *w = s->work;

    for (int64_t first = 0, end; first < s->cut->n_pieces; first = end) {
        sp_status rc;
        double begun;

        end = end_of_round(s, first);
        rc = predict_round(s, first, end);
        begun = sp_now_s();
        SP_TRY(sp_comm_agree(label_work_session(w)->comm, rc));
        w->times.wait_s += sp_now_s() - begun;
        begun = sp_now_s();
        rc = label_blocks_exchange(&s->blocks, end);
        SP_TRY(sp_comm_agree(label_work_session(w)->comm, rc));
        w->times.merge_s += sp_now_s() - begun;
        for (int64_t i = first; i < end; i++)
            w->n_done += s->cut->piece[i].n_own;
        label_work_progress(w, w->vox.input[s->scan]);
    }
    return SP_OK;
}

static sp_status predict_scan(shared *s)
{
    label_work *w = s->work;
    label_ahead_jobs jobs = {.make = make_piece, .arg = s};
    sp_status rc = deal(s);

    jobs.n = s->n_mine;
    if (rc == SP_OK)
        rc = label_ahead_start(&w->ahead, &jobs);
    rc = sp_comm_agree(label_work_session(w)->comm, rc);
    if (rc == SP_OK)
        rc = run_rounds(s);
    label_ahead_stop(&w->ahead);
    return rc;
}

/* ---- shared scans ---- */

/* Deals the rows of the output to the ranks that write them. */
static void deal_rows(shared *s)
{
    const label_work *w = s->work;
    int64_t n = s->cut->n_missing;

    for (int64_t i = 0; i < s->cut->n_pieces; i++)
        n += s->cut->piece[i].n_own;
    s->deal = label_deal_make(n, w->files->file[s->scan].section, w->comm->size,
                              s->first_rank);
}

static sp_status make_job(shared *s)
{
    label_work *w = s->work;

    if (label_deal_writer(&s->deal, w->comm->rank) < 0)
        return SP_OK;
    return label_work_job(w, s->scan, s->deal.n_writers > 1 ? LABEL_PART : LABEL_WHOLE,
                          &s->job);
}

/* Joins the output of the last scan that was written in parts, while later ones are
 * predicted. Collective, agreed. */
static sp_status join_parts(label_work *w)
{
    sp_status rc;

    if (!w->has_parts)
        return SP_OK;
    w->has_parts = false;
    rc = sp_comm_agree(label_work_session(w)->comm, label_work_wait(w, w->parts_scan));
    if (rc == SP_OK && w->comm->rank == w->parts_deal.first)
        rc = label_work_join(w, w->parts_scan, &w->parts_deal);
    return sp_comm_agree(label_work_session(w)->comm, rc);
}

/* Opens the blocks and hands the output, with no row placed yet, to the thread that
 * writes. */
static sp_status open_scan(shared *s)
{
    label_work *w = s->work;
    sp_status rc;

    deal_rows(s);
    rc = make_job(s);
    SP_TRY(sp_comm_agree(label_work_session(w)->comm, rc));
    SP_TRY(label_blocks_open(&s->blocks, s->cut, w->model, w->options, &s->deal,
                             s->job ? &s->job->result : NULL));
    rc = s->job ? label_work_push(w, s->job) : SP_OK;
    s->is_pushed = rc == SP_OK;
    return sp_comm_agree(label_work_session(w)->comm, rc);
}

/* Writes the counts of the scan before its output can be complete. Collective, agreed. */
static sp_status keep_tally(shared *s)
{
    sp_comm *comm = s->work->comm;
    sp_status rc = SP_OK;

    SP_TRY(sp_comm_allreduce(comm, SP_SCOPE_WORLD, &s->tally, LABEL_TALLY_WORDS, SP_I64,
                             SP_SUM));
    if (comm->rank == 0)
        rc = label_table_keep(s->work->files, s->scan, &s->tally,
                              sp_now_s() - s->begun_s);
    return sp_comm_agree(comm, rc);
}

/* Predicts the scan that is cut, and joins the parts of the one before it. */
static sp_status run_scan(shared *s)
{
    sp_status rc;

    SP_TRY(open_scan(s));
    rc = label_work_lay_out(s->work, s->scan, &s->map);
    s->work->cells = s->map;
    if (rc == SP_OK && s->map.edge > 0)
        rc = label_raster_open(&s->map);
    SP_TRY(sp_comm_agree(s->work->comm, rc));
    s->blocks.some.tally = &s->tally;
    s->blocks.some.raster = s->map.edge > 0 ? &s->map : NULL;
    SP_TRY(predict_scan(s));
    if (s->work->comm->rank == 0)
        label_store_clean(&s->cut->store);
    label_blocks_close(&s->blocks);
    SP_TRY(keep_tally(s));
    SP_TRY(label_work_map(s->work, s->scan, &s->map, s->work->comm));
    if (s->job)
        label_result_complete(&s->job->result);
    SP_TRY(join_parts(s->work));
    if (s->deal.n_writers > 1) {
        s->work->has_parts = true;
        s->work->parts_scan = s->scan;
        s->work->parts_deal = s->deal;
    }
    return SP_OK;
}

static void free_shared(shared *s)
{
    label_cut_free(s->cut);
    label_blocks_close(&s->blocks);
    label_raster_free(&s->map);
    if (!s->is_pushed)
        label_writer_free(s->job);
    free(s->rank_of);
    free(s->mine);
}

/* Labels the scan that is number t of those to do. */
static sp_status run_shared(label_work *w, int t)
{
    SP_FREED shared *s = NULL;
    bool is_skipped = false;
    sp_status rc = SP_NEW(&s, 1, "a scan");

    SP_TRY(sp_comm_agree(label_work_session(w)->comm, rc));
    *s = (shared){.work = w,
                  .scan = w->pending[t],
                  .first_rank = t % w->comm->size,
                  .begun_s = sp_now_s()};
    rc = blocks_wait_for_cut(s);
    sp_fault_at("cut", s->scan);
    if (rc == SP_EDATA && w->n_pending > 1) { /* agreed: all ranks skip it */
        label_work_skip(w, w->pending[t], sp_error_last()->message);
        is_skipped = true;
        rc = SP_OK;
    }
    if (rc == SP_OK)
        rc = sp_comm_agree(label_work_session(w)->comm, begin_next(s, t, is_skipped));
    if (rc == SP_OK && !is_skipped)
        rc = run_scan(s);
    free_shared(s);
    w->n_scans += !is_skipped;
    return rc;
}

sp_status label_scan_blocks(label_work *w)
{
    SP_TRY(sp_comm_agree(label_work_session(w)->comm, begin_cut(w, 0)));
    for (int t = 0; t < w->n_pending; t++)
        SP_TRY(run_shared(w, t));
    SP_TRY(join_parts(w));
    return label_work_wait(w, LABEL_ALL_SCANS);
}
