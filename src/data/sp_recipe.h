/* How scans became samples: all that is needed to treat another scan in the same way.
 * spvox writes it into shards, and training carries it on into checkpoints.
 *
 *     spvox convert, scene --> /recipe of each shard   sp_recipe_write
 *         --> sp_dataset.recipe                        sp_recipe_read, sp_recipe_serialize
 *                 of several files: what they share    sp_recipe_merge
 *         --> /recipe of each checkpoint               sp_recipe_write
 *         --> sp_normalization.recipe                  sp_recipe_read, sp_recipe_serialize
 *
 * In a file it is the group /recipe, which has only attributes (input/SCHEMA). Files of
 * older versions and of other programs lack it: the pointer to the recipe is then NULL.
 * Names and codes of the classes are attributes of the root, class_names and
 * class_codes, and belong to sp_dataset and sp_normalization. */
#ifndef SP_RECIPE_H
#define SP_RECIPE_H

#include <stdio.h>

#include "base/sp_serial.h"
#include "h5/sp_h5.h"

/* Sources of a column that are not attributes of the scan. */
#define SP_RECIPE_ONE    "one"    /* the constant 1 */
#define SP_RECIPE_HEIGHT "height" /* height above a percentile of the sample's z */
#define SP_RECIPE_COUNT  "count"  /* number of points in the voxel */
#define SP_RECIPE_AGE    "age"    /* with sweeps: scans before the current one */

/* The percentile that spvox uses. */
#define SP_RECIPE_PERCENTILE 2.0
/* The alignment that spvox uses: 64 x 3, a multiple of all strides to 64, and of 32 in
 * voxels that are merged two by two or three by three (data.voxel_size). */
#define SP_RECIPE_ALIGNMENT 192

typedef struct sp_recipe {
    double voxel_size; /* edge of a voxel in units of the coordinates, above 0 */
    /* The edge of the square blocks that scans were cut into, and their margin, in the
     * same unit; block 0: each scan is one sample. */
    double block, overlap;
    /* Blocks begin at multiples of this many voxels from the corner of their scan,
     * which is the whole units below the lowest x, y and z of its points; 0: each
     * begins the whole units below its own points. A network with a coarsest stride
     * that divides it sees a point in the same cells from every block. */
    int64_t alignment;
    int n_columns; /* feature columns of the shards, in their order; at least 1 */
    char **column; /* [n_columns] names, as in feature_names */
    /* [n_columns] the attribute of the scan as sp_scan_has knows it, or one of the
     * words above; age is one only if there are sweeps. */
    char **source;
    double *divisor; /* [n_columns] value = source / divisor; finite, not 0 */
    /* A height is above this percentile of z, 0 to 100, of all points of the sample,
     * including its margin. */
    double height_percentile;
    /* Names of the columns of scans that do not name them, as sp_scan_options.columns;
     * NULL: not given. */
    char *scan_columns;
    char *label_field; /* the attribute that was the label; NULL: the usual names */
    int n_formats;
    char **format; /* [n_formats] formats of the scans, such as "LAS", or NULL */
    /* The unit of the coordinates, a word of sp_recipe_is_unit; NULL: the scans do not
     * say. */
    char *unit;
    /* The assumed unit of z, a word of --z-unit; NULL: as the scans say. */
    char *z_unit;
    /* How many scans a sample joins by their poses, in digits; NULL: a scan by itself. */
    char *sweeps;
} sp_recipe;

/* Frees the recipe and its content; NULL does nothing. Local. */
void sp_recipe_destroy(sp_recipe *recipe);
/* Makes a copy; *to is NULL where `from` is, and after a failure. Local. SP_EMEM. */
sp_status sp_recipe_copy(const sp_recipe *from, sp_recipe **to);
/* True if the word is a unit of coordinates: metre, foot, US survey foot or degree. */
bool sp_recipe_is_unit(const char *word);

/* ---- files; local ---- */

/* Writes the recipe as the group /recipe of a file that is being written; NULL writes
 * nothing. SP_EIO. */
sp_status sp_recipe_write(sp_h5 *file, const sp_recipe *recipe);
/* Reads the recipe of an open file; *recipe is NULL if the file has no recipe, and
 * after a failure. SP_EDATA names file, attribute, expected and found; SP_EMEM. */
sp_status sp_recipe_read(sp_h5 *file, sp_recipe **recipe);
/* Checks that the recipe has columns of these names: all of them in the same order, or
 * with is_subset among others. name NULL: nothing is known. SP_EDATA. */
sp_status sp_recipe_check_columns(const sp_recipe *recipe, const char *path, int n,
                                  char *const *name, bool is_subset);
/* Writes the recipe, or its absence, to bytes or reads it from them. */
void sp_recipe_serialize(sp_serial *serial, sp_recipe **recipe);

/* ---- several recipes; local ---- */

enum { SP_RECIPE_DIFFERENCE = 512 };
typedef enum sp_recipe_match {
    SP_RECIPE_SAME,
    SP_RECIPE_OTHER_CUT,    /* other blocks, or other names of the scans' columns */
    SP_RECIPE_OTHER_VALUES, /* a column of the same name means other values */
    SP_RECIPE_OTHER_UNIT    /* the coordinates are in another unit */
} sp_recipe_match;

/* Compares two recipes and returns the gravest difference. `text` receives it as words
 * about a, "but", and words about b. Columns are compared by name. An absent recipe
 * counts as the same as any other. */
sp_recipe_match sp_recipe_compare(const sp_recipe *a, const sp_recipe *b,
                                  char text[SP_RECIPE_DIFFERENCE]);
/* Joins b to *a, of two files of one data set: *a becomes a copy of b if it is NULL,
 * and takes over the formats of b and what *a does not say. Differing values stay as in
 * *a. SP_EMEM. */
sp_status sp_recipe_merge(sp_recipe **a, const sp_recipe *b);

/* ---- vectors; pure (sp_recipe_vectors.c) ---- */

enum { SP_MOST_VECTORS = 8 };

/* Columns that are the parts of one vector, which mirrors and turns with the sample:
 * the normal or the position of the points. A position is scaled with its sample, and
 * moved with its voxel. */
typedef struct sp_vector {
    int x, y, z;       /* numbers of the columns; z -1: no such column */
    double divisor[3]; /* of x, y and z: a part of the vector is column * divisor */
    bool is_position;
} sp_vector;

typedef struct sp_vectors {
    int n;
    sp_vector at[SP_MOST_VECTORS];
    /* an x or y of a vector without its y or x among the columns; -1: not found */
    int lone;
} sp_vectors;

/* Finds the vectors among n columns by the names of their sources, the words of
 * sp_recipe_vectors.c, in any case and with or without the prefix "scalar_". The z may
 * be missing. recipe NULL, or without a column: its own name counts,
 * and the divisor is 1. name NULL: the columns have no names and are no vectors. */
sp_vectors sp_recipe_vectors(const sp_recipe *recipe, int n, char *const *name);

/* ---- printing; local ---- */

/* Prints the recipe and the classes with their codes in a few lines. recipe NULL: says
 * that the file has no recipe; class_name or class_code NULL: they are left out. */
void sp_recipe_print(const sp_recipe *recipe, int n_classes, char *const *class_name,
                     char *const *class_code, FILE *to);

#endif
