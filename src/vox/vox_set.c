/* A data set as a whole: classes, codes, statistics, warnings. */
#include "vox/vox_set.h"

#include <assert.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/sp_list.h"
#include "base/sp_log.h"
#include "vox/vox_voxelize.h"

enum { LIST = 512, MOST_CODES = 32, SWEEPS = 24 };

/* ---- samples ---- */

/* Leaves out parts without a point (within the bounds), and logs the number of files
 * without a point. A file has no part if nothing of it was cut. */
static sp_status drop_empty(const vox_options *o, const vox_piece *piece,
                            vox_part *part, int64_t *n_parts)
{
    const char *bounds = o->has_bounds ? " within --bounds" : "";
    bool *has_points;
    int64_t kept = 0, n = *n_parts;
    int n_empty = o->n_inputs;

    SP_TRY(SP_NEW(&has_points, o->n_inputs, "inputs"));
    for (int64_t i = 0; i < n; i++)
        if (part[i].n > 0) {
            n_empty -= !has_points[piece[part[i].piece].file];
            has_points[piece[part[i].piece].file] = true;
            part[kept++] = part[i];
        }
    free(has_points);
    if (n_empty > 0)
        sp_log_info("spvox: files without a point%s: %d of %d", bounds, n_empty,
                    o->n_inputs);
    *n_parts = kept;
    if (kept == 0)
        return SP_FAIL(SP_EDATA, "%s%s: no points%s", o->input[0],
                       o->n_inputs > 1 ? " and the other inputs" : "", bounds);
    if (kept < o->shards)
        return SP_FAIL(SP_EUSAGE,
                       "--shards %d: expected at most %" PRId64
                       ", the number of samples",
                       (int)o->shards, kept);
    return SP_OK;
}

/* Checks that either all inputs have labels or no input has. */
static sp_status agree_on_labels(vox_set *set, const vox_options *o,
                                 const vox_piece *piece, const vox_part *part,
                                 int64_t n_parts)
{
    const char *labelled = NULL, *unlabelled = NULL;

    for (int64_t i = n_parts; i-- > 0;) {
        const char *name = o->input[piece[part[i].piece].file];

        *(part[i].source.is_labelled ? &labelled : &unlabelled) = name;
    }
    if (labelled && unlabelled)
        return SP_FAIL(SP_EDATA,
                       "%s has no labels, but %s has; a data set has one or the other",
                       unlabelled, labelled);
    set->has_labels = labelled != NULL;
    return SP_OK;
}

/* ---- classes ---- */

/* The codes of a class as "3:4:5", malloc'd: the map's first code, then the others.
 * Without a map a class's number is its code. NULL: no memory. */
static char *list_codes(const vox_map *map, int class)
{
    int first = map->n > 0 ? map->first_code[class] : class;
    size_t used, bytes = 16;
    char *text;

    for (int code = 0; map->n > 0 && code <= VOX_MAX_CODE; code++)
        bytes += map->class_of[code] == class ? sizeof "65535:" : 0;
    text = malloc(bytes);
    used = text ? (size_t)snprintf(text, bytes, "%d", first) : 0;
    for (int code = 0; text && map->n > 0 && code <= VOX_MAX_CODE; code++)
        if (map->class_of[code] == class && code != first)
            used += (size_t)snprintf(text + used, bytes - used, ":%d", code);
    return text;
}

/* Names the classes: the map's, or without a map a class k for each code up to the
 * largest. */
static sp_status name_classes(vox_set *set, const vox_map *map, const vox_part *part,
                              int64_t n_parts)
{
    int n = map->n > 0 ? map->n : 1;

    for (int64_t i = 0; map->n == 0 && i < n_parts; i++)
        n = part[i].max_label >= n ? part[i].max_label + 1 : n;
    SP_TRY(SP_NEW(&set->class_name, n, "class names"));
    SP_TRY(SP_NEW(&set->class_code, n, "class names"));
    set->n_classes = n;
    for (int i = 0; i < n; i++) {
        char name[32];

        snprintf(name, sizeof name, "class%d", i);
        set->class_name[i] = strdup(map->n > 0 ? map->name[i] : name);
        set->class_code[i] = list_codes(map, i);
        if (!set->class_name[i] || !set->class_code[i])
            return SP_FAIL(SP_EMEM, "no memory for class names");
    }
    return SP_OK;
}

/* ---- warnings ---- */

/* Lists the codes that points have: " 1 2 6". */
static void list_found(const vox_codes *codes, char text[LIST])
{
    size_t used = 0;
    int n = 0;

    text[0] = '\0';
    for (int code = 0; code <= VOX_MAX_CODE && n <= MOST_CODES; code++)
        if (codes->n[code] > 0 && n++ < MOST_CODES)
            used += (size_t)snprintf(text + used, LIST - used, " %d", code);
    if (n == 0 || n > MOST_CODES)
        snprintf(text + used, LIST - used, n == 0 ? " none" : " ...");
}

static int64_t points_of_class(const vox_map *map, int class, const vox_codes *codes)
{
    int64_t n = 0;

    for (int code = 0; code <= VOX_MAX_CODE; code++)
        n += map->class_of[code] == class ? codes->n[code] : 0;
    return n;
}

/* Warns of labels that the map does not fit. A --map for another data set's codes, or
 * an attribute that is not a label, would otherwise be noticed after the training. */
static void warn_of_labels(const vox_set *set, const vox_map *map,
                           const vox_codes *codes, int64_t n_labelled)
{
    char missing[2 * LIST] = "", found[LIST];
    size_t used = 0;

    list_found(codes, found);
    for (int i = 0; i < map->n; i++)
        if (points_of_class(map, i, codes) == 0 && used < sizeof missing)
            used +=
                (size_t)snprintf(missing + used, sizeof missing - used, "%s%s (%s)",
                                 used ? ", " : "", map->name[i], set->class_code[i]);
    if (used > 0)
        sp_log_warn0("--map: no point is %s; codes of the points:%s", missing, found);
    if (n_labelled == 0)
        sp_log_warn0(
            "no voxel has a label, and nothing can be trained on these shards");
}

/* ---- statistics ---- */

/* float32 holds all integers up to this one. */
#define MOST_EXACT (1 << FLT_MANT_DIG)

/* Warns if features were rounded so coarsely that training would suffer: by more than a
 * thousandth of their deviation. Their mean is subtracted even if nothing else is left:
 * a network cannot work with such numbers. */
static void set_warn_coarse(vox_set *set, const vox_options *o, int f)
{
    const float mean = fabsf((float)set->mean[f]);
    const double step = (double)nextafterf(mean, INFINITY) - (double)mean;

    if (step / 2 > 1e-3 * set->std[f])
        sp_log_warn0("column %s has values around %g, and float32 keeps multiples of "
                     "%g there: finer differences are lost; leave it out of --features",
                     o->feature[f].name, set->mean[f], step);
    if (set->std[f] == 0)
        set->std[f] = 1;
}

/* Computes mean and standard deviation over all voxels. Samples are joined in order
 * (Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing
 * sample variances", 1979). A constant column gets mean 0 and std 1, so that
 * normalization keeps its value: occupancy is an input as well. */
static void pool_statistics(vox_set *set, const vox_options *o, const vox_part *part,
                            int64_t n_parts)
{
    for (int f = 0; f < o->n_features; f++) {
        double n = 0, mean = 0, m2 = 0;

        for (int64_t i = 0; i < n_parts; i++) {
            const vox_part *p = &part[i];
            double m = (double)p->n, d = p->mean[f] - mean;

            m2 += p->m2[f] + d * d * n * m / (n + m);
            mean += d * m / (n + m);
            n += m;
        }
        set->mean[f] = mean;
        set->std[f] = sqrt(m2 / n);
        if (fabs(mean) > MOST_EXACT)
            set_warn_coarse(set, o, f);
        else if (set->std[f] <= 1e-7 * fabs(mean)) {
            set->mean[f] = 0;
            set->std[f] = 1;
        }
    }
}

/* ---- colours ---- */

static bool is_colour(const char *name)
{
    static const char *const colours[] = {"red", "green", "blue", "nir"};

    for (size_t i = 0; i < sizeof colours / sizeof *colours; i++)
        if (strcasecmp(name, colours[i]) == 0)
            return true;
    return false;
}

/* The largest colour of each input [n_inputs], as in its file. */
static void find_colours(const vox_options *o, const vox_piece *piece,
                         const vox_part *part, int64_t n_parts, double *most)
{
    for (int f = 0; f < o->n_features; f++)
        for (int64_t i = 0; is_colour(o->feature[f].name) && i < n_parts; i++) {
            double *to = &most[piece[part[i].piece].file];

            *to = fmax(*to, part[i].most[f] * o->feature[f].divisor);
        }
}

/* Warns of colours of several ranges, since their numbers then differ: 0 to 1, to 255
 * and to 65535. Which one a file has is seen by its largest colour. */
static sp_status warn_of_colours(const vox_options *o, const vox_piece *piece,
                                 const vox_part *part, int64_t n_parts)
{
    enum { KINDS = 3 };
    static const double limit[KINDS] = {1, 255, INFINITY};
    double *most;
    int n[KINDS] = {0}, example[KINDS] = {0}, n_kinds = 0;
    char text[2 * LIST] = "";
    size_t used = 0;

    SP_TRY(SP_NEW(&most, o->n_inputs, "inputs"));
    find_colours(o, piece, part, n_parts, most);
    for (int i = o->n_inputs; i-- > 0;)
        for (int k = 0; most[i] > 0 && k < KINDS; k++)
            if (most[i] <= limit[k] * (1 + 1e-6)) { /* features are float32 */
                n[k]++;
                example[k] = i;
                break;
            }
    for (int k = 0; k < KINDS && used < sizeof text; k++) {
        if (n[k] == 0)
            continue;
        used += (size_t)snprintf(
            text + used, sizeof text - used, "%s%.5g at most in %s (one of %d)",
            n_kinds++ ? ", " : "", most[example[k]], o->input[example[k]], n[k]);
    }
    if (n_kinds > 1)
        sp_log_warn0(
            "the colours of the inputs have several ranges, as if written with "
            "8 and with 16 bits: %s; the same colour has different values: "
            "bring the files to one range first",
            text);
    free(most);
    return SP_OK;
}

/* ---- recipe ---- */

/* Describes one input as a recipe of one format. Lists are borrowed. */
static sp_recipe recipe_of(const vox_options *o, const vox_source *source,
                           char *column[], double divisor[], char *format[1],
                           char sweeps[SWEEPS])
{
    for (int f = 0; f < o->n_features; f++) {
        column[f] = (char *)o->feature[f].name;
        divisor[f] = o->feature[f].divisor;
    }
    format[0] = (char *)source->format;
    snprintf(sweeps, SWEEPS, "%" PRId64, o->n_sweeps);
    return (sp_recipe){.voxel_size = o->voxel_size,
                       .block = o->block,
                       .overlap = o->overlap,
                       .alignment = o->block > 0 ? o->alignment : 0,
                       .n_columns = o->n_features,
                       .column = column,
                       .source = column,
                       .divisor = divisor,
                       .height_percentile = SP_RECIPE_PERCENTILE,
                       .scan_columns = (char *)o->columns,
                       .label_field = (char *)o->label_field,
                       .n_formats = 1,
                       .format = format,
                       .unit = source->unit[0] ? (char *)source->unit : NULL,
                       .z_unit = o->z_unit > 0
                                     ? (char *)sp_scan_z_word((sp_scan_z_unit)o->z_unit)
                                     : NULL,
                       .sweeps = o->sweeps ? sweeps : NULL};
}

/* Makes one recipe of all inputs. Coordinates in two units would give voxels of two
 * sizes. */
static sp_status keep_recipe(vox_set *set, const vox_options *o, const vox_piece *piece,
                             const vox_part *part, int64_t n_parts)
{
    char *column[VOX_MAX_FEATURES], *format[1], text[SP_RECIPE_DIFFERENCE];
    char sweeps[SWEEPS];
    double divisor[VOX_MAX_FEATURES];

    for (int64_t i = 0; i < n_parts; i++) {
        const char *name = o->input[piece[part[i].piece].file];
        const sp_recipe recipe =
            recipe_of(o, &part[i].source, column, divisor, format, sweeps);

        if (i > 0 &&
            memcmp(&part[i].source, &part[i - 1].source, sizeof part[i].source) == 0)
            continue;
        if (sp_recipe_compare(set->recipe, &recipe, text) == SP_RECIPE_OTHER_UNIT)
            return SP_FAIL(SP_EDATA, "%s and inputs before it: %s", name, text);
        SP_TRY(sp_recipe_merge(&set->recipe, &recipe));
    }
    return SP_OK;
}

/* The options are lengths in the unit of the coordinates, which is metre if the scans
 * do not say. */
static void set_warn_of_unit(const sp_recipe *recipe)
{
    if (recipe->unit && strcmp(recipe->unit, "metre") != 0)
        sp_log_warn0("the coordinates are in %s: --voxel-size, --block, --overlap and "
                     "--bounds count in it too",
                     recipe->unit);
}

/* Warns of coordinates that lie on a grid coarser than the voxels, as a writer makes
 * them that rounds: the voxels between are missing, and the network sees stripes. */
static void set_warn_of_steps(const vox_options *o, const vox_piece *piece,
                              const vox_part *part, int64_t n_parts)
{
    const vox_part *first = NULL;
    char text[LIST];
    int64_t n = 0;
    double most = 0;

    for (int64_t i = n_parts; i-- > 0;) {
        const double *s = part[i].step;

        if (s[0] + s[1] + s[2] > 0) {
            first = &part[i];
            n++;
        }
        most = fmax(most, fmax(s[0], fmax(s[1], s[2])));
    }
    if (!first)
        return;
    vox_list_steps(first->step, o->voxel_size, text, sizeof text);
    sp_log_warn0("%s has coordinates coarser than the voxels of %g: %s; samples with "
                 "such steps: %" PRId64 " of %" PRId64 ". If their writer rounded them "
                 "(six digits of text, float32 of map coordinates), write them with "
                 "more digits, else choose --voxel-size %.6g or more",
                 o->input[piece[first->piece].file], o->voxel_size, text, n, n_parts,
                 most);
}

sp_status vox_set_describe(vox_set *set, const vox_options *o, const vox_piece *piece,
                           vox_part *part, int64_t *n_parts, const vox_codes *codes)
{
    int64_t n_labelled = 0;

    assert(*n_parts >= 0 && piece && part);
    assert(!set->class_name && !set->recipe && "the set is zeroed");
    SP_TRY(drop_empty(o, piece, part, n_parts));
    SP_TRY(agree_on_labels(set, o, piece, part, *n_parts));
    SP_TRY(name_classes(set, &o->map, part, *n_parts));
    for (int64_t i = 0; i < *n_parts; i++)
        n_labelled += part[i].n_labelled;
    if (set->has_labels) {
        warn_of_labels(set, &o->map, codes, n_labelled);
    } else if (o->map.n == 0) { /* there are no codes */
        sp_h5_list_free(set->class_code, set->n_classes);
        set->class_code = NULL;
    }
    pool_statistics(set, o, part, *n_parts);
    SP_TRY(warn_of_colours(o, piece, part, *n_parts));
    SP_TRY(keep_recipe(set, o, piece, part, *n_parts));
    set_warn_of_unit(set->recipe);
    set_warn_of_steps(o, piece, part, *n_parts);
    return SP_OK;
}

void vox_set_destroy(vox_set *set)
{
    sp_h5_list_free(set->class_code, set->n_classes);
    sp_h5_list_free(set->class_name, set->n_classes);
    sp_recipe_destroy(set->recipe);
    *set = (vox_set){0};
}
