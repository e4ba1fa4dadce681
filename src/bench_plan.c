/* spbench plan: coordinate pyramid and kernel maps of one sample, for the networks that
 * the program has. */
#include "bench.h"

typedef struct plan_case {
    sp_backend *backend;
    const sp_plan_spec *spec;
    const bench_voxels *voxels;
    sp_arena arena;
    sp_plan plan;
} plan_case;

static sp_status build(void *arg)
{
    plan_case *c = arg;

    sp_arena_reset(&c->arena);
    return c->backend->ops->plan_build(c->backend, c->spec, c->voxels->coords,
                                       c->voxels->sample_row, 1, &c->arena, &c->plan);
}

static sp_status measure(bench *b, const char *name, const sp_plan_spec *spec,
                         const bench_voxels *v)
{
    plan_case c = {.backend = &b->backend, .spec = spec, .voxels = v};
    bench_job job = {
        .name = name, .n = v->n, .limit = BENCH_BYTES, .run = build, .arg = &c};
    sp_status rc = b->backend.ops->arena_create(&c.arena, 0, "plan");

    if (rc == SP_OK)
        rc = build(&c);
    for (int i = 0; rc == SP_OK && i < c.plan.n_maps; i++)
        job.pairs += c.plan.map[i].pairs;
    for (int i = 0; rc == SP_OK && i < c.plan.n_levels; i++)
        job.bytes += 12.0 * c.plan.level[i].n;          /* key and parent */
    job.bytes += 12.0 * v->n + 8.0 * (double)job.pairs; /* coordinates in, pairs out */
    if (rc == SP_OK)
        rc = bench_measure(b, &job);
    b->backend.ops->arena_destroy(&c.arena);
    return rc;
}

/* The plan of the network of the deck, under the family's name. */
static sp_status measure_family(bench *b, const char *family, const bench_voxels *v)
{
    char override[SP_NAME], name[SP_NAME], *overrides[] = {override};
    sp_config config = {0};
    sp_graph graph = {0};
    sp_status rc;

    snprintf(override, sizeof override, "net.family=%s", family);
    snprintf(name, sizeof name, "plan_%s", family);
    rc = sp_config_read(&config, NULL, 1, overrides);
    if (rc == SP_OK)
        rc = sp_graph_build(&graph, &config, 4, 20);
    if (rc == SP_OK)
        rc = measure(b, name, &graph.spec, v);
    sp_graph_destroy(&graph);
    sp_config_destroy(&config);
    return rc;
}

sp_status bench_plan(bench *b)
{
    static const char *const families[] = {"minkunet18", "dummy"};
    const bench_options *o = b->options;
    sp_status rc = SP_OK;

    for (int i = 0; rc == SP_OK && i < (o->shard ? 1 : o->voxels.n); i++) {
        bench_voxels v = {0};
        rc = bench_voxels_make(o, o->voxels.at[i], &v);
        for (int f = 0; rc == SP_OK && f < 2; f++)
            rc = measure_family(b, families[f], &v);
        bench_voxels_free(&v);
    }
    return rc;
}
