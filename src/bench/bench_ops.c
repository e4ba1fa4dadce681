/* spbench ops: convolutions; bench_rows.c has the operations that pass over rows.
 *
 * conv3_rebuilt and down2_rebuilt time a convolution together with the construction of
 * its map from unordered coordinates, as other libraries are commonly timed.
 */
#include "bench/bench.h"

/* Maps of the plan. The input gradient of a stride-2 layer uses the map of its
 * transpose. */
enum { MAP_SAME, MAP_DOWN, MAP_UP, N_MAPS };

static const sp_plan_spec spec = {
    .n_levels = 2,
    .n_maps = N_MAPS,
    .map = {{0, 0, 3, 0}, {0, 1, 2, 0}, {1, 0, 2, 0}},
};

typedef struct layer {
    const char *name[3]; /* forward, input gradient, weight gradient */
    int map, grad_map;   /* indexes of maps; -1: kernel 1, no map */
    bool is_mirrored;
} layer;

static const layer layers[] = {
    {{"conv3_forward", "conv3_grad_input", "conv3_grad_weight"},
     MAP_SAME,
     MAP_SAME,
     true},
    {{"down2_forward", "down2_grad_input", "down2_grad_weight"},
     MAP_DOWN,
     MAP_UP,
     false},
    {{"up2_forward", "up2_grad_input", "up2_grad_weight"}, MAP_UP, MAP_DOWN, false},
    {{"conv1_forward", "conv1_grad_input", "conv1_grad_weight"}, -1, -1, false},
};

typedef struct conv_case {
    sp_backend *backend;
    const sp_map *map, *grad_map;
    bool is_mirrored;
    const int32_t *sample_row; /* [2] rows of the output */
    sp_tensor x, y;
    float *w, *packed, *packed_grad, *dw;
    int K;
} conv_case;

static sp_status forward(void *arg)
{
    const conv_case *c = arg;
    const sp_conv_args args = {
        .map = c->map, .x = c->x, .y = c->y, .w = c->w, .w_packed = c->packed};

    return c->backend->ops->conv_forward(c->backend, &args);
}

/* A convolution whose map is rebuilt in each call. Its plan has the same number of
 * output rows as the shared one, so the case's tensors fit. */
typedef struct rebuilt_case {
    const conv_case *conv;
    const bench_voxels *voxels;
    sp_plan_spec spec;       /* only its map */
    sp_arena arena, scratch; /* memory of one slot and of the planner, as in a loader */
} rebuilt_case;

static sp_status rebuilt(void *arg)
{
    rebuilt_case *r = arg;
    sp_backend *be = r->conv->backend;
    conv_case c = *r->conv;
    sp_plan plan;

    sp_arena_reset(&r->arena);
    SP_TRY(be->ops->plan_build(be, &r->spec, r->voxels->coords, r->voxels->sample_row,
                               1, &r->arena, &plan));
    c.map = &plan.map[0];
    return forward(&c);
}

static sp_status ops_grad_input(void *arg)
{
    const conv_case *c = arg;
    const sp_conv_args args = {.map = c->grad_map,
                               .x = c->y,
                               .y = c->x,
                               .w = c->w,
                               .w_packed = c->packed_grad,
                               .is_mirrored = c->is_mirrored};

    return c->backend->ops->conv_grad_input(c->backend, &args);
}

static sp_status grad_weight(void *arg)
{
    const conv_case *c = arg;
    const sp_conv_wgrad_args args = {.map = c->map,
                                     .x = c->x,
                                     .dy = c->y,
                                     .sample_row = c->sample_row,
                                     .sample1 = 1,
                                     .dw = c->dw};

    return c->backend->ops->conv_grad_weight(c->backend, &args);
}

static sp_status pack_weights(void *arg)
{
    const conv_case *c = arg;

    return c->backend->ops->conv_pack(
        c->backend,
        &(sp_pack_args){c->w, c->K, c->x.c, c->y.c, false, false, c->packed}, 1);
}

static sp_status pack_weights_grad(void *arg)
{
    const conv_case *c = arg;

    return c->backend->ops->conv_pack(c->backend,
                                      &(sp_pack_args){c->w, c->K, c->x.c, c->y.c, true,
                                                      c->is_mirrored, c->packed_grad},
                                      1);
}

static sp_status ops_alloc_packed(const conv_case *c, sp_arena *arena,
                                  bool is_grad_input, float **out)
{
    return SP_ALLOC(arena,
                    c->backend->ops->conv_pack_floats(c->backend, c->K, c->x.c, c->y.c,
                                                      is_grad_input),
                    out);
}

static sp_status ops_alloc_case(bench *b, sp_arena *arena, conv_case *c, int64_t n_in,
                                int64_t n_out, int channels)
{
    const int64_t weights = (int64_t)c->K * channels * channels;

    SP_TRY(bench_alloc_tensor(b, arena, n_in, channels, &c->x));
    SP_TRY(bench_alloc_tensor(b, arena, n_out, channels, &c->y));
    SP_TRY(bench_alloc_random(b, arena, weights, &c->w));
    SP_TRY(bench_alloc_random(b, arena, weights, &c->dw));
    SP_TRY(ops_alloc_packed(c, arena, false, &c->packed));
    SP_TRY(ops_alloc_packed(c, arena, true, &c->packed_grad));
    SP_TRY(pack_weights(c));
    return pack_weights_grad(c);
}

static sp_status measure_layer(bench *b, const layer *l, conv_case *c)
{
    sp_status (*const run[3])(void *) = {forward, ops_grad_input, grad_weight};
    const int64_t pairs = c->map ? c->map->pairs : c->x.n;
    const double weights = (double)c->K * c->x.c * c->y.c;
    bench_job job = {.n = c->y.n,
                     .pairs = pairs,
                     .c_in = c->x.c,
                     .c_out = c->y.c,
                     .flops = 2.0 * (double)pairs * c->x.c * c->y.c,
                     .bytes = (double)sp_elem_bytes(c->x.elem) *
                                  ((double)c->x.n * c->x.c + (double)c->y.n * c->y.c) +
                              4 * weights,
                     .limit = BENCH_FLOPS,
                     .arg = c};

    for (int i = 0; i < 3; i++) {
        job.name = l->name[i];
        job.run = run[i];
        SP_TRY(bench_measure(b, &job));
    }
    if (l->map != MAP_SAME)
        return SP_OK;
    job.flops = 0;
    job.bytes = 8 * weights;
    job.limit = BENCH_BYTES;
    job.name = "pack";
    job.run = pack_weights;
    SP_TRY(bench_measure(b, &job));
    job.name = "pack_transposed";
    job.run = pack_weights_grad;
    return bench_measure(b, &job);
}

/* On a device the compute stream waits for the plan's stream, so the events of the
 * compute stream enclose both. */
static sp_status measure_rebuilt(bench *b, const conv_case *c, const bench_voxels *v)
{
    const bool is_strided = c->map->key.level_out > 0;
    rebuilt_case r = {
        .conv = c,
        .voxels = v,
        .spec = {.n_levels = is_strided ? 2 : 1, .n_maps = 1, .map = {c->map->key}}};
    sp_status rc = b->backend.ops->arena_create(&r.arena, 0, "plan");

    if (rc == SP_OK)
        rc = sp_arena_create(&r.scratch, 0, "plan scratch");
    r.arena.scratch = &r.scratch;
    if (rc == SP_OK)
        rc = bench_measure(
            b, &(bench_job){.name = is_strided ? "down2_rebuilt" : "conv3_rebuilt",
                            .n = c->y.n,
                            .pairs = c->map->pairs,
                            .c_in = c->x.c,
                            .c_out = c->y.c,
                            .flops = 2.0 * (double)c->map->pairs * c->x.c * c->y.c,
                            .limit = BENCH_FLOPS,
                            .run = rebuilt,
                            .arg = &r});
    b->backend.ops->arena_destroy(&r.arena);
    sp_arena_destroy(&r.scratch);
    return rc;
}

static sp_status measure_convs(bench *b, sp_arena *arena, const sp_plan *plan,
                               const bench_voxels *v, int c)
{
    const size_t used = arena->used;

    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        const layer *l = &layers[i];
        const sp_map *map = l->map < 0 ? NULL : &plan->map[l->map];
        conv_case k = {.backend = &b->backend,
                       .map = map,
                       .grad_map = l->grad_map < 0 ? NULL : &plan->map[l->grad_map],
                       .is_mirrored = l->is_mirrored,
                       .K = map ? map->K : 1};
        const sp_level *out = &plan->level[map ? map->key.level_out : 0];
        k.sample_row = out->sample_row;
        SP_TRY(ops_alloc_case(b, arena, &k, map ? map->n_in : plan->level[0].n, out->n,
                              c));
        SP_TRY(measure_layer(b, l, &k));
        if (l->map == MAP_SAME || l->map == MAP_DOWN)
            SP_TRY(measure_rebuilt(b, &k, v));
        sp_arena_rewind(arena, used);
    }
    return SP_OK;
}

static sp_status measure_voxels(bench *b, sp_arena *plans, sp_arena *arena,
                                const bench_voxels *v)
{
    const bench_list *channels = &b->options->channels;
    sp_plan plan;

    SP_TRY(b->backend.ops->plan_build(&b->backend, &spec, v->coords, v->sample_row, 1,
                                      plans, &plan));
    for (int i = 0; i < channels->n; i++) {
        SP_TRY(measure_convs(b, arena, &plan, v, (int)channels->at[i]));
        SP_TRY(bench_rows(b, arena, v, (int)channels->at[i]));
    }
    return SP_OK;
}

sp_status bench_ops(bench *b)
{
    const bench_options *o = b->options;
    const sp_backend_ops *ops = b->backend.ops;
    sp_arena plans = {0}, arena = {0};
    sp_status rc = ops->arena_create(&plans, 0, "plans");

    if (rc == SP_OK)
        rc = ops->arena_create(&arena, 0, "tensors");
    for (int i = 0; rc == SP_OK && i < (o->shard ? 1 : o->voxels.n); i++) {
        bench_voxels v = {0};
        rc = bench_voxels_make(o, o->voxels.at[i], &v);
        if (rc == SP_OK)
            rc = measure_voxels(b, &plans, &arena, &v);
        bench_voxels_free(&v);
        sp_arena_reset(&plans);
    }
    ops->arena_destroy(&arena);
    ops->arena_destroy(&plans);
    return rc;
}
