/* spvox info: the content of shards. Ranks read samples in turn; rank 0 prints. */
#include "vox/vox.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"
#include "base/sp_log.h"
#include "base/sp_text.h"
#include "base/sp_word_table.h"
#include "data/sp_shard.h"
#include "predict/sp_scans.h"
#include "scan/sp_gridding.h"

enum { LEAST_VOXELS = 64 /* of a sample, for a common step not to be chance */ };

typedef struct info {
    bool wants_samples; /* the option */
    sp_dataset set;
    sp_scans scans; /* all zero: the set has no blocks, or one of them twice */
    sp_comm *comm;
    /* Results over this rank's samples at first, then over all ranks'. */
    int64_t *histogram; /* [n_classes + 1] voxels of each class, ignored ones last */
    int64_t n_voxels;
    double *lo, *hi; /* [n_features] least and largest value */
    double *mean;    /* [n_features] */
    double *m2;      /* [n_features] sums of squared differences from the mean */
    /* The least of the samples' steps of x, y and z in voxels; infinite if all samples
     * are flat or small. */
    double step[3];
    int64_t *cost; /* [n_samples][SP_COST_COLUMNS] of the voxels, as stored or not */
} info;

#define AT(member) .offset = offsetof(info, member)
static const sp_option option_table[] = {
    {{"--samples", NULL,
      "print a line for every sample too, and compare all stored costs with the "
      "voxels; without it only the cost of a file's first sample"},
     SP_OPTION_FLAG,
     AT(wants_samples)},
    SP_OPTION_HELP_ROW,
};

const sp_usage vox_info_usage = {
    .line = "usage: spvox info [--samples] SHARD...",
    .text = "Reads voxel shards (files or patterns of one data set), checks "
            "everything in them and prints samples, voxels, class histogram, "
            "feature ranges, how scans became samples, and cost per sample: "
            "voxels at strides 1 to 16 and pairs of a 3x3x3 kernel.",
    .options = SP_WORD_ROWS(option_table),
};

static sp_status info_allocate(info *in)
{
    size_t c = (size_t)in->set.n_features;

    SP_TRY(SP_NEW(&in->histogram, in->set.n_classes, "the labels"));
    SP_TRY(SP_NEW(&in->lo, c, "the features"));
    SP_TRY(SP_NEW(&in->hi, c, "the features"));
    SP_TRY(SP_NEW(&in->mean, c, "the features"));
    SP_TRY(SP_NEW(&in->m2, c, "the features"));
    SP_TRY(SP_NEW(&in->cost, SP_COST_COLUMNS * in->set.n_samples, "the samples"));
    for (int a = 0; a < 3; a++)
        in->step[a] = INFINITY;
    for (size_t i = 0; i < c; i++) {
        in->lo[i] = INFINITY;
        in->hi[i] = -INFINITY;
    }
    return SP_OK;
}

static void info_release(info *in)
{
    free(in->histogram);
    free(in->lo);
    free(in->hi);
    free(in->mean);
    free(in->m2);
    free(in->cost);
    sp_scans_destroy(&in->scans);
    sp_dataset_close(&in->set);
}

/* ---- reading ---- */

/* Joins column a of a sample with those before it. Squares of the values themselves
 * would leave nothing of the deviation of a column far from zero, such as times. */
static void info_add_column(info *in, const sp_sample *s, int a)
{
    const int c = in->set.n_features;
    const double n = (double)in->n_voxels, m = (double)s->n;
    double mean = 0, m2 = 0, away;

    for (int64_t i = a; i < s->n * c; i += c) {
        in->lo[a] = fmin(in->lo[a], s->features[i]);
        in->hi[a] = fmax(in->hi[a], s->features[i]);
        mean += s->features[i];
    }
    mean /= m;
    for (int64_t i = a; i < s->n * c; i += c)
        m2 += (s->features[i] - mean) * (s->features[i] - mean);
    away = mean - in->mean[a];
    in->m2[a] += m2 + away * away * n * m / (n + m);
    in->mean[a] += away * m / (n + m);
}

/* Finds the greatest common divisor of all differences of the coordinate a, 0 without
 * differences. Most samples end it after a few voxels. */
static int64_t info_step_of(const sp_sample *s, int a)
{
    int64_t step = 0;

    for (int64_t i = 1; i < s->n && step != 1; i++) {
        int64_t rest = llabs((int64_t)s->coords[3 * i + a] - s->coords[a]);

        while (rest != 0) {
            const int64_t last = rest;

            rest = step % rest;
            step = last;
        }
    }
    return step;
}

static void add_steps(info *in, const sp_sample *s)
{
    for (int a = 0; a < 3 && s->n >= LEAST_VOXELS; a++) {
        const int64_t step = info_step_of(s, a);

        if (step > 0)
            in->step[a] = fmin(in->step[a], (double)step);
    }
}

static void info_add_sample(info *in, const sp_sample *s)
{
    add_steps(in, s);
    for (int64_t i = 0; i < s->n; i++)
        in->histogram[s->labels[i] < 0 ? in->set.n_classes : s->labels[i]]++;
    for (int a = 0; s->n > 0 && a < in->set.n_features; a++)
        info_add_column(in, s, a);
    in->n_voxels += s->n;
}

/* Checks that the points of a sample's margin are points of other samples. */
static sp_status check_margin(const info *in, const sp_sample *s)
{
    SP_FREED int64_t *owner = NULL;

    if (!in->scans.order || s->n_context == 0)
        return SP_OK;
    SP_TRY(SP_NEW(&owner, s->n_context, "a sample's margin"));
    return sp_scans_owners(&in->scans, s, owner);
}

/* Prepares for check_margin. A block that comes twice is not damage, but then the
 * owners of the margins' points are not known. */
static sp_status find_scans(info *in)
{
    sp_status rc = in->set.has_blocks ? sp_scans_create(&in->scans, &in->set) : SP_OK;

    if (rc != SP_EDATA)
        return rc;
    sp_log_warn0("%s", sp_error_last()->message);
    sp_scans_destroy(&in->scans);
    return SP_OK;
}

/* Finds the cost of a sample, or uses the stored one. Opening a set has checked only
 * its possible values; some are compared with the voxels, which takes about a second
 * for a million of them. */
static sp_status find_cost(const info *in, const sp_sample *s)
{
    const sp_shard *shard = &in->set.shard[sp_dataset_shard_of(&in->set, s->id)];
    int64_t *cost = in->cost + SP_COST_COLUMNS * s->id;
    int64_t stored[SP_COST_COLUMNS];

    for (int k = 0; in->set.has_cost && k < SP_COST_COLUMNS; k++)
        cost[k] = stored[k] = sp_dataset_cost_column(&in->set, s->id, k);
    if (in->set.has_cost && !in->wants_samples && s->id != shard->first_sample)
        return SP_OK;
    SP_TRY(sp_grid_cost(s->coords, s->n, cost));
    for (int k = 0; in->set.has_cost && k < SP_COST_COLUMNS; k++)
        if (stored[k] != cost[k])
            return SP_FAIL(SP_EDATA,
                           "%s:/cost: sample %lld: column %d is %lld, expected %lld "
                           "as of its voxels",
                           shard->path, (long long)(s->id - shard->first_sample), k,
                           (long long)stored[k], (long long)cost[k]);
    return SP_OK;
}

/* Reads this rank's samples: one in every comm->size. */
static sp_status info_read_samples(info *in, const sp_sample_request *request,
                                   sp_sample *s)
{
    for (int64_t i = in->comm->rank; i < in->set.n_samples; i += in->comm->size) {
        SP_TRY(sp_sample_read(&in->set, i, request, s));
        SP_TRY(check_margin(in, s));
        info_add_sample(in, s);
        SP_TRY(find_cost(in, s));
    }
    return SP_OK;
}

static sp_status info_read_all(info *in)
{
    const sp_strings every_column = {0};
    sp_sample_request request = {.verify = true,
                                 .with_points = in->set.has_points,
                                 .with_context = in->set.has_blocks};
    SP_CLOSED_BY(sp_sample_destroy) sp_sample sample = {0};
    SP_FREED int *columns = NULL;

    SP_TRY(info_allocate(in));
    SP_TRY(find_scans(in));
    SP_TRY(
        sp_dataset_columns(&in->set, &every_column, "", &columns, &request.n_columns));
    request.columns = columns;
    return info_read_samples(in, &request, &sample);
}

/* Combines mean and m2 of this rank's voxels with the other ranks'. */
static sp_status join_columns(info *in)
{
    const size_t c = (size_t)in->set.n_features;
    const double mine = (double)in->n_voxels, all = fmax(1, (double)in->set.n_voxels);
    SP_FREED double *own = NULL;

    SP_TRY(sp_comm_agree(in->comm, SP_NEW(&own, c, "the columns of shards")));
    memcpy(own, in->mean, c * sizeof *own);
    for (size_t a = 0; a < c; a++)
        in->mean[a] *= mine / all;
    SP_TRY(sp_comm_allreduce(in->comm, SP_SCOPE_WORLD, in->mean, c, SP_F64, SP_SUM));
    for (size_t a = 0; a < c; a++)
        in->m2[a] += mine * (own[a] - in->mean[a]) * (own[a] - in->mean[a]);
    return sp_comm_allreduce(in->comm, SP_SCOPE_WORLD, in->m2, c, SP_F64, SP_SUM);
}

static sp_status sum_over_ranks(info *in)
{
    size_t c = (size_t)in->set.n_features;

    SP_TRY(sp_comm_allreduce(in->comm, SP_SCOPE_WORLD, in->histogram,
                             (size_t)in->set.n_classes + 1, SP_I64, SP_SUM));
    SP_TRY(sp_comm_allreduce(in->comm, SP_SCOPE_WORLD, in->step, 3, SP_F64, SP_MIN));
    SP_TRY(sp_comm_allreduce(in->comm, SP_SCOPE_WORLD, in->lo, c, SP_F64, SP_MIN));
    SP_TRY(sp_comm_allreduce(in->comm, SP_SCOPE_WORLD, in->hi, c, SP_F64, SP_MAX));
    SP_TRY(join_columns(in));
    return sp_comm_allreduce(in->comm, SP_SCOPE_WORLD, in->cost,
                             (size_t)in->set.n_samples * SP_COST_COLUMNS, SP_I64,
                             SP_SUM);
}

/* ---- printing ---- */

enum { NAME = 4096 };

/* Prints "name   min   median   max   sum" of n numbers, and sorts them. */
static void print_spread(const char *name, int64_t *values, int64_t n)
{
    int64_t sum = 0;
    double median;

    if (n == 0)
        return;
    qsort(values, (size_t)n, sizeof *values, sp_by_int64);
    for (int64_t i = 0; i < n; i++)
        sum += values[i];
    median = ((double)values[(n - 1) / 2] + (double)values[n / 2]) / 2;
    printf("  %-16s %12lld %12.12g %12lld %14lld\n", name, (long long)values[0], median,
           (long long)values[n - 1], (long long)sum);
}

static sp_status print_cost(const info *in)
{
    static const char *const column[SP_COST_COLUMNS] = {
        "voxels",      "at stride 2",  "at stride 4",
        "at stride 8", "at stride 16", "pairs of 3x3x3"};
    const int64_t n = in->set.n_samples;
    SP_FREED int64_t *values = NULL;

    SP_TRY(SP_NEW(&values, n, "the samples"));
    printf(
        "cost per sample             min       median          max            sum\n");
    for (int k = 0; k < SP_COST_COLUMNS; k++) {
        for (int64_t i = 0; i < n; i++)
            values[i] = in->cost[SP_COST_COLUMNS * i + k];
        print_spread(column[k], values, n);
    }
    return SP_OK;
}

static void info_print_classes(const info *in)
{
    const sp_dataset *set = &in->set;
    const int width =
        sp_text_width(set->class_name ? set->n_classes : 0, set->class_name, 12);
    char shown[NAME];

    printf("labels%*s    share%s\n", 13 + width, "voxels",
           set->class_code ? "   codes" : "");
    for (int c = 0; c <= set->n_classes; c++) {
        const char *name = c == set->n_classes ? "ignored"
                           : set->class_name   ? set->class_name[c]
                                               : "";

        printf("  %3d %s %13lld   %6.2f%%", c == set->n_classes ? set->ignore_label : c,
               sp_text_cell(shown, sizeof shown, name, width),
               (long long)in->histogram[c],
               set->n_voxels ? 100.0 * (double)in->histogram[c] / (double)set->n_voxels
                             : 0);
        if (set->class_code && c < set->n_classes)
            printf("   %s",
                   sp_text_printable(shown, sizeof shown, set->class_code[c], false));
        putchar('\n');
    }
}

static void print_features(const info *in)
{
    const sp_dataset *set = &in->set;
    const int width = sp_text_width(set->n_features, set->feature_name, 16);
    char shown[NAME];

    printf("features%*s          max         mean          std\n", 6 + width, "min");
    for (int a = 0; a < set->n_features && set->n_voxels > 0; a++) {
        const double std = sqrt(in->m2[a] / (double)set->n_voxels);

        printf("  %s %12.6g %12.6g %12.6g %12.6g\n",
               sp_text_cell(shown, sizeof shown, set->feature_name[a], width),
               in->lo[a], in->hi[a], in->mean[a], std);
        if (set->feature_mean && set->feature_std)
            printf("  %-*s %12s %12s %12.6g %12.6g\n", width, "  as stored", "", "",
                   set->feature_mean[a], set->feature_std[a]);
    }
}

static void print_samples(const info *in)
{
    const int64_t *cost = in->cost;
    char shown[NAME];

    printf(
        "sample     voxels   stride 2   stride 4   stride 8  stride 16        pairs  "
        "name\n");
    for (int64_t i = 0; i < in->set.n_samples; i++, cost += SP_COST_COLUMNS)
        printf("%6lld %10lld %10lld %10lld %10lld %10lld %12lld  %s\n", (long long)i,
               (long long)cost[0], (long long)cost[1], (long long)cost[2],
               (long long)cost[3], (long long)cost[4], (long long)cost[5],
               sp_text_printable(shown, sizeof shown, sp_dataset_name(&in->set, i),
                                 false));
}

/* Coordinates that were rounded before they became voxels, as float32 of map
 * coordinates is, fill each tenth row only. */
static void info_warn_of_steps(const info *in)
{
    for (int a = 0; a < 3; a++)
        if (isfinite(in->step[a]) && in->step[a] > 1)
            sp_log_warn0(
                "coords: in all samples %c is in steps of %.0f voxels or more: "
                "its scans seem to have coordinates that were rounded to %g m, "
                "and other rows of voxels are empty",
                'x' + a, in->step[a], in->step[a] * in->set.voxel_size);
}

static sp_status info_print_all(const info *in)
{
    const sp_dataset *set = &in->set;

    printf("shards %d  samples %lld  voxels %lld  voxel_size %g m\n", set->n_shards,
           (long long)set->n_samples, (long long)set->n_voxels, set->voxel_size);
    printf("points %lld  subvoxel %s  names %s  cost %s\n", (long long)set->n_points,
           set->has_subvoxel ? "yes" : "no", set->has_names ? "yes" : "no",
           set->has_cost ? "stored" : "not stored, computed here");
    SP_TRY(print_cost(in));
    if (set->has_labels)
        info_print_classes(in);
    else
        printf("labels: none\n");
    print_features(in);
    info_warn_of_steps(in);
    sp_recipe_print(set->recipe, 0, NULL, NULL, stdout);
    if (in->wants_samples)
        print_samples(in);
    return SP_OK;
}

/* ---- the command ---- */

static sp_status inform(info *in, const sp_strings *patterns)
{
    SP_TRY(sp_dataset_open(&in->set, patterns, in->comm));
    SP_TRY(sp_comm_agree(in->comm, info_read_all(in)));
    SP_TRY(sum_over_ranks(in));
    return in->comm->rank == 0 ? info_print_all(in) : SP_OK;
}

sp_status vox_info(int argc, char **argv, sp_comm *comm)
{
    info in = {.comm = comm};
    sp_strings patterns;
    sp_status rc;
    int n;

    assert(argc >= 1 && argv && comm);
    SP_TRY(sp_options_read(&in, SP_WORD_TABLE(option_table), "spvox", argc, argv, &n));
    if (n == 0)
        return SP_FAIL(SP_EUSAGE, "info: no shard given; see spvox info --help");
    patterns = (sp_strings){n, argv + 1};
    rc = inform(&in, &patterns);
    info_release(&in);
    return rc;
}
