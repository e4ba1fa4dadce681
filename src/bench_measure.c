#include "bench.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cpu/cpu_isa.h"
#include "sp_json.h"
#include "sp_log.h"
#include "sp_machine.h"

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

/* One thread's rates count its own time: what else runs on the core does not matter. */
static double rate_clock_s(const bench *b)
{
    return b->backend.threads == 1 ? bench_cpu_s() : sp_now_s();
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

double bench_peak(bench *b)
{
    const sp_cpu_isa *isa = sp_cpu_isa_of(&b->backend);
    const int64_t rounds = 16000000 / (isa->lanes * 96); /* about 0.3 ms */
    double flops = 0, begin;

    isa->multiply_add(rounds / 4); /* out of the lower clock after idling */
    begin = rate_clock_s(b);
#pragma omp parallel for num_threads(b->backend.threads) reduction(+ : flops)          \
    schedule(static, 1)
    for (int i = 0; i < 2 * b->backend.threads; i++)
        flops += isa->multiply_add(rounds);
    return flops / (rate_clock_s(b) - begin);
}

/* Two vectors, each half of the bytes: one is read, the other read and written. */
double bench_stream(bench *b, double bytes)
{
    const sp_cpu_isa *isa = sp_cpu_isa_of(&b->backend);
    const int threads = b->backend.threads;
    int64_t n = (int64_t)(bytes / 2 / sizeof(float));
    double moved = 0, begin;
    int rounds;

    n = n < 1024 ? 1024 : n > b->stream_floats ? b->stream_floats : n;
    rounds = (int)(1000000 / n) + 1;
    isa->stream(b->x, b->y, n);
    begin = rate_clock_s(b);
    for (int r = 0; r < rounds; r++) {
#pragma omp parallel for num_threads(threads) reduction(+ : moved) schedule(static, 1)
        for (int i = 0; i < threads; i++) {
            int64_t from = n * i / threads, to = n * (i + 1) / threads;
            moved += isa->stream(b->x + from, b->y + from, to - from);
        }
    }
    return moved / (rate_clock_s(b) - begin);
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

    if (!b->has_header)
        fprintf(b->out, "%-20s %8s %9s %5s %5s %10s %6s %10s %9s %9s %9s %6s\n", "name",
                "n", "pairs", "c_in", "c_out", "ms", "+-%", "cpu ms", "GFLOP/s", "GB/s",
                "ceiling", "%");
    b->has_header = true;
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
    fputc('\n', b->out);
    fflush(b->out);
}

static sp_status print_json_row(bench *b, const bench_job *job, const bench_time *t,
                                double s, double ceiling, double ratio)
{
    sp_json json = {0};
    const char *line;
    sp_status rc;

    sp_json_begin(&json);
    sp_json_text(&json, "name", job->name);
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
    sp_json_text(&json, "clock", t->is_wall ? "wall" : "cpu");
    sp_json_int(&json, "repeats", t->repeats);
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

enum { MAX_REPEATS = 101 };

static sp_status ceiling_of(bench *b, const bench_job *job, double *rate)
{
    if (job->ceiling)
        return job->ceiling(job->arg, rate);
    *rate = job->limit == BENCH_FLOPS
                ? bench_peak(b)
                : bench_stream(b, job->footprint > 0 ? job->footprint : job->bytes);
    return SP_OK;
}

/* Calls of a sample, so that it is long against the clock's resolution. */
static sp_status count_calls(const bench *b, const bench_job *job, int *calls)
{
    const double least = b->options->is_quick ? 2e-4 : 2e-3;
    double begin = sp_now_s(), s;

    SP_TRY(job->run(job->arg)); /* touches memory for the first time */
    begin = sp_now_s();
    SP_TRY(job->run(job->arg));
    s = sp_now_s() - begin;
    *calls = s >= least ? 1 : (int)fmin(least / fmax(s, 1e-8), 10000) + 1;
    return SP_OK;
}

sp_status bench_measure(bench *b, const bench_job *job)
{
    const double limit = b->options->is_quick ? 0.05 : 2;
    double wall[MAX_REPEATS], cpu[MAX_REPEATS], ceiling[MAX_REPEATS],
        begin = sp_now_s();
    bench_time t = {.is_wall = b->backend.threads > 1 || job->ceiling};
    double wall_spread, cpu_spread, middle;
    int calls = 1;

    bench_progress(b, "%s n=%lld c=%d,%d", job->name, (long long)job->n, job->c_in,
                   job->c_out);
    SP_TRY(count_calls(b, job, &calls));
    while (t.repeats < b->options->repeats &&
           (t.repeats < 3 || sp_now_s() - begin < limit)) {
        const int i = t.repeats++;
        double w, c;
        SP_TRY(ceiling_of(b, job, &ceiling[i]));
        w = sp_now_s();
        c = bench_cpu_s();
        for (int j = 0; j < calls; j++)
            SP_TRY(job->run(job->arg));
        cpu[i] = (bench_cpu_s() - c) / calls;
        wall[i] = (sp_now_s() - w) / calls;
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

static sp_status print_ceilings(bench *b)
{
    static const char *const names[] = {"multiply_add", "stream"};
    double value[MAX_REPEATS];

    for (int what = 0; what < 2; what++) {
        const double bytes = 8.0 * (double)b->stream_floats;
        bench_job job = {.name = names[what],
                         .limit = what ? BENCH_BYTES : BENCH_FLOPS};
        bench_time t = {.is_wall = b->backend.threads > 1,
                        .repeats = (int)b->options->repeats};
        double rate;
        for (int i = 0; i < t.repeats; i++)
            value[i] = what ? bench_stream(b, bytes) : bench_peak(b);
        rate = bench_median(value, t.repeats, &t.spread);
        *(what ? &job.bytes : &job.flops) = rate * 1e-3; /* as if of a millisecond */
        t.wall_s = t.cpu_s = 1e-3;
        SP_TRY(bench_print(b, &job, &t, rate));
    }
    return SP_OK;
}

/* In an arena as tensors are, for the same pages. The gap keeps loads of one vector
 * from looking like those of a store to the other, whose addresses would end alike. */
static sp_status take_stream(bench *b)
{
    enum { APART = 2112 };
    const int64_t n = b->options->is_quick ? 1 << 20 : 16 << 20;
    void *gap;

    SP_TRY(sp_arena_create(&b->arena, 0, "stream"));
    SP_TRY(SP_TAKE(&b->arena, n, &b->x));
    SP_TRY(sp_arena_take(&b->arena, APART, &gap));
    SP_TRY(SP_TAKE(&b->arena, n, &b->y));
    for (int64_t i = 0; i < n; i++)
        b->x[i] = b->y[i] = 1;
    b->stream_floats = n;
    return SP_OK;
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
    SP_TRY(take_output(b));
    b->backend.ops = sp_backend_find("cpu");
    SP_TRY(b->backend.ops->open(&b->backend, 0, (int)options->threads));
    SP_TRY(take_stream(b));
    if (!options->is_json && comm->rank == 0)
        fprintf(b->out,
                "%s; %s, %d thread%s; ceiling F: multiply-adds, GFLOP/s; B: GB/s\n",
                sp_machine_processor(), sp_cpu_isa_of(&b->backend)->name,
                b->backend.threads, b->backend.threads == 1 ? "" : "s");
    SP_TRY(print_ceilings(b));
    /* What runs next is not to be larger by what this needed. */
    sp_arena_release(&b->arena, 0, b->arena.used);
    return SP_OK;
}

void bench_close(bench *b)
{
    sp_arena_destroy(&b->arena);
    if (b->backend.ops)
        b->backend.ops->close(&b->backend);
    if (b->out)
        fclose(b->out);
    memset(b, 0, sizeof *b);
}
