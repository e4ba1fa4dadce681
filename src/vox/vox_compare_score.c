/* Classes and scores of a comparison. With tp, fp and fn points of a class that are
 * right, wrong in B and missed in B:
 *
 *     IoU = tp / (tp + fp + fn)     precision = tp / (tp + fp)
 *     F1 = 2 tp / (2 tp + fp + fn)  recall = tp / (tp + fn)
 *     kappa = (accuracy - e) / (1 - e), e the accuracy of independent labels with the
 *             same shares (J. Cohen, A coefficient of agreement for nominal scales,
 *             1960)
 *
 * A point without a class in B is wrong, and not a false positive of any class. */
#include "base/sp_list.h"
#include "vox/vox_compare.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads "0,7:9" into a flag for each code. */
static sp_status classes_read_ignored(const char *text, bool *is_ignored)
{
    for (const char *at = text; at && *at;) {
        char *end;
        const long code = strtol(at, &end, 10);

        if (end == at || (*end && !strchr(",:", *end)) || code < 0 ||
            code > VOX_MAX_CODE)
            return SP_FAIL(SP_EUSAGE,
                           "--ignore %s: at \"%.40s\": expected codes from 0 to %d "
                           "divided by commas",
                           text, at, VOX_MAX_CODE);
        is_ignored[code] = true;
        at = *end ? end + 1 : end;
    }
    return SP_OK;
}

static sp_status classes_add(vox_code_classes *classes, char *name)
{
    if (!name || !sp_list_resize(&classes->name,
                                 ((size_t)classes->n + 1) * sizeof *classes->name)) {
        free(name);
        return SP_FAIL(SP_EMEM, "no memory for the names of classes");
    }
    classes->name[classes->n++] = name;
    return SP_OK;
}

static sp_status classes_of_map(vox_code_classes *classes, const vox_map *map,
                                const bool *is_ignored)
{
    for (int c = 0; c < map->n; c++) {
        bool is_used = false;

        for (int code = 0; code <= VOX_MAX_CODE; code++)
            if (map->class_of[code] == c && !is_ignored[code]) {
                classes->class_of[code] = classes->n;
                is_used = true;
            }
        if (is_used)
            SP_TRY(classes_add(classes, strdup(map->name[c])));
    }
    return SP_OK;
}

static sp_status classes_of_codes(vox_code_classes *classes,
                                  const vox_code_pairs *counts, const bool *is_ignored)
{
    char name[32];

    for (int64_t i = 0; i < counts->n; i++) {
        const vox_code_pair *p = &counts->pair[i];

        /* Any number but -1 marks the code for now. */
        if (p->a >= 0 && !is_ignored[p->a]) {
            classes->class_of[p->a] = 0;
            if (p->b >= 0 && !is_ignored[p->b])
                classes->class_of[p->b] = 0;
        }
    }
    for (int code = 0; code <= VOX_MAX_CODE; code++)
        if (classes->class_of[code] >= 0) {
            classes->class_of[code] = classes->n;
            snprintf(name, sizeof name, "%d", code);
            SP_TRY(classes_add(classes, strdup(name)));
        }
    return SP_OK;
}

sp_status vox_classes_find(vox_code_classes *classes, const vox_compare_options *o,
                           const vox_code_pairs *counts)
{
    SP_FREED bool *is_ignored = NULL;

    classes->n = 0;
    classes->name = NULL;
    for (int code = 0; code <= VOX_MAX_CODE; code++)
        classes->class_of[code] = -1;
    SP_TRY(SP_NEW(&is_ignored, VOX_MAX_CODE + 1, "codes"));
    SP_TRY(classes_read_ignored(o->ignore, is_ignored));
    if (o->map.map.n == 0)
        return classes_of_codes(classes, counts, is_ignored);
    SP_TRY(classes_of_map(classes, &o->map.map, is_ignored));
    if (classes->n == 0)
        return SP_FAIL(SP_EUSAGE, "--ignore %s leaves no class of --map", o->ignore);
    return SP_OK;
}

void vox_classes_free(vox_code_classes *classes)
{
    for (int c = 0; c < classes->n; c++)
        free(classes->name[c]);
    free(classes->name);
    *classes = (vox_code_classes){0};
}

static int by_file(const void *a, const void *b)
{
    return sp_by_int64(&((const vox_code_pair *)a)->file,
                       &((const vox_code_pair *)b)->file);
}

void vox_code_pairs_sort(vox_code_pairs *counts)
{
    if (counts->n > 0)
        qsort(counts->pair, (size_t)counts->n, sizeof *counts->pair, by_file);
}

/* The number of counts of the files before this one. */
static int64_t score_first_count(const vox_code_pairs *counts, int64_t file)
{
    int64_t low = 0, high = counts->n;

    while (low < high) {
        const int64_t middle = low + (high - low) / 2;

        if (counts->pair[middle].file < file)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void score_count(vox_score *s, const vox_code_classes *classes,
                        const vox_code_pairs *counts, int64_t file)
{
    const int64_t end = file < 0 ? counts->n : score_first_count(counts, file + 1);

    for (int64_t i = score_first_count(counts, file); i < end; i++) {
        const vox_code_pair *p = &counts->pair[i];
        const int truth = p->a < 0 ? -1 : classes->class_of[p->a];
        const int found = p->b < 0 ? -1 : classes->class_of[p->b];

        if (truth < 0) {
            s->n_ignored += p->n;
            continue;
        }
        s->points[truth * (s->n + 1) + (found < 0 ? s->n : found)] += p->n;
        s->n_points += p->n;
    }
}

static double score_ratio(double part, double whole)
{
    return whole > 0 ? part / whole : NAN;
}

/* Fills the numbers of all classes and what follows from them. */
static void score_rate(vox_score *s)
{
    const int n = s->n;
    double sum = 0, chance = 0, right = 0;
    int n_defined = 0;

    for (int c = 0; c < n; c++) {
        const double tp = (double)s->points[c * (n + 1) + c];
        double truth = (double)s->points[c * (n + 1) + n], found = 0;

        for (int k = 0; k < n; k++) {
            truth += (double)s->points[c * (n + 1) + k];
            found += (double)s->points[k * (n + 1) + c];
        }
        s->iou[c] = score_ratio(tp, truth + found - tp);
        s->precision[c] = score_ratio(tp, found);
        s->recall[c] = score_ratio(tp, truth);
        s->f1[c] = score_ratio(2 * tp, truth + found);
        if (!isnan(s->iou[c])) {
            sum += s->iou[c];
            n_defined++;
        }
        right += tp;
        chance += truth * found;
    }
    s->miou = score_ratio(sum, n_defined);
    s->accuracy = score_ratio(right, (double)s->n_points);
    chance = score_ratio(chance, (double)s->n_points * (double)s->n_points);
    s->kappa = score_ratio(s->accuracy - chance, 1 - chance);
}

sp_status vox_score_of(vox_score *s, const vox_code_classes *classes,
                       const vox_code_pairs *counts, int64_t file)
{
    const size_t n = (size_t)classes->n;
    double *rates;

    *s = (vox_score){.n = classes->n, .name = classes->name};
    SP_TRY(SP_NEW(&s->points, n * (n + 1), "the confusion of classes"));
    SP_TRY(SP_NEW(&s->iou, 4 * n, "the scores of classes"));
    rates = s->iou;
    s->precision = rates + n;
    s->recall = rates + 2 * n;
    s->f1 = rates + 3 * n;
    score_count(s, classes, counts, file);
    score_rate(s);
    return SP_OK;
}

void vox_score_free(vox_score *s)
{
    free(s->points);
    free(s->iou);
    *s = (vox_score){0};
}
