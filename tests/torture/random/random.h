/* The tester of random runs. A case is a data set, a deck and some ways of running it,
 * drawn from (seed, index) alone; each way must give what the plain run gave.
 *
 *     draw ---> shards (random_shards.c)  --+
 *         \---> deck   (random_deck.c)    --+--> runs (random_run.c) --> results
 *          \--> ways   (random_ways.c) <----+          (random_read.c)
 *                 |
 *                 fault --> smaller (random_shrink.c) --> kept with its command
 *
 * Every draw has a name, and its choice 0 is the plain one. Where only some names are
 * taken, all other draws are plain and these are as they were: so a failing case is
 * made smaller, and so a smaller case has a command line.
 */
#ifndef RANDOM_H
#define RANDOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "fixtures/closed_by.h"

enum {
    MOST_DRAWS = 2048,
    MOST_SAMPLES = 16,
    MOST_SHARDS = 4,
    MOST_COLUMNS = 6,
    NAME_SIZE = 40,
    PATH_SIZE = 512,
    DECK_SIZE = 16384
};

/* The ways in which a run is repeated and compared; README names them. */
#define RANDOM_WAYS "abcdefghi"
enum { N_WAYS = 9 };

/* ---- programs and limits, from the command line ---- */

typedef struct rnd_options {
    const char *sptrain, *emulated; /* absolute paths; emulated NULL: not built */
    const char *mpiexec;
    const char *work, *keep; /* folders: of the running cases, of the failing ones */
    const char *ways;        /* only these; NULL: as drawn */
    const char *takes;       /* draws by name; NULL: all */
    int64_t seed, first, only, runs, jobs, limit_s;
    int64_t until;   /* faults, then no more cases begin; 0: all */
    int64_t seconds; /* after which no more cases begin; 0: all */
    int64_t is_shrinking, is_listing;
    const char *bits; /* file for checksums; NULL: none */
} rnd_options;

/* ---- a case ---- */

/* How a dataset is stored. */
typedef struct rnd_type {
    char kind; /* i, u, f */
    int size;  /* bytes */
    bool is_big_endian;
    int layout; /* rnd_layout */
} rnd_type;

typedef enum rnd_layout {
    LAYOUT_CONTIGUOUS,
    LAYOUT_CHUNKED,
    LAYOUT_GZIP,
    LAYOUT_SHUFFLED, /* and gzip */
    LAYOUT_COMPACT,
    N_LAYOUTS
} rnd_layout;

/* Values of features: each kind fits the types that it is stored in. */
typedef enum rnd_values {
    VALUES_FRACTIONS, /* multiples of 1/64 below 4: float16, float32, float64 */
    VALUES_INTEGERS,  /* 0 .. 100: any type */
    VALUES_ROUNDED    /* float64 that float32 does not hold exactly */
} rnd_values;

/* One of the case's two data sets. */
typedef struct rnd_set {
    const char *name; /* "train", "val" */
    int n_samples, n_shards;
    int first[MOST_SHARDS + 1]; /* sample; shard i has first[i] .. first[i+1]-1 */
    int64_t n[MOST_SAMPLES];    /* voxels */
    bool has_labels, has_points, has_subvoxel, has_moments;
} rnd_set;

/* A sample's values, before they are stored. */
typedef struct rnd_cloud {
    int64_t n, n_points;
    int64_t *coords;                                   /* [n,3] */
    double *features;                                  /* [n, n_features] */
    int64_t *labels;                                   /* [n] */
    int64_t *subvoxel;                                 /* [n,3] */
    int64_t *point_voxel, *point_labels, *point_index; /* [n_points] */
    double origin[3];
} rnd_cloud;

typedef struct rnd_draw {
    char name[NAME_SIZE];
    bool is_plain;
} rnd_draw;

typedef struct rnd_case {
    const rnd_options *options;
    uint64_t seed;
    int64_t index;
    const char *takes; /* names separated by commas: others are plain; NULL: all */
    const char *plain; /* names that are plain; NULL: none */
    int n_draws;
    rnd_draw draw[MOST_DRAWS]; /* those that were made */
    /* shards */
    int n_classes, n_features, ignore_label;
    int n_inputs; /* columns that the network reads */
    int color;    /* a column among them */
    double voxel_size;
    int feature_kind; /* rnd_values */
    rnd_set train, val;
    /* deck */
    char deck[DECK_SIZE];
    int ranks;
    bool is_world, is_off, is_coarse; /* deterministic = world, off; merged voxels */
    bool is_ranged;   /* eval.range leaves voxels out */
    bool is_rankless; /* the numbers do not depend on how many ranks there are */
    bool has_eval, has_init;
    bool has_bank; /* augment.paste = "bank.h5", made of the training's own shards */
    /* running */
    char folder[PATH_SIZE]; /* shards, case.deck and the runs' folders are here */
    char ways[N_WAYS + 1];
    int code;         /* of the plain run */
    long rss_kib;     /* of the plain run, where it had one rank */
    char way;         /* that found the fault, 0: none did */
    char fault[1024]; /* what it found */
} rnd_case;

/* ---- random_draw.c ---- */

/* Draws 0 .. n-1 by the case and the name; 0 where the name is not taken. */
int rnd_pick(rnd_case *c, int n, const char *name, ...)
    __attribute__((format(printf, 3, 4)));
/* Draws true in so many of a hundred cases; false where the name is not taken. */
bool rnd_chance(rnd_case *c, int percent, const char *name, ...)
    __attribute__((format(printf, 3, 4)));
/* Appends to a text of this size at most. */
void rnd_append(char *text, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The value of a variable of the environment, `plain` where it is empty or not set. */
const char *rnd_environment(const char *name, const char *plain);
/* Seeds a stream for values, whatever names are taken. */
uint64_t rnd_stream(const rnd_case *c, const char *name, int number);
int rnd_below(uint64_t *stream, int n);
/* Gives the way that this case is drawn for; others are added where they suit. */
char rnd_first_way(const rnd_case *c);
/* Sets way and fault unless a fault is there already; returns false. */
bool rnd_fault(rnd_case *c, char way, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- random_cloud.c ---- */
void rnd_data_draw(rnd_case *c);
void rnd_cloud_make(const rnd_case *c, const rnd_set *set, int sample,
                    rnd_cloud *cloud);
/* A sample of n voxels, whose values are 0, and as many points as it may have. */
rnd_cloud rnd_cloud_room(const rnd_case *c, int64_t n);
void rnd_cloud_free(rnd_cloud *cloud);
/* Counts voxels at strides 1, 2, 4, 8, 16 and pairs of a kernel of 3. */
void rnd_cloud_cost(const rnd_cloud *cloud, int64_t cost[6]);

/* ---- random_shards.c ---- */
/* The name of a shard's file; malloc'd. */
char *rnd_shard_name(rnd_case *c, const rnd_set *set, int number);
/* Writes both sets; is_plain: the same values in the types and the layout that spvox
 * writes, in the folder "plain". False and a fault where HDF5 fails. */
bool rnd_shards_write(rnd_case *c, bool is_plain);

/* ---- random_deck.c, random_layers.c, random_wild.c ---- */
/* Draws the whole case; takes and plain are borrowed. */
void rnd_case_draw(rnd_case *c, const rnd_options *options, int64_t index,
                   const char *takes, const char *plain);
/* Appends the value of net.layers for n_inputs and n_classes. */
void rnd_layers_draw(rnd_case *c, char *text, size_t size);
void rnd_wild_draw(rnd_case *c, char *text, size_t size);
/* The same of a case that is nothing but its network. */
void rnd_net_draw(rnd_case *c, uint64_t seed, int64_t index, int n_inputs,
                  int n_classes, char *text, size_t size);
/* Writes the value of data.train or data.val for the files in `folder`. */
void rnd_deck_files(rnd_case *c, const rnd_set *set, const char *folder, char *text,
                    size_t size);

/* ---- random_run.c ---- */
typedef struct rnd_result {
    int code; /* exit status; 128 + signal */
    bool is_hung;
    long rss_kib; /* of the process started: of sptrain where ranks is 0 */
} rnd_result;

enum { ON_DEVICE = -1, WITHOUT_LAUNCHER = 0 }; /* in place of a number of ranks */

/* Runs a command of sptrain on the case's deck in run folder `dir`, with the overrides
 * in `more`, separated by blanks. A training begins with the case's weights. `fault` is
 * SP_TEST_FAULT, NULL: none. What it prints is in DIR.out. */
rnd_result rnd_run(const rnd_case *c, int ranks, const char *verb, const char *dir,
                   const char *fault, const char *more);
/* A path below the case's folder; malloc'd. */
char *rnd_path(const rnd_case *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void rnd_remove(const char *path);
bool rnd_make_folder(const char *path);

/* Makes the case's bank, if it has one, by the spvox beside sptrain. Data that are
 * refused give no bank, and the training is refused as well. */
bool rnd_bank_make(rnd_case *c);

/* ---- random_read.c ---- */
typedef struct rnd_eval {
    long long step, samples, voxels;
    double loss;     /* NAN: null */
    char *confusion; /* text; malloc'd */
    char *points;    /* text, "" without points; malloc'd */
    char *merged,
        *merged_points; /* the same of the mean of several views, else of one */
} rnd_eval;

typedef struct rnd_step {
    double loss, grad_norm; /* NAN: null */
    long long voxels, samples;
} rnd_step;

/* Reads a whole file and puts a zero byte behind it; NULL: there is none. */
char *rnd_read_file(const char *path, size_t *bytes);
/* Makes a line of each step line (step, samples, voxels, loss, lr, grad_norm) and of
 * each eval line (all but times); malloc'd. */
char *rnd_steps(const rnd_case *c, const char *dir);
char *rnd_evals(const rnd_case *c, const char *dir);
/* Reads one step line; false: there is none. */
bool rnd_step_of(const rnd_case *c, const char *dir, long long step, rnd_step *out);
/* Reads the last evaluation in the folder, whichever file of lines has it. */
bool rnd_last_eval(const rnd_case *c, const char *dir, rnd_eval *eval);
void rnd_eval_free(rnd_eval *eval);
/* Returns the step of the newest checkpoint, -1: none. nth: of the nth newest. */
long long rnd_checkpoint(const rnd_case *c, const char *dir, int nth);
/* Hashes params, buffers and optimizer state of a checkpoint ("best.h5" or a step's)
 * into *arrays, and the counters in its attributes into *counters. False: no file. */
bool rnd_checkpoint_hash(const rnd_case *c, const char *dir, long long step,
                         uint64_t *arrays, uint64_t *counters);
/* The path of the predictions for a shard of `val`; malloc'd. */
char *rnd_predictions(rnd_case *c, const char *dir, int shard);
/* Hashes the datasets of all files of predictions. */
bool rnd_predictions_hash(rnd_case *c, const char *dir, uint64_t *hash);
uint64_t rnd_hash(uint64_t hash, const void *data, size_t bytes);

/* ---- random_predict.c ---- */
/* Checks that labels are the arg max of the logits; gives the confusion matrix counted
 * from them, as text in *confusion and of points in *points, where the set has
 * labels. */
bool rnd_predictions_check(rnd_case *c, char way, const char *dir, char **confusion,
                           char **points);

/* ---- random_ways.c ---- */
/* Draws and runs a case in its folder. False: a fault. */
bool rnd_case_run(rnd_case *c);
/* Writes one line of checksums of the case. */
bool rnd_case_bits(rnd_case *c, char *line, size_t size);

/* ---- random_shrink.c ---- */
/* Finds the names of the draws that matter for the fault, in *takes; malloc'd. */
void rnd_shrink(const rnd_case *failed, char **takes);

#endif
