/* spbench step --layers: times every operation of a step within the step.
 *
 * A trace is placed between the network and its backend: a table of operations that
 * call the backend's between two readings of the clock, while the trace is on. They run
 * with real maps and strides, and with the caches as the previous operation left them.
 * The network is therefore not described a second time here, and every layer that a
 * deck can have gets its rows.
 *
 *     step    conv_forward  norm_sums  ...  conv_grad_weight  ...  sgd
 *     clock   |          |  |       |       |              |       | |
 *     layer   net->layer names the layer that the operation belongs to
 *
 * The host waits for the device after each operation. Before the next one the device is
 * kept busy with other work, so that all launches of the operation are queued when the
 * first of them begins. The time is the device's own; the time of an empty pair of
 * readings is subtracted. On the host the trace also follows the parts of the step:
 * what a part takes outside its operations has a row, so that all time has one.
 *
 * A trace with a counter (bench_counter) reports every operation to it instead of
 * timing it. It replaces a device then: passes over the voxels are not computed, so
 * that the operations of a device are listed without one.
 */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_log.h"
#include "bench/bench.h"
#include "cpu/cpu.h"

enum { MAX_ROWS = 4096, LEAD_US = 100 };

typedef bench_call work;

typedef struct row {
    int layer; /* index of the node; -1: the operation belongs to the whole network */
    const char *op;
    /* [step] Samples of different sizes make steps of different work. */
    work work[BENCH_STEPS];
    double seconds[BENCH_STEPS];
} row;

struct bench_trace {
    /* First: the backend's ops point to it, and so trace_of finds the trace. */
    sp_backend_ops timed;
    const sp_backend_ops *real;
    sp_backend *backend; /* borrowed */
    const sp_net *net;   /* borrowed */
    bench *b;            /* borrowed */
    bool is_on;
    int step, n_rows;
    double empty_s;              /* time of an empty pair of readings */
    double whole_s[BENCH_STEPS]; /* time of each step */
    /* The running part of the step; when it began, and what its operations took. */
    const char *part;
    double part_at, part_busy_s;
    row *row; /* [MAX_ROWS] */
};

static bench_trace *trace_of(const sp_backend *be)
{
    return (bench_trace *)(uintptr_t)be->ops;
}

/* ---- the clock ---- */

static sp_status layers_begin(const bench_trace *t, sp_backend *be)
{
    const sp_peak_args lead = {.what = SP_PEAK_PRODUCTS,
                               .amount = 1e-6 * LEAD_US * t->b->best_flops,
                               .x = t->b->x,
                               .y = t->b->y,
                               .n = t->b->stream_floats};
    double done;

    if (!be->ops->is_host)
        SP_TRY(t->real->peak(be, &lead, &done));
    return t->real->clock_begin(be);
}

static sp_status find_row(bench_trace *t, int layer, const char *op, row **out)
{
    int i = 0;

    while (i < t->n_rows && (t->row[i].layer != layer || strcmp(t->row[i].op, op) != 0))
        i++;
    if (i == MAX_ROWS)
        return SP_FAIL(SP_EUSAGE, "--layers: more than %d rows", MAX_ROWS);
    if (i == t->n_rows)
        t->row[t->n_rows++] = (row){.layer = layer, .op = op};
    *out = &t->row[i];
    return SP_OK;
}

/* True if a counted operation runs nevertheless: cheap operations that the step's
 * arithmetic needs. */
static bool layers_is_run(const char *op)
{
    static const char *const names[] = {"fill", "add_samples", "loss",
                                        "sgd",  "adamw",       "sum_squares"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(op, names[i]) == 0)
            return true;
    return false;
}

static sp_status layers_count(bench_trace *t, const char *op, work w)
{
    w.op = op;
    w.layer = t->net->layer < 0 ? NULL : &t->net->graph->node[t->net->layer];
    return t->b->counter->count(t->b->counter->arg, &w);
}

/* Adds a timing to its row. Calls of one layer within a step add up. */
static sp_status layers_end(bench_trace *t, sp_backend *be, const char *op, work w)
{
    double seconds;
    row *r = NULL;

    SP_TRY(t->real->clock_end(be, &seconds));
    t->part_busy_s += seconds;
    SP_TRY(find_row(t, t->net->layer, op, &r));
    r->seconds[t->step] += fmax(seconds - t->empty_s, 0);
    if (t->real->is_host)
        w.flops -= 2 * sp_cpu_reset_left_out(be);
    w.flops += r->work[t->step].flops;
    w.bytes += r->work[t->step].bytes;
    r->work[t->step] = w;
    return SP_OK;
}

/* ---- work ---- */

static double layers_bytes_of(sp_tensor t)
{
    return t.data ? (double)t.n * t.c * (double)sp_elem_bytes(t.elem) : 0;
}

/* Forward and input gradient of a convolution read one tensor and write the other; its
 * weight gradient reads both. Weights count once, and so do the row numbers of the
 * pairs. */
static work conv_work(const sp_map *map, sp_tensor in, sp_tensor out)
{
    const int64_t pairs = map ? map->pairs : out.n;
    const double weights = (double)(map ? map->K : 1) * in.c * out.c;

    return (work){.n = out.n,
                  .pairs = pairs,
                  .c_in = in.c,
                  .c_out = out.c,
                  .flops = 2.0 * (double)pairs * in.c * out.c,
                  .bytes = layers_bytes_of(in) + layers_bytes_of(out) +
                           weights * (double)sp_elem_bytes(in.elem) +
                           (map ? 4.0 * (double)pairs : 0),
                  .result_bytes = layers_bytes_of(out),
                  .map = map};
}

/* norm, residual: of a fused operation, or NULL. */
static work grad_input_work(const sp_conv_args *a, const sp_norm_grad_args *norm,
                            const sp_norm_grad_args *residual)
{
    work w = conv_work(a->map, a->x, a->y);
    double more = a->is_added ? layers_bytes_of(a->y) : 0;

    more += norm ? layers_bytes_of(norm->x) : 0;
    more += norm && !norm->scale && norm->slope != 1 ? layers_bytes_of(norm->y) : 0;
    more += residual ? layers_bytes_of(residual->x) : 0;
    w.bytes += more;
    w.result_bytes += more;
    return w;
}

static work wgrad_work(const sp_conv_wgrad_args *a)
{
    work w = conv_work(a->map, a->x, a->dy);

    w.more_kernels = 1; /* it adds the slots */
    w.bytes += (double)(a->map ? a->map->K : 1) * a->x.c * a->dy.c *
               /* dw is fp32 */
               ((a->is_added ? 8 : 4) - (double)sp_elem_bytes(a->x.elem));
    return w;
}

static work rows_work(sp_tensor t, double bytes)
{
    return (work){.n = t.n, .c_in = t.c, .c_out = t.c, .bytes = bytes};
}

/* A pass over rows, with a kernel ahead of it for coefficients unless finish is NULL. */
static work norm_pass_work(sp_tensor t, const void *finish, double bytes)
{
    work w = rows_work(t, bytes);

    w.more_kernels = finish != NULL;
    return w;
}

static work norm_grad_sums_work(const sp_norm_grad_args *a)
{
    const bool has_act = a->slope != 1;

    return rows_work(a->x, layers_bytes_of(a->x) +
                               layers_bytes_of(a->dy) * (has_act ? 2 : 1) +
                               (has_act && !a->scale ? layers_bytes_of(a->y) : 0));
}

static work loss_work(const sp_loss_args *a)
{
    return rows_work(a->logits, layers_bytes_of(a->logits) +
                                    layers_bytes_of(a->dlogits) +
                                    4.0 * (double)a->logits.n);
}

static work small_work(int64_t n, int c, double bytes)
{
    return (work){.n = n, .c_in = c, .c_out = c, .bytes = bytes};
}

static double weights_of(const sp_pack_args *a)
{
    return (double)a->K * a->c_in * a->c_out;
}

static double packed_bytes(const sp_backend *be)
{
    return be->precision == SP_BF16 ? 2 : 4;
}

/* The weights are read in fp32. */
static work pack_work(const sp_backend *be, const sp_pack_args *a, int n)
{
    double weights = 0;

    for (int i = 0; i < n; i++)
        weights += weights_of(&a[i]);
    return small_work(n, 1, (4 + packed_bytes(be)) * weights);
}

/* each: bytes of an element, without those of its packings. */
static work update_work(const sp_backend *be, const sp_optim_args *a, double each)
{
    double weights = 0;

    for (int i = 0; i < a->packs.n; i++)
        if (a->packs.at[i].w >= a->w && a->packs.at[i].w < a->w + a->n)
            weights += weights_of(&a->packs.at[i]);
    return small_work(a->n, 1, each * (double)a->n + packed_bytes(be) * weights);
}

/* ---- the table ---- */

#define TIMED(op, parameters, arguments, work)                                         \
    TIMED_AS(#op, op, parameters, arguments, work)
#define TIMED_AS(name, op, parameters, arguments, work)                                \
    static sp_status op parameters                                                     \
    {                                                                                  \
        bench_trace *trace = trace_of(be);                                             \
        if (!trace->is_on)                                                             \
            return trace->real->op arguments;                                          \
        if (trace->b->counter) {                                                       \
            SP_TRY(layers_count(trace, name, work));                                   \
            return layers_is_run(name) ? trace->real->op arguments : SP_OK;            \
        }                                                                              \
        SP_TRY(layers_begin(trace, be));                                               \
        SP_TRY(trace->real->op arguments);                                             \
        return layers_end(trace, be, name, work);                                      \
    }

/* The same of an operation with its arguments in a struct, `a`. */
#define TIMED_OF(op, type, work)                                                       \
    TIMED(op, (sp_backend * be, const type *a), (be, a), work)

TIMED(fill, (sp_backend * be, void *data, int byte, size_t bytes),
      (be, data, byte, bytes), small_work(0, 0, (double)bytes))
TIMED(conv_pack, (sp_backend * be, const sp_pack_args *a, int n), (be, a, n),
      pack_work(be, a, n))
TIMED_OF(conv_forward, sp_conv_args, conv_work(a->map, a->x, a->y))
TIMED_OF(conv_grad_input, sp_conv_args, grad_input_work(a, NULL, NULL))
TIMED_AS("conv_forward", conv_forward_norm_sums,
         (sp_backend * be, const sp_conv_args *a, const int32_t *sample_row,
          int n_samples, double *sums),
         (be, a, sample_row, n_samples, sums), conv_work(a->map, a->x, a->y))
TIMED_AS("conv_forward", conv_forward_norm_apply,
         (sp_backend * be, const sp_conv_args *a, const sp_norm_args *norm),
         (be, a, norm), conv_work(a->map, a->x, a->y))
TIMED_AS("conv_grad_input", conv_grad_input_norm_sums,
         (sp_backend * be, const sp_conv_args *a, const sp_norm_grad_args *norm,
          const sp_norm_grad_args *residual),
         (be, a, norm, residual), grad_input_work(a, norm, residual))
TIMED_OF(conv_grad_weight, sp_conv_wgrad_args, wgrad_work(a))
TIMED(norm_sums,
      (sp_backend * be, sp_tensor x, const int32_t *sample_row, int n_samples,
       double *sums),
      (be, x, sample_row, n_samples, sums), rows_work(x, layers_bytes_of(x)))
TIMED_OF(norm_finish, sp_norm_finish_args, small_work(0, a->c, 0))
TIMED_OF(norm_apply, sp_norm_args,
         norm_pass_work(a->x, a->finish,
                        layers_bytes_of(a->x) + layers_bytes_of(a->y) +
                            layers_bytes_of(a->res)))
TIMED_OF(norm_grad_sums, sp_norm_grad_args, norm_grad_sums_work(a))
TIMED_OF(norm_grad_finish, sp_norm_grad_finish_args, small_work(0, a->c, 0))
TIMED_OF(norm_grad_apply, sp_norm_grad_args,
         norm_pass_work(a->x, a->finish,
                        layers_bytes_of(a->x) + layers_bytes_of(a->dy) +
                            layers_bytes_of(a->dx) * (a->is_added ? 2 : 1)))
TIMED(add_samples,
      (sp_backend * be, const double *sums, int n_samples, int m, double n_rows,
       double *out, bool is_added),
      (be, sums, n_samples, m, n_rows, out, is_added), small_work(n_samples, m, 0))
TIMED(relu, (sp_backend * be, sp_tensor x, float slope, sp_tensor y), (be, x, slope, y),
      rows_work(x, layers_bytes_of(x) + layers_bytes_of(y)))
TIMED(relu_grad,
      (sp_backend * be, sp_tensor y, float slope, sp_tensor dy, sp_tensor dx,
       bool is_added),
      (be, y, slope, dy, dx, is_added),
      rows_work(y, layers_bytes_of(y) + layers_bytes_of(dy) +
                       layers_bytes_of(dx) * (is_added ? 2 : 1)))
TIMED(copy, (sp_backend * be, sp_tensor x, sp_tensor y, bool is_added),
      (be, x, y, is_added),
      rows_work(x, layers_bytes_of(x) + layers_bytes_of(y) * (is_added ? 2 : 1)))
TIMED_OF(dropout, sp_dropout_args,
         rows_work(a->x, layers_bytes_of(a->x) + layers_bytes_of(a->y)))
TIMED_OF(pool, sp_pool_args,
         rows_work(a->y, layers_bytes_of(a->x) + layers_bytes_of(a->y)))
TIMED_OF(pool_grad, sp_pool_args,
         rows_work(a->dy, layers_bytes_of(a->dy) + 2 * layers_bytes_of(a->dx)))
TIMED_OF(interpolate, sp_interpolate_args,
         rows_work(a->y, layers_bytes_of(a->x) + layers_bytes_of(a->y)))
TIMED_OF(interpolate_grad, sp_interpolate_args,
         rows_work(a->dy, layers_bytes_of(a->dy) + 2 * layers_bytes_of(a->dx)))
TIMED(global_pool,
      (sp_backend * be, sp_tensor x, const int32_t *sample_row, int n_samples,
       int32_t *argmax, sp_tensor y),
      (be, x, sample_row, n_samples, argmax, y), rows_work(x, layers_bytes_of(x)))
TIMED(global_pool_grad,
      (sp_backend * be, sp_tensor dy, const int32_t *sample_row, int n_samples,
       const int32_t *argmax, sp_tensor dx),
      (be, dy, sample_row, n_samples, argmax, dx),
      rows_work(dx, 2 * layers_bytes_of(dx)))
TIMED(broadcast,
      (sp_backend * be, sp_tensor x, const int32_t *sample_row, int n_samples,
       sp_tensor y),
      (be, x, sample_row, n_samples, y), rows_work(y, layers_bytes_of(y)))
TIMED(broadcast_grad,
      (sp_backend * be, sp_tensor dy, const int32_t *sample_row, int n_samples,
       sp_tensor dx),
      (be, dy, sample_row, n_samples, dx), rows_work(dy, layers_bytes_of(dy)))
TIMED_OF(loss, sp_loss_args, loss_work(a))
/* w, g; w; and m twice */
TIMED_OF(sgd, sp_optim_args, update_work(be, a, a->momentum != 0 ? 20 : 12))
/* w, g, m, v; w, m, v */
TIMED_OF(adamw, sp_optim_args, update_work(be, a, 28))
TIMED(sum_squares, (sp_backend * be, const float *g, int64_t n, double *sum),
      (be, g, n, sum), small_work(n, 1, 4.0 * (double)n))

/* Replaces the operations of the compute stream. Plans, uploads and downloads are not
 * timed, since other threads call them too. */
static void replace_operations(sp_backend_ops *t)
{
#define REPLACE(slot) t->slot = slot;
    SP_OPERATIONS(REPLACE)
    t->fill = fill;
    t->norm_finish = norm_finish;
    t->norm_grad_finish = norm_grad_finish;
    t->add_samples = add_samples;
}

sp_status bench_trace_open(bench_trace **trace, bench *b, sp_net *net,
                           sp_backend *backend)
{
    bench_trace *t = calloc(1, sizeof *t);

    assert(backend->ops && b->best_flops >= 0);
    *trace = t;
    if (t)
        t->row = calloc(MAX_ROWS, sizeof *t->row);
    if (!t || !t->row)
        return SP_FAIL(SP_EMEM, "out of memory for the rows of --layers");
    t->b = b;
    t->net = net;
    t->backend = backend;
    t->real = backend->ops;
    t->timed = *t->real;
    if (b->counter)
        t->timed.is_host = false;
    replace_operations(&t->timed);
    backend->ops = &t->timed;
    return SP_OK;
}

/* ---- steps and rows ---- */

static sp_status measure_empty(bench_trace *t)
{
    double value[9];

    t->empty_s = 0;
    for (int i = 0; i < 9; i++) {
        SP_TRY(layers_begin(t, t->backend));
        SP_TRY(t->real->clock_end(t->backend, &value[i]));
    }
    t->empty_s = bench_median(value, 9, NULL);
    return SP_OK;
}

/* The clock that operations of the host are timed by. */
static double layers_now_s(const bench_trace *t)
{
    return bench_is_wall(t->b) ? sp_now_s() : sp_clock_s(CLOCK_THREAD_CPUTIME_ID);
}

sp_status bench_trace_part(bench_trace *t, const char *next)
{
    row *r = NULL;
    double now;

    /* A counter has no clock to read. */
    if (!t->is_on || t->b->counter || !t->real->is_host)
        return SP_OK;
    now = layers_now_s(t);
    if (t->part) {
        SP_TRY(find_row(t, -1, t->part, &r));
        r->seconds[t->step] += fmax(now - t->part_at - t->part_busy_s, 0);
    }
    t->part = next;
    t->part_busy_s = 0;
    t->part_at = now;
    return SP_OK;
}

sp_status bench_trace_begin(bench_trace *t)
{
    assert(!t->is_on && t->step < BENCH_STEPS);
    if (t->step == 0 && !t->b->counter)
        SP_TRY(measure_empty(t));
    t->is_on = true;
    return bench_trace_part(t, "host_clear");
}

void bench_trace_end(bench_trace *t, double step_s)
{
    assert(t->is_on);
    t->is_on = false;
    t->whole_s[t->step++] = step_s;
}

/* The ceiling of a row. Data of an operation may lie in a cache, which is faster than
 * the stream of the first rows, so it is compared with a stream over as much memory. */
static sp_status ceiling_of(bench *b, const bench_job *job, double s, double *ceiling)
{
    const bool is_flops = job->limit == BENCH_FLOPS;

    *ceiling = is_flops ? b->best_flops : 0;
    if (!is_flops && job->bytes > 0)
        SP_TRY(bench_ceiling(b, job, ceiling));
    if (*ceiling > 0)
        SP_TRY(bench_renew(b, job, (is_flops ? job->flops : job->bytes) / s, ceiling));
    return SP_OK;
}

/* Returns the step with the median time of n, the lower one of two. */
static int median_step(const double *seconds, int n, double *spread)
{
    double sorted[BENCH_STEPS];
    int step = 0;

    memcpy(sorted, seconds, (size_t)n * sizeof *sorted);
    bench_median(sorted, n, spread);
    while (seconds[step] != sorted[(n - 1) / 2])
        step++;
    return step;
}

/* Prints a row: time and work of one step, on the host of whole_step: medians of the
 * rows would not add up to it. The time of a device's step is that of others, without
 * waits. The operation is limited by the resource that would need longer. */
static sp_status layers_print_row(bench_trace *t, const row *r, int whole_step,
                                  double *busy_s)
{
    static const sp_node whole = {.name = "-"};
    bench_time time = {.is_wall = true, .repeats = t->step};
    const int own = median_step(r->seconds, t->step, &time.spread);
    const int step = t->real->is_host ? whole_step : own;
    bench *b = t->b;
    const work *w = &r->work[step];
    const bool is_flops = w->flops / b->best_flops >= w->bytes / b->best_bytes;
    bench_job job = {.name = r->op,
                     .n = w->n,
                     .pairs = w->pairs,
                     .c_in = w->c_in,
                     .c_out = w->c_out,
                     .flops = w->flops,
                     .bytes = w->bytes,
                     .layer = r->layer < 0 ? &whole : &t->net->graph->node[r->layer],
                     .limit = w->flops > 0 && is_flops ? BENCH_FLOPS : BENCH_BYTES};
    double ceiling;

    time.wall_s = r->seconds[step];
    time.cpu_s = NAN;
    *busy_s += time.wall_s;
    job.share = time.wall_s / t->whole_s[step];
    time.wall_s = fmax(time.wall_s, 1e-9);
    SP_TRY(ceiling_of(b, &job, time.wall_s, &ceiling));
    return bench_print(b, &job, &time, ceiling);
}

/* Prints a sum of rows, or what they leave over. */
static sp_status layers_print_sum(bench_trace *t, const char *name, double s,
                                  double step_s)
{
    static const sp_node whole = {.name = "-"};
    const bench_job job = {.name = name, .layer = &whole, .share = s / step_s};
    const bench_time time = {
        .wall_s = s, .cpu_s = NAN, .is_wall = true, .repeats = t->step};

    return bench_print(t->b, &job, &time, 0);
}

sp_status bench_trace_print(bench_trace *t)
{
    double busy_s = 0, step_s;
    int step;

    assert(!t->is_on && t->step > 0);
    step = median_step(t->whole_s, t->step, NULL);
    step_s = t->whole_s[step];
    t->b->has_header = false;
    for (int i = 0; i < t->n_rows; i++)
        SP_TRY(layers_print_row(t, &t->row[i], step, &busy_s));
    SP_TRY(layers_print_sum(t, "layers", busy_s, step_s));
    return layers_print_sum(t, "rest", step_s - busy_s, step_s);
}

void bench_trace_close(bench_trace *t)
{
    if (t)
        free(t->row);
    free(t);
}
