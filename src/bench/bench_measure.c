#include "bench/bench.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cpu/cpu_isa.h"
#include "base/sp_json.h"
#include "base/sp_log.h"
#include "base/sp_machine.h"

/* ---- clocks ---- */

static double clock_s(clockid_t id)
{
    struct timespec t;

    clock_gettime(id, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double bench_cpu_s(void)
{
    return clock_s(CLOCK_THREAD_CPUTIME_ID);
}

double bench_process_cpu_s(void)
{
    return clock_s(CLOCK_PROCESS_CPUTIME_ID);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double bench_median(double *values, int n, double *spread)
{
    double middle;

    qsort(values, (size_t)n, sizeof *values, compare);
    middle = (values[(n - 1) / 2] + values[n / 2]) / 2;
    if (spread)
        *spread = (values[n - 1 - n / 4] - values[n / 4]) / middle;
    return middle;
}

void bench_progress(const bench *b, const char *format, ...)
{
    char text[80];
    va_list args;

    if (b->comm->rank || !isatty(STDERR_FILENO))
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "%-79s\r", text);
}

/* ---- ceilings ---- */

/* Work a second, by the backend's own clock; 0: it knows no such limit. */
static sp_status rate_of(bench *b, const sp_peak_args *args, double *seconds,
                         double *rate)
{
    const sp_backend_ops *ops = b->backend.ops;
    double work = 0, s = 0;

    SP_TRY(ops->clock_begin(&b->backend));
    SP_TRY(ops->peak(&b->backend, args, &work));
    SP_TRY(ops->clock_end(&b->backend, &s));
    *rate = work / fmax(s, 1e-9);
    if (seconds)
        *seconds = s;
    return SP_OK;
}

sp_status bench_peak(bench *b, double *rate)
{
    sp_peak_args args = {.what = SP_PEAK_PRODUCTS,
                         .amount = b->peak_flops / 4,
                         .x = b->x,
                         .y = b->y,
                         .n = b->stream_floats};

    SP_TRY(rate_of(b, &args, NULL, rate)); /* out of the lower clock after idling */
    args.amount = b->peak_flops;
    return rate_of(b, &args, NULL, rate);
}

/* Two vectors, each half of the bytes, until they have been gone through for long
 * enough; the first time is not counted. On a device each time is a launch, which
 * bounds what a small stream can reach as it bounds a small operation. */
sp_status bench_stream(bench *b, double bytes, double *rate)
{
    const sp_backend_ops *ops = b->backend.ops;
    int64_t n = (int64_t)(bytes / 2 / sizeof(float));
    sp_peak_args args = {.what = SP_PEAK_STREAM, .x = b->x, .y = b->y};
    double moved = 0, seconds = 0;
    int rounds;

    n = n < 1024 ? 1024 : n > b->stream_floats ? b->stream_floats : n;
    rounds = (int)(1000000 / n) + 1;
    args.n = n;
    SP_TRY(ops->peak(&b->backend, &args, &moved));
    SP_TRY(ops->clock_begin(&b->backend));
    for (int r = 0; r < rounds; r++)
        SP_TRY(ops->peak(&b->backend, &args, &moved));
    SP_TRY(ops->clock_end(&b->backend, &seconds));
    *rate = moved * rounds / fmax(seconds, 1e-9);
    return SP_OK;
}

/* ---- rows ---- */

/* A number, or a dash where it is unknown. */
static void put(FILE *to, int width, int digits, double value)
{
    if (isnan(value))
        fprintf(to, " %*s", width, "-");
    else
        fprintf(to, " %*.*f", width, digits, value);
}

static void print_table_row(bench *b, const bench_job *job, const bench_time *t,
                            double s, double ceiling, double ratio)
{
    const bool is_flops = job->limit == BENCH_FLOPS;

    if (!b->has_header && job->layer)
        fprintf(b->out, "%-26s ", "layer");
    if (!b->has_header)
        fprintf(b->out, "%-20s %8s %9s %5s %5s %10s %6s %10s %9s %9s %9s %6s%s\n",
                "name", "n", "pairs", "c_in", "c_out", "ms", "+-%", "cpu ms", "GFLOP/s",
                "GB/s", "ceiling", "%", job->layer ? "  share" : "");
    b->has_header = true;
    if (job->layer)
        fprintf(b->out, "%-26s ", job->layer->name);
    fprintf(b->out, "%-20s %8lld %9lld %5d %5d", job->name, (long long)job->n,
            (long long)job->pairs, job->c_in, job->c_out);
    put(b->out, 10, 3, t->wall_s * 1e3);
    put(b->out, 6, 1, t->spread * 100);
    put(b->out, 10, 3, t->cpu_s * 1e3);
    put(b->out, 9, 1, job->flops > 0 ? job->flops / s * 1e-9 : NAN);
    put(b->out, 9, 2, job->bytes > 0 ? job->bytes / s * 1e-9 : NAN);
    put(b->out, 7, is_flops ? 1 : 2, ceiling > 0 ? ceiling * 1e-9 : NAN);
    fputs(ceiling > 0 ? is_flops ? " F" : " B" : "  ", b->out);
    put(b->out, 6, 1, ratio * 100);
    if (job->layer)
        put(b->out, 6, 2, job->share * 100);
    fputc('\n', b->out);
    fflush(b->out);
}

static const char *precision_name(const bench *b)
{
    static const char *const names[] = {"fp32", "tf32", "bf16"};

    return names[b->backend.precision];
}

/* No implementation is faster on this machine: all products at the peak rate, all bytes
 * at that of a long stream. NAN where neither is known. */
static double floor_s(const bench *b, const bench_job *job)
{
    const double s =
        fmax(job->flops > 0 && b->best_flops > 0 ? job->flops / b->best_flops : 0,
             job->bytes > 0 && b->best_bytes > 0 ? job->bytes / b->best_bytes : 0);

    return s > 0 ? s : NAN;
}

static void print_layer(sp_json *json, const bench_job *job)
{
    sp_json_text(json, "layer", job->layer->name);
    sp_json_int(json, "level", job->layer->level);
    sp_json_int(json, "kernel", job->layer->kernel);
    sp_json_int(json, "stride", job->layer->stride);
    sp_json_double(json, "share", job->share);
}

static sp_status print_json_row(bench *b, const bench_job *job, const bench_time *t,
                                double s, double ceiling, double ratio)
{
    sp_json json = {0};
    const char *line;
    sp_status rc;

    sp_json_begin(&json);
    sp_json_text(&json, "name", job->name);
    if (job->layer)
        print_layer(&json, job);
    sp_json_int(&json, "n", job->n);
    sp_json_int(&json, "pairs", job->pairs);
    sp_json_int(&json, "c_in", job->c_in);
    sp_json_int(&json, "c_out", job->c_out);
    sp_json_double(&json, "ms", s * 1e3);
    sp_json_double(&json, "gflops", job->flops / s * 1e-9);
    sp_json_double(&json, "gbytes_s", job->bytes / s * 1e-9);
    sp_json_double(&json, "ceiling", ceiling > 0 ? ceiling * 1e-9 : NAN);
    sp_json_double(&json, "ratio", ceiling > 0 ? ratio : NAN);
    sp_json_text(&json, "limit", job->limit == BENCH_FLOPS ? "flops" : "bytes");
    sp_json_double(&json, "spread", t->spread);
    sp_json_double(&json, "wall_ms", t->wall_s * 1e3);
    sp_json_double(&json, "cpu_ms", t->cpu_s * 1e3);
    sp_json_text(&json, "clock",
                 !t->is_wall               ? "cpu"
                 : b->backend.ops->is_host ? "wall"
                                           : "device");
    sp_json_int(&json, "repeats", t->repeats);
    sp_json_double(&json, "floor_ms", floor_s(b, job) * 1e3);
    if (t->memory_bytes)
        sp_json_int(&json, "memory_bytes", t->memory_bytes);
    sp_json_text(&json, "precision", precision_name(b));
    if (b->backend.is_wgmma)
        sp_json_bool(&json, "wgmma", true);
    sp_json_text(&json, "device", b->device);
    rc = sp_json_end(&json, &line);
    if (rc == SP_OK)
        fprintf(b->out, "%s\n", line);
    fflush(b->out);
    sp_json_destroy(&json);
    return rc;
}

sp_status bench_print(bench *b, const bench_job *job, const bench_time *time,
                      double ceiling)
{
    const double s = time->is_wall ? time->wall_s : time->cpu_s;
    const double work = job->limit == BENCH_FLOPS ? job->flops : job->bytes;
    const double ratio = ceiling > 0 ? work / s / ceiling : NAN;

    if (b->comm->rank)
        return SP_OK;
    if (b->options->is_json)
        return print_json_row(b, job, time, s, ceiling, ratio);
    print_table_row(b, job, time, s, ceiling, ratio);
    return SP_OK;
}

/* ---- measuring ---- */

/* One thread's rates are of its own time. */
static bool is_wall(const bench *b)
{
    return b->backend.threads > 1 || !b->backend.ops->is_host;
}

enum { MAX_REPEATS = 101 };

static sp_status ceiling_of(bench *b, const bench_job *job, double *rate)
{
    if (job->ceiling)
        return job->ceiling(job->arg, rate);
    if (job->limit == BENCH_FLOPS)
        return bench_peak(b, rate);
    return bench_stream(b, job->footprint > 0 ? job->footprint : job->bytes, rate);
}

/* One sample: seconds of a call by all clocks. A device's time stands for that on the
 * wall. */
static sp_status time_calls(bench *b, const bench_job *job, int calls, double *wall_s,
                            double *cpu_s)
{
    const sp_backend_ops *ops = b->backend.ops;
    double wall, cpu, device = 0;

    SP_TRY(ops->clock_begin(&b->backend));
    wall = sp_now_s();
    cpu = bench_cpu_s();
    for (int i = 0; i < calls; i++)
        SP_TRY(job->run(job->arg));
    cpu = bench_cpu_s() - cpu;
    wall = sp_now_s() - wall;
    SP_TRY(ops->clock_end(&b->backend, &device));
    *cpu_s = cpu / calls;
    *wall_s = fmax(ops->is_host ? wall : device, 1e-9) / calls;
    return SP_OK;
}

/* Calls of a sample, so that it is long against the clock's resolution. */
static sp_status count_calls(bench *b, const bench_job *job, int *calls)
{
    const double least = b->options->is_quick ? 2e-4 : 2e-3;
    double s = 0, cpu;

    SP_TRY(job->run(job->arg)); /* touches memory for the first time */
    SP_TRY(time_calls(b, job, 1, &s, &cpu));
    *calls = s >= least ? 1 : (int)fmin(least / fmax(s, 1e-8), 10000) + 1;
    return SP_OK;
}

sp_status bench_measure(bench *b, const bench_job *job)
{
    const double limit = b->options->is_quick ? 0.05 : 2;
    double wall[MAX_REPEATS], cpu[MAX_REPEATS], ceiling[MAX_REPEATS],
        begin = sp_now_s();
    bench_time t = {.is_wall = is_wall(b) || job->ceiling};
    double wall_spread, cpu_spread, middle;
    int calls = 1;

    bench_progress(b, "%s n=%lld c=%d,%d", job->name, (long long)job->n, job->c_in,
                   job->c_out);
    SP_TRY(count_calls(b, job, &calls));
    while (t.repeats < b->options->repeats &&
           (t.repeats < 3 || sp_now_s() - begin < limit)) {
        const int i = t.repeats++;
        SP_TRY(ceiling_of(b, job, &ceiling[i]));
        SP_TRY(time_calls(b, job, calls, &wall[i], &cpu[i]));
    }
    t.wall_s = bench_median(wall, t.repeats, &wall_spread);
    t.cpu_s = bench_median(cpu, t.repeats, &cpu_spread);
    t.spread = t.is_wall ? wall_spread : cpu_spread;
    /* The median of the peak, since the operation's clock drifts with it; the best
     * bandwidth, which others on the machine only take from. */
    middle = bench_median(ceiling, t.repeats, NULL);
    return bench_print(b, job, &t,
                       job->limit == BENCH_FLOPS ? middle : ceiling[t.repeats - 1]);
}

/* ---- the machine ---- */

/* Launches: as `ms` of one. Gathers: rows of 64 .. 512 bytes. */
static const struct {
    const char *name;
    sp_peak what;
    bench_limit limit;
    int row_bytes;
} peaks[] = {
    {"multiply_add", SP_PEAK_PRODUCTS, BENCH_FLOPS, 0},
    {"stream", SP_PEAK_STREAM, BENCH_BYTES, 0},
    {"launch", SP_PEAK_LAUNCH, BENCH_FLOPS, 0},
    {"gather_64", SP_PEAK_GATHER, BENCH_BYTES, 64},
    {"gather_128", SP_PEAK_GATHER, BENCH_BYTES, 128},
    {"gather_256", SP_PEAK_GATHER, BENCH_BYTES, 256},
    {"gather_512", SP_PEAK_GATHER, BENCH_BYTES, 512},
};

/* The median rate, and its row. Work grows until it takes long enough to tell. */
static sp_status print_peak(bench *b, size_t which, double *median)
{
    const double least = b->options->is_quick ? 2e-4 : 1e-3;
    sp_peak_args args = {.what = peaks[which].what,
                         .x = b->x,
                         .y = b->y,
                         .n = b->stream_floats,
                         .amount = 16,
                         .row_bytes = peaks[which].row_bytes};
    bench_job job = {.name = peaks[which].name, .limit = peaks[which].limit};
    bench_time t = {.is_wall = is_wall(b), .repeats = (int)b->options->repeats};
    double value[MAX_REPEATS], s = 0, rate = 0;

    do {
        args.amount *= 4;
        SP_TRY(rate_of(b, &args, &s, &rate));
    } while (args.what != SP_PEAK_STREAM && rate > 0 && s < least);
    if (args.what == SP_PEAK_PRODUCTS)
        b->peak_flops = args.amount;
    for (int i = 0; i < t.repeats; i++)
        SP_TRY(rate_of(b, &args, NULL, &value[i]));
    *median = rate = bench_median(value, t.repeats, &t.spread);
    if (rate <= 0)
        return SP_OK; /* no limit of this backend */
    t.wall_s = t.cpu_s = args.what == SP_PEAK_LAUNCH ? 1 / rate : 1e-3;
    if (args.what == SP_PEAK_LAUNCH)
        return bench_print(b, &job, &t, 0);
    /* as if of a millisecond */
    *(job.limit == BENCH_BYTES ? &job.bytes : &job.flops) = rate * 1e-3;
    return bench_print(b, &job, &t, rate);
}

static sp_status print_ceilings(bench *b)
{
    for (size_t i = 0; i < sizeof peaks / sizeof *peaks; i++) {
        double rate = 0;
        SP_TRY(print_peak(b, i, &rate));
        if (peaks[i].what == SP_PEAK_PRODUCTS)
            b->best_flops = rate;
        if (peaks[i].what == SP_PEAK_STREAM)
            b->best_bytes = rate;
    }
    return SP_OK;
}

/* In an arena as tensors are, for the same pages. The gap keeps loads of one vector
 * from looking like those of a store to the other, whose addresses would end alike. A
 * device's must be long against its L2. */
static sp_status take_stream(bench *b)
{
    enum { APART = 2112 };
    const sp_backend_ops *ops = b->backend.ops;
    const int64_t n = b->options->is_quick ? 1 << 20
                      : ops->is_host       ? 16 << 20
                                           : 128 << 20;
    void *gap;

    SP_TRY(ops->arena_create(&b->arena, 0, "stream"));
    SP_TRY(SP_TAKE(&b->arena, n, &b->x));
    SP_TRY(sp_arena_take(&b->arena, APART, &gap));
    SP_TRY(SP_TAKE(&b->arena, n, &b->y));
    SP_TRY(ops->fill(&b->backend, b->x, 0x3f, (size_t)n * sizeof(float)));
    SP_TRY(ops->fill(&b->backend, b->y, 0x3f, (size_t)n * sizeof(float)));
    b->stream_floats = n;
    return SP_OK;
}

static sp_status name_device(bench *b)
{
    sp_device device;

    if (b->backend.ops->is_host) {
        snprintf(b->device, sizeof b->device, "%.95s", sp_machine_processor());
        return SP_OK;
    }
    SP_TRY(sp_backend_device(b->backend.device, &device));
    snprintf(b->device, sizeof b->device, "%s", device.name);
    return SP_OK;
}

/* --precision, of which the CPU has one. */
static sp_status choose_precision(bench *b)
{
    static const char *const names[] = {"fp32", "tf32", "bf16"};
    const char *want = b->options->precision ? b->options->precision : names[0];
    int p = 0;

    while (strcmp(want, names[p]) != 0) /* the command line was checked */
        p++;
    if (p && b->backend.ops->is_host)
        return SP_FAIL(SP_EUSAGE, "--precision %s: the CPU computes in fp32 only",
                       want);
    b->backend.precision = (sp_precision)p;
    b->backend.is_wgmma = b->options->is_wgmma;
    if (b->backend.is_wgmma && p != SP_BF16)
        return SP_FAIL(SP_EUSAGE, "--wgmma is for --precision bf16 only");
    return SP_OK;
}

static sp_status open_backend(bench *b)
{
    const char *name = b->options->device ? b->options->device : "cpu";
    const sp_backend_ops *ops = sp_backend_find(name);

    if (!ops)
        return SP_FAIL(SP_EDEVICE,
                       "--device cuda: this program computes on the CPU only");
    b->backend.ops = ops;
    SP_TRY(choose_precision(b));
    return ops->open(&b->backend, 0, (int)b->options->threads);
}

static void print_header(const bench *b)
{
    if (b->options->is_json || b->comm->rank)
        return;
    fprintf(b->out, "%s; ", b->device);
    if (b->backend.ops->is_host)
        fprintf(b->out, "%s, %d thread%s", sp_cpu_isa_of(&b->backend)->name,
                b->backend.threads, b->backend.threads == 1 ? "" : "s");
    else
        fputs(precision_name(b), b->out);
    fputs("; ceiling F: multiply-adds, GFLOP/s; B: GB/s\n", b->out);
}

sp_status bench_device_open(bench *b, const sp_backend *session)
{
    b->is_borrowed = session != NULL;
    if (session)
        b->backend = *session;
    else
        SP_TRY(open_backend(b));
    SP_TRY(name_device(b));
    SP_TRY(sp_arena_create(&b->staging, 0, "staging"));
    SP_TRY(take_stream(b));
    print_header(b);
    SP_TRY(print_ceilings(b));
    /* What runs next on the host is not to be larger by what this needed. */
    sp_arena_release(&b->arena, 0, b->arena.used);
    return SP_OK;
}

void bench_device_close(bench *b)
{
    sp_arena_destroy(&b->staging);
    if (b->arena.base)
        b->backend.ops->arena_destroy(&b->arena);
    if (b->backend.impl && !b->is_borrowed)
        b->backend.ops->close(&b->backend);
    b->backend.impl = NULL;
}

/* Keep standard output for results: what the program says otherwise is progress. */
static sp_status take_output(bench *b)
{
    const int fd = dup(STDOUT_FILENO);

    fflush(stdout);
    b->out = fd < 0 ? NULL : fdopen(fd, "w");
    if (!b->out || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
        return SP_FAIL(SP_EIO, "standard output cannot be used: %s", strerror(errno));
    return SP_OK;
}

sp_status bench_open(bench *b, const bench_options *options, sp_comm *comm)
{
    memset(b, 0, sizeof *b);
    b->options = options;
    b->comm = comm;
    return take_output(b);
}

void bench_close(bench *b)
{
    bench_device_close(b);
    if (b->out)
        fclose(b->out);
    memset(b, 0, sizeof *b);
}
