/* The run's configuration: one table of keys (sp_deck_keys.c), read from a libconfig
 * deck and the command line.
 *
 *     defaults -> deck file (with @include) -> SECTION.KEY=VALUE overrides -> sp_config
 *                                                                                |
 *     rank 0       sp_config_read             sp_config_to_text <----------------+
 *                                                   | sp_config_bcast
 *     other ranks  sp_config_parse  <-- text <------+
 *     checkpoint   the same text; a restart reads the run's config from it
 *
 * Every message names file, line and the nearest valid name. Functions are local unless
 * marked collective: rank 0 reads the files, and the others parse the resolved text, so
 * no other rank opens a deck.
 */
#ifndef SP_DECK_H
#define SP_DECK_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/sp_error.h"
#include "comm/sp_comm.h"
#include "deck/sp_choice.h"

enum {
    SP_NAME = 64,
    SP_MAX_KEYS = 160, /* room for the table of keys */
    /* entries of net.layers; each name is compared with all before it */
    SP_MAX_LAYERS = 10000,
    SP_MAX_ELASTIC = 4 /* pairs of augment.elastic */
};

typedef struct sp_strings {
    int n;
    char **at;
} sp_strings;

typedef struct sp_doubles {
    int n;
    double *at;
} sp_doubles;

/* One entry of net.layers as the deck has it. A count or a flag that is absent is -1, a
 * number that is absent is NAN. */
typedef struct sp_layer {
    char name[SP_NAME], op[24];
    sp_strings from;
    int out, kernel, stride, bias;
    int coordinates; /* an sp_coordinates */
    double p, slope;
    double eps, momentum; /* of a batch norm */
    char *file;           /* file of the entry, for messages; NULL: a family made it */
    int line;
} sp_layer;

extern const sp_layer sp_layer_plain; /* no field is given */

/* train.class_weights: a word, or a weight for each class. */
typedef struct sp_class_weighting {
    sp_class_weights kind;
    sp_doubles list; /* of SP_CW_LIST */
} sp_class_weighting;

/* train.loss: the weight of each term, by sp_loss_kind; 0: not in the loss. */
typedef struct sp_loss_mix {
    double weight[SP_N_LOSSES];
} sp_loss_mix;

/* run.resume: a word, or the path of a checkpoint. */
typedef struct sp_resume {
    char *text; /* as the deck has it: with SP_RESUME_FILE the path */
    sp_resume_from from;
} sp_resume;

/* The values of the keys: the key section.key of `sptrain --keys`, which states unit
 * and range, is the field .section.key here. Choices are enums of deck/sp_choice.h. */
typedef struct sp_config {
    struct {
        sp_strings train, val, test, features;
        sp_strings val_sets; /* each "NAME=FILES"; the names differ */
        int folds, fold; /* folds below 2: data.val is evaluated */
        double voxel_size;
        bool normalize, verify;
        int readers, planners;
        sp_on_error on_error;
    } data;
    struct {
        bool flip, rotate_z;
        double rotate_max, rotate_p, tilt, tilt_p;
        sp_doubles scale; /* lower and upper bound; empty: no scaling */
        double shift;
        sp_doubles elastic; /* pairs of granularity and magnitude */
        double elastic_p, noise, noise_clip, drop, drop_p, jitter;
        sp_mixing mix;
        double mix_p;
        sp_strings mix_classes; /* names or numbers */
        sp_doubles mix_bands, mix_inclination, mix_sensor;
        sp_doubles range; /* lower, then upper corner; empty: no bound */
        sp_crop_shape crop;
        sp_doubles crop_size;
        int64_t crop_voxels; /* 0: no bound */
        double crop_p;
        char *paste; /* path of a bank of objects; "": nothing is pasted */
        double paste_p;
        sp_strings paste_classes; /* names or numbers; empty: all of the bank */
        int paste_count;
        int64_t paste_voxels;
        sp_strings color_columns; /* names; empty: the usual ones */
        double color_max;         /* 0: found from the data */
        double color_contrast, color_blend, color_shift, color_shift_p;
        double color_jitter, color_jitter_p, color_drop;
    } augment;
    struct {
        int size, eval_size, accumulate;
        sp_per per;
        bool balance;
        int64_t voxel_budget;
    } batch;
    struct {
        bool merge;
        int views;
        sp_doubles range; /* as augment.range */
        sp_strings members;
    } eval;
    struct {
        sp_family family;
        double width;
        int stem_kernel;
        int kernel_down; /* default: the family's own (2; dummy 3) */
        sp_upsample upsample;
        double bn_eps, bn_momentum;
        sp_doubles grid; /* three whole numbers, or empty */
        int n_layers; /* above 0: layers replace the family */
        sp_layer *layers;
    } net;
    struct {
        int epochs;
        int64_t steps;
        sp_optimizer optimizer;
        double lr, momentum, dampening, weight_decay;
        sp_doubles betas; /* two of them */
        double adamw_eps;
        bool nesterov, decay_norm;
        sp_schedule schedule;
        int64_t warmup_steps;
        double warmup_factor, gamma, poly_power, cosine_floor;
        sp_doubles milestones; /* rising */
        double pct_start, div_factor, final_div_factor;
        sp_doubles cycle_momentum; /* lower and upper bound; may be empty */
        sp_lr_scale lr_scale;
        double grad_clip;
        sp_loss_mix loss;
        double focal_gamma;
        sp_lovasz_per lovasz_per;
        sp_class_weighting class_weights;
        double label_smoothing;
        double ema; /* share that the average keeps in each update; 0: no average */
        double average_tail; /* share of the training whose weights are averaged */
        sp_scope bn_scope;
        sp_precision precision;
        sp_bf16_sums bf16_sums;
        bool recompute;
        int64_t seed;
        sp_strings freeze, lr_layers;
        sp_deterministic deterministic;
        int nonfinite_limit;
    } train;
    struct {
        char *dir, *checkpoint, *init_from, *after_save, *log_dir;
        sp_strings init_skip;
        sp_init_norm init_norm;
        sp_weights_use weights;
        sp_resume resume;
        sp_device_kind device;
        sp_transport_kind transport;
        sp_reduce_wire reduce_wire;
        double bucket_mb, memory_mb;
        bool overlap;
        sp_doubles devices; /* whole numbers */
        int threads, eval_every, log_every, checkpoint_every, keep;
        int report_every;
        sp_wgmma_use wgmma;
        bool oversubscribe, logits, rank_logs, tensorboard, pictures;
        sp_progress_when progress;
        double watchdog_s, file_wait_s, time_limit_s;
    } run;
    /* sp_origin of each key: default, deck or command line */
    unsigned char origin[SP_MAX_KEYS];
    /* place of each key: "input/a.deck:12", "command line"; NULL: a default */
    char *place[SP_MAX_KEYS];
} sp_config;

/* Reads the defaults, then the deck (path may be NULL), then the overrides
 * ("section.key=value", the last of several counts) into config. Keys that the network,
 * the schedule or the optimizer does not use are warnings on rank 0. SP_EUSAGE with
 * file, line, key and the nearest valid name. The caller destroys config after a
 * failure too. */
sp_status sp_config_read(sp_config *config, const char *path, int n_overrides,
                         char *const *overrides);
/* The same from a text (a checkpoint's deck attribute), which may not include files and
 * may have an empty run.dir; messages print `name` as the file. */
sp_status sp_config_parse(sp_config *config, const char *text, const char *name,
                          int n_overrides, char *const *overrides);
/* The same, but only each key by itself is checked: others may follow that it needs. */
sp_status sp_config_parse_keys(sp_config *config, const char *text, const char *name,
                               int n_overrides, char *const *overrides);
void sp_config_destroy(sp_config *config);
void sp_layers_destroy(sp_layer *layers, int n);
/* Appends a copy of text. SP_EMEM. */
sp_status sp_strings_add(sp_strings *to, const char *text);
/* Frees the texts and zeroes the list. */
void sp_strings_free(sp_strings *s);

/* Writes every key with its value as a deck that reads back to the same config; *text
 * is malloc'd for the caller. SP_EMEM. */
sp_status sp_config_to_text(const sp_config *config, char **text);
/* Makes *to a copy, with the origins and places of the values. SP_EMEM; the caller
 * destroys it after a failure too. */
sp_status sp_config_copy(sp_config *to, const sp_config *from);
/* Copies the config of rank 0 to all ranks. Collective over the world. On rank 0 `rc`
 * is the result of reading it; a failure is returned on all ranks. */
sp_status sp_config_bcast(sp_config *config, sp_comm *comm, sp_status rc);

/* True if a deck or an override has set the key; if an override has. */
bool sp_config_is_set(const sp_config *config, const char *key);
bool sp_config_is_overridden(const sp_config *config, const char *key);
/* Returns the beginning of a message about the key: "input/a.deck:12: ", "command line:
 * ", or "" for a default. Overwritten by the next call of this thread. */
const char *sp_config_where(const sp_config *config, const char *key);
/* True if the loss is this term with weight 1. */
bool sp_loss_mix_is(const sp_loss_mix *mix, sp_loss_kind kind);
/* Returns the value of a key as text in the form of sp_config_to_text, malloc'd for the
 * caller; NULL for an unknown key. */
char *sp_config_value(const sp_config *config, const char *key);

/* sp_config_key returns key i of sp_config_n_keys() as "section.key"; overwritten by
 * the next call of this thread. */
int sp_config_n_keys(void);
const char *sp_config_key(int i);
/* Keys of a training that matter after it, as lists ended by NULL: keys that must be
 * equal in a continued run and its checkpoint, and keys that eval, predict and label
 * read from a checkpoint's deck. Both are in sp_deck_keys.c, after the table. */
extern const char *const sp_config_kept_by_resume[], *const sp_config_kept_by_model[];
/* Moves the value of a key ("section.key"), or of all keys of a section, from `from` to
 * config, except values that the command line gave to config. The values are exchanged,
 * so `from` holds config's afterwards. */
void sp_config_take(sp_config *config, sp_config *from, const char *path);

/* Prints name, type, default, range, unit and help of every key, for `sptrain --keys`.
 */
void sp_deck_print_keys(FILE *to);

/* Finds the default deck in the working folder, the executable's folder, the source
 * folder or the data folder. SP_EUSAGE, listing the places tried. path holds PATH_MAX
 * bytes. */
sp_status sp_deck_find_default(char *path);

#endif
