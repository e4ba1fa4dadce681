#include "report/sp_folds.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_text.h"
#include "deck/sp_deck.h"
#include "net/sp_metrics.h"
#include "report/sp_history.h"

enum { NAME = 256 };

/* The sums over the folds read so far. */
typedef struct folds_pool {
    int n_folds, n_classes;
    char **class_name;        /* [n_classes] the first run's */
    int64_t *voxels, *points; /* [n_classes][n_classes]; points NULL: no points */
    char **dir_of;            /* [n_folds] NULL: not read yet */
    char *data;               /* data.train of the first run, as text */
} folds_pool;

/* The value of a key in the deck of a run; NULL: the run has no deck. */
static const char *folds_key(const sp_history *s, const char *key)
{
    for (int i = 0; s->deck_value && i < sp_config_n_keys(); i++)
        if (strcmp(sp_config_key(i), key) == 0)
            return s->deck_value[i];
    return NULL;
}

static int folds_number(const sp_history *s, const char *key)
{
    const char *text = folds_key(s, key);

    return text ? atoi(text) : 0;
}

static sp_status folds_begin(folds_pool *pool, const sp_history *s,
                             const sp_history_eval *eval)
{
    const size_t n = (size_t)eval->n_classes, cells = n * n;
    const char *data = folds_key(s, "data.train");

    pool->n_folds = folds_number(s, "data.folds");
    pool->n_classes = eval->n_classes;
    pool->class_name = calloc(n + 1, sizeof *pool->class_name);
    pool->voxels = calloc(cells + 1, sizeof *pool->voxels);
    pool->points =
        eval->point_confusion ? calloc(cells + 1, sizeof *pool->points) : NULL;
    pool->dir_of = calloc((size_t)pool->n_folds + 1, sizeof *pool->dir_of);
    pool->data = strdup(data ? data : "");
    for (size_t c = 0; pool->class_name && c < n; c++)
        pool->class_name[c] = strdup(eval->class_name[c]);
    if (!pool->class_name || !pool->voxels || !pool->dir_of || !pool->data ||
        (eval->point_confusion && !pool->points))
        return SP_FAIL(SP_EMEM, "report: out of memory");
    return SP_OK;
}

static void folds_end(folds_pool *pool)
{
    for (int c = 0; pool->class_name && c < pool->n_classes; c++)
        free(pool->class_name[c]);
    for (int k = 0; pool->dir_of && k < pool->n_folds; k++)
        free(pool->dir_of[k]);
    free(pool->class_name);
    free(pool->voxels);
    free(pool->points);
    free(pool->dir_of);
    free(pool->data);
}

/* Checks that the run is a fold that the pool lacks. */
static sp_status folds_check(const folds_pool *pool, const sp_history *s,
                             const sp_history_eval *eval)
{
    const int n = folds_number(s, "data.folds"), fold = folds_number(s, "data.fold");
    const char *data = folds_key(s, "data.train");
    bool is_same = eval->n_classes == pool->n_classes;

    if (n != pool->n_folds || strcmp(data ? data : "", pool->data) != 0)
        return SP_FAIL(
            SP_EUSAGE,
            "%s: data.folds = %d of data.train = %s, expected %d of %s as in "
            "the first run",
            s->dir, n, data ? data : "", pool->n_folds, pool->data);
    if (fold < 0 || fold >= n)
        return SP_FAIL(SP_EUSAGE, "%s: data.fold = %d, expected 0 to %d", s->dir, fold,
                       n - 1);
    if (pool->dir_of[fold])
        return SP_FAIL(SP_EUSAGE, "%s: data.fold = %d, as in %s", s->dir, fold,
                       pool->dir_of[fold]);
    for (int c = 0; is_same && c < pool->n_classes; c++)
        is_same = strcmp(eval->class_name[c], pool->class_name[c]) == 0;
    if (!is_same || !eval->point_confusion != !pool->points)
        return SP_FAIL(SP_EUSAGE,
                       "%s: other classes than in the first run, or points in one of "
                       "them only",
                       s->dir);
    return SP_OK;
}

static sp_status folds_add(folds_pool *pool, const sp_history *s,
                           const sp_history_eval *eval)
{
    const int fold = folds_number(s, "data.fold"), n = eval->n_classes;

    SP_TRY(folds_check(pool, s, eval));
    pool->dir_of[fold] = strdup(s->dir);
    if (!pool->dir_of[fold])
        return SP_FAIL(SP_EMEM, "report: out of memory");
    for (int i = 0; i < n * n; i++) {
        pool->voxels[i] += eval->confusion[i];
        if (pool->points)
            pool->points[i] += eval->point_confusion[i];
    }
    printf("fold %d: step=%.0f miou=%.4f accuracy=%.4f voxels=%lld (%s)\n", fold,
           eval->step, sp_metrics_miou(eval->confusion, n),
           sp_metrics_accuracy(eval->confusion, n),
           (long long)sp_metrics_total(eval->confusion, n), s->dir);
    return SP_OK;
}

static sp_status folds_read(folds_pool *pool, const char *dir)
{
    SP_CLOSED_BY(sp_history_destroy) sp_history history = {0};
    const sp_history_eval *eval;

    SP_TRY(sp_history_read(&history, dir));
    eval = history.n_evals ? &history.eval[history.n_evals - 1] : NULL;
    if (folds_number(&history, "data.folds") < 2)
        return SP_FAIL(SP_EUSAGE,
                       "%s: no run of a cross-validation: its deck.resolved has no "
                       "data.folds above 1",
                       dir);
    if (!eval || !eval->confusion)
        return SP_FAIL(SP_EDATA, "%s: no evaluation of the training with a confusion",
                       dir);
    if (!pool->n_folds)
        SP_TRY(folds_begin(pool, &history, eval));
    return folds_add(pool, &history, eval);
}

static sp_status folds_check_all(const folds_pool *pool)
{
    for (int k = 0; k < pool->n_folds; k++)
        if (!pool->dir_of[k])
            return SP_FAIL(SP_EUSAGE,
                           "report --folds: the run of data.fold = %d is missing, "
                           "expected all of 0 to %d",
                           k, pool->n_folds - 1);
    return SP_OK;
}

static void print_share(double share)
{
    if (isnan(share))
        printf(" %10s", "absent");
    else
        printf(" %10.4f", share);
}

static void folds_print_classes(const folds_pool *pool)
{
    const int n = pool->n_classes, width = sp_text_width(n, pool->class_name, 24);
    char name[NAME];

    printf("%-*s %14s %10s %10s %10s%s\n", width, "class", "voxels", "IoU", "precision",
           "recall", pool->points ? "  point IoU" : "");
    for (int c = 0; c < n; c++) {
        printf("%s %14lld", sp_text_cell(name, sizeof name, pool->class_name[c], width),
               (long long)sp_metrics_truth(pool->voxels, n, c));
        print_share(sp_metrics_iou(pool->voxels, n, c));
        print_share(sp_metrics_precision(pool->voxels, n, c));
        print_share(sp_metrics_recall(pool->voxels, n, c));
        if (pool->points)
            print_share(sp_metrics_iou(pool->points, n, c));
        putchar('\n');
    }
    printf("folds=%d miou=%.4f accuracy=%.4f voxels=%lld", pool->n_folds,
           sp_metrics_miou(pool->voxels, n), sp_metrics_accuracy(pool->voxels, n),
           (long long)sp_metrics_total(pool->voxels, n));
    if (pool->points)
        printf(" point_miou=%.4f point_accuracy=%.4f points=%lld",
               sp_metrics_miou(pool->points, n), sp_metrics_accuracy(pool->points, n),
               (long long)sp_metrics_total(pool->points, n));
    putchar('\n');
}

sp_status sp_folds_print(int n, char *const *dirs)
{
    folds_pool pool = {0};
    sp_status rc = SP_OK;

    assert(n > 0 && dirs);
    for (int i = 0; rc == SP_OK && i < n; i++)
        rc = folds_read(&pool, dirs[i]);
    if (rc == SP_OK)
        rc = folds_check_all(&pool);
    if (rc == SP_OK)
        folds_print_classes(&pool);
    folds_end(&pool);
    return rc;
}
