/* A convolution, an input gradient and a weight gradient, each computed with mma.sync
 * and with wgmma. */
#include "api/sp_selftest.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"
#include "base/sp_rng.h"

/* The voxels are a bumpy surface of 529 rows: five tiles of 128 rows, the last of 17,
 * in two clusters. */
enum { EDGE = 23, ROWS = EDGE * EDGE, KERNEL = 3, K = KERNEL * KERNEL * KERNEL };
enum { MOST_X = 96, MOST_Y = 256 };

/* An input of 37 channels does not fill a k-tile of 64, so each block copies its
 * weights itself. An input of 64 channels does, so the blocks of a cluster share them,
 * and one of 96 is a deep k-tile. */
typedef struct shape {
    bool is_grad;
    int c_x, ld_x, c_y, ld_y;
    sp_elem elem; /* the result's */
    int columns;  /* width of wgmma's tile; 0: the backend chooses it */
} shape;
static const shape shapes[] = {
    {false, 37, 40, 139, 144, SP_ELEM_F32, 0},
    {true, 37, 40, 128, 128, SP_ELEM_BF16, 0},
    {false, 96, 96, 96, 96, SP_ELEM_BF16, 0},
    {false, 96, 96, 128, 128, SP_ELEM_BF16, 0},
    {true, 64, 64, 96, 96, SP_ELEM_BF16, 96},
    {false, 64, 64, 128, 128, SP_ELEM_BF16, 128},
    {false, 64, 64, 256, 256, SP_ELEM_BF16, 256},
};

/* Tolerances relative to the greatest magnitude: sums of some hundred products in fp32
 * are added in another order inside the tensor cores, and bf16 results may differ by
 * one unit in the last place. */
static const double TOLERANCE = 1e-4, TOLERANCE_BF16 = 1e-4 + 1.0 / 128;

typedef struct problem {
    sp_backend *backend;
    const shape *shape;
    sp_arena arena;
    sp_plan plan;
    float *w, *bias, *vector; /* vector: mean, 1 / std, scale and shift */
    sp_pack_args pack;
    sp_tensor x, y, norm_x;
    double *sums;
    size_t y_bytes, sums_n;
    void *host; /* staging for the numbers drawn at a time */
} problem;

/* Draws n numbers in [low, high), as fp32 or bf16, into the backend's memory. */
static sp_status selftest_draw(problem *p, size_t n, uint64_t seed, float low,
                               float high, sp_elem elem, void *out)
{
    sp_rng r = sp_rng_open(1, SP_RNG_INIT, seed, 0);
    void *data;

    for (size_t i = 0; i < n; i++) {
        const float v = (float)sp_rng_uniform(&r, low, high);
        uint32_t bits;

        memcpy(&bits, &v, sizeof bits);
        if (elem == SP_ELEM_BF16)
            ((uint16_t *)p->host)[i] = (uint16_t)(bits >> 16);
        else
            ((float *)p->host)[i] = v;
    }
    SP_TRY(sp_arena_alloc(&p->arena, n * sp_elem_bytes(elem), &data));
    SP_TRY(p->backend->ops->upload(p->backend, data, p->host, n * sp_elem_bytes(elem)));
    memcpy(out, &data, sizeof data);
    return p->backend->ops->wait(p->backend); /* host is overwritten next */
}

static sp_status selftest_draw_rows(problem *p, int c, int ld, uint64_t seed,
                                    sp_elem elem, sp_tensor *t)
{
    *t = (sp_tensor){.n = ROWS, .c = c, .ld = ld, .elem = elem};
    return selftest_draw(p, (size_t)ROWS * (size_t)ld, seed, -1, 1, elem, &t->data);
}

static const int32_t sample_row[] = {0, ROWS};

static sp_status make_plan(problem *p)
{
    const sp_backend_ops *ops = p->backend->ops;
    const sp_plan_spec spec = {.n_levels = 1, .n_maps = 1, .map = {{.kernel = KERNEL}}};
    int32_t coords[ROWS][3];

    for (int i = 0; i < ROWS; i++) {
        const int x = i / EDGE, y = i % EDGE;
        coords[i][0] = x;
        coords[i][1] = y;
        coords[i][2] = (x * x + 3 * y) / 8;
    }
    return ops->plan_build(p->backend, &spec, coords[0], sample_row, 1, &p->arena,
                           &p->plan);
}

static sp_status make_problem(problem *p)
{
    const sp_backend_ops *ops = p->backend->ops;
    const shape *s = p->shape;
    const int c = s->c_y, ld = s->ld_y;
    const int c_in = s->is_grad ? c : s->c_x, c_out = s->is_grad ? s->c_x : c;
    const size_t packed = ops->conv_pack_floats(p->backend, K, c_in, c_out, s->is_grad);
    float *to;

    SP_TRY(selftest_draw(p, (size_t)K * (size_t)c_in * (size_t)c_out, 1, -1, 1,
                         SP_ELEM_F32, &p->w));
    SP_TRY(SP_ALLOC(&p->arena, packed, &to));
    p->pack = (sp_pack_args){p->w, K, c_in, c_out, s->is_grad, s->is_grad, to};
    SP_TRY(selftest_draw(p, (size_t)c, 2, -1, 1, SP_ELEM_F32, &p->bias));
    SP_TRY(selftest_draw(p, 4 * (size_t)c, 3, 0.5f, 1, SP_ELEM_F32, &p->vector));
    SP_TRY(selftest_draw_rows(p, s->c_x, s->ld_x, 4, SP_ELEM_BF16, &p->x));
    SP_TRY(selftest_draw_rows(p, c, ld, 5, s->elem, &p->norm_x));
    SP_TRY(selftest_draw_rows(p, c, ld, 6, s->elem, &p->y));
    p->sums_n = 2 * (size_t)ops->fused_parts(ROWS, 1).n * (size_t)c;
    p->y_bytes = (size_t)ROWS * (size_t)ld * sp_elem_bytes(s->elem);
    return SP_ALLOC(&p->arena, p->sums_n, &p->sums);
}

/* Packs the weights for the backend's instructions and multiplies. */
static sp_status multiply(problem *p, const sp_conv_args *args,
                          const sp_norm_grad_args *norm)
{
    const sp_backend_ops *ops = p->backend->ops;

    SP_TRY(ops->conv_pack(p->backend, &p->pack, 1));
    if (p->shape->is_grad)
        return ops->conv_grad_input_norm_sums(p->backend, args, norm, NULL);
    return ops->conv_forward_norm_sums(p->backend, args, sample_row, 1, p->sums);
}

/* Computes with one of the two instructions; copies the result to host memory. */
static sp_status selftest_compute(problem *p, bool is_wgmma, void *y, double *sums)
{
    const sp_backend_ops *ops = p->backend->ops;
    const bool is_grad = p->shape->is_grad;
    const size_t sums_bytes = p->sums_n * sizeof *sums;
    sp_norm_grad_args norm = {.x = p->norm_x,
                              .y = p->norm_x,
                              .mean = p->vector,
                              .inv_std = p->vector + p->y.c,
                              .scale = p->vector + 2 * p->y.c,
                              .shift = p->vector + 3 * p->y.c,
                              .slope = 0.25f,
                              .dy = p->y,
                              .sums = p->sums};
    const sp_conv_args args = {.map = &p->plan.map[0],
                               .x = p->x,
                               .y = p->y,
                               .w = p->w,
                               .w_packed = p->pack.packed,
                               .bias = is_grad ? NULL : p->bias,
                               .is_mirrored = is_grad};
    sp_status rc;

    SP_TRY(ops->fill(p->backend, p->y.data, 0xff, p->y_bytes));
    SP_TRY(ops->fill(p->backend, p->sums, 0xff, sums_bytes));
    p->backend->is_wgmma = is_wgmma;
    p->backend->wgmma_columns = p->shape->columns;
    rc = multiply(p, &args, &norm);
    p->backend->is_wgmma = true;
    p->backend->wgmma_columns = 0;
    SP_TRY(rc);
    SP_TRY(ops->download(p->backend, y, p->y.data, p->y_bytes));
    return ops->download(p->backend, sums, p->sums, sums_bytes);
}

static double selftest_value(const problem *p, const void *y, int row, int j)
{
    const size_t at = (size_t)row * (size_t)p->y.ld + (size_t)j;
    uint32_t bits;
    float v;

    if (p->y.elem == SP_ELEM_F32)
        return ((const float *)y)[at];
    bits = (uint32_t)((const uint16_t *)y)[at] << 16;
    memcpy(&v, &bits, sizeof v);
    return v;
}

/* Written as "<=", not "not >", so that NaN fails. */
static sp_status selftest_wgmma_judge(const char *what, const char *call,
                                      double deviation, double most)
{
    if (deviation <= most)
        return SP_OK;
    return SP_FAIL(SP_EDEVICE,
                   "run.wgmma: %s of a small %s deviate by %.3g from those without it, "
                   "at most %.3g expected: set run.wgmma = false",
                   what, call, deviation, most);
}

static double worse(double a, double b)
{
    return b <= a ? a : b; /* a NaN counts as worse */
}

static sp_status selftest_wgmma_compare(const problem *p, void *const y[2],
                                        double *const sums[2])
{
    const bool is_grad = p->shape->is_grad;
    const char *call = is_grad ? "input gradient" : "convolution";
    const double relative = p->y.elem == SP_ELEM_BF16 ? TOLERANCE_BF16 : TOLERANCE;
    double largest = 0, off = 0, sums_off = 0;

    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < p->y.c; j++) {
            const double a = selftest_value(p, y[0], i, j),
                         b = selftest_value(p, y[1], i, j);
            largest = worse(largest, fabs(a));
            off = worse(off, fabs(a - b));
        }
    for (size_t i = 0; i < p->sums_n; i++)
        sums_off = worse(sums_off, fabs(sums[0][i] - sums[1][i]));
    SP_TRY(selftest_wgmma_judge("values", call, off, relative * largest));
    /* A sum has 128 rows, each times 2 |v| or, in the gradient, times |xhat| <= 2. */
    return selftest_wgmma_judge("sums", call, sums_off,
                                p->backend->ops->fused_parts(ROWS, 1).rows * 2 *
                                    relative * largest * (is_grad ? 1 : largest));
}

static sp_status selftest_check(problem *p)
{
    void *y[2] = {NULL, NULL};
    double *sums[2] = {NULL, NULL};
    sp_status rc = make_problem(p);

    for (int way = 0; way < 2 && rc == SP_OK; way++) {
        y[way] = malloc(p->y_bytes);
        sums[way] = malloc(p->sums_n * sizeof **sums);
        rc = y[way] && sums[way] ? selftest_compute(p, way == 1, y[way], sums[way])
                                 : SP_FAIL(SP_EMEM, "self-test: out of memory");
    }
    if (rc == SP_OK)
        rc = selftest_wgmma_compare(p, y, sums);
    for (int way = 0; way < 2; way++) {
        free(y[way]);
        free(sums[way]);
    }
    return rc;
}

/* ---- weight gradient ---- */

/* Computes the weight gradient of the present shape, whose convolution has been
 * compared, with one of the two instructions; copies it to host memory. */
static sp_status selftest_grad_weight(problem *p, bool is_wgmma, float *dw, size_t n,
                                      float *host)
{
    const sp_backend_ops *ops = p->backend->ops;
    const sp_conv_wgrad_args args = {.map = &p->plan.map[0],
                                     .x = p->x,
                                     .dy = p->norm_x,
                                     .sample_row = sample_row,
                                     .sample1 = 1,
                                     .dw = dw};
    sp_status rc;

    SP_TRY(ops->fill(p->backend, dw, 0xff, n * sizeof *dw));
    p->backend->is_wgmma = is_wgmma;
    rc = ops->conv_grad_weight(p->backend, &args);
    p->backend->is_wgmma = true;
    SP_TRY(rc);
    return ops->download(p->backend, host, dw, n * sizeof *dw);
}

static sp_status selftest_check_grad_weight(problem *p)
{
    const size_t n = (size_t)K * (size_t)p->x.c * (size_t)p->norm_x.c;
    SP_FREED float *host = NULL;
    float *dw;
    double largest = 0, off = 0;

    SP_TRY(SP_NEW(&host, 2 * n, "the self-test"));
    SP_TRY(SP_ALLOC(&p->arena, n, &dw));
    /* wgmma first: a kernel that does nothing would find the other one's sums in the
     * scratch memory. */
    for (int way = 0; way < 2; way++)
        SP_TRY(selftest_grad_weight(p, way == 0, dw, n, host + (size_t)way * n));
    for (size_t i = 0; i < n; i++) {
        largest = worse(largest, fabs((double)host[i]));
        off = worse(off, fabs((double)host[i] - (double)host[n + i]));
    }
    return selftest_wgmma_judge("values", "weight gradient", off, TOLERANCE * largest);
}

sp_status sp_selftest_wgmma(sp_backend *device)
{
    problem p = {.backend = device};
    SP_FREED float *host = NULL;
    sp_status rc;

    assert(device->ops && !device->ops->is_host);
    SP_TRY(SP_NEW(&host, K * MOST_X * MOST_Y, "the self-test"));
    p.host = host;
    rc = device->ops->arena_create(&p.arena, 64 << 20, "self-test");
    if (rc == SP_OK)
        rc = make_plan(&p);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes && rc == SP_OK; i++) {
        p.shape = &shapes[i];
        rc = selftest_check(&p);
    }
    if (rc == SP_OK) /* 64 channels to 256: wgmma's tile */
        rc = selftest_check_grad_weight(&p);
    device->ops->arena_destroy(&p.arena);
    return rc;
}
