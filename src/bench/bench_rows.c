/* Operations that pass over rows or parameters, which are limited by bandwidth. */
#include "bench/bench.h"

#include <assert.h>
#include <string.h>

typedef struct rows_case {
    sp_backend *backend;
    sp_tensor x, y, dy;
    sp_tensor logits, dlogits; /* fp32 in every precision */
    float *scale, *shift;      /* [c] */
    double *sums;              /* [2][c] */
    const int32_t *sample_row;
    int32_t *label;      /* [n] */
    float *w, *g;        /* [n * c] */
    sp_optim_args optim; /* of w and g */
} rows_case;

/* A job that is one operation of the backend, on the case r. */
#define OPERATION(name, call)                                                          \
    static sp_status name(void *arg)                                                   \
    {                                                                                  \
        const rows_case *r = arg;                                                      \
                                                                                       \
        return r->backend->ops->call;                                                  \
    }

OPERATION(relu, relu(r->backend, r->x, 0, r->y))
OPERATION(add, copy(r->backend, r->x, r->y, true))
OPERATION(copy, copy(r->backend, r->x, r->y, false))
OPERATION(sgd, sgd(r->backend, &r->optim))
OPERATION(adamw, adamw(r->backend, &r->optim))

static sp_status batchnorm(void *arg)
{
    const rows_case *r = arg;
    const sp_norm_args args = {
        .x = r->x, .y = r->y, .scale = r->scale, .shift = r->shift, .slope = 0};

    SP_TRY(r->backend->ops->norm_sums(r->backend, r->x, r->sample_row, 1, r->sums));
    return r->backend->ops->norm_apply(r->backend, &args);
}

static sp_status batchnorm_grad(void *arg)
{
    const rows_case *r = arg;
    const sp_norm_grad_args args = {.x = r->x,
                                    .y = r->y,
                                    .dy = r->dy,
                                    .slope = 0,
                                    .mean = r->shift,
                                    .inv_std = r->scale,
                                    .sample_row = r->sample_row,
                                    .n_samples = 1,
                                    .sums = r->sums,
                                    .a = r->scale,
                                    .b = r->shift,
                                    .c = r->shift,
                                    .dx = r->dy};

    SP_TRY(r->backend->ops->norm_grad_sums(r->backend, &args));
    return r->backend->ops->norm_grad_apply(r->backend, &args);
}

static sp_status bench_rows_loss(void *arg)
{
    const rows_case *r = arg;
    const sp_loss_args args = {.logits = r->logits,
                               .label = r->label,
                               .sample_row = r->sample_row,
                               .n_samples = 1,
                               .sums = r->sums,
                               .dlogits = r->dlogits};

    return r->backend->ops->loss(r->backend, &args);
}

/* The number of tensors of n x c elements that each operation reads and writes (moved),
 * and the number of different ones (touched). */
static const struct {
    const char *name;
    int moved, touched;
    sp_status (*run)(void *arg);
    bool is_fp32; /* fp32 in every precision */
} passes[] = {
    {"batchnorm", 3, 2, batchnorm, false}, /* pass 1: x; pass 2: x, y */
    /* Pass 1: x, y, dy read, dy written; pass 2: x, dy read, dy written. */
    {"batchnorm_grad", 7, 3, batchnorm_grad, false},
    {"relu", 2, 2, relu, false},
    {"add", 3, 2, add, false},
    {"copy", 2, 2, copy, false},
    {"loss", 2, 2, bench_rows_loss, true},
    {"sgd", 5, 3, sgd, true},     /* reads w, g, m; writes w, m */
    {"adamw", 7, 4, adamw, true}, /* reads w, g, m, v; writes w, m, v */
};

static sp_status rows_alloc_case(bench *b, sp_arena *arena, int64_t n, int c,
                                 rows_case *r)
{
    SP_TRY(bench_alloc_tensor(b, arena, n, c, &r->x));
    SP_TRY(bench_alloc_tensor(b, arena, n, c, &r->y));
    SP_TRY(bench_alloc_tensor(b, arena, n, c, &r->dy));
    SP_TRY(bench_alloc_random(b, arena, n * c, &r->w));
    SP_TRY(bench_alloc_random(b, arena, n * c, &r->g));
    /* With lr 0 the numbers do not change, however often an update is called. */
    r->optim = (sp_optim_args){.n = n * c,
                               .w = r->w,
                               .g = r->g,
                               .g_scale = 1,
                               .momentum = 0.9,
                               .nesterov = true,
                               .weight_decay = 1e-4,
                               .beta1 = 0.9,
                               .beta2 = 0.999,
                               .eps = 1e-8,
                               .t = 1};
    SP_TRY(bench_alloc_random(b, arena, n * c, &r->optim.m));
    /* Second moments are not negative. */
    SP_TRY(bench_alloc_value(b, arena, n * c, 1, &r->optim.v));
    r->logits = (sp_tensor){r->w, n, c, c, SP_ELEM_F32};
    r->dlogits = (sp_tensor){r->g, n, c, c, SP_ELEM_F32};
    SP_TRY(bench_alloc_value(b, arena, c, 0.9f, &r->scale));
    SP_TRY(bench_alloc_value(b, arena, c, 0.01f, &r->shift));
    SP_TRY(SP_ALLOC(arena, 2 * c, &r->sums));
    return bench_alloc_labels(b, arena, n, c, &r->label);
}

sp_status bench_rows(bench *b, sp_arena *arena, const bench_voxels *v, int c)
{
    const size_t used = arena->used;
    rows_case r = {.backend = &b->backend, .sample_row = v->sample_row};
    bench_job job = {.n = v->n, .c_in = c, .c_out = c, .limit = BENCH_BYTES, .arg = &r};

    assert(v->n >= 0 && c >= 1);
    SP_TRY(rows_alloc_case(b, arena, v->n, c, &r));
    for (size_t i = 0; i < sizeof passes / sizeof *passes; i++) {
        job.name = passes[i].name;
        const double each = passes[i].is_fp32 ? 4 : (double)sp_elem_bytes(r.x.elem);
        job.bytes = each * passes[i].moved * (double)v->n * c;
        job.footprint = each * passes[i].touched * (double)v->n * c;
        job.run = passes[i].run;
        SP_TRY(bench_measure(b, &job));
    }
    sp_arena_rewind(arena, used);
    return SP_OK;
}
