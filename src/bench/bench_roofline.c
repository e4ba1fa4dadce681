/* spbench roofline: bytes and products of each operation of a training step on a GPU,
 * counted without a GPU, and the resulting time for an H100.
 *
 *     second step of the deck, as a device would run it (bench_layers.c, a counter)
 *         --> calls: layer, operation, channels, map
 *     map --> masks, order (cuda_map_host.h) --> offsets of each tile (cuda_count.h)
 *         --> bytes through the L2, k-tiles and products of each block
 *     --code: instructions of the kernels' loops, as make check-code counted them
 *         --> clocks of issue and of the tensor cores --> us
 *
 * Counted: bytes, k-tiles, products, instructions of the main loops, and, once by hand,
 * of an epilogue's rolled loops for an element. Assumed: the rates below. A kernel
 * lasts as long as its slowest part: the blocks on their SMs, bytes through the L2, or
 * bytes from memory (bench_roofline_cases.c has other assumptions). Blocks begin in the
 * order of the grid on the SM that is free first. Kernels are counted one after
 * another: nothing is gained by a weight gradient beside an input gradient, so its
 * blocks of wgmma, whose 192 KB leave no room for another's, take nothing away either.
 * Everything is a prediction; nothing here was timed on a device.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"
#include "bench/bench_roofline_cases.h"
#include "bench/bench_roofline_code.h"
#include "cuda/conv/cuda_count.h"
#include "cuda/plan/cuda_map_host.h"

/* An H100 SXM; bench_roofline_cases.h has its rates outside of the SMs. */
static const struct {
    cuda_sms sms;
    double clock_hz;
    double products;   /* products of an SM in a clock, bf16 at the full rate */
    double mma, wgmma; /* parts of that rate that mma.sync and wgmma reach */
    double ipc;        /* instructions of a scheduler in a clock */
    double exposed;    /* clocks of a block's table, first copies and last rows, if no
                        * other block of the SM works meanwhile */
    /* Instructions of a warp for the table, with 13 for each of 6 pairs of a row; [1]:
     * if only half of the warps have rows. */
    double table[2];
    /* Instructions of a lane for an element of the result; [1]: if a thread has 128
     * registers (cuda_conv_out.cuh). */
    double forward[2], backward[2];
} h100 = {{132, 227 << 10}, 1.755e9,  2048,    0.62, 0.8, 0.75, 4000,
          {400, 310},       {12, 15}, {24, 32}};

enum { MAPS = SP_MAX_MAPS, HEIGHTS = 3 };

/* A map that was found, and its tiles that were counted. */
typedef struct counted_map {
    const sp_map *map;
    cuda_map host;
    /* tiles of 128, 256 and 512 rows; rows 0: not counted yet */
    cuda_row_tiles tiles[HEIGHTS];
} counted_map;

typedef struct prediction {
    cuda_work work;
    double issue_s, tensor_s, sm_s, l2_s, memory_s, all_s;
    double result_bytes, l2_bytes;
    const char *limit;
} prediction;

enum { FORWARD, GRAD_INPUT, GRAD_WEIGHT, ROWS, SMALL, CUBES, STEP, EVALUATION, TOTALS };

typedef struct roofline {
    bench *b;
    bench_training training;
    bench_code code;
    bool is_wgmma;
    int micro; /* the micro-batch that the maps belong to */
    int n_maps;
    counted_map map[MAPS];
    /* Sums over the rows of one kind; their blocks are the number of rows. */
    prediction total[TOTALS];
    bench_cases cases;
    bool is_counting, has_header;
} roofline;

/* ---- maps ---- */

static void forget_maps(roofline *r)
{
    for (int i = 0; i < r->n_maps; i++) {
        for (int h = 0; h < HEIGHTS; h++)
            cuda_row_tiles_free(&r->map[i].tiles[h]);
        cuda_map_host_free(&r->map[i].host);
    }
    r->n_maps = 0;
}

static sp_status find_map(roofline *r, const sp_map *map, counted_map **found)
{
    const sp_batch *batch = r->training.batch;
    int i = 0;

    if (batch->micro != r->micro)
        forget_maps(r);
    r->micro = batch->micro;
    while (i < r->n_maps && r->map[i].map != map)
        i++;
    *found = &r->map[i];
    if (i < r->n_maps)
        return SP_OK;
    **found = (counted_map){.map = map};
    r->n_maps++;
    return cuda_map_host(map, batch->n_samples, &(*found)->host);
}

static sp_status roofline_tiles_of(roofline *r, const sp_map *map, int rows,
                                   const cuda_row_tiles **tiles)
{
    counted_map *m;
    cuda_row_tiles *t;

    SP_TRY(find_map(r, map, &m));
    t = &m->tiles[rows / CUDA_TALL_ROWS];
    if (t->rows == 0)
        SP_TRY(cuda_count_tiles(&m->host, m->host.n_out, rows, t));
    *tiles = t;
    return SP_OK;
}

/* ---- time ---- */

/* The SMs' clocks until each has done its blocks. */
typedef struct schedule {
    double busy[256];
    int n;
} schedule;

static void roofline_add_block(schedule *s, double clocks)
{
    int first = 0;

    for (int i = 1; i < s->n; i++)
        first = s->busy[i] < s->busy[first] ? i : first;
    s->busy[first] += clocks;
}

static double roofline_end_of(const schedule *s)
{
    double last = 0;

    for (int i = 0; i < s->n; i++)
        last = fmax(last, s->busy[i]);
    return last;
}

/* The clocks that an SM is busy with a block: of a warp's instructions in the main loop
 * and outside of it, and of products. If the SM has one block at a time, no other
 * block's products hide the code outside the loop. */
static double block_clocks(const bench_code_kernel *k, double inside, double outside,
                           double products)
{
    const double warps = k->threads / 32 / 4.0;
    const double in = inside * warps / h100.ipc, out = outside * warps / h100.ipc;

    return k->blocks > 1 ? fmax(in + out, products)
                         : fmax(in, products) + out + h100.exposed;
}

static double roofline_rate_of(const cuda_work *work)
{
    return h100.products * (work->is_wgmma ? h100.wgmma : h100.mma);
}

static const char *limit_of(const prediction *p)
{
    const double most = fmax(p->sm_s, fmax(p->l2_s, p->memory_s));

    return most <= 0         ? "launch"
           : most == p->sm_s ? "sm"
           : most == p->l2_s ? "l2"
                             : "memory";
}

static sp_status predict_conv(const roofline *r, const bench_call *call,
                              const cuda_row_tiles *tiles, const cuda_conv_shape *shape,
                              prediction *p)
{
    const bool is_forward = strcmp(call->op, "conv_forward") == 0;
    schedule groups; /* of SMs that run a cluster together */
    const bench_code_kernel *k = NULL;
    const int blocks = p->work.across * p->work.cluster; /* blocks of a tile of rows */
    double outside, inside = 0;
    bool is_tight;

    SP_TRY(bench_code_find(&r->code, p->work.kernel, &k));
    cuda_count_conv(shape, tiles, &p->work);
    groups = (schedule){.n = h100.sms.n / p->work.cluster};
    is_tight = k->threads * k->blocks >= 512;
    outside = h100.table[k->threads > p->work.rows / p->work.cluster] +
              (is_forward ? h100.forward : h100.backward)[is_tight] * p->work.rows /
                  p->work.cluster * p->work.columns / k->threads;
    for (int t = 0; t < tiles->n; t++) {
        double k_tiles, products;

        cuda_count_block(shape, tiles, &p->work, t, &k_tiles, &products);
        inside += (k_tiles * k->loop + outside) * blocks;
        for (int i = 0; i < p->work.across; i++)
            roofline_add_block(&groups,
                               block_clocks(k, k_tiles * k->loop, outside,
                                            products / roofline_rate_of(&p->work)));
    }
    p->issue_s = inside * k->threads / 128 / h100.sms.n / h100.clock_hz;
    p->sm_s = roofline_end_of(&groups) / h100.clock_hz;
    return SP_OK;
}

/* The blocks of an item, one for each tile, begin one after another. */
static sp_status predict_wgrad(const roofline *r, const cuda_wgrad_shape *shape,
                               prediction *p)
{
    const cuda_work *w = &p->work;
    const double products = w->products / w->k_tiles / roofline_rate_of(w);
    schedule sms = {.n = h100.sms.n};
    const bench_code_kernel *k = NULL;

    SP_TRY(bench_code_find(&r->code, w->kernel, &k));
    for (int i = 0; i < shape->n_lists; i++)
        for (int64_t left = cuda_count_list(shape, i); left > 0; left -= w->item) {
            const double steps = (double)cuda_count_steps(w, left);
            for (int tile = 0; tile < w->across; tile++)
                roofline_add_block(&sms, block_clocks(k, steps * k->loop, k->outside,
                                                      steps * products));
        }
    p->issue_s = (w->k_tiles * k->loop + (double)w->n_blocks * k->outside) *
                 k->threads / 128 / h100.sms.n / h100.clock_hz;
    p->sm_s = roofline_end_of(&sms) / h100.clock_hz;
    return SP_OK;
}

/* ---- report ---- */

static sp_status roofline_print_json(roofline *r, const bench_call *call,
                                     const prediction *p)
{
    sp_json json = {0};

    sp_json_begin(&json);
    sp_json_text(&json, "name", call->op);
    sp_json_text(&json, "layer", call->layer ? call->layer->name : "-");
    sp_json_text(&json, "kernel", p->work.kernel);
    sp_json_int(&json, "n", call->n);
    sp_json_int(&json, "c_in", call->c_in);
    sp_json_int(&json, "c_out", call->c_out);
    sp_json_int(&json, "blocks", p->work.n_blocks);
    sp_json_double(&json, "gathered_bytes", p->work.gathered);
    sp_json_double(&json, "weight_bytes", p->work.weights);
    sp_json_double(&json, "result_bytes", p->result_bytes);
    sp_json_double(&json, "plan_bytes", p->work.plan);
    sp_json_double(&json, "memory_bytes", call->bytes);
    sp_json_double(&json, "issue_us", p->issue_s * 1e6);
    sp_json_double(&json, "tensor_us", p->tensor_s * 1e6);
    sp_json_double(&json, "sm_us", p->sm_s * 1e6);
    sp_json_double(&json, "l2_us", p->l2_s * 1e6);
    sp_json_double(&json, "memory_us", p->memory_s * 1e6);
    sp_json_double(&json, "predicted_us", p->all_s * 1e6);
    sp_json_text(&json, "limit", p->limit);
    return bench_json_end(r->b, &json);
}

static sp_status print_call(roofline *r, const bench_call *call, const prediction *p)
{
    if (r->b->options->is_json)
        return roofline_print_json(r, call, p);
    if (!r->has_header)
        fprintf(r->b->out,
                "%-22s %-16s %-26s %7s %4s %4s %6s %7s %7s %7s %6s %7s %7s "
                "%7s %7s %7s %8s %s\n",
                "layer", "operation", "kernel", "n", "cin", "cout", "blocks", "rows MB",
                "wght MB", "res MB", "map MB", "issue", "tensor", "sm us", "l2 us",
                "mem us", "pred us", "limit");
    r->has_header = true;
    fprintf(r->b->out,
            "%-22s %-16s %-26s %7lld %4d %4d %6lld %7.1f %7.1f %7.1f %6.1f %7.1f %7.1f "
            "%7.1f %7.1f %7.1f %8.1f %s\n",
            call->layer ? call->layer->name : "-", call->op,
            *p->work.kernel ? p->work.kernel : "-", (long long)call->n, call->c_in,
            call->c_out, (long long)p->work.n_blocks, p->work.gathered * 1e-6,
            p->work.weights * 1e-6, p->result_bytes * 1e-6, p->work.plan * 1e-6,
            p->issue_s * 1e6, p->tensor_s * 1e6, p->sm_s * 1e6, p->l2_s * 1e6,
            p->memory_s * 1e6, p->all_s * 1e6, p->limit);
    return SP_OK;
}

static void print_rates(const roofline *r)
{
    if (r->b->options->is_json)
        return;
    fprintf(
        r->b->out,
        "Predicted, no device: H100 SXM, %d SMs at %.3f GHz. Assumed: mma.sync %.0f %% "
        "and wgmma %.0f %% of %.0f products a clock,\n"
        "%.2f instructions of a scheduler in a clock, L2 %.1f TB/s, memory %.1f TB/s, "
        "%.1f us a launch, %.1f us a small kernel,\n"
        "%.0f clocks that the only block of an SM does not hide, %.0f instructions of "
        "a warp for a table, %.0f if two threads have a row.\n"
        "Counted: bytes, blocks, k-tiles, products, instructions of main loops, and of "
        "an epilogue for an element:\n"
        "%.0f forward and %.0f backward; %.0f and %.0f where a thread has 128 "
        "registers.\n"
        "Columns from issue on in us; tensor: at the full rate.\n",
        h100.sms.n, h100.clock_hz * 1e-9, h100.mma * 100, h100.wgmma * 100,
        h100.products, h100.ipc, BENCH_L2 * 1e-12, BENCH_MEMORY * 1e-12,
        BENCH_LAUNCH_S * 1e6, BENCH_SMALL_S * 1e6, h100.exposed, h100.table[0],
        h100.table[1], h100.forward[0], h100.backward[0], h100.forward[1],
        h100.backward[1]);
}

static void roofline_add(prediction *t, const prediction *p)
{
    t->work.n_blocks++;
    t->work.gathered += p->work.gathered;
    t->work.weights += p->work.weights;
    t->work.plan += p->work.plan;
    t->result_bytes += p->result_bytes;
    t->all_s += p->all_s;
}

static sp_status print_total(roofline *r, const char *name, prediction *t)
{
    t->limit = "-";
    if (r->b->options->is_json)
        return roofline_print_json(r, &(bench_call){.op = name}, t);
    fprintf(r->b->out,
            "%-30s %4d calls; L2: rows %8.1f MB, weights %8.1f, results %8.1f, map "
            "%7.1f; predicted %8.3f ms\n",
            name, (int)t->work.n_blocks, t->work.gathered * 1e-6,
            t->work.weights * 1e-6, t->result_bytes * 1e-6, t->work.plan * 1e-6,
            t->all_s * 1e3);
    return SP_OK;
}

static sp_status print_totals(roofline *r)
{
    static const char *const name[TOTALS] = {[FORWARD] = "total conv_forward",
                                             [GRAD_INPUT] = "total conv_grad_input",
                                             [GRAD_WEIGHT] = "total conv_grad_weight",
                                             [ROWS] = "total rows and update",
                                             [SMALL] = "total small kernels",
                                             [CUBES] = "3^3 layers, conv_forward",
                                             [STEP] = "step, predicted, no device",
                                             [EVALUATION] = "evaluation of the batch"};

    for (int i = 0; i < TOTALS; i++)
        SP_TRY(print_total(r, name[i], &r->total[i]));
    return bench_cases_print(r->b, &r->cases);
}

/* ---- calls ---- */

static sp_status count_conv(roofline *r, const bench_call *call, prediction *p)
{
    const cuda_conv_shape shape = {.precision = r->training.device.backend.precision,
                                   .n = call->n,
                                   .K = call->map ? call->map->K : 1,
                                   .c_x = call->c_in,
                                   .c_y = call->c_out,
                                   .is_wgmma = r->is_wgmma};
    const cuda_row_tiles *tiles = NULL;
    cuda_row_tiles own = {0};
    sp_status rc;

    p->work = cuda_count_shape(&shape, h100.sms);
    if (call->map)
        rc = roofline_tiles_of(r, call->map, p->work.rows, &tiles);
    else
        rc = cuda_count_tiles(NULL, call->n, p->work.rows, &own);
    if (rc == SP_OK)
        rc = predict_conv(r, call, call->map ? tiles : &own, &shape, p);
    cuda_row_tiles_free(&own);
    p->l2_bytes =
        p->work.gathered + p->work.weights + p->work.plan + call->result_bytes;
    return rc;
}

static sp_status count_wgrad(roofline *r, const bench_call *call, prediction *p)
{
    cuda_wgrad_shape shape = {.precision = r->training.device.backend.precision,
                              .K = call->map ? call->map->K : 1,
                              .c_in = call->c_in,
                              .c_out = call->c_out,
                              .n_lists = 1,
                              .n = call->n,
                              .is_wgmma = r->is_wgmma};
    counted_map *found = NULL;

    if (call->map) {
        SP_TRY(find_map(r, call->map, &found));
        shape.start = found->host.pair_start;
        shape.n_lists = r->training.batch->n_samples * found->host.K;
    }
    cuda_count_wgrad(&shape, &p->work);
    p->l2_bytes = p->work.gathered + p->work.weights + p->work.plan;
    return predict_wgrad(r, &shape, p);
}

/* The kernels that finish sums are short, whatever they read. */
static bool is_small(const char *op)
{
    return strcmp(op, "norm_finish") == 0 || strcmp(op, "norm_grad_finish") == 0 ||
           strcmp(op, "add_samples") == 0;
}

static int roofline_total_of(const char *op)
{
    return strcmp(op, "conv_forward") == 0       ? FORWARD
           : strcmp(op, "conv_grad_input") == 0  ? GRAD_INPUT
           : strcmp(op, "conv_grad_weight") == 0 ? GRAD_WEIGHT
           : is_small(op)                        ? SMALL
                                                 : ROWS;
}

/* An evaluation of the same batch: its convolutions with their norms in the epilogue,
 * of which only residuals are read beside. The coefficients are there. */
static void add_evaluation(roofline *r, const bench_call *call, int kind,
                           const prediction *p)
{
    prediction *t = &r->total[EVALUATION];

    if (kind == FORWARD)
        roofline_add(t, p);
    else if (strcmp(call->op, "norm_apply") == 0)
        t->all_s += (call->bytes - 4.0 * (double)call->n * call->c_in) / BENCH_MEMORY;
}

static sp_status count_call(void *arg, const bench_call *call)
{
    roofline *r = arg;
    const int kind = roofline_total_of(call->op);
    prediction p = {.result_bytes = call->result_bytes};

    if (!r->is_counting)
        return SP_OK;
    if (kind == FORWARD || kind == GRAD_INPUT)
        SP_TRY(count_conv(r, call, &p));
    else if (kind == GRAD_WEIGHT)
        SP_TRY(count_wgrad(r, call, &p));
    p.all_s = bench_cases_add(&r->cases,
                              &(bench_work_of_call){.op = call->op,
                                                    .c_in = call->c_in,
                                                    .c_out = call->c_out,
                                                    .sm_s = p.sm_s,
                                                    .gathered = p.work.gathered,
                                                    .l2_bytes = p.l2_bytes,
                                                    .memory_bytes = call->bytes,
                                                    .more_kernels = call->more_kernels,
                                                    .is_small = kind == SMALL,
                                                    .is_wgmma = p.work.is_wgmma});
    p.tensor_s = p.work.products / h100.products / h100.sms.n / h100.clock_hz;
    p.l2_s = p.l2_bytes / BENCH_L2;
    p.memory_s = call->bytes / BENCH_MEMORY;
    p.limit = limit_of(&p);
    roofline_add(&r->total[kind], &p);
    roofline_add(&r->total[STEP], &p);
    if (kind == FORWARD && call->map && call->map->key.kernel == 3)
        roofline_add(&r->total[CUBES], &p);
    add_evaluation(r, call, kind, &p);
    return print_call(r, call, &p);
}

static sp_status roofline_run(roofline *r)
{
    bench_parts parts;

    print_rates(r);
    for (int step = 0; step < 2; step++) { /* the first one packs all weights */
        r->is_counting = step > 0;
        SP_TRY(bench_trace_begin(r->training.trace));
        bench_training_step(&r->training, &parts);
        bench_trace_end(r->training.trace, 0);
    }
    return print_totals(r);
}

sp_status bench_roofline(bench *b)
{
    SP_FREED roofline *r = NULL;
    bench_counter counter;
    sp_status rc;

    if (!b->options->code)
        return SP_FAIL(SP_EUSAGE, "spbench roofline: --code FILE is missing");
    SP_TRY(SP_NEW(&r, 1, "a prediction"));
    SP_TRY(bench_code_read(b->options->code, &r->code));
    r->b = b;
    r->is_wgmma = b->options->command.config->run.wgmma != SP_WGMMA_OFF;
    counter = (bench_counter){count_call, r};
    b->counter = &counter;
    rc = bench_training_open(b, &r->training);
    if (rc == SP_OK && r->training.device.backend.precision != SP_BF16)
        rc = SP_FAIL(SP_EUSAGE, "spbench roofline: train.precision must be bf16, "
                                "such as by --precision bf16");
    if (rc == SP_OK)
        rc = roofline_run(r);
    forget_maps(r);
    rc = bench_training_close(b, &r->training, rc);
    b->counter = NULL;
    return rc;
}
