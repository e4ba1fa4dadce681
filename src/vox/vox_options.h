/* Options of spvox convert and apply: one table of names, the nearest one named where
 * an option is misspelt; the map from source codes to classes; the list of features. */
#ifndef VOX_OPTIONS_H
#define VOX_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/sp_error.h"

enum {
    VOX_MAX_FEATURES = 64,
    VOX_MAX_CODE = 65535,  /* of a source, in --map */
    VOX_MAX_CLASSES = 255, /* 255 itself is the ignore label */
    VOX_IGNORE_LABEL = 255
};

typedef enum vox_feature_kind {
    VOX_ATTRIBUTE, /* of the source, by name */
    VOX_ONE,
    VOX_HEIGHT, /* metre above the 2nd percentile of z in the sample */
    VOX_COUNT   /* points in the voxel */
} vox_feature_kind;

typedef struct vox_feature {
    vox_feature_kind kind;
    char name[64];
    double divisor;
} vox_feature;

/* "2=ground,3:4:5=vegetation": classes in the order named. */
typedef struct vox_map {
    int n; /* classes; 0: no map was given */
    char *name[VOX_MAX_CLASSES];
    int first_code[VOX_MAX_CLASSES];
    int16_t class_of[VOX_MAX_CODE + 1]; /* -1: ignored */
} vox_map;

typedef struct vox_options {
    bool is_help;
    const char *out, *columns, *label_field;
    int shards;
    double voxel_size, block, overlap; /* metre; block 0: a file is a sample */
    bool has_bounds, with_points, ignore_conflicts;
    double bounds[4]; /* x0 y0 x1 y1, x1 and y1 excluded */
    int n_features;   /* 0: not given */
    vox_feature feature[VOX_MAX_FEATURES];
    vox_map map;
    int n_inputs;
    char **input; /* of argv */
} vox_options;

/* argv[0] is the command's name; `names` are the options that this command takes,
 * divided by blanks. SP_EUSAGE. Destroy after failure too. */
sp_status vox_options_read(vox_options *options, int argc, char **argv,
                           const char *names);
void vox_options_destroy(vox_options *options);
sp_status vox_features_read(vox_options *options, const char *list);

#endif
