/* spbench plan: coordinate pyramid and kernel maps of one sample, for the networks that
 * the program offers. */
#include "bench/bench.h"

typedef struct plan_case {
    sp_backend *backend;
    const sp_plan_spec *spec;
    const bench_voxels *voxels;
    sp_arena arena, scratch; /* memory of one slot and of the planner, as in a loader */
    sp_plan plan;
} plan_case;

static sp_status bench_plan_build(void *arg)
{
    plan_case *c = arg;

    sp_arena_reset(&c->arena);
    return c->backend->ops->plan_build(c->backend, c->spec, c->voxels->coords,
                                       c->voxels->sample_row, 1, &c->arena, &c->plan);
}

static sp_status plan_measure(bench *b, const char *name, const sp_plan_spec *spec,
                              const bench_voxels *v)
{
    plan_case c = {.backend = &b->backend, .spec = spec, .voxels = v};
    bench_job job = {.name = name,
                     .n = v->n,
                     .limit = BENCH_BYTES,
                     .run = bench_plan_build,
                     .arg = &c};
    sp_status rc = b->backend.ops->arena_create(&c.arena, 0, "plan");

    if (rc == SP_OK)
        rc = sp_arena_create(&c.scratch, 0, "plan scratch");
    c.arena.scratch = &c.scratch;
    if (rc == SP_OK)
        rc = bench_plan_build(&c);
    for (int i = 0; rc == SP_OK && i < c.plan.n_maps; i++)
        job.pairs += c.plan.map[i].pairs;
    for (int i = 0; rc == SP_OK && i < c.plan.n_levels; i++)
        job.bytes += 12.0 * c.plan.level[i].n;          /* key and parent */
    job.bytes += 12.0 * v->n + 8.0 * (double)job.pairs; /* coordinates in, pairs out */
    job.operations = c.plan.n_operations;
    job.waits = c.plan.n_waits;
    if (rc == SP_OK)
        rc = bench_measure(b, &job);
    b->backend.ops->arena_destroy(&c.arena);
    sp_arena_destroy(&c.scratch);
    return rc;
}

static sp_status measure_family(bench *b, const char *family, int stem_kernel,
                                const bench_voxels *v)
{
    char override[SP_NAME], stem[SP_NAME], name[2 * SP_NAME];
    char *overrides[] = {override, stem};
    SP_CLOSED_BY(sp_config_destroy) sp_config config = {0};
    SP_CLOSED_BY(sp_graph_destroy) sp_graph graph = {0};

    snprintf(override, sizeof override, "net.family=%s", family);
    snprintf(stem, sizeof stem, "net.stem_kernel=%d", stem_kernel);
    snprintf(name, sizeof name, stem_kernel == 5 ? "plan_%s" : "plan_%s_stem%d", family,
             stem_kernel);
    /* 5 is a network's default anyway, and a dummy knows no such key. */
    SP_TRY(sp_config_read(&config, NULL, stem_kernel == 5 ? 1 : 2, overrides));
    SP_TRY(sp_graph_build(&graph, &config, 4, 20));
    return plan_measure(b, name, &graph.spec, v);
}

sp_status bench_plan(bench *b)
{
    /* All minkunets have the same maps, except for their stem. */
    static const struct {
        const char *family;
        int stem_kernel;
    } nets[] = {{"minkunet18", 5}, {"minkunet18", 3}, {"minkunet34", 5}, {"dummy", 5}};
    const bench_options *o = b->options;
    sp_status rc = SP_OK;

    for (int i = 0; rc == SP_OK && i < (o->shard ? 1 : o->voxels.n); i++) {
        bench_voxels v = {0};
        rc = bench_voxels_make(o, o->voxels.at[i], &v);
        for (size_t k = 0; rc == SP_OK && k < sizeof nets / sizeof *nets; k++)
            rc = measure_family(b, nets[k].family, nets[k].stem_kernel, &v);
        bench_voxels_free(&v);
    }
    return rc;
}
