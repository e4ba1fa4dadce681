/* Convolution forward, input gradient and weight gradient on the CUDA backend at sizes
 * that matter, against sums in double precision, by the largest error:
 *
 *     gpu_tests gpu_large [VOXELS [CHANNELS ...]]      (200000; 3 16 20 32 64 96 128 256)
 *
 * Each of fp32, tf32 and bf16, on 3^3 and on 2^3 of stride 2. The sums are formed from
 * operands rounded as the kernels round them, so that what is left is the order of the
 * sum and the rounding of the result. Of large results every nth row or column is
 * compared. One JSON object a line; ends with 1 where an error is over its tolerance.
 */
#include "cpu/cpu.h"
#include "gpu/conv_case.h"

enum { N_SAMPLES = 2, MAP_SAME = 0, MAP_DOWN = 1, MAP_UP = 2 };

static const double MOST_PRODUCTS = 5e8; /* products of one comparison, on the host */
static const sp_plan_spec spec = {
    .n_levels = 2, .n_maps = 3, .map = {{0, 0, 3, 0}, {0, 1, 2, 0}, {1, 0, 2, 0}}};

typedef struct clouds {
    int32_t n, *coords; /* [n][3] */
    int32_t sample_row[N_SAMPLES + 1];
} clouds;

/* A host matrix, and its copy on the device. */
typedef struct matrix {
    sp_tensor host, device;
    sp_arena *arena;
} matrix;

typedef struct problem {
    sp_backend *be;
    const sp_plan *host, *device; /* the same plan, where each can read it */
    int map, grad_map, c_in, c_out, K;
    bool is_mirrored; /* the gradient's map is the forward one */
    matrix x, dy;
    float *w, *w_device; /* [K][c_in][c_out] */
    sp_arena *arena;
} problem;

/* A surface of hills, one voxel a column, and a wall on every 16th line. */
static clouds make_clouds(int32_t n)
{
    clouds c = {.n = n, .coords = malloc((size_t)n * 3 * sizeof(int32_t))};
    const int32_t side = (int32_t)ceil(sqrt(n / (double)N_SAMPLES));

    for (int b = 0; b <= N_SAMPLES; b++)
        c.sample_row[b] = (int32_t)((int64_t)n * b / N_SAMPLES);
    for (int b = 0; b < N_SAMPLES; b++)
        for (int32_t i = c.sample_row[b]; i < c.sample_row[b + 1]; i++) {
            const int32_t at = i - c.sample_row[b];
            int32_t *xyz = c.coords + 3 * (size_t)i;
            xyz[0] = at % side;
            xyz[1] = at / side;
            xyz[2] = (int32_t)(9 * sin(0.05 * xyz[0]) + 7 * cos(0.037 * xyz[1]));
            if (xyz[1] % 16 == 0 && xyz[0] % 64 < 24) {
                xyz[2] += xyz[0] % 64;
                xyz[0] -= xyz[0] % 64;
            }
        }
    return c;
}

/* ---- operands ---- */

static void fill(float *data, size_t n, uint64_t seed, sp_precision precision)
{
    const sp_rng rng = sp_rng_open(seed, SP_RNG_INIT, 7, 0);

    for (size_t i = 0; i < n; i++)
        data[i] = case_round(precision, 2 * sp_rng_to_unit(sp_rng_at(&rng, i)) - 1);
}

static int pitch(sp_precision precision, int c)
{
    const int each = precision == SP_BF16 ? 8 : 4;

    return (c + each - 1) / each * each;
}

static void upload(problem *p, matrix *m)
{
    const size_t n = (size_t)m->host.n * m->host.ld;
    FREED uint16_t *half = NULL;
    const void *from = m->host.data;

    m->device = m->host;
    if (p->be->precision == SP_BF16) {
        m->device.elem = SP_ELEM_BF16;
        half = malloc(n * sizeof *half + 1);
        for (size_t i = 0; i < n; i++)
            memcpy(half + i, (const char *)(m->host.data + i) + 2, 2);
        from = half;
    }
    const size_t bytes = n * sp_elem_bytes(m->device.elem);
    OK(sp_arena_take(p->arena, bytes, (void **)&m->device.data));
    OK(p->be->ops->upload(p->be, m->device.data, from, bytes));
}

static matrix make_matrix(problem *p, int64_t n, int c, uint64_t seed)
{
    const int ld = pitch(p->be->precision, c);
    matrix m = {
        .host = {malloc((size_t)n * ld * sizeof(float) + 1), n, c, ld, SP_ELEM_F32}};

    fill(m.host.data, (size_t)n * ld, seed, p->be->precision);
    upload(p, &m);
    return m;
}

/* Reads rows of a result as float. */
static float *read_rows(problem *p, sp_tensor t)
{
    const size_t n = (size_t)t.n * t.ld;
    float *out = malloc(n * sizeof *out + 1);

    OK(p->be->ops->download(p->be, out, t.data, n * sp_elem_bytes(t.elem)));
    if (t.elem == SP_ELEM_BF16)
        for (size_t i = n; i-- > 0;) {
            const uint32_t u = (uint32_t)((uint16_t *)out)[i] << 16;
            memcpy(out + i, &u, 4);
        }
    return out;
}

/* ---- comparison ---- */

static bool report(const problem *p, const char *name, double error, double most,
                   double tolerance)
{
    const sp_map *map = &p->host->map[p->map];
    const bool is_good = error <= tolerance * fmax(1, most); /* false for NaN */

    printf("{\"check\":\"%s\",\"precision\":\"%s\",\"kernel\":%d,\"stride\":%d,"
           "\"n\":%d,\"pairs\":%lld,\"c_in\":%d,\"c_out\":%d,\"max_error\":%.3g,"
           "\"max_value\":%.4g,\"tolerance\":%.3g,\"passed\":%s}\n",
           name, sp_precision_word[p->be->precision], map->key.kernel,
           1 << (map->key.level_out - map->key.level_in), map->n_out,
           (long long)map->pairs, p->c_in, p->c_out, error, most, tolerance,
           is_good ? "true" : "false");
    fflush(stdout);
    return is_good;
}

/* out[o] = sum over pairs (i, o) of in[i] W[k] for every step-th row; W transposed for
 * the gradient, whose pairs are those of the forward map with i and o exchanged. */
static bool compare_rows(problem *p, bool is_grad, sp_tensor result)
{
    const sp_map *map = &p->host->map[p->map];
    const sp_tensor in = is_grad ? p->dy.host : p->x.host;
    const int from = in.c, to = result.c;
    const int64_t step = (int64_t)((double)map->pairs * from * to / MOST_PRODUCTS) + 1;
    double *want = calloc((size_t)(result.n / step + 1) * to, sizeof *want);
    float *got = read_rows(p, result);
    double error = 0, most = 0;

    for (int64_t t = 0; t < (int64_t)map->n_tiles * map->K; t++) {
        const float *w = p->w + (size_t)(t % map->K) * p->c_in * p->c_out;
        for (int32_t m = map->start[t]; m < map->start[t + 1]; m++) {
            const int64_t i = is_grad ? map->out[m] : map->in[m];
            const int64_t o = is_grad ? map->in[m] : map->out[m];
            if (o % step)
                continue;
            for (int a = 0; a < from; a++)
                for (int b = 0; b < to; b++)
                    want[o / step * to + b] +=
                        (double)in.data[i * in.ld + a] *
                        (is_grad ? w[(size_t)b * p->c_out + a] : w[(size_t)a * to + b]);
        }
    }
    for (int64_t o = 0; o < result.n; o += step)
        for (int b = 0; b < to; b++) {
            const double v = want[o / step * to + b],
                         d = fabs(got[o * result.ld + b] - v);
            error = d > error || isnan(d) ? d : error;
            most = fmax(most, fabs(v));
        }
    free(want);
    free(got);
    return report(p, is_grad ? "grad_input" : "forward", error, most,
                  result.elem == SP_ELEM_BF16 ? 0x1p-8 : 1e-5);
}

/* dW[k] = sum over pairs x[i]^T dy[o], for every step-th column of dy. */
static bool compare_weights(problem *p, const float *got)
{
    const sp_map *map = &p->host->map[p->map];
    const sp_tensor x = p->x.host, dy = p->dy.host;
    const int ci = p->c_in, co = p->c_out;
    const int step = (int)((double)map->pairs * ci * co / MOST_PRODUCTS) + 1;
    double *want = calloc((size_t)map->K * ci * co, sizeof *want);
    double error = 0, most = 0;

    for (int64_t t = 0; t < (int64_t)map->n_tiles * map->K; t++) {
        double *w = want + (size_t)(t % map->K) * ci * co;
        for (int32_t m = map->start[t]; m < map->start[t + 1]; m++)
            for (int a = 0; a < ci; a++)
                for (int b = 0; b < co; b += step)
                    w[(size_t)a * co + b] +=
                        (double)x.data[(int64_t)map->in[m] * x.ld + a] *
                        dy.data[(int64_t)map->out[m] * dy.ld + b];
    }
    for (size_t i = 0; i < (size_t)map->K * ci * co; i++) {
        const double d = fabs(got[i] - want[i]);
        if (i % (size_t)co % (size_t)step)
            continue;
        error = d > error || isnan(d) ? d : error;
        most = fmax(most, fabs(want[i]));
    }
    free(want);
    return report(p, "grad_weight", error, most, 3e-5);
}

/* ---- the three operations ---- */

static float *pack(problem *p, bool is_grad)
{
    const sp_backend_ops *ops = p->be->ops;
    float *packed = NULL;
    const size_t n = ops->conv_pack_floats(p->be, p->K, p->c_in, p->c_out, is_grad);

    if (n) {
        OK(SP_TAKE(p->arena, n, &packed));
        OK(ops->conv_pack(p->be,
                          &(sp_pack_args){p->w_device, p->K, p->c_in, p->c_out, is_grad,
                                          is_grad && p->is_mirrored, packed},
                          1));
    }
    return packed;
}

static sp_tensor take_like(problem *p, sp_tensor like)
{
    OK(sp_arena_take(p->arena, (size_t)like.n * like.ld * sp_elem_bytes(like.elem),
                     (void **)&like.data));
    return like;
}

static bool check_rows(problem *p, bool is_grad)
{
    sp_conv_args a = {.map = &p->device->map[is_grad ? p->grad_map : p->map],
                      .x = is_grad ? p->dy.device : p->x.device,
                      .y = take_like(p, is_grad ? p->x.device : p->dy.device),
                      .w = p->w_device,
                      .w_packed = pack(p, is_grad),
                      .is_mirrored = is_grad && p->is_mirrored};

    OK(is_grad ? p->be->ops->conv_grad_input(p->be, &a)
               : p->be->ops->conv_forward(p->be, &a));
    return compare_rows(p, is_grad, a.y);
}

static bool check_weights(problem *p)
{
    const size_t n = (size_t)p->K * p->c_in * p->c_out;
    const sp_map *map = &p->device->map[p->map];
    float *dw, *got = malloc(n * sizeof *got);
    sp_conv_wgrad_args a = {.map = map,
                            .x = p->x.device,
                            .dy = p->dy.device,
                            .sample_row =
                                p->device->level[map->key.level_out].sample_row,
                            .sample1 = N_SAMPLES};
    bool is_good;

    OK(SP_TAKE(p->arena, n, &dw));
    OK(p->be->ops->fill(p->be, dw, 0, n * sizeof *dw));
    a.dw = dw;
    OK(p->be->ops->conv_grad_weight(p->be, &a));
    OK(p->be->ops->download(p->be, got, dw, n * sizeof *dw));
    is_good = compare_weights(p, got);
    free(got);
    return is_good;
}

static bool check(sp_backend *be, const sp_plan *host, const sp_plan *device,
                  sp_arena *arena, int map, int c_in, int c_out)
{
    problem p = {.be = be,
                 .host = host,
                 .device = device,
                 .map = map,
                 .grad_map = map == MAP_DOWN ? MAP_UP : MAP_SAME,
                 .is_mirrored = map == MAP_SAME,
                 .c_in = c_in,
                 .c_out = c_out,
                 .K = host->map[map].K,
                 .arena = arena};
    const size_t n = (size_t)p.K * c_in * c_out, mark = arena->used;
    bool is_good;

    p.x = make_matrix(&p, host->map[map].n_in, c_in, 1);
    p.dy = make_matrix(&p, host->map[map].n_out, c_out, 2);
    p.w = malloc(n * sizeof *p.w);
    fill(p.w, n, 3, be->precision);
    OK(SP_TAKE(arena, n, &p.w_device));
    OK(be->ops->upload(be, p.w_device, p.w, n * sizeof *p.w));
    is_good = check_rows(&p, false);
    is_good &= check_rows(&p, true);
    is_good &= check_weights(&p);
    free(p.x.host.data);
    free(p.dy.host.data);
    free(p.w);
    sp_arena_rewind(arena, mark);
    return is_good;
}

static bool check_precision(const clouds *c, const sp_plan *host,
                            sp_precision precision, const int *channels, int n_channels)
{
    sp_backend be = {.ops = sp_backend_find("cuda"), .precision = precision};
    sp_arena plans, arena;
    sp_plan device;
    bool is_good = true;

    OK(be.ops->open(&be, 0, 1));
    OK(be.ops->arena_create(&plans, 0, "plans"));
    OK(be.ops->arena_create(&arena, 0, "tensors"));
    OK(be.ops->plan_build(&be, &spec, c->coords, c->sample_row, N_SAMPLES, &plans,
                          &device));
    for (int i = 0; i < n_channels; i++) {
        is_good &=
            check(&be, host, &device, &arena, MAP_SAME, channels[i], channels[i]);
        is_good &=
            check(&be, host, &device, &arena, MAP_DOWN, channels[i], channels[i]);
    }
    is_good &= check(&be, host, &device, &arena, MAP_SAME, 4, channels[0] + 29);
    be.ops->arena_destroy(&arena);
    be.ops->arena_destroy(&plans);
    be.ops->close(&be);
    return is_good;
}

KERNEL_TEST(gpu_large)
{
    int channels[16] = {3, 16, 20, 32, 64, 96, 128, 256}, n_channels = 8;
    clouds c = make_clouds(argc > 1 ? atoi(argv[1]) : 200000);
    sp_backend cpu = {.ops = sp_backend_find("cpu")};
    sp_arena arena;
    sp_plan host;
    bool is_good = true;

    for (int i = 2; i < argc && i < 18; i++)
        channels[(n_channels = i - 1) - 1] = atoi(argv[i]);
    OK(cpu.ops->open(&cpu, 0, 1));
    OK(cpu.ops->arena_create(&arena, 0, "plan"));
    OK(cpu.ops->plan_build(&cpu, &spec, c.coords, c.sample_row, N_SAMPLES, &arena,
                           &host));
    for (int p = SP_FP32; p <= SP_BF16; p++)
        is_good &= check_precision(&c, &host, (sp_precision)p, channels, n_channels);
    return is_good ? 0 : 1;
}
