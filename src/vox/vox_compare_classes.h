/* The classes of a file, and positions if it has them, read a block at a time. */
#ifndef VOX_COMPARE_CLASSES_H
#define VOX_COMPARE_CLASSES_H

#include "scan/sp_scan.h"
#include "vox/vox_compare.h"

/* A file that gives the class of each point: a scan, or a list of classes without
 * positions (.label of SemanticKITTI, an array of one dimension in .npy). */
typedef struct vox_class_file {
    const char *path;
    sp_scan *scan; /* NULL: a list */
    sp_scan_points points;
    int64_t n_list; /* of a list */
    int32_t *list;  /* [n_list] */
    int64_t at;     /* next row of the list */
    double step[3];
    bool is_float[3];
} vox_class_file;

/* Opens a file; label_field NULL: the options' own. The path and the options are
 * borrowed. SP_EDATA: it has no classes, or is damaged; errors of sp_scan_open. Close
 * after a failure too. */
sp_status vox_classes_open(vox_class_file *f, const char *path,
                           const vox_compare_options *o, const char *label_field);
void vox_classes_close(vox_class_file *f);
/* Goes back to the first point. Errors of sp_scan_rewind. */
sp_status vox_classes_rewind(vox_class_file *f);
/* Gives the next classes [n], at most 65535, negative if a point has none, and
 * positions [n][3] in metre, NULL of a list. Both are valid until the next call; *n is 0
 * at the end. SP_EDATA: a class is too large; errors of reading. */
sp_status vox_classes_next(vox_class_file *f, int64_t *n, const int32_t **code,
                           const double **xyz);

#endif
