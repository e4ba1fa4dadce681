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

typedef struct problem {
    sp_backend *be;
    conv_case c;                  /* its map is the host's */
    const sp_map *map, *grad_map; /* the device's, and that of the input gradient */
    const int32_t *sample_row;    /* of the outputs */
    sp_tensor x, dy;              /* on the device */
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

/* ---- comparison ---- */

static bool report(const problem *p, const char *name, double error, double most,
                   double tolerance)
{
    const sp_map *map = &p->c.map;
    const bool is_good = error <= tolerance * fmax(1, most); /* false for NaN */

    printf("{\"check\":\"%s\",\"precision\":\"%s\",\"kernel\":%d,\"stride\":%d,"
           "\"n\":%d,\"pairs\":%lld,\"c_in\":%d,\"c_out\":%d,\"max_error\":%.3g,"
           "\"max_value\":%.4g,\"tolerance\":%.3g,\"passed\":%s}\n",
           name, sp_precision_word[p->be->precision], map->key.kernel,
           1 << (map->key.level_out - map->key.level_in), map->n_out,
           (long long)map->pairs, p->c.c_in, p->c.c_out, error, most, tolerance,
           is_good ? "true" : "false");
    fflush(stdout);
    return is_good;
}

/* The most pairs of one row of the output, or of the input. */
static int64_t most_pairs(const sp_map *map, bool is_of_input)
{
    const int32_t *row = is_of_input ? map->in : map->out;
    const int32_t n = is_of_input ? map->n_in : map->n_out;
    int32_t *count = test_alloc(((size_t)n + 1) * sizeof *count);
    int64_t most = 0;

    for (int64_t m = 0; m < map->pairs; m++)
        most = ++count[row[m]] > most ? count[row[m]] : most;
    return most;
}

/* The most pairs of one offset. */
static int64_t most_pairs_of_offset(const sp_map *map)
{
    int64_t *count = test_alloc((size_t)map->K * sizeof *count), most = 0;

    for (int64_t t = 0; t < (int64_t)map->n_tiles * map->K; t++) {
        count[t % map->K] += map->start[t + 1] - map->start[t];
        most = count[t % map->K] > most ? count[t % map->K] : most;
    }
    return most;
}

/* out[o] = sum over pairs (i, o) of in[i] W[k] for every step-th row; W transposed for
 * the gradient, whose pairs are those of the forward map with i and o exchanged. */
static bool compare_rows(problem *p, bool is_grad, sp_tensor result)
{
    const sp_map *map = &p->c.map;
    const sp_tensor in = is_grad ? p->c.dy : p->c.x;
    const int from = in.c, to = result.c;
    const int64_t step = (int64_t)((double)map->pairs * from * to / MOST_PRODUCTS) + 1;
    double *want = test_alloc((size_t)(result.n / step + 1) * to * sizeof *want);
    double error = 0, most = 0;

    for (int64_t t = 0; t < (int64_t)map->n_tiles * map->K; t++) {
        const float *w = p->c.w + (size_t)(t % map->K) * p->c.c_in * p->c.c_out;
        for (int32_t m = map->start[t]; m < map->start[t + 1]; m++) {
            const int64_t i = is_grad ? map->out[m] : map->in[m];
            const int64_t o = is_grad ? map->in[m] : map->out[m];
            if (o % step)
                continue;
            for (int a = 0; a < from; a++)
                for (int b = 0; b < to; b++)
                    want[o / step * to + b] +=
                        (double)in.data[i * in.ld + a] *
                        (is_grad ? w[(size_t)b * from + a] : w[(size_t)a * to + b]);
        }
    }
    for (int64_t o = 0; o < result.n; o += step)
        for (int b = 0; b < to; b++) {
            const double v = want[o / step * to + b];
            const double d = fabs(fx_at(result, o, b) - v);
            error = d > error || isnan(d) ? d : error;
            most = fmax(most, fabs(v));
        }
    return report(p, is_grad ? "grad_input" : "forward", error, most,
                  case_tolerance(p->be->precision, most_pairs(map, is_grad) * from) +
                      (p->be->precision == SP_BF16 ? 0x1p-8 : 0));
}

/* dW[k] = sum over pairs x[i]^T dy[o], for every step-th column of dy. */
static bool compare_weights(problem *p, const float *got)
{
    const sp_map *map = &p->c.map;
    const sp_tensor x = p->c.x, dy = p->c.dy;
    const int ci = p->c.c_in, co = p->c.c_out;
    const int step = (int)((double)map->pairs * ci * co / MOST_PRODUCTS) + 1;
    double *want = test_alloc((size_t)map->K * ci * co * sizeof *want);
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
    return report(
        p, "grad_weight", error, most,
        case_wgrad_tolerance(p->be, most_pairs_of_offset(map), map->K, ci, co));
}

/* ---- the three operations ---- */

static sp_tensor rows_of(const problem *p, int64_t n, int c, uint64_t seed)
{
    return case_tensor(p->be->precision, n, c, case_pitch(c, 0), seed);
}

static sp_tensor put(const problem *p, sp_tensor host)
{
    return cu_put(p->be, host, p->be->precision == SP_BF16);
}

static bool check_rows(problem *p, bool is_grad)
{
    const sp_tensor like = is_grad ? p->c.x : p->c.dy;
    sp_tensor y = rows_of(p, like.n, like.c, 5);
    sp_conv_args a = {.map = is_grad ? p->grad_map : p->map,
                      .x = is_grad ? p->dy : p->x,
                      .y = put(p, y),
                      .w_packed = case_packed(p->be, &p->c, is_grad),
                      .is_mirrored = is_grad && case_is_mirrored(&p->c)};

    OK(is_grad ? p->be->ops->conv_grad_input(p->be, &a)
               : p->be->ops->conv_forward(p->be, &a));
    cu_read(p->be, a.y, y);
    return compare_rows(p, is_grad, y);
}

static bool check_weights(problem *p)
{
    const size_t bytes = (size_t)p->c.K * p->c.c_in * p->c.c_out * sizeof(float);
    sp_conv_wgrad_args a = {.map = p->map,
                            .x = p->x,
                            .dy = p->dy,
                            .sample_row = p->sample_row,
                            .sample1 = N_SAMPLES,
                            .dw = cu_room(p->be, bytes)};
    float *got = test_alloc(bytes);

    OK(p->be->ops->conv_grad_weight(p->be, &a));
    OK(p->be->ops->download(p->be, got, a.dw, bytes));
    return compare_weights(p, got);
}

static bool check(sp_backend *be, const sp_plan *host, const sp_plan *device, int map,
                  int c_in, int c_out)
{
    const sp_map *of_host = &host->map[map];
    const size_t mark = test_mark();
    problem p = {.be = be,
                 .c = {.kind = &conv_kinds[map == MAP_DOWN ? CONV_DOWN : CONV_3],
                       .precision = be->precision,
                       .map = *of_host,
                       .K = of_host->K,
                       .c_in = c_in,
                       .c_out = c_out},
                 .map = &device->map[map],
                 .grad_map = &device->map[map == MAP_DOWN ? MAP_UP : MAP_SAME],
                 .sample_row = device->level[of_host->key.level_out].sample_row};
    const int n = p.c.K * c_in * c_out;
    bool is_good;

    p.c.x = rows_of(&p, of_host->n_in, c_in, 1);
    p.c.dy = rows_of(&p, of_host->n_out, c_out, 2);
    p.c.w = case_tensor(be->precision, 1, n, n, 3).data;
    p.x = put(&p, p.c.x);
    p.dy = put(&p, p.c.dy);
    is_good = check_rows(&p, false);
    is_good &= check_rows(&p, true);
    is_good &= check_weights(&p);
    cu_free(be);
    test_release(mark);
    return is_good;
}

static bool check_precision(const clouds *c, const sp_plan *host,
                            sp_precision precision, const int *channels, int n_channels)
{
    sp_backend be = case_open(0, precision);
    sp_arena plans;
    sp_plan device;
    bool is_good = true;

    OK(be.ops->arena_create(&plans, 0, "plans"));
    OK(be.ops->plan_build(&be, &spec, c->coords, c->sample_row, N_SAMPLES, &plans,
                          &device));
    for (int i = 0; i < n_channels; i++) {
        is_good &= check(&be, host, &device, MAP_SAME, channels[i], channels[i]);
        is_good &= check(&be, host, &device, MAP_DOWN, channels[i], channels[i]);
    }
    is_good &= check(&be, host, &device, MAP_SAME, 4, channels[0] + 29);
    be.ops->arena_destroy(&plans);
    cu_close(&be);
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
