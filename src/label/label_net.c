#include "label/label_net.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"
#include "base/sp_log.h"
#include "checkpoint/sp_calibration.h"
#include "train/sp_merging.h"

static sp_status open_single(label_net *n, const label_model *m)
{
    n->source = (sp_shard){.path = n->infer->path};
    n->set = (sp_dataset){.n_shards = 1,
                          .shard = &n->source,
                          .voxel_size = m->vox->voxel_size,
                          .has_subvoxel = true};
    SP_TRY(sp_arena_create(&n->scratch, 0, "logits"));
    if (m->most_distance > 0) {
        double factor;

        SP_TRY(sp_voxel_factor(n->infer->session.config, &n->set, &factor));
        n->edge = SP_CALIBRATION_EDGE * (int)factor;
        SP_TRY(sp_arena_create(&n->features, 0, "features"));
        n->infer->network.net.features.arena = &n->features;
    }
    return sp_infer_open_single(n->infer, &n->set, &n->views, NULL, &n->single);
}

sp_status label_net_open(label_net *n, label_model *m, int n_views)
{
    sp_session *s = &m->infer.session;

    assert(n_views >= 1);
    memset(n, 0, sizeof *n);
    n->infer = &m->infer;
    n->members = &m->members;
    n->model = m;
    SP_TRY(sp_infer_open_net(&m->infer));
    n->views = sp_views_choose(s->config, true, n_views);
    SP_TRY(sp_comm_agree(s->comm, open_single(n, m)));
    return sp_members_open_nets(&m->members, &n->set, &n->views);
}

void label_net_close(label_net *n)
{
    sp_single_batch_destroy(n->single);
    n->single = NULL;
    sp_arena_destroy(&n->scratch);
    sp_arena_destroy(&n->features);
    sp_nearby_destroy(&n->nearby);
    free(n->far);
    n->far = NULL;
}

/* Adds the distances of a view's voxels to the stored voxels' sums. */
static sp_status add_distances(label_net *n, const sp_batch *batch, int64_t n_stored)
{
    const sp_calibration *c = n->infer->network.norm.calibration;
    const sp_net_features *f = &n->infer->network.net.features;
    uint64_t *far;

    if (f->n != batch->n || f->c != c->n_features)
        return SP_FAIL(SP_EDATA,
                       "%s: its last layer reads %d features, but its calibration has "
                       "%d: calibrate it again",
                       n->infer->path, f->c, c->n_features);
    SP_TRY(SP_ALLOC(&n->features, (size_t)f->n + 1, &far));
    sp_calibration_distances(c, f->data, f->n, far);
    for (int64_t i = 0; i < n_stored; i++)
        if (batch->row_of[i] >= 0)
            n->far[i] += far[batch->row_of[i]];
    return SP_OK;
}

/* Moves the sums of a sample [n][c] to the first columns of rows of c_all. */
static void spread_rows(uint64_t *sum, int64_t n, int c, int c_all)
{
    for (int64_t i = n; c_all > c && i-- > 0;) {
        memmove(sum + i * c_all, sum + i * c, (size_t)c * sizeof *sum);
        memset(sum + i * c_all + c, 0, (size_t)(c_all - c) * sizeof *sum);
    }
}

static sp_status run_view(label_net *n, const sp_sample *sample, int view,
                          const char *what, uint64_t *sum)
{
    sp_net *net = &n->infer->network.net;
    sp_tensor logits;
    sp_batch *batch;

    sp_arena_reset(&n->features);
    SP_TRY(sp_single_batch_fill(n->single, sample, view));
    SP_TRY(sp_single_batch_use(n->single, &batch));
    SP_TRY(sp_net_forward(net, batch, false, &logits));
    SP_TRY(net->backend->ops->wait(net->backend));
    sp_arena_reset(&n->scratch);
    SP_TRY(sp_merging_fetch(net->backend, &n->scratch, &logits));
    SP_TRY(sp_members_check_finite(net->graph, logits, what));
    sp_merge_view(logits, sp_members_temperature(n->members), batch->row_of, sample->n,
                  sum);
    if (n->model->most_distance > 0)
        SP_TRY(add_distances(n, batch, sample->n));
    return sp_single_batch_recycle(n->single);
}

/* Adds the sums after the first model's: of the other models, and of distances. */
static sp_status run_members(label_net *n, const sp_sample *sample, const char *what,
                             uint64_t *sum)
{
    const int c = n->infer->network.n_classes;
    const int c_all = label_model_sums(n->model);
    sp_run *run = &n->infer->session.run;

    spread_rows(sum, sample->n, c, c_all);
    if (n->model->most_distance > 0)
        SP_TRY(sp_nearby_mean(&n->nearby, sample->coords, sample->n, n->edge, n->far));
    for (int64_t i = 0; n->model->most_distance > 0 && i < sample->n; i++)
        sum[i * c_all + c_all - 1] = n->far[i];
    for (int k = 0; k < n->members->n; k++)
        for (int v = 0; v < n->views.n; v++) {
            sp_run_beat(run, SP_PHASE_EVAL, 0, 0);
            SP_TRY(sp_members_add(n->members, k, sample, v, what, sum + (k + 1) * c,
                                  c_all));
        }
    return SP_OK;
}

/* Zeroes the sums of distances, if they are wanted. */
static sp_status reserve_far(label_net *n, int64_t n_stored, const char *what)
{
    const size_t bytes = (size_t)n_stored * sizeof *n->far;

    if (!(n->model->most_distance > 0) || bytes == 0)
        return SP_OK;
    if (!sp_list_reserve(&n->far, &n->far_room, bytes))
        return SP_FAIL(SP_EMEM, "%s: no memory for its voxels", what);
    memset(n->far, 0, bytes);
    return SP_OK;
}

sp_status label_net_run(label_net *n, const sp_sample *sample, const char *what,
                        uint64_t *sum)
{
    const int c = n->infer->network.n_classes;
    const double begun = sp_now_s();
    sp_run *run = &n->infer->session.run;

    assert(n->single && what && (sum || sample->n == 0));
    memset(sum, 0, (size_t)sample->n * (size_t)c * sizeof *sum);
    SP_TRY(reserve_far(n, sample->n, what));
    for (int v = 0; v < n->views.n; v++) {
        sp_run_beat(run, SP_PHASE_EVAL, 0, 0);
        SP_TRY(run_view(n, sample, v, what, sum));
    }
    SP_TRY(run_members(n, sample, what, sum));
    n->busy_s += sp_now_s() - begun;
    return SP_OK;
}
