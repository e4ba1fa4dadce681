#include "bench/bench.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sp_file.h"
#include "base/sp_json.h"
#include "base/sp_list.h"
#include "base/sp_log.h"
#include "base/sp_machine.h"
#include "cpu/cpu_isa.h"

/* ---- clocks ---- */

double bench_median(double *values, int n, double *spread)
{
    double middle;

    assert(n >= 1);
    qsort(values, (size_t)n, sizeof *values, sp_by_double);
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

/* ---- rows ---- */

/* Billions a second; NAN if the work is not known or zero. */
static double measure_rate_of(double work, double s)
{
    return work > 0 ? work / s * 1e-9 : NAN;
}

/* Prints a number, or a dash if it is unknown. */
static void measure_put(FILE *to, int width, int digits, double value)
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
    measure_put(b->out, 10, 3, t->wall_s * 1e3);
    measure_put(b->out, 6, 1, t->spread * 100);
    measure_put(b->out, 10, 3, t->cpu_s * 1e3);
    measure_put(b->out, 9, 1, measure_rate_of(job->flops, s));
    measure_put(b->out, 9, 2, measure_rate_of(job->bytes, s));
    measure_put(b->out, 7, is_flops ? 1 : 2, ceiling > 0 ? ceiling * 1e-9 : NAN);
    fputs(ceiling > 0 ? is_flops ? " F" : " B" : "  ", b->out);
    measure_put(b->out, 6, 1, ratio * 100);
    if (job->layer)
        measure_put(b->out, 6, 2, job->share * 100);
    fputc('\n', b->out);
    if (job->operations)
        fprintf(b->out, "  %d operations of the device, %d waits\n", job->operations,
                job->waits);
    if (job->work)
        bench_work_print(b->out, job->work);
    fflush(b->out);
}

/* Least time on this machine: all flops at the peak rate or all bytes at the rate of a
 * long stream, the longer one. NAN if neither is known. */
static double floor_s(const bench *b, const bench_job *job)
{
    const double ranks = job->work ? job->work->ranks : 1;
    const double peak = b->best_flops * ranks;
    const double s =
        fmax(job->flops > 0 && peak > 0 ? job->flops / peak : 0,
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

sp_status bench_json_end(const bench *b, sp_json *json)
{
    const char *line;
    const sp_status rc = sp_json_end(json, &line);

    if (rc == SP_OK)
        fprintf(b->out, "%s\n", line);
    fflush(b->out);
    sp_json_destroy(json);
    return rc;
}

static sp_status print_json_row(bench *b, const bench_job *job, const bench_time *t,
                                double s, double ceiling, double ratio)
{
    sp_json json = {0};

    sp_json_begin(&json);
    sp_json_text(&json, "name", job->name);
    if (job->layer)
        print_layer(&json, job);
    sp_json_int(&json, "n", job->n);
    sp_json_int(&json, "pairs", job->pairs);
    sp_json_int(&json, "c_in", job->c_in);
    sp_json_int(&json, "c_out", job->c_out);
    sp_json_double(&json, "ms", s * 1e3);
    sp_json_double(&json, "gflops", measure_rate_of(job->flops, s));
    sp_json_double(&json, "gbytes_s", measure_rate_of(job->bytes, s));
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
    if (t->calls)
        sp_json_int(&json, "calls", t->calls);
    sp_json_double(&json, "floor_ms", floor_s(b, job) * 1e3);
    if (t->memory_bytes)
        sp_json_int(&json, "memory_bytes", t->memory_bytes);
    if (job->operations) {
        sp_json_int(&json, "operations", job->operations);
        sp_json_int(&json, "waits", job->waits);
    }
    if (job->work)
        bench_work_json(&json, job->work);
    sp_json_text(&json, "precision", sp_precision_word[b->backend.precision]);
    if (b->backend.is_wgmma)
        sp_json_bool(&json, "wgmma", true);
    sp_json_text(&json, "device", b->device);
    return bench_json_end(b, &json);
}

static sp_status fail_above(const bench_job *job, double rate, double ceiling)
{
    const bool is_flops = job->limit == BENCH_FLOPS;

    return SP_FAIL(SP_ENUMERIC,
                   "%s%s%s, n=%lld, c=%d,%d: %.4g %s, %.3g times the ceiling of %.4g "
                   "that was measured with it: a failed measurement; its row is left "
                   "out; repeat it with less else running",
                   job->name, job->layer ? " of " : "",
                   job->layer ? job->layer->name : "", (long long)job->n, job->c_in,
                   job->c_out, rate * 1e-9, is_flops ? "GFLOP/s" : "GB/s",
                   rate / ceiling, ceiling * 1e-9);
}

sp_status bench_print(bench *b, const bench_job *job, const bench_time *time,
                      double ceiling)
{
    const double s = time->is_wall ? time->wall_s : time->cpu_s;
    const double work = job->limit == BENCH_FLOPS ? job->flops : job->bytes;
    const double ratio = ceiling > 0 && !b->is_emulated ? work / s / ceiling : NAN;

    assert(job->name);
    if (b->comm->rank)
        return SP_OK;
    if (bench_is_above(b, work / s, ceiling))
        return fail_above(job, work / s, ceiling);
    if (b->options->is_json)
        return print_json_row(b, job, time, s, ceiling, ratio);
    print_table_row(b, job, time, s, ceiling, ratio);
    return SP_OK;
}

/* ---- measuring ---- */

bool bench_is_wall(const bench *b)
{
    return b->backend.threads > 1 || !b->backend.ops->is_host;
}

enum { MAX_REPEATS = 101 };

/* Measures one sample: seconds of a call by all clocks. On a device its own time
 * replaces wall time. */
static sp_status time_calls(bench *b, const bench_job *job, int calls, double *wall_s,
                            double *cpu_s)
{
    const sp_backend_ops *ops = b->backend.ops;
    double wall, cpu, device = 0;

    SP_TRY(ops->clock_begin(&b->backend));
    wall = sp_now_s();
    cpu = sp_clock_s(CLOCK_THREAD_CPUTIME_ID);
    for (int i = 0; i < calls; i++)
        SP_TRY(job->run(job->arg));
    cpu = sp_clock_s(CLOCK_THREAD_CPUTIME_ID) - cpu;
    wall = sp_now_s() - wall;
    SP_TRY(ops->clock_end(&b->backend, &device));
    *cpu_s = cpu / calls;
    *wall_s = fmax(ops->is_host ? wall : device, 1e-9) / calls;
    return SP_OK;
}

/* Determines the number of calls in a sample, so that it is long against the clock's
 * resolution. The shortest of a few timings decides, since an interruption lengthens a
 * timing. */
static sp_status count_calls(bench *b, const bench_job *job, int *calls)
{
    const double least = b->options->is_quick ? 2e-4 : 2e-3, begin = sp_now_s();
    double s = INFINITY, one = 0, cpu;

    SP_TRY(job->run(job->arg)); /* touches the memory for the first time */
    for (int i = 0; i < 3 && (i == 0 || sp_now_s() - begin < 0.5); i++) {
        SP_TRY(time_calls(b, job, 1, &one, &cpu));
        s = fmin(s, one);
    }
    /* After the system has forgotten the files (--cold), only one reading is cold. */
    *calls = s >= least || b->options->is_cold
                 ? 1
                 : (int)fmin(least / fmax(s, 1e-8), 10000) + 1;
    return SP_OK;
}

/* Times the job `repeats` times, and its ceiling before each. The result is the median
 * of the times and the best of the ceilings, which other programs can only lower.
 * Ceilings of products are the best of the whole run, ceilings of streams the best over
 * the same size of memory. */
static sp_status sample(bench *b, const bench_job *job, bench_time *t, double *ceiling)
{
    const double limit = b->options->is_quick ? 0.05 : 2, begin = sp_now_s();
    double wall[MAX_REPEATS], cpu[MAX_REPEATS], wall_spread, cpu_spread;
    int calls = 1;

    *t = (bench_time){.is_wall = bench_is_wall(b) || job->ceiling};
    *ceiling = job->limit == BENCH_FLOPS && !job->ceiling ? b->best_flops : 0;
    SP_TRY(count_calls(b, job, &calls));
    while (t->repeats < b->options->repeats &&
           (t->repeats < 3 || sp_now_s() - begin < limit)) {
        const int i = t->repeats++;
        double one = 0;
        SP_TRY(bench_ceiling(b, job, &one));
        SP_TRY(time_calls(b, job, calls, &wall[i], &cpu[i]));
        *ceiling = fmax(*ceiling, one);
    }
    t->calls = calls;
    t->wall_s = bench_median(wall, t->repeats, &wall_spread);
    t->cpu_s = bench_median(cpu, t->repeats, &cpu_spread);
    t->spread = t->is_wall ? wall_spread : cpu_spread;
    return SP_OK;
}

/* A rate above its ceiling means that the measurement of the ceiling was disturbed. The
 * ceiling is then measured again, and if that does not help, the whole job once more;
 * bench_print refuses a rate that is still above. */
sp_status bench_measure(bench *b, const bench_job *job)
{
    const double work = job->limit == BENCH_FLOPS ? job->flops : job->bytes;
    bool is_above = true;
    bench_time t;
    double ceiling;

    assert(job->run && job->flops >= 0 && job->bytes >= 0);
    bench_progress(b, "%s n=%lld c=%d,%d", job->name, (long long)job->n, job->c_in,
                   job->c_out);
    for (int i = 0; i < 2 && is_above; i++) {
        SP_TRY(sample(b, job, &t, &ceiling));
        const double rate = work / (t.is_wall ? t.wall_s : t.cpu_s);
        SP_TRY(bench_renew(b, job, rate, &ceiling));
        is_above = bench_is_above(b, rate, ceiling);
    }
    return bench_print(b, job, &t, ceiling);
}

/* ---- opening ---- */

static sp_status name_device(bench *b)
{
    sp_device_info device;

    if (b->backend.ops->is_host) {
        snprintf(b->device, sizeof b->device, "%.95s", sp_machine_processor());
        return SP_OK;
    }
    SP_TRY(sp_backend_device(b->backend.device, &device));
    snprintf(b->device, sizeof b->device, "%s", device.name);
    b->is_emulated = strncmp(device.name, "emulated", strlen("emulated")) == 0;
    return SP_OK;
}

/* Sets the precision of --precision; the CPU has no tf32. */
static sp_status measure_choose_precision(bench *b)
{
    const int p = b->options->precision;
    const sp_precision want = p == BENCH_NONE ? SP_FP32 : (sp_precision)p;

    if (want == SP_TF32 && b->backend.ops->is_host)
        return SP_FAIL(SP_EUSAGE,
                       "--precision tf32: the CPU computes in fp32 and bf16 only");
    b->backend.precision = want;
    b->backend.is_wgmma = b->options->is_wgmma;
    if (b->backend.is_wgmma && want != SP_BF16)
        return SP_FAIL(SP_EUSAGE, "--wgmma is for --precision bf16 only");
    return SP_OK;
}

static sp_status measure_open_backend(bench *b)
{
    const sp_backend_ops *ops =
        sp_backend_find(b->options->device == SP_DEVICE_CUDA ? "cuda" : "cpu");

    if (!ops)
        return SP_FAIL(SP_EDEVICE,
                       "--device cuda: this program computes on the CPU only");
    b->backend.ops = ops;
    SP_TRY(measure_choose_precision(b));
    return ops->open(&b->backend, 0, (int)b->options->threads);
}

static void measure_print_header(const bench *b)
{
    if (b->options->is_json || b->comm->rank)
        return;
    fprintf(b->out, "%s; ", b->device);
    if (b->backend.ops->is_host)
        fprintf(b->out, "%s, %d thread%s", sp_cpu_products_of(&b->backend)->name,
                b->backend.threads, sp_plural(b->backend.threads));
    else
        fputs(sp_precision_word[b->backend.precision], b->out);
    fputs("; ceiling F: multiply-adds, GFLOP/s; B: GB/s\n", b->out);
}

sp_status bench_device_open(bench *b, const sp_backend *session)
{
    assert(!b->backend.impl);
    b->is_borrowed = session != NULL;
    if (session)
        b->backend = *session;
    else
        SP_TRY(measure_open_backend(b));
    SP_TRY(name_device(b));
    SP_TRY(sp_arena_create(&b->staging, 0, "staging"));
    measure_print_header(b);
    return bench_ceilings_open(b);
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

/* Keeps standard output for results; other output of the program goes to standard
 * error. */
static sp_status bench_open_output(bench *b)
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
    return bench_open_output(b);
}

sp_status bench_close(bench *b)
{
    FILE *out = b->out;

    bench_device_close(b);
    memset(b, 0, sizeof *b);
    if (out && !sp_file_close(out))
        return SP_FAIL(SP_EIO, "cannot write to standard output");
    return SP_OK;
}
