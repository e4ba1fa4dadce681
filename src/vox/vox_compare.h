/* spvox compare: classes of the same points in two scans, or in two folders of scans.
 *
 *     paths A, B --vox_compare_list--> pairs of files      (rank 0, for all ranks)
 *     pair  --vox_compare_pair--> counts of (code of A, code of B), a rank per file
 *     counts of all ranks --vox_score_of--> confusion, IoU, precision, recall, F1, kappa
 *                                           of a file, and of all
 *
 * A is the truth. Points are matched by their order if all coordinates agree, else by
 * position or by a field, as asked for. */
#ifndef VOX_COMPARE_H
#define VOX_COMPARE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/sp_error.h"
#include "vox/vox_options.h"

/* How the points of A and B find each other. */
typedef enum vox_match {
    VOX_MATCH_AUTO,    /* by order if all positions agree, else by position */
    VOX_MATCH_ORDER,   /* point i is point i */
    VOX_MATCH_POSITION /* by x, y and z within the resolution of the files */
} vox_match;

typedef struct vox_compare_options {
    bool with_json;
    const char *columns, *label_field, *label_field_a, *label_field_b, *ignore;
    const char
        *match_field;  /* points are matched by this attribute; NULL: by `match` */
    int match;         /* vox_match */
    double least_miou; /* below 0: no bound */
    vox_options map;   /* only its map is used */
    int threads;
} vox_compare_options;

/* Points with code `a` in A and `b` in B; -1: the point has no class there. */
typedef struct vox_code_pair {
    int64_t file, a, b, n;
} vox_code_pair;

/* A list of counts that grows. All zero before the first use; the caller frees pair. */
typedef struct vox_code_pairs {
    int64_t n;
    vox_code_pair *pair;
} vox_code_pairs;

/* Two files of the same points. */
typedef struct vox_file_pair {
    char *a, *b, *name; /* name: for messages and tables */
} vox_file_pair;

/* Lists the pairs of files: of two files that pair, of two folders all files below A
 * that hold classes, each with the file of B that has the same path and stem. *pair is
 * malloc'd, for vox_compare_free. SP_EDATA: a file of A has no partner, or several;
 * SP_EUSAGE: a file and a folder; SP_EIO; SP_EMEM. Local. */
sp_status vox_compare_list(const char *a, const char *b, vox_file_pair **pair, int *n);
void vox_compare_free(vox_file_pair *pair, int n);

/* Counts the pairs of codes of file number `file` into `counts`. SP_EDATA: the points
 * cannot be matched, or a file has no classes; errors of reading. Memory does not
 * depend on the number of points if they match by order, else some 100 bytes a point.
 * Local. */
sp_status vox_compare_pair(const vox_compare_options *options,
                           const vox_file_pair *pair, int64_t file,
                           vox_code_pairs *counts);

/* The classes that a comparison counts: --map's, or codes in ascending order. */
typedef struct vox_score {
    int n;           /* classes */
    char **name;     /* [n] */
    int64_t *points; /* [n][n + 1]: truth, prediction; the last column counts points
                        that have no class in B */
    int64_t n_points, n_ignored;  /* counted; left out since A has no class there */
    double accuracy, kappa, miou; /* NAN: not defined */
    double *iou, *precision, *recall, *f1; /* [n]; NAN: not defined */
} vox_score;

/* The class of a code: -1: the code is ignored. */
typedef struct vox_code_classes {
    int n;
    char **name;
    int32_t class_of[VOX_MAX_CODE + 1];
} vox_code_classes;

/* Determines the classes: the map's if it has any, else all codes of the counts that
 * are not ignored. SP_EUSAGE: --ignore is not a list of codes, or leaves no class;
 * SP_EMEM. Free in any case. */
sp_status vox_classes_find(vox_code_classes *classes,
                           const vox_compare_options *options,
                           const vox_code_pairs *counts);
void vox_classes_free(vox_code_classes *classes);

/* Sorts counts by file, as vox_score_of needs them. Pure. */
void vox_code_pairs_sort(vox_code_pairs *counts);
/* Computes the score of one file, or of all (file < 0), from sorted counts. SP_EMEM.
 * Names are borrowed from `classes`. Free in any case. */
sp_status vox_score_of(vox_score *score, const vox_code_classes *classes,
                       const vox_code_pairs *counts, int64_t file);
void vox_score_free(vox_score *score);

#endif
