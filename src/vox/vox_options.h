/* Options of spvox convert and apply: one reader for the options of both, which
 * suggests the nearest name for a misspelt one; the map from source codes to classes;
 * the list of features. */
#ifndef VOX_OPTIONS_H
#define VOX_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/sp_word_table.h"
#include "scan/sp_scan.h"

enum {
    VOX_MAX_FEATURES = 64,
    VOX_MAX_CODE = 65535,  /* largest code of a source in --map */
    VOX_MAX_CLASSES = 255, /* 255 itself is the ignore label */
    VOX_IGNORE_LABEL = 255
};

typedef enum vox_feature_kind {
    VOX_ATTRIBUTE, /* an attribute of the source, found by name */
    VOX_ONE,       /* the constant 1 */
    VOX_HEIGHT,    /* metre above the 2nd percentile of z in the sample */
    VOX_COUNT,     /* number of points in the voxel */
    VOX_AGE        /* with sweeps: how many scans before the current one */
} vox_feature_kind;

/* One feature column: value / divisor. */
typedef struct vox_feature {
    vox_feature_kind kind;
    char name[64];
    double divisor;
} vox_feature;

/* The classes of --map, in the order named: "2=ground,3:4:5=vegetation", or the lines
 * of a file. */
typedef struct vox_map {
    int n; /* number of classes; 0: no map was given */
    char *name[VOX_MAX_CLASSES];
    /* The first code of each class, which spvox apply writes. */
    int first_code[VOX_MAX_CLASSES];
    int16_t class_of[VOX_MAX_CODE + 1]; /* class of each code; -1: ignored */
} vox_map;

/* The extent of an input's points in x and y; low above high: it has no point. */
typedef struct vox_extent {
    double low[2], high[2];
} vox_extent;

/* True if the extents are at most `buffer` apart, in x and in y. */
static inline bool vox_extent_is_near(const vox_extent *a, const vox_extent *b,
                                      double buffer)
{
    for (int k = 0; k < 2; k++)
        if (!(a->low[k] - buffer <= b->high[k] && b->low[k] <= a->high[k] + buffer))
            return false;
    return true;
}

/* The options as given; others have their defaults. */
typedef struct vox_options {
    const char *out, *columns, *label_field;
    int64_t shards;
    double voxel_size, block, overlap; /* metre; block 0: each file is one sample */
    /* Above 0: points of the other inputs within this many metres of an input's points
     * are in its blocks too (vox_spill.h), found by extent [n_inputs]; borrowed. */
    double buffer;
    const vox_extent *extent;
    const char *rims;  /* prefix of temporary files (vox_rim.h); NULL: not wanted */
    int64_t alignment; /* of blocks, in voxels, above 0 (sp_recipe.alignment) */
    bool has_bounds, with_points;
    /* --poses and --sweeps: each sample is a scan with the n_sweeps - 1 scans before it
     * in its frame. poses NULL, sweeps NULL: each scan by itself. */
    const char *poses;
    int64_t n_sweeps;
    bool with_sweep_labels;    /* the earlier scans' labels count in voxels too */
    struct vox_sweeps *sweeps; /* the table of poses; borrowed */
    int ignore_conflicts;      /* 0: the majority's label; 1: no label */
    double bounds[4];          /* x0 y0 x1 y1, x1 and y1 excluded */
    /* Points within the bounds are seen as in the whole scan: in its blocks, as its
     * header has them. Rows outside of the blocks that such points are in, margins
     * included, are context, and count as rows without a point. */
    bool is_window;
    bool has_missing; /* `missing` replaces attributes that are not finite */
    double missing;
    int n_features; /* 0: --features was not given */
    vox_feature feature[VOX_MAX_FEATURES];
    /* The attribute left out because the first file, which decides the default
     * features, does not have it; NULL if nothing is left out. */
    const char *left_out;
    vox_map map;
    int n_inputs;
    char **input;     /* pointers into argv, and into list_text */
    const char *list; /* --list: a file of further inputs; NULL: not given */
    char *list_text;  /* its text, and the inputs of both, malloc'd; or NULL */
    char **list_input;
    int threads;             /* of this rank that read and write compressed scans */
    bool with_degrees;       /* coordinates in degree are accepted */
    int z_unit;              /* sp_scan_z_unit; below 0: not given */
    bool is_quiet;           /* reading draws no progress of its own */
    bool without_cost;       /* samples need no cost columns (scan/sp_gridding.h) */
    const bool *is_given_up; /* reading ends once it is true, set by __atomic_store_n in
                              * another thread; NULL: a request to stop ends it */
} vox_options;

/* Reads the command line. argv[0] is the command's name, `table` has the options that
 * it accepts (sp_option). SP_EUSAGE; SP_EMEM. Destroy after failure too. */
sp_status vox_options_read(vox_options *options, int argc, char **argv,
                           sp_word_table table);
/* Adds the lines of --list to the inputs. SP_EUSAGE: it cannot be read, or is empty;
 * SP_EMEM. */
sp_status vox_options_read_list(vox_options *options);
/* Warns of files that the inputs name twice, by the same or other paths. SP_EMEM. */
sp_status vox_options_check_inputs(const vox_options *options);
/* Checks the options of sweeps, and makes the column age theirs. SP_EUSAGE. */
sp_status vox_options_check_sweeps(vox_options *options);
void vox_options_destroy(vox_options *options);
/* Destroys and frees the options of a variable, for SP_CLOSED_BY; NULL does nothing. */
void vox_options_free(vox_options **options);
/* A status but SP_OK if the work is to end: SP_ELIMIT (sp_signal_check), or SP_EIO if
 * it is given up. Any thread. */
sp_status vox_options_check_stop(const vox_options *options);
/* The options to open inputs with; their texts are borrowed. */
sp_scan_options vox_scan_options(const vox_options *options);
/* Reads --missing into vox_options, for tables of options. SP_EUSAGE. */
sp_status vox_read_missing(void *to, const sp_option *option, const char *text);
/* Reads --bounds or --window into vox_options, for tables of options. SP_EUSAGE: these are
 * not four finite numbers in their order. */
sp_status vox_read_bounds(void *to, const sp_option *option, const char *text);
/* Reads --map, a list or @FILE, into a vox_map, for tables of options. SP_EUSAGE,
 * SP_EMEM. */
sp_status vox_read_map(void *to, const sp_option *option, const char *text);
/* The kind of the feature that --features or a recipe names so. */
vox_feature_kind vox_feature_kind_of(const char *name);
/* Takes the code to write for each class [n_classes], the first one of its entry, from
 * the map. Classes are matched by name, or by number if class_name is NULL. SP_EUSAGE:
 * the map lacks a class that `where` has. */
sp_status vox_codes_of_map(const vox_map *map, const char *where, int n_classes,
                           char *const *class_name, int32_t *code);
/* Reads the code to write for each class, the first of "3:4:5". `where` begins the
 * message. SP_EDATA. */
sp_status vox_first_codes(const char *where, int n_classes, char *const *class_code,
                          int32_t *code);
/* Reads --features into vox_options, for tables of options. SP_EUSAGE. */
sp_status vox_read_features(void *to, const sp_option *option, const char *list);

#endif
