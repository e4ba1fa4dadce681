/* The run's configuration: one table of keys, read from a libconfig deck and the
 * command line.
 *
 *     defaults -> deck file (with @include) -> SECTION.KEY=VALUE overrides -> sp_config
 *
 * Every message names file, line and the nearest valid name. Local; rank 0 reads, the
 * others receive the resolved text (sp_config_to_text) and parse that.
 */
#ifndef SP_DECK_H
#define SP_DECK_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/sp_error.h"
#include "comm/sp_comm.h"

enum {
    SP_NAME = 64,
    SP_MAX_KEYS = 96,     /* room for the table of keys */
    SP_MAX_LAYERS = 10000 /* of net.layers: each name is compared with all before it */
};

typedef struct sp_strings {
    int n;
    char **at;
} sp_strings;

typedef struct sp_doubles {
    int n;
    double *at;
} sp_doubles;

/* One entry of net.layers as written; absent numbers are -1, absent p and slope NAN. */
typedef struct sp_layer {
    char name[SP_NAME], op[24];
    sp_strings from;
    int out, kernel, stride, bias;
    double p, slope;
    char *file; /* where the deck has it, for messages; NULL: made by a family */
    int line;
} sp_layer;

typedef enum sp_per { SP_PER_WORLD, SP_PER_NODE, SP_PER_RANK } sp_per;
typedef enum sp_optimizer { SP_SGD, SP_ADAMW } sp_optimizer;
typedef enum sp_schedule {
    SP_CONSTANT,
    SP_STEP,
    SP_POLY,
    SP_COSINE,
    SP_ONECYCLE
} sp_schedule;
typedef enum sp_lr_scale { SP_LR_NONE, SP_LR_LINEAR, SP_LR_SQRT } sp_lr_scale;
typedef enum sp_class_weights {
    SP_CW_NONE,
    SP_CW_INVERSE,
    SP_CW_SQRT_INVERSE,
    SP_CW_LIST
} sp_class_weights;
typedef enum sp_deterministic { SP_DET_RUN, SP_DET_WORLD, SP_DET_OFF } sp_deterministic;

/* Field by field the keys of `sptrain --keys`; section.key is .section.key here. */
typedef struct sp_config {
    struct {
        sp_strings train, val, features;
        double voxel_size;
        bool normalize, verify;
        int readers;
        char *on_error; /* "stop" | "skip" */
    } data;
    struct {
        bool flip, rotate_z;
        sp_doubles scale; /* lo, hi; empty: none */
        double drop, jitter;
    } augment;
    struct {
        int size, eval_size, accumulate;
        int per; /* sp_per */
        bool balance;
        int64_t voxel_budget;
    } batch;
    struct {
        char *family;
        double width;
        int stem_kernel;
        int kernel_down; /* the family's own where the deck has none (2; dummy 3) */
        int n_layers;    /* > 0: layers replace the family */
        sp_layer *layers;
    } net;
    struct {
        int epochs;
        int64_t steps;
        int optimizer; /* sp_optimizer */
        double lr, momentum, weight_decay;
        bool nesterov, decay_norm;
        int schedule; /* sp_schedule */
        int64_t warmup_steps;
        int lr_scale; /* sp_lr_scale */
        double grad_clip;
        char *loss;        /* "cross_entropy" */
        int class_weights; /* sp_class_weights */
        sp_doubles class_weight_list;
        double label_smoothing;
        int bn_scope;    /* sp_scope */
        char *precision; /* "fp32" | "tf32" | "bf16" */
        int64_t seed;
        int deterministic; /* sp_deterministic */
        int nonfinite_limit;
    } train;
    struct {
        char *dir, *device, *resume, *checkpoint, *init_from, *after_save;
        char *transport, *reduce_wire; /* "auto" | "nccl" | "mpi"; "fp32" | "bf16" */
        double bucket_mb, memory_mb;
        bool overlap;
        sp_doubles devices; /* whole numbers */
        int threads, eval_every, log_every, checkpoint_every, keep;
        bool oversubscribe, wgmma, logits, rank_logs;
        double watchdog_s, time_limit_s;
    } run;
    unsigned char origin[SP_MAX_KEYS]; /* of each key: default, deck, command line */
    char *place[SP_MAX_KEYS]; /* "input/a.deck:12", "command line"; NULL: a default */
} sp_config;

/* Defaults, then the deck (path NULL: defaults only), then overrides
 * ("section.key=value", the last of several counts). A key that the network does not
 * use is one warning on rank 0. SP_EUSAGE names file, line, key and the nearest valid
 * name; config may be destroyed then too. */
sp_status sp_config_read(sp_config *config, const char *path, int n_overrides,
                         char *const *overrides);
/* The same from a text (a checkpoint's deck attribute), which includes no files and may
 * have an empty run.dir; name is used in messages. */
sp_status sp_config_parse(sp_config *config, const char *text, const char *name,
                          int n_overrides, char *const *overrides);
void sp_config_destroy(sp_config *config);
void sp_layers_destroy(sp_layer *layers, int n);

/* Every key with its value as a deck that reads back to the same config; malloc'd. */
sp_status sp_config_to_text(const sp_config *config, char **text);
/* Collective: the config of rank 0 on all ranks. On rank 0 `rc` is the result of
 * reading it; a failure is agreed. */
sp_status sp_config_bcast(sp_config *config, sp_comm *comm, sp_status rc);

/* True if the key was set by a deck or an override rather than a default. */
bool sp_config_is_set(const sp_config *config, const char *key);
/* "input/a.deck:12: " or "command line: ", the beginning of a message about the key;
 * "" for a default. Overwritten by the next call of this thread. */
const char *sp_config_where(const sp_config *config, const char *key);
/* Value of a key as text, as to_text writes it; malloc'd, NULL for an unknown key. */
char *sp_config_value(const sp_config *config, const char *key);

/* Key i of sp_config_n_keys() as "section.key"; overwritten by the next call of this
 * thread. */
int sp_config_n_keys(void);
const char *sp_config_key(int i);
/* Exchange the values of a key, or of all keys of a section, except those of config
 * that the command line gave: config then has from's. */
void sp_config_take(sp_config *config, sp_config *from, const char *path);

/* `sptrain --keys`: name, type, default, range, unit and help of every key. */
void sp_deck_print_keys(FILE *to);

/* How far two names are from each other, case ignored: messages name the nearest. Edit
 * distance, but 1 where one is the beginning of the other: who writes "voxel" means
 * "voxel_size", however many letters are left out. */
int sp_deck_distance(const char *a, const char *b);

/* Where the default deck is: working folder, executable's folder, source folder, data
 * folder. SP_EUSAGE listing the places tried. path must hold PATH_MAX bytes. */
sp_status sp_deck_find_default(char *path);

#endif
