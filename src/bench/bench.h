/* spbench: the speed of operations, plans, steps, reading and all-reduce, each compared
 * with a ceiling of this machine that is measured in the same run.
 *
 *     main       --options, ranks--> bench_device_open --> bench_ceilings_open
 *                                                          first rows: the machine
 *         --> a command: for each job
 *               bench_measure:  [ ceiling, job ] x repeats --> median, spread
 *                               rate above the ceiling?    --> bench_renew
 *               bench_print:    one row, or SP_ENUMERIC
 *
 *     bench_ceiling  the highest rates of the machine
 *     bench_measure  clocks, repeats, median, rows of the table
 *     bench_work     samples and voxels of steps, counted on every rank
 *     bench_runs     medians and rows of whole steps and passes
 *     bench_tensor   backend memory filled with numbers
 *     bench_shapes, bench_voxels
 *                    coordinates to work on, and shards of them
 *     bench_ops, bench_rows, bench_plan, bench_step, bench_eval, bench_layers,
 *     bench_io, bench_reduce, bench_sums, bench_roofline
 *                    the commands and their parts
 *
 * The ceiling is measured again before each repeat of a job, because the clock of a
 * core drifts and other programs come and go; the best of these counts. A rate above
 * BENCH_MOST_RATIO times its ceiling is a failed measurement: if a renewed ceiling
 * does not help, no row is printed and the program ends with SP_ENUMERIC.
 */
#ifndef BENCH_H
#define BENCH_H

#include <stdint.h>
#include <stdio.h>

#include "api/sp_evaluator.h"
#include "api/sp_learner.h"
#include "api/sp_step.h"
#include "base/sp_json.h"
#include "train/sp_session.h"

enum {
    BENCH_LIST = 32, /* most numbers in an option */
    BENCH_PATH = 512,
    BENCH_STEPS = 50, /* most steps of a kind */
    BENCH_NONE = -1   /* an option was not given */
};

/* Highest accepted ratio of rate to ceiling: the measuring error of both. */
#define BENCH_MOST_RATIO 1.05

typedef struct bench_list {
    int n;
    int64_t at[BENCH_LIST];
} bench_list;

typedef struct bench_options {
    bool is_json, is_quick, is_cold, is_by_layer, is_in_line, is_wgmma;
    bool is_beside_training; /* eval: the forward pass of a training is timed too */
    int64_t threads, repeats;
    bench_list voxels, channels;
    /* sp_device_kind and sp_precision; BENCH_NONE: run.device and train.precision of
     * the deck, of commands without a deck the CPU and fp32. */
    int device, precision;
    const char *shard;  /* file to read voxels from; NULL: a shape */
    const char *shape;  /* NULL: terrain */
    const char *code;   /* file with the table of the machine code */
    const char *out;    /* file that `voxels` writes */
    int64_t samples;    /* number of samples in it */
    int64_t sample;     /* number of the sample in --shard */
    sp_command command; /* deck, overrides and their config */
} bench_options;

/* Least work that an operation of a step has to do. */
typedef struct bench_call {
    const char *op;       /* name in the table of operations */
    const sp_node *layer; /* borrowed; NULL: the whole network's */
    int64_t n, pairs;
    int c_in, c_out;
    double flops, bytes;
    /* The bytes that a convolution's epilogue reads and writes, and the convolution's
     * map (NULL: kernel 1). */
    double result_bytes;
    const sp_map *map;
    int more_kernels; /* of a device, beside the operation's first */
} bench_call;

/* Called for every operation of a step, in their order (bench_layers.c). */
typedef struct bench_counter {
    sp_status (*count)(void *arg, const bench_call *call);
    void *arg;
} bench_counter;

typedef struct bench {
    const bench_options *options;
    /* With it, steps of bench_training count the operations of a device and compute
     * nothing else. NULL: they are steps. */
    const bench_counter *counter;
    sp_comm *comm;
    sp_backend backend; /* `step` has a copy of the session's, which owns it */
    bool is_borrowed;   /* the backend is not closed here */
    char device[96];    /* description of the device for the rows */
    sp_arena arena;     /* holds x and y */
    sp_arena staging;   /* host memory for data to be uploaded */
    float *x, *y;       /* [stream_floats] vectors of the stream ceiling, in `arena` */
    int64_t stream_floats;
    bool is_filled; /* x and y have been written */
    /* An emulated device has no meaningful ceilings, so no ratio is printed. */
    bool is_emulated;
    int64_t n_timings; /* timings of ceilings so far */
    double one_rate;   /* flops a second of one thread, by its own CPU time */
    /* Work of each peak that lasts long against the clock's resolution. */
    double amount[SP_PEAK_GATHER + 1];
    /* Work a second: the best flops in multiply-adds of this rank so far, and the bytes
     * of the stream in the first rows. */
    double best_flops, best_bytes;
    /* Bytes a second: the best gather rate of the first rows; devices only. */
    double best_gather;
    /* The original standard output; all other output goes to standard error. */
    FILE *out;
    bool has_header;
    bool is_reported; /* a command's failure has been printed already */
} bench;

typedef struct bench_extent {
    double least, most;
} bench_extent;

/* Work of one rank, or of all ranks: means over the timed steps, and the least and most
 * that a single rank had in a single step. */
typedef struct bench_share {
    double samples, voxels, flops; /* flops: of the convolutions */
    bench_extent samples_of_step, voxels_of_step, flops_of_step;
} bench_share;

typedef struct bench_work {
    /* Set beforehand: "step", "steps" or "pass", "passes", and the deck's key of their
     * samples. */
    const char *unit, *units, *size_key;
    int ranks, steps; /* steps: or passes */
    bench_share all;
    bench_share *rank; /* [ranks] on rank 0; NULL elsewhere */
} bench_work;

/* The limit of an operation, which its rate is divided by. */
typedef enum bench_limit {
    BENCH_FLOPS, /* multiply-add peak of the threads in use */
    BENCH_BYTES  /* stream bandwidth over as much memory as the operation touches */
} bench_limit;

typedef struct bench_job {
    const char *name; /* name of the row */
    int64_t n, pairs; /* voxels or elements; pairs of the map */
    int c_in, c_out;
    double flops, bytes; /* work of one call */
    double footprint;    /* bytes of memory that a call touches; 0: as `bytes` */
    bench_limit limit;
    const sp_node *layer; /* layer of a step, borrowed; NULL: the job is no layer */
    double share;         /* with a layer: its part of the step's time */
    /* A plan: the use of a device by one call (sp_plan.h); 0: not printed. */
    int operations, waits;
    /* Work of whole steps, borrowed; NULL: the job is no step. */
    const bench_work *work;
    /* Measures the job's own ceiling in bytes a second, by wall time, which then times
     * the job too; NULL: the ceiling of `limit`. */
    sp_status (*ceiling)(void *arg, double *rate);
    /* One call of the job. */
    sp_status (*run)(void *arg);
    void *arg;
} bench_job;

/* Seconds of one call. spread: interquartile range over median, of the clock used. */
typedef struct bench_time {
    double wall_s; /* on a device: between events of its stream */
    double cpu_s;  /* CPU time of the calling thread; NAN: unknown */
    double spread;
    bool is_wall; /* rates are computed with wall_s, not cpu_s */
    int repeats;
    int calls;            /* calls in one repeat; 0: not printed */
    int64_t memory_bytes; /* memory_used's value (sp_backend.h); 0: not printed */
} bench_time;

/* ---- bench_measure.c ---- */
/* Prepares *b and standard output. options and comm are borrowed until bench_close.
 * SP_EIO. */
sp_status bench_open(bench *b, const bench_options *options, sp_comm *comm);
/* Opens the device that ceilings are measured on and prints the first rows. session: a
 * backend that is already open and remains open until bench_device_close; NULL: the one
 * that the options name is opened. */
sp_status bench_device_open(bench *b, const sp_backend *session);
void bench_device_close(bench *b);
/* Closes the device too; *b may be half open. SP_EIO: some of the output was lost. */
sp_status bench_close(bench *b);
/* Measures a job and prints its row. Errors: the job's; SP_ENUMERIC as bench_print. */
sp_status bench_measure(bench *b, const bench_job *job);
/* Prints a row of measured numbers. ceiling: flops or bytes a second, by job->limit; 0:
 * no ceiling. A rate above the ceiling gives SP_ENUMERIC and no row. Rank 0 only: other
 * ranks return at once. */
sp_status bench_print(bench *b, const bench_job *job, const bench_time *time,
                      double ceiling);
/* Prints a line on a terminal that the next one replaces. Rank 0 only. */
void bench_progress(const bench *b, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Ends the object, prints it as a line and frees it. SP_EMEM. */
sp_status bench_json_end(const bench *b, sp_json *json);
/* One thread is timed by its CPU time, several threads and devices by wall time. */
bool bench_is_wall(const bench *b);
/* Sorts values and returns their median; *spread (may be NULL): interquartile range
 * over median. */
double bench_median(double *values, int n, double *spread);

/* ---- bench_ceiling.c ---- */
/* Measures the machine and prints the first rows. Allocates b->x and b->y. Called by
 * bench_device_open. SP_EMEM; errors of the backend; SP_ENUMERIC as bench_print. */
sp_status bench_ceilings_open(bench *b);
/* Measures by one timing the flops a second that the threads in use reach in
 * multiply-adds, and keeps the best in b->best_flops. Local; errors of the backend. */
sp_status bench_peak(bench *b, double *rate);
/* Times the limit of a job once, in flops or bytes a second by job->limit. Local, but
 * collective if job->ceiling is; errors of the backend or of job->ceiling. */
sp_status bench_ceiling(bench *b, const bench_job *job, double *rate);
/* True for an impossible rate: it exceeds the ceiling by more than the
 * measuring error. */
bool bench_is_above(const bench *b, double rate, double ceiling);
/* Measures the ceiling again while the rate is above it, for about a second at most;
 * *ceiling becomes the best. */
sp_status bench_renew(bench *b, const bench_job *job, double rate, double *ceiling);

/* ---- bench_tensor.c: memory of the backend ---- */
/* Allocates n random numbers in (-1, 1) from the arena; results computed from them have
 * no denormals. bench_alloc_value: n times `value`. */
sp_status bench_alloc_random(bench *b, sp_arena *arena, int64_t n, float **out);
sp_status bench_alloc_value(bench *b, sp_arena *arena, int64_t n, float value,
                            float **out);
/* Allocates n labels; row i has label i % c. */
sp_status bench_alloc_labels(bench *b, sp_arena *arena, int64_t n, int c,
                             int32_t **out);
/* Allocates a tensor [n, c] of random numbers, with elements and pitch of the network's
 * activations. */
sp_status bench_alloc_tensor(bench *b, sp_arena *arena, int64_t n, int c, sp_tensor *t);

/* ---- bench_shapes.c ---- */
/* Writes n distinct coordinates [n][3] of a shape: terrain (also NULL), surface,
 * random, lidar. SP_EUSAGE for another name, SP_EMEM. */
sp_status bench_shape_make(const char *shape, int64_t n, uint64_t seed,
                           int32_t *coords);

/* ---- bench_voxels.c ---- */
typedef struct bench_voxels {
    int32_t n;
    int32_t *coords; /* [n][3] */
    int32_t sample_row[2];
} bench_voxels;

/* Makes voxels: the sample of --shard (n is ignored), or n voxels of --shape. Local.
 * SP_EUSAGE, SP_EMEM; with --shard the errors of reading it. Free after failure too. */
sp_status bench_voxels_make(const bench_options *options, int64_t n, bench_voxels *v);
void bench_voxels_free(bench_voxels *v);
/* Writes a shard of n_samples places of the terrain into a temporary folder. Its path
 * is written to path [BENCH_PATH]; bench_shard_remove deletes it, also its parts after
 * a failure, and so does TERM or INT from here on. One shard at a time. Local. SP_EIO,
 * SP_EMEM. */
sp_status bench_shard_make(int64_t n, int n_samples, char *path);
void bench_shard_remove(void);

/* ---- bench_sums.c ---- */
/* Times sums over the ranks' devices, of a batch norm's size, and prints them. Opens
 * and closes the deck's device. Collective. SP_EUSAGE on one rank; SP_EDEVICE. */
sp_status bench_sums(bench *b);

/* ---- the commands ----
 * They print their rows as they measure them. step, eval and reduce are
 * collective; the others run on one rank. bench_open precedes them, and
 * bench_device_open all but those with has_own in spbench.c, which open a device
 * themselves. They return the errors of the timed work, SP_EUSAGE for options that do
 * not fit, and SP_ENUMERIC for a rate above its ceiling; b->is_reported is true if the
 * failure was printed. */
sp_status bench_ops(bench *b);
sp_status bench_plan(bench *b);
sp_status bench_step(bench *b);
sp_status bench_eval(bench *b);
sp_status bench_io(bench *b);
sp_status bench_voxels_write(bench *b);
sp_status bench_reduce(bench *b);
sp_status bench_roofline(bench *b);
/* ---- bench_rows.c: operations on rows of c channels; called by bench_ops ---- */
/* Measures each on the voxels v and prints its row. It gives back its memory of the
 * arena. Local; errors of bench_measure. */
sp_status bench_rows(bench *b, sp_arena *arena, const bench_voxels *v, int c);

/* ---- bench_step.c: a training as sptrain makes it ---- */
typedef struct bench_training {
    sp_session session;
    sp_device device;
    sp_data_sets data;
    sp_network network;
    sp_learner learner;
    sp_budgets budgets;        /* not open: nothing is cut */
    struct bench_trace *trace; /* --layers, or with a counter; else NULL */
    const sp_batch *batch;     /* the one that the step computes; else NULL */
    /* The host waits for the device between the parts of a step, so that each part can
     * be timed; they then lose their overlap. */
    bool is_split;
} bench_training;

/* Seconds of the parts of one step, or of one pass of an evaluation, on this rank, and
 * its work. */
typedef struct bench_parts {
    /* Not used for END; an evaluation has FORWARD and LOSS. */
    double part[SP_STEP_PARTS];
    double all;
    /* Core time of all threads in the forward passes of an evaluation and, over the same
     * batches in turn with them, of a training. */
    double eval_cpu, train_cpu;
    double train_forward;
    double cpu, process_cpu; /* core time of the training thread; of all threads */
    double plan, read;       /* time of the loader's threads for this step's batches */
    double flops;    /* work of the convolutions; in training all three products */
    double left_out; /* of these, what is not multiplied since a channel is zero */
    double n, pairs, n_samples; /* pairs: of all maps of the plan */
    double waited;              /* time of waits for other ranks */
    bool is_updated;            /* the step has changed the weights */
} bench_parts;

/* ---- bench_work.c ---- */
/* Adds the work of a batch, which the backend has computed, to parts. */
void bench_work_add(sp_backend *backend, const sp_graph *graph, const sp_batch *batch,
                    bool is_training, bench_parts *parts);
/* Counts the work of n steps on all ranks. Collective, agreed; SP_EDATA if a rank
 * had a step without a voxel. bench_work_free follows in any case. */
sp_status bench_work_count(sp_session *session, const bench_parts *step, int n,
                           bench_work *w);
void bench_work_free(bench_work *w);
/* Rank 0: prints one line; or adds members to the object that is open in json. */
void bench_work_print(FILE *to, const bench_work *w);
void bench_work_json(sp_json *json, const bench_work *w);

/* ---- bench_runs.c: repeated steps or passes ---- */
typedef struct bench_runs {
    int n;
    bench_parts whole[BENCH_STEPS];
    /* Runs with waits between their parts. Steps on the CPU need no waits: as
     * `whole`. */
    bench_parts split[BENCH_STEPS];
    double ceiling; /* flops a second of all ranks together */
    bench_work work;
    int64_t memory_bytes;
} bench_runs;

/* The runs that a part of a run is printed from. */
typedef enum bench_part_of {
    BENCH_OF_WHOLE,
    BENCH_OF_SPLIT,
    BENCH_OF_LOADER /* whole runs too; their mean, not their median */
} bench_part_of;

typedef struct bench_part {
    const char *name;
    size_t offset; /* place of a double in bench_parts */
    bench_part_of of;
    size_t cpu_offset; /* place of its core time; 0: not known */
} bench_part;

/* The number of runs that the options ask for. */
int bench_runs_wanted(const bench *b);
/* Adds the clocks of this rank to the parts of a run: with sign -1 as it begins, with 1
 * as it ends. */
void bench_runs_clock(bench_parts *parts, int sign);
/* Precede and follow the runs: measure the peak on all ranks at the same time and sum
 * it, and afterwards ask the backend for the memory in use. Collective. */
sp_status bench_runs_peak(bench *b, bench_runs *runs);
sp_status bench_runs_end(bench *b, sp_backend *backend, bench_runs *runs);
/* Returns the median of the double at `offset` over n runs; spread as bench_median. */
double bench_runs_median(const bench_parts *run, int n, size_t offset, double *spread);
/* Prints a row of this name for the whole run, and one for each part. Collective. */
sp_status bench_runs_print(bench *b, bench_runs *runs, const char *name,
                           const bench_part *part, size_t n_parts);

/* Opens the parts of a training, from the session to the loader. Collective, agreed.
 * bench_training_close follows in any case. */
sp_status bench_training_open(bench *b, bench_training *t);
/* Runs one whole step (sp_step.h). Collective. Ends all ranks if it fails. */
void bench_training_step(bench_training *t, bench_parts *parts);
/* Reports a failure and frees everything. Returns rc. */
sp_status bench_training_close(bench *b, bench_training *t, sp_status rc);

/* ---- bench_layers.c: the operations of a step ---- */
typedef struct bench_trace bench_trace;

/* Has the operations of the backend go through the trace, which times them
 * between begin and end. To be called once the device is open, before the transport;
 * the trace lives longer than the network, which is opened later. SP_EMEM. */
sp_status bench_trace_open(bench_trace **trace, bench *b, sp_net *net,
                           sp_backend *backend);
/* Times each operation from here on: of the next step, at most BENCH_STEPS in all. */
sp_status bench_trace_begin(bench_trace *trace);
/* Begins a part of the step, NULL after the last. What a part takes on the host outside
 * its operations is added to the row of its name, of static storage; no row of a device
 * changes. The first part, host_clear, begins with the trace. */
sp_status bench_trace_part(bench_trace *trace, const char *name);
/* step_s: the time that the whole step took. */
void bench_trace_end(bench_trace *trace, double step_s);
/* Prints a row for each layer and operation, one for their sum, and one for the rest of
 * the step: on the host all of the step with the median time. At least one was timed.
 * SP_ENUMERIC as bench_print. */
sp_status bench_trace_print(bench_trace *trace);
/* NULL is accepted. */
void bench_trace_close(bench_trace *trace);

#endif
