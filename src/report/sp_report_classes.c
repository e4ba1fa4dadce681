/* Classes and confusions of a page and its CSV: of each run's latest evaluation, over
 * points if it has points with labels, else over voxels. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "net/sp_metrics.h"
#include "report/sp_report_internal.h"

enum {
    MOST_MAPPED = 48, /* classes of a confusion matrix that is drawn */
    MOST_WORDED = 14, /* the most classes with room for numbers in any browser */
    MOST_COUNTED = 8, /* the same for numbers with a count below them */
    WORST = 8         /* confusions that are listed */
};

/* The counts of one evaluation that a table shows. */
typedef struct counts {
    const sp_history_eval *eval;
    const int64_t *confusion;
    const double *iou, *merged_iou; /* NULL if the line lacks them */
    bool is_of_points;
    const char *unit; /* "voxels", "points" */
    int n;
} counts;

static bool classes_count(const sp_history *history, counts *c)
{
    const sp_history_eval *e = sp_history_last(history);

    *c = (counts){.eval = e};
    if (!e || !(e->point_confusion || e->confusion))
        return false;
    c->is_of_points = e->point_confusion && !(isnan(e->point_miou) && e->confusion);
    c->confusion = c->is_of_points ? e->point_confusion : e->confusion;
    c->iou = c->is_of_points ? e->point_iou : e->iou;
    c->merged_iou = c->is_of_points ? e->merged_point_iou : e->merged_iou;
    c->unit = c->is_of_points ? "points" : "voxels";
    c->n = e->n_classes;
    return c->n > 0;
}

static double classes_iou(const counts *c, int class)
{
    return c->iou ? c->iou[class] : sp_metrics_iou(c->confusion, c->n, class);
}

/* ---- tables ---- */

/* Appends the rows, and the means over the classes that have the number. */
static void classes_add_table(const sp_report *report, json_t *to, const counts *c)
{
    const double total = (double)sp_metrics_total(c->confusion, c->n);
    double sum[2] = {0};
    int n[2] = {0};

    for (int k = 0; k < c->n; k++) {
        const double truth = (double)sp_metrics_truth(c->confusion, c->n, k);
        const double both[2] = {sp_metrics_precision(c->confusion, c->n, k),
                                sp_metrics_recall(c->confusion, c->n, k)};

        sp_page_put(report->page, sp_page_add(report->page, to, "class", NULL),
                    "name %s iou %f merged_iou %f precision %f recall %f truth %f "
                    "share %f predicted %f",
                    c->eval->class_name[k], classes_iou(c, k),
                    c->merged_iou ? c->merged_iou[k] : NAN, both[0], both[1], truth,
                    total > 0 ? 100 * truth / total : NAN,
                    (double)sp_metrics_predicted(c->confusion, c->n, k));
        for (int i = 0; i < 2; i++)
            if (isfinite(both[i])) {
                sum[i] += both[i];
                n[i]++;
            }
    }
    sp_page_put(report->page, to, "unit %s total %f precision %f recall %f accuracy %f",
                c->unit, total, sum[0] / n[0], sum[1] / n[1],
                c->is_of_points ? c->eval->point_accuracy : c->eval->accuracy);
    sp_page_put(report->page, to, "is_merged %s is_of_points %s",
                c->merged_iou ? "yes" : "", c->is_of_points ? "yes" : "");
}

/* ---- confusion ---- */

/* A count in at most four characters: "812", "12k", "3.4M". */
static const char *classes_short_count(int64_t n, char text[8])
{
    static const char letters[] = " kMGTPE";
    double value = (double)n;
    int thousands = 0;

    for (; value >= 999.5; thousands++)
        value /= 1000;
    if (thousands == 0)
        snprintf(text, 8, "%d", (int)n);
    else
        snprintf(text, 8, value < 9.95 ? "%.1f%c" : "%.0f%c", value,
                 letters[thousands]);
    return text;
}

static void map_add_cell(const sp_report *report, json_t *row, const counts *c,
                         int truth, int predicted)
{
    const int64_t n = c->confusion[(int64_t)truth * c->n + predicted];
    const int64_t whole = sp_metrics_truth(c->confusion, c->n, truth);
    const double part = whole > 0 ? (double)n / (double)whole : NAN;
    /* The square root shows confusions of a few percent too. */
    const double shade = part > 0 ? 0.06 + 0.94 * sqrt(part) : 0;
    char percent[8] = "", count[8];

    if (part >= 0.995 || (part > 0 && part * 100 < 0.5))
        strcpy(percent, part > 0.9 ? "100" : "\xc2\xb7");
    else if (part > 0)
        snprintf(percent, sizeof percent, "%.0f", 100 * part);
    sp_page_put(report->page, sp_page_add(report->page, row, "cell", NULL),
                "kind %s shade %f name %s n %f share %f percent %s count %s",
                truth == predicted ? shade > 0.62 ? "h w" : "h"
                : shade > 0.62     ? "m w"
                                   : "m",
                shade, c->eval->class_name[predicted], (double)n, 100 * part, percent,
                n > 0 && c->n <= MOST_COUNTED ? classes_short_count(n, count) : "");
}

/* Appends the largest confusions by their number. */
static void map_add_worst(const sp_report *report, json_t *to, const counts *c)
{
    const int64_t *n = c->confusion;

    for (int64_t listed = 0, last = -1, next; listed < WORST; listed++, last = next) {
        next = -1;
        for (int64_t i = 0; i < (int64_t)c->n * c->n; i++)
            if (i / c->n != i % c->n && n[i] > 0 &&
                (last < 0 || n[i] < n[last] || (n[i] == n[last] && i > last)) &&
                (next < 0 || n[i] > n[next]))
                next = i;
        if (next < 0)
            break;
        sp_page_put(report->page, sp_page_add(report->page, to, "worst", NULL),
                    "truth %s predicted %s n %f", c->eval->class_name[next / c->n],
                    c->eval->class_name[next % c->n], (double)n[next]);
    }
}

static void classes_add_map(const sp_report *report, json_t *to, const counts *c)
{
    sp_page_put(report->page, to, "unit %s n %d size %s", c->unit, c->n,
                c->n > MOST_WORDED ? "dense" : "");
    for (int truth = 0; c->n <= MOST_MAPPED && truth < c->n; truth++) {
        json_t *row = sp_page_add(report->page, to, "row", NULL);

        sp_page_put(report->page, row, "number %d name %s", truth,
                    c->eval->class_name[truth]);
        for (int k = 0; k < c->n; k++)
            map_add_cell(report, row, c, truth, k);
    }
    map_add_worst(report, to, c);
}

void sp_report_add_classes(const sp_report *report)
{
    enum { MOST_LATER = 20 };

    for (int run = 0; run < report->n; run++) {
        const sp_history *s = &report->history[run];
        json_t *at;
        counts c;

        if (!classes_count(s, &c))
            continue;
        at = sp_report_add(report, "classes", run);
        sp_report_put_eval(report, at, c.eval);
        classes_add_table(report, at, &c);
        for (int i = 0; i < c.eval->n_sets; i++)
            sp_report_put_eval(report, sp_page_add(report->page, at, "set", NULL),
                               &c.eval->set[i]);
        for (int i = s->n_later > MOST_LATER ? s->n_later - MOST_LATER : 0;
             i < s->n_later; i++)
            sp_report_put_eval(report, sp_page_add(report->page, at, "later", NULL),
                               &s->later[i]);
        classes_add_map(report, sp_report_add(report, "confusion", run), &c);
    }
}
