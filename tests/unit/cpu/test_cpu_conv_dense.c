/* Convolution agrees with its definition on dense float64 grids that know voxels by
 * coordinate only, and its gradients are those of that function, in plain loops and in
 * every vector version. y is linear in x and in W, so the derivative of L = <dy, y>
 * along x is L itself, and so along W: <dy, y> = <dx, x> = <dW, W>, with no step size
 * to choose. */
#include "fixtures/test.h"

#include "fixtures/map_fixture.h"

enum { C_IN = 3, C_OUT = 4, G = 2 * FX_BOX /* dense edge, with a margin */ };

typedef struct layer {
    const char *name;
    int kernel, in, out; /* levels */
} layer;

static const layer layers[] = {
    {"3^3", 3, 0, 0},
    {"5^3", 5, 0, 0},
    {"2^3 stride 1", 2, 0, 0},
    {"3^3 at stride 2", 3, 1, 1},
    {"2^3 down", 2, 0, 1},
    {"3^3 down", 3, 0, 1},
    {"2^3 down again", 2, 1, 2},
    {"2^3 transposed", 2, 1, 0},
    {"3^3 transposed", 3, 1, 0},
    {"3^3 transposed from 4 to 2", 3, 2, 1},
};

/* A sample as a grid, with the values at its voxels and 0 elsewhere. */
typedef double dense[G][G][G][C_OUT];

static double *cell(dense *d, const int32_t at[3], const int shift[3], int sign)
{
    return (*d)[at[2] + sign * shift[2] + G / 2][at[1] + sign * shift[1] + G / 2]
               [at[0] + sign * shift[0] + G / 2];
}

/* Forms the expected y of sample b. A transposed convolution gives to o what its
 * matching convolution would have read from o, at the same offset backwards. */
static double expected(const layer *l, const fx_level *level, dense *grid,
                       const float *w, int o, int j)
{
    const int finer = l->in < l->out ? l->in : l->out, s = level[finer].stride;
    const int K = l->kernel * l->kernel * l->kernel;
    double y = 0;
    int d[3];

    for (int k = 0; k < K; k++) {
        sp_kernel_offset(l->kernel, k, d);
        for (int i = 0; i < 3; i++)
            d[i] *= s;
        const double *x = cell(grid, level[l->out].at[o], d, l->in > l->out ? -1 : 1);
        for (int i = 0; i < C_IN; i++)
            y += w[(k * C_IN + i) * C_OUT + j] * x[i];
    }
    return y;
}

static double dot(const float *a, const float *b, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += (double)a[i] * b[i];
    return sum;
}

typedef struct conv {
    const layer *layer;
    const fx_level *level;
    sp_map map, swap;
    sp_tensor x, y, dx, dy;
    float *w, *dw;
    size_t n_w;
} conv;

static void run(sp_backend *be, conv *c)
{
    const int K = c->map.K;
    float *packed = fx_pack(be, c->w, K, C_IN, C_OUT, false, false);
    float *back = fx_pack(be, c->w, K, C_IN, C_OUT, true, c->map.is_full);
    sp_conv_args a = {
        .map = &c->map, .x = c->x, .y = c->y, .w = c->w, .w_packed = packed};
    sp_conv_args g = {.map = c->map.is_full ? &c->map : &c->swap,
                      .x = c->dy,
                      .y = c->dx,
                      .w = c->w,
                      .w_packed = back,
                      .is_mirrored = c->map.is_full};
    sp_conv_wgrad_args v = {.map = &c->map,
                            .x = c->x,
                            .dy = c->dy,
                            .dw = c->dw,
                            .sample1 = c->level->n_samples};

    memset(c->dw, 0, c->n_w * sizeof *c->dw);
    OK(be->ops->conv_forward(be, &a));
    OK(be->ops->conv_grad_input(be, &g));
    OK(be->ops->conv_grad_weight(be, &v));
}

static void check(const conv *c, const char *name)
{
    static dense grid;
    const fx_level *in = &c->level[c->layer->in], *out = &c->level[c->layer->out];
    const double y = dot(c->dy.data, c->y.data, (size_t)c->y.n * C_OUT);
    const double x = dot(c->dx.data, c->x.data, (size_t)c->x.n * C_IN);
    const double w = dot(c->dw, c->w, c->n_w);

    for (int b = 0; b < in->n_samples; b++) {
        memset(grid, 0, sizeof grid);
        for (int i = in->sample_row[b]; i < in->sample_row[b + 1]; i++)
            for (int j = 0; j < C_IN; j++)
                cell(&grid, in->at[i], (int[3]){0}, 1)[j] = fx_at(c->x, i, j);
        for (int o = out->sample_row[b]; o < out->sample_row[b + 1]; o++)
            for (int j = 0; j < C_OUT; j++) {
                double right = expected(c->layer, c->level, &grid, c->w, o, j);
                if (!(fabs(fx_at(c->y, o, j) - right) <= 2e-5))
                    fail_msg("%s, %s: row %d channel %d is %g, expected %g", name,
                             c->layer->name, o, j, fx_at(c->y, o, j), right);
            }
    }
    if (!(fabs(x - y) <= 1e-4 && fabs(w - y) <= 1e-4))
        fail_msg("%s, %s: <dy,y> %.9g, <dx,x> %.9g, <dW,W> %.9g", name, c->layer->name,
                 y, x, w);
}

static void check_layer(const layer *l, const fx_level *level)
{
    conv c = {.layer = l, .level = level};
    sp_backend be = {0};

    c.map = fx_map(&level[l->in], &level[l->out], l->kernel, false);
    c.swap = fx_map(&level[l->out], &level[l->in], l->kernel, l->in == l->out);
    c.n_w = (size_t)c.map.K * C_IN * C_OUT;
    c.w = fx_floats(c.n_w, 1);
    c.dw = test_alloc(c.n_w * sizeof *c.dw);
    c.x = fx_tensor(c.map.n_in, C_IN, C_IN, 2);
    c.dx = fx_tensor(c.map.n_in, C_IN, C_IN, 3);
    c.y = fx_tensor(c.map.n_out, C_OUT, C_OUT, 4);
    c.dy = fx_tensor(c.map.n_out, C_OUT, C_OUT, 5);
    for (int v = -1; fx_next(&be, &v, FX_ISAS, 1, SP_FP32);) {
        run(&be, &c);
        check(&c, fx_isas[v]);
    }
}

TEST(definition_and_gradients)
{
    const int rows[] = {60, 1, 25};
    fx_level level[3];

    level[0] = fx_voxels(3, rows, 9);
    level[1] = fx_coarser(&level[0]);
    level[2] = fx_coarser(&level[1]);
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        check_layer(&layers[i], level);
}

/* W is not flipped: row 1 of 3^3 reads one step down in y and z. */
TEST(order_of_offsets)
{
    const int32_t here[3] = {0, 0, 0}, there[3] = {0, -1, -1};
    int32_t *grid = fx_grid(1);
    float w[27] = {0}, y[2];

    grid[fx_cell(0, here)] = grid[fx_cell(0, there)] = 0;
    fx_level l = fx_level_take(grid, 1, 1);
    assert_int_equal(l.n, 2);
    const int at = l.at[0][1] == 0 ? 0 : 1; /* row of `here` */
    float x[2] = {at == 0 ? 1.f : 8.f, at == 0 ? 8.f : 1.f};
    sp_map m = fx_map(&l, &l, 3, false);
    sp_backend be = fx_reference();
    sp_conv_args a = {.map = &m, .x = {x, 2, 1, 1}, .y = {y, 2, 1, 1}, .w = w};
    w[1] = 3;
    OK(be.ops->conv_forward(&be, &a));
    assert_true(y[at] == 24 && y[1 - at] == 0);
}
