/* The points that spvox view draws, with classes, predictions or values, out of a
 * shard, a shard with its predictions, or a raw scan. */
#ifndef VOX_VIEW_H
#define VOX_VIEW_H

#include "report/sp_render.h"
#include "vox/vox_options.h"

typedef enum vox_view_by {
    VOX_BY_DEFAULT, /* the first there is: a named feature, predictions, labels, z */
    VOX_BY_LABELS,
    VOX_BY_PREDICTION,
    VOX_BY_ERROR,
    VOX_BY_FEATURE
} vox_view_by;

/* The parts of the command line that loading needs. The caller frees the map's
 * names. */
typedef struct vox_view_request {
    const char *path, *prediction; /* prediction NULL: not named */
    int64_t sample;                /* number in the file; -1: the first one */
    vox_view_by by;
    const char *feature; /* NULL: z, the height */
    sp_render_from
        from; /* SP_FROM_SENSOR: coordinates must be relative to the sensor */
    const char *columns, *label_field;
    vox_map map;
    int threads;
} vox_view_request;

/* The points in memory. All zero before it is loaded. */
typedef struct vox_view_points {
    int64_t n, capacity;
    float *xyz;          /* [n][3] metre, relative to the first point or the sensor */
    int32_t *label;      /* [n] class or SP_IGNORE; NULL: not asked for, or no labels */
    int32_t *prediction; /* [n] the same, or NULL */
    float *value;        /* [n] the feature; NULL: not asked for */
    double cell;         /* edge of a voxel in metre; 0: points of a scan */
    int n_classes;
    char **class_name; /* [n_classes] */
    /* [n_classes] index of each class's colour in the palette, -1: as points without a
     * class; NULL: the class's number */
    int *class_colour;
    char *sample_name; /* "sample 3 (tile.las[0,1])"; "" for a scan */
    const char *unit;  /* "voxels", "points" */
    vox_view_by by;    /* VOX_BY_DEFAULT has become one of the others */
} vox_view_points;

/* Loads a sample of a shard, with its predictions if they are named. Local. SP_EUSAGE:
 * the file has no such sample, feature, labels or predictions; SP_EDATA; SP_EIO;
 * SP_EMEM. Destroy after a failure too. */
sp_status vox_view_load_shard(vox_view_points *points, const vox_view_request *request);
/* Loads a scan. Codes become classes by the map; without one each code that occurs is a
 * class. */
sp_status vox_view_load_scan(vox_view_points *points, const vox_view_request *request);
void vox_view_destroy(vox_view_points *points);

#endif
