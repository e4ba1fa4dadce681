/* The work of the timed steps, counted on every rank: a rate over ranks means nothing
 * if one of them had nothing to do. */
#include "bench/bench.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/cpu.h"

/* ---- counting ---- */

/* Flops of the convolutions of a batch: forward and, in training, the gradient of the
 * weights, unless they are frozen, and of the input, if it needs one. */
static double conv_flops(const sp_graph *graph, const sp_plan_counts *counts,
                         bool is_training)
{
    double flops = 0;

    for (int i = 0; i < graph->n_nodes; i++) {
        const sp_node *node = &graph->node[i];
        const int from = node->in[0];
        const bool has_grad = is_training && node->needs_grad;
        const bool has_grad_input =
            has_grad && from >= 0 && graph->node[from].needs_grad;
        const int products = 1 + (has_grad && !node->is_frozen) + has_grad_input;

        if (node->op == SP_OP_CONV)
            flops += 2 * (double)sp_graph_pairs(counts, node) * node->c_in *
                     node->c_out * products;
    }
    return flops;
}

void bench_work_add(sp_backend *backend, const sp_graph *graph, const sp_batch *batch,
                    bool is_training, bench_parts *parts)
{
    const sp_plan_counts counts = sp_plan_count(&batch->plan);

    assert(batch->n >= 0 && batch->n_samples >= 0);
    if (backend->ops->is_host)
        parts->left_out += 2 * sp_cpu_reset_left_out(backend);
    parts->flops += conv_flops(graph, &counts, is_training);
    parts->n += batch->n;
    parts->n_samples += batch->n_samples;
    for (int i = 0; i < batch->plan.n_maps; i++)
        parts->pairs += (double)counts.pairs[i];
}

static bench_extent work_join(bench_extent a, bench_extent b)
{
    return (bench_extent){fmin(a.least, b.least), fmax(a.most, b.most)};
}

/* Adds the sums of a share to another's, and joins their extents. */
static void add_share(bench_share *to, bench_share s)
{
    *to = (bench_share){to->samples + s.samples,
                        to->voxels + s.voxels,
                        to->flops + s.flops,
                        work_join(to->samples_of_step, s.samples_of_step),
                        work_join(to->voxels_of_step, s.voxels_of_step),
                        work_join(to->flops_of_step, s.flops_of_step)};
}

static bench_share share_of_step(const bench_parts *p)
{
    return (bench_share){p->n_samples, p->n,
                         p->flops,     {p->n_samples, p->n_samples},
                         {p->n, p->n}, {p->flops, p->flops}};
}

static bench_share work_share_of(const bench_parts *step, int n)
{
    bench_share s = share_of_step(step);

    for (int i = 1; i < n; i++)
        add_share(&s, share_of_step(&step[i]));
    /* The sums are whole numbers and exact, so steps of equal work have exactly that
     * mean; a sum of quotients would round (nine ninths of a sample are not one). */
    s.samples /= n;
    s.voxels /= n;
    s.flops /= n;
    return s;
}

/* Rank 0: SP_EDATA if a rank had a step without a voxel. */
static sp_status check_work(const bench_work *w)
{
    for (int r = 0; r < w->ranks; r++)
        if (w->rank[r].voxels_of_step.least < 1)
            return SP_FAIL(SP_EDATA,
                           "rank %d had no voxel in some of %d %s (%.3g samples a "
                           "%s there, %.3g on all %d ranks): not a rate of %d ranks; "
                           "take at least as many different samples, with %s %d or "
                           "more",
                           r, w->steps, w->units, w->rank[r].samples, w->unit,
                           w->all.samples, w->ranks, w->ranks, w->size_key, w->ranks);
    return SP_OK;
}

sp_status bench_work_count(sp_session *session, const bench_parts *step, int n,
                           bench_work *w)
{
    sp_comm *comm = session->comm;
    const bench_share mine = work_share_of(step, n);
    void *all;
    sp_status rc = SP_OK;

    assert(n >= 1 && step);
    *w = (bench_work){w->unit, w->units, w->size_key, comm->size, n, mine, NULL};
    SP_TRY(sp_comm_gather(comm, &mine, sizeof mine, &all, NULL));
    if (comm->rank == 0) {
        w->rank = all;
        w->all = w->rank[0];
        for (int r = 1; r < w->ranks; r++)
            add_share(&w->all, w->rank[r]);
        rc = check_work(w);
    }
    return sp_comm_agree(session->comm, rc);
}

void bench_work_free(bench_work *w)
{
    free(w->rank);
    memset(w, 0, sizeof *w);
}

/* ---- printing ---- */

static void print_extent(FILE *to, bench_extent e)
{
    fprintf(to, "%.9g", e.least);
    if (e.most > e.least)
        fprintf(to, " to %.9g", e.most);
}

void bench_work_print(FILE *to, const bench_work *w)
{
    assert(w->ranks > 0 && w->steps > 0);
    fprintf(to, "a %s: %.9g samples, %.9g voxels, %.4g GFLOP on %d rank%s", w->unit,
            w->all.samples, w->all.voxels, w->all.flops * 1e-9, w->ranks,
            sp_plural(w->ranks));
    fputs("; of a rank samples ", to);
    print_extent(to, w->all.samples_of_step);
    fputs(", voxels ", to);
    print_extent(to, w->all.voxels_of_step);
    fprintf(to, "; %d %s\n", w->steps, w->units);
}

static void work_json_extent(sp_json *json, const char *key, bench_extent e,
                             double unit)
{
    sp_json_begin_array(json, key);
    sp_json_double(json, NULL, e.least * unit);
    sp_json_double(json, NULL, e.most * unit);
    sp_json_end_array(json);
}

void bench_work_json(sp_json *json, const bench_work *w)
{
    sp_json_int(json, "ranks", w->ranks);
    sp_json_double(json, "samples", w->all.samples);
    sp_json_double(json, "voxels", w->all.voxels);
    sp_json_double(json, "gflop", w->all.flops * 1e-9);
    work_json_extent(json, "samples_of_rank", w->all.samples_of_step, 1);
    work_json_extent(json, "voxels_of_rank", w->all.voxels_of_step, 1);
    work_json_extent(json, "gflop_of_rank", w->all.flops_of_step, 1e-9);
    sp_json_begin_array(json, "rank_samples");
    for (int r = 0; r < w->ranks; r++)
        sp_json_double(json, NULL, w->rank[r].samples);
    sp_json_end_array(json);
    sp_json_begin_array(json, "rank_voxels");
    for (int r = 0; r < w->ranks; r++)
        sp_json_double(json, NULL, w->rank[r].voxels);
    sp_json_end_array(json);
}
