#include "label/label_net.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/sp_log.h"
#include "train/sp_merging.h"

static sp_status open_single(label_net *n, const label_model *m)
{
    sp_resources *r = &n->infer->resources;
    const sp_loader_options options = {.set = &n->set,
                                       .config = r->config,
                                       .spec = &r->graph.spec,
                                       .backend = &r->backend,
                                       .columns = r->columns,
                                       .n_columns = r->n_columns,
                                       .mean = r->norm.mean,
                                       .std = r->norm.std,
                                       .vectors = r->vectors,
                                       .view = n->views.at,
                                       .n_views = n->views.n};

    n->source = (sp_shard){.path = n->infer->path};
    n->set = (sp_dataset){.n_shards = 1,
                          .shard = &n->source,
                          .voxel_size = m->vox->voxel_size,
                          .has_subvoxel = true};
    SP_TRY(sp_arena_create(&n->scratch, 0, "logits"));
    return sp_single_create(&n->single, &options);
}

sp_status label_net_open(label_net *n, label_model *m, int n_views)
{
    sp_session *s = m->infer.resources.session;

    assert(n_views >= 1);
    memset(n, 0, sizeof *n);
    n->infer = &m->infer;
    SP_TRY(sp_infer_open_net(&m->infer));
    n->views = sp_views_choose(s->config, true, n_views);
    return sp_comm_agree(s->comm, open_single(n, m));
}

void label_net_close(label_net *n)
{
    sp_single_destroy(n->single);
    n->single = NULL;
    sp_arena_destroy(&n->scratch);
}

static sp_status check_finite(const label_net *n, sp_tensor logits, const char *what)
{
    const sp_graph *graph = &n->infer->resources.graph;

    for (int64_t i = 0; i < logits.n; i++)
        for (int c = 0; c < logits.c; c++)
            if (!isfinite(logits.data[i * logits.ld + c]))
                return SP_FAIL(SP_ENUMERIC,
                               "%s: the output of layer `%s` is not finite: the "
                               "weights, or the features of this scan, are at fault",
                               what, graph->node[graph->n_nodes - 1].name);
    return SP_OK;
}

static sp_status run_view(label_net *n, const sp_sample *sample, int view,
                          const char *what, uint64_t *sum)
{
    sp_resources *r = &n->infer->resources;
    sp_tensor logits;
    sp_batch *batch;

    SP_TRY(sp_single_fill(n->single, sample, view));
    SP_TRY(sp_single_use(n->single, &batch));
    SP_TRY(sp_net_forward(&r->net, batch, false, &logits));
    SP_TRY(r->backend.ops->wait(&r->backend));
    sp_arena_reset(&n->scratch);
    SP_TRY(sp_merging_fetch(&r->backend, &n->scratch, &logits));
    SP_TRY(check_finite(n, logits, what));
    sp_merge_view(logits, batch->row_of, sample->n, sum);
    return sp_single_recycle(n->single);
}

sp_status label_net_run(label_net *n, const sp_sample *sample, const char *what,
                        uint64_t *sum)
{
    const int c = n->infer->resources.n_classes;
    const double begun = sp_now_s();
    sp_run *run = &n->infer->resources.session->run;

    assert(n->single && what && (sum || sample->n == 0));
    memset(sum, 0, (size_t)sample->n * (size_t)c * sizeof *sum);
    for (int v = 0; v < n->views.n; v++) {
        sp_run_beat(run, SP_PHASE_EVAL, 0, 0);
        SP_TRY(run_view(n, sample, v, what, sum));
    }
    n->busy_s += sp_now_s() - begun;
    return SP_OK;
}
