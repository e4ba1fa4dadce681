/* spbench: how fast operations, plans, steps, reading and all-reduce are, each beside a
 * ceiling of this machine that is measured in the same run.
 *
 *     bench_main     options, ranks
 *     bench_ceiling  how fast the machine is at best
 *     bench_measure  median, repeats, rows of the table
 *     bench_work     samples and voxels of steps, on every rank
 *     bench_tensor   memory of the device with numbers in it
 *     bench_shapes, bench_voxels
 *                    coordinates to work on, and files of them
 *     bench_ops, bench_rows, bench_plan, bench_step, bench_layers, bench_io,
 *     bench_reduce, bench_sums, bench_model
 *                    what is timed
 *
 * Between any two measurements of an operation its ceiling is measured anew, because
 * the clock of a core drifts and other programs come and go; the best of these counts.
 * A rate above BENCH_MOST_RATIO times its ceiling is a failed measurement: where a
 * renewed ceiling does not help, no row is printed and the program ends with
 * SP_ENUMERIC.
 */
#ifndef BENCH_H
#define BENCH_H

#include <stdint.h>
#include <stdio.h>

#include "base/sp_json.h"
#include "train/sp_session.h"

enum {
    BENCH_LIST = 32, /* numbers of an option */
    BENCH_PATH = 512,
    BENCH_STEPS = 50 /* at most, of a kind */
};

#define BENCH_MOST_RATIO 1.05 /* of a rate over its ceiling: the error of both */

typedef struct bench_list {
    int n;
    int64_t at[BENCH_LIST];
} bench_list;

typedef struct bench_options {
    bool is_json, is_quick, is_cold, is_by_layer, is_in_line, is_wgmma;
    int64_t threads, repeats;
    bench_list voxels, channels, ranks;
    const char *device;    /* "cpu", "cuda"; NULL: the CPU, or as the deck says */
    const char *precision; /* "fp32", "tf32", "bf16"; NULL: fp32, or the deck's */
    const char *shard;     /* NULL: a shape */
    const char *shape;     /* NULL: terrain */
    const char *out;       /* of voxels */
    int64_t samples;       /* of it */
    int64_t sample;        /* of the shard */
    /* model only; 0: measured, or the default that --help tells */
    double latency_s, bandwidth, read_rate, storage_rate; /* bytes a second */
    int64_t per_rank;                                     /* samples */
    sp_command command; /* deck, overrides and their config */
} bench_options;

typedef struct bench {
    const bench_options *options;
    sp_comm *comm;
    sp_backend backend; /* a copy of the session's in `step`, which owns it */
    bool is_borrowed;
    char device[96]; /* in words */
    sp_arena arena;
    sp_arena staging; /* host: what is to be uploaded */
    float *x, *y; /* [stream_floats] what the stream ceiling runs over; of the arena */
    int64_t stream_floats;
    bool is_filled;    /* x and y have numbers in them */
    bool is_emulated;  /* the device is: its ceilings are none, and no ratio is told */
    int64_t n_timings; /* of ceilings, so far */
    double one_rate;   /* multiply-adds a second of one thread, by its own time */
    double amount[SP_PEAK_GATHER + 1]; /* of each peak: long against the clock */
    /* A second: the best multiply-add rate of this rank so far; the stream of the first
     * rows. */
    double best_flops, best_bytes;
    double best_gather; /* bytes a second, of a device: the best gather of those rows */
    FILE *out; /* what was standard output; everything else goes to standard error */
    bool has_header;
    bool is_reported; /* the failure that a command returns is on standard error */
} bench;

typedef struct bench_extent {
    double least, most;
} bench_extent;

/* Of one rank, or of all: means over the timed steps, and the extremes that a single
 * rank had in a single step. */
typedef struct bench_share {
    double samples, voxels, flops; /* flops: of the convolutions */
    bench_extent samples_of_step, voxels_of_step, flops_of_step;
} bench_share;

typedef struct bench_work {
    int ranks, steps;
    bench_share all;
    bench_share *rank; /* [ranks]; NULL but on rank 0 */
} bench_work;

/* What limits an operation, so what it is divided by. */
typedef enum bench_limit {
    BENCH_FLOPS, /* multiply-add peak of the threads in use */
    BENCH_BYTES  /* stream bandwidth over as much memory as the operation touches */
} bench_limit;

typedef struct bench_job {
    const char *name;
    int64_t n, pairs;
    int c_in, c_out;
    double flops, bytes; /* of one call */
    double footprint;    /* bytes of memory it touches; 0: bytes */
    bench_limit limit;
    const sp_node *layer;   /* of a step, borrowed; NULL: of none */
    double share;           /* with a layer: of the step's time */
    const bench_work *work; /* of whole steps, borrowed; NULL: not of ranks */
    /* A ceiling of the job's own, in bytes a second, measured by wall time as the job
     * is then; NULL: as `limit` says. */
    sp_status (*ceiling)(void *arg, double *rate);
    sp_status (*run)(void *arg);
    void *arg;
} bench_job;

/* Seconds of one call. spread: quartile distance over median of the clock used. */
typedef struct bench_time {
    double wall_s; /* of a device: between events of its stream */
    double cpu_s;  /* of the calling thread; NAN: unknown */
    double spread;
    bool is_wall; /* the clock that rates are made of */
    int repeats;
    int calls;            /* of one repeat; 0: not told */
    int64_t memory_bytes; /* as sp_backend.h's memory_used; 0: not told */
} bench_time;

/* ---- bench_measure.c ---- */
sp_status bench_open(bench *b, const bench_options *options, sp_comm *comm);
/* What ceilings are measured on, and their rows: the backend that the options name, or
 * a session's, which stays open until bench_device_close. */
sp_status bench_device_open(bench *b, const sp_backend *session);
void bench_device_close(bench *b);
void bench_close(bench *b);
/* Measure a job and print its row. */
sp_status bench_measure(bench *b, const bench_job *job);
/* Print a row of what was measured elsewhere; ceiling in flops or bytes a second, by
 * job->limit; 0: none. SP_ENUMERIC instead of a row whose rate is above the ceiling.
 * Rank 0 only: nothing happens elsewhere. */
sp_status bench_print(bench *b, const bench_job *job, const bench_time *time,
                      double ceiling);
/* A line on a terminal that the next one replaces. Rank 0 only. */
void bench_progress(const bench *b, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
double bench_cpu_s(void);         /* of this thread */
double bench_process_cpu_s(void); /* of all threads */
/* Sorts values; their median and, if not NULL, quartile distance over median. */
double bench_median(double *values, int n, double *spread);

/* ---- bench_ceiling.c ---- */
/* Measures and prints the first rows. */
sp_status bench_ceilings_open(bench *b);
/* Operations a second of the threads in use; bytes a second of a stream of `bytes`. */
sp_status bench_peak(bench *b, double *rate);
sp_status bench_stream(bench *b, double bytes, double *rate);
/* One timing of what limits the job, in flops or bytes a second. */
sp_status bench_ceiling(bench *b, const bench_job *job, double *rate);
/* The rate cannot be: it is further above the ceiling than both are uncertain. */
bool bench_is_above(const bench *b, double rate, double ceiling);
/* While it is, measures the ceiling again, for about half a second at most; *ceiling
 * becomes the best. */
sp_status bench_renew(bench *b, const bench_job *job, double rate, double *ceiling);

/* ---- bench_tensor.c: memory of the backend ---- */
/* Numbers in (-1, 1), no denormals among what is computed of them. */
sp_status bench_take_random(bench *b, sp_arena *arena, int64_t n, float **out);
sp_status bench_take_value(bench *b, sp_arena *arena, int64_t n, float value,
                           float **out);
/* Row i has label i % c. */
sp_status bench_take_labels(bench *b, sp_arena *arena, int64_t n, int c, int32_t **out);
/* [n, c] of random numbers, elements and pitch as the network's activations have
 * them. */
sp_status bench_take_tensor(bench *b, sp_arena *arena, int64_t n, int c, sp_tensor *t);

/* ---- bench_shapes.c ---- */
/* n distinct coordinates [n][3] of a shape: terrain (NULL too), surface, random, lidar.
 * SP_EUSAGE for another, SP_EMEM. */
sp_status bench_shape_make(const char *shape, int64_t n, uint64_t seed,
                           int32_t *coords);

/* ---- bench_voxels.c ---- */
typedef struct bench_voxels {
    int32_t n;
    int32_t *coords; /* [n][3] */
    int32_t sample_row[2];
} bench_voxels;

/* The sample of --shard (n: ignored), or n voxels of --shape. */
sp_status bench_voxels_make(const bench_options *options, int64_t n, bench_voxels *v);
void bench_voxels_free(bench_voxels *v);
/* A shard of n_samples places of the terrain, in a temporary folder that the caller
 * removes: its path is written to path [BENCH_PATH]. */
sp_status bench_shard_make(int64_t n, int n_samples, char *path);
void bench_shard_remove(const char *path);

/* ---- bench_reduce.c, bench_sums.c ---- */
/* Sums of a batch norm's size over the ranks' devices. Collective. */
sp_status bench_sums(bench *b);
/* One all-reduce of n floats over all ranks, the slowest rank's time. Collective. */
sp_status bench_reduce_time(bench *b, float *data, int64_t n, bench_time *time);

/* ---- the commands; all but reduce and model run on one rank ---- */
sp_status bench_ops(bench *b);
sp_status bench_plan(bench *b);
sp_status bench_step(bench *b);
sp_status bench_io(bench *b);
sp_status bench_voxels_write(bench *b);
sp_status bench_reduce(bench *b);
sp_status bench_model(bench *b);
/* ---- bench_rows.c: what works on rows of c channels; called by bench_ops ---- */
sp_status bench_rows(bench *b, sp_arena *arena, const bench_voxels *v, int c);

/* ---- bench_step.c: a training setup of a deck, as sptrain makes it ---- */
typedef struct bench_training {
    sp_session session;
    sp_sampler sampler;
    sp_loader *loader;
    sp_buckets buckets;
    sp_optim optim;
    bool is_split; /* wait for the device between the parts of a step, which then lose
                    * what they overlap */
} bench_training;

/* Seconds of the parts of one step. */
typedef struct bench_parts {
    double wait, forward, loss, backward, reduce, update, all;
    double cpu, process_cpu; /* of the training thread, of all threads */
    double plan, read;       /* of the planner's thread */
    double flops;            /* of the convolutions, forward and both gradients */
    double n, pairs, n_samples, cost; /* pairs: of all maps of the plan */
    double imbalance;
    double cost_max, cost_sum; /* of the ranks */
    double waited;             /* for other ranks */
} bench_parts;

/* ---- bench_work.c ---- */
/* The work of n steps on all ranks. Collective, agreed; SP_EDATA where a rank had a
 * step without a voxel. To be freed in any case. */
sp_status bench_work_count(sp_session *session, const bench_parts *step, int n,
                           bench_work *w);
void bench_work_free(bench_work *w);
/* Rank 0: one line; members of the object that is open. */
void bench_work_print(FILE *to, const bench_work *w);
void bench_work_json(sp_json *json, const bench_work *w);

sp_status bench_training_open(bench *b, bench_training *t);
/* One whole step. Collective. */
sp_status bench_training_step(bench_training *t, bench_parts *parts);
/* Frees all; reports a failure. Returns rc. */
sp_status bench_training_close(bench *b, bench_training *t, sp_status rc);

/* ---- bench_layers.c: the operations of a step; one session at a time ---- */
/* From here on the session's operations can be timed; before its loader begins. */
void bench_layers_attach(bench *b, sp_session *session);
/* So many steps, at most BENCH_STEPS, each operation timed. Collective. */
sp_status bench_layers_run(bench_training *t, int n_steps);
/* A row for each layer and operation, and one of their sum; step_s: what shares are
 * of. */
sp_status bench_layers_print(bench *b, const sp_graph *graph, double step_s);
void bench_layers_free(void);

#endif
