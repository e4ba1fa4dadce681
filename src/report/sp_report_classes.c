/* Classes and confusions of a page: of each run's latest evaluation, over points if it
 * has points with labels, else over voxels. */
#include <assert.h>
#include <inttypes.h>
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

static int64_t report_total_of(const counts *c)
{
    return sp_metrics_total(c->confusion, c->n);
}

static double report_share(int64_t part, int64_t whole)
{
    return whole > 0 ? (double)part / (double)whole : NAN;
}

static double report_classes_iou_of(const counts *c, int class)
{
    return c->iou ? c->iou[class] : sp_metrics_iou(c->confusion, c->n, class);
}

static double precision_of(const counts *c, int class)
{
    return sp_metrics_precision(c->confusion, c->n, class);
}

static double recall_of(const counts *c, int class)
{
    return sp_metrics_recall(c->confusion, c->n, class);
}

/* The mean over the classes that have the number. */
static double report_classes_mean_of(const counts *c, double (*of)(const counts *, int))
{
    double sum = 0;
    int n = 0;

    for (int k = 0; k < c->n; k++)
        if (isfinite(of(c, k))) {
            sum += of(c, k);
            n++;
        }
    return n ? sum / n : NAN;
}

/* ---- tables ---- */

/* A cell with a bar. */
static void add_bar(const sp_report *report, double value)
{
    sp_html_add(
        report->html,
        "<td>%.4f<span class=\"bar\"><i style=\"width:%.1f%%\"></i></span></td>", value,
        isfinite(value) ? fmin(fmax(value, 0), 1) * 100 : 0);
}

/* IoU comes first, so that a narrow screen shows it. */
static void report_add_row(const sp_report *report, const counts *c, int k)
{
    const int64_t truth = sp_metrics_truth(c->confusion, c->n, k);

    sp_html_add(report->html, "<tr><td>%s</td>", c->eval->class_name[k]);
    add_bar(report, report_classes_iou_of(c, k));
    if (c->merged_iou)
        add_bar(report, c->merged_iou[k]);
    sp_html_add(
        report->html,
        "<td>%.4f</td><td>%.4f</td><td>%g</td><td>%.2f %%</td><td>%g</td></tr>\n",
        precision_of(c, k), recall_of(c, k), (double)truth,
        100 * report_share(truth, report_total_of(c)),
        (double)sp_metrics_predicted(c->confusion, c->n, k));
}

static void report_add_table(const sp_report *report, const counts *c)
{
    const double total = (double)report_total_of(c);

    sp_html_add(report->html,
                "<div class=\"wide\"><table><thead><tr><th>class</th><th>IoU</th>%-s"
                "<th>precision</th><th>recall</th><th>%s</th><th>share</th>"
                "<th>predicted</th></tr></thead><tbody>\n",
                c->merged_iou ? "<th>merged IoU</th>" : "", c->unit);
    for (int k = 0; k < c->n; k++)
        report_add_row(report, c, k);
    sp_html_raw(report->html, "</tbody><tfoot><tr><td>mean</td>");
    add_bar(report, sp_history_score(c->eval));
    if (c->merged_iou)
        add_bar(report, sp_history_merged_score(c->eval));
    sp_html_add(report->html,
                "<td>%.4f</td><td>%.4f</td><td>%g</td><td></td><td>%g</td></tr></tfoot>"
                "</table></div>\n",
                report_classes_mean_of(c, precision_of),
                report_classes_mean_of(c, recall_of), total, total);
}

/* Names the evaluation that is shown. */
static void add_origin(const sp_report *report, const counts *c)
{
    const sp_history_eval *e = c->eval;

    sp_html_add(report->html, "<p class=\"soft\">Evaluation at step %g", e->step);
    if (isfinite(e->epoch))
        sp_html_add(report->html, ", epoch %g", e->epoch);
    if (e->checkpoint && *e->checkpoint)
        sp_html_add(report->html, ", by sptrain eval of %s", e->checkpoint);
    sp_html_add(report->html, ": %g sample%s, %g labelled %s, accuracy %.4f",
                e->samples, sp_plural(e->samples), (double)report_total_of(c), c->unit,
                c->is_of_points ? e->point_accuracy : e->accuracy);
    if (c->is_of_points)
        sp_html_add(report->html, "; mean IoU over voxels %.4f", e->miou);
    sp_html_raw(report->html, ".</p>\n");
}

/* The evaluations by sptrain eval, which may be of other data and checkpoints. */
static void add_later(const sp_report *report, const sp_history *s)
{
    enum { MOST = 20 };

    if (s->n_later == 0)
        return;
    sp_html_raw(
        report->html,
        "<div class=\"wide\"><table><thead><tr><th>sptrain eval</th>"
        "<th>step</th><th>samples</th><th>accuracy</th><th>mean IoU</th>"
        "<th>of points</th><th>merged</th><th>checkpoint</th></tr></thead><tbody>\n");
    for (int i = s->n_later > MOST ? s->n_later - MOST : 0; i < s->n_later; i++) {
        const sp_history_eval *e = &s->later[i];

        sp_html_add(report->html,
                    "<tr><td>%s</td><td>%g</td><td>%g</td><td>%.4f</td><td>%.4f</td>"
                    "<td>%.4f</td><td>%.4f</td><td>%s</td></tr>\n",
                    e->time, e->step, e->samples, e->accuracy, e->miou, e->point_miou,
                    sp_history_merged_score(e), e->checkpoint);
    }
    sp_html_raw(report->html, "</tbody></table></div>\n");
}

/* The scores of data.val_sets at the evaluation of the table. */
static void add_val_sets(const sp_report *report, const sp_history_eval *e)
{
    if (e->n_sets == 0)
        return;
    sp_html_raw(report->html,
                "<div class=\"wide\"><table><thead><tr><th>validation set</th>"
                "<th>samples</th><th>loss</th><th>accuracy</th><th>mean IoU</th>"
                "<th>of points</th><th>merged</th></tr></thead><tbody>\n");
    for (int i = 0; i < e->n_sets; i++) {
        const sp_history_eval *set = &e->set[i];

        sp_html_add(report->html,
                    "<tr><td>%s</td><td>%g</td><td>%.4f</td><td>%.4f</td><td>%.4f</td>"
                    "<td>%.4f</td><td>%.4f</td></tr>\n",
                    set->name, set->samples, set->loss, set->accuracy, set->miou,
                    set->point_miou, sp_history_merged_score(set));
    }
    sp_html_raw(report->html, "</tbody></table></div>\n");
}

/* Adds a section: its head once, then `add`'s output for each evaluated run's counts.
 * False: no run has been. */
static bool add_section(const sp_report *report, const char *head,
                        void (*add)(const sp_report *report, int run, const counts *c))
{
    bool has_head = false;

    assert(report->n > 0 && report->history);
    for (int run = 0; run < report->n; run++) {
        counts c;

        if (!classes_count(&report->history[run], &c))
            continue;
        if (!has_head)
            sp_html_raw(report->html, head);
        has_head = true;
        sp_report_head_run(report, run);
        add(report, run, &c);
    }
    return has_head;
}

static void report_add_run(const sp_report *report, int run, const counts *c)
{
    add_origin(report, c);
    report_add_table(report, c);
    add_val_sets(report, c->eval);
    add_later(report, &report->history[run]);
}

void sp_report_add_classes(const sp_report *report)
{
    if (!add_section(report, "<h2>Classes</h2>\n", report_add_run))
        sp_html_raw(report->html,
                    "<h2>Classes</h2>\n<p class=\"soft\">No evaluation has "
                    "been finished.</p>\n");
}

/* ---- confusion ---- */

/* A count in at most four characters: "812", "12k", "3.4M". */
static void add_short_count(const sp_report *report, int64_t n)
{
    static const char letters[] = " kMGTPE";
    double value = (double)n;
    int thousands = 0;

    for (; value >= 999.5; thousands++)
        value /= 1000;
    if (thousands == 0)
        sp_html_add(report->html, "%d", (int)n);
    else
        sp_html_add(report->html, value < 9.95 ? "%.1f%c" : "%.0f%c", value,
                    letters[thousands]);
}

static void add_map_cell(const sp_report *report, const counts *c, int truth,
                         int predicted)
{
    const int64_t n = c->confusion[(int64_t)truth * c->n + predicted];
    const double part = report_share(n, sp_metrics_truth(c->confusion, c->n, truth));
    /* The square root shows confusions of a few percent too. */
    const double shade = part > 0 ? 0.06 + 0.94 * sqrt(part) : 0;

    sp_html_add(report->html,
                "<i class=\"%s%s\" style=\"--a:%.2f\" title=\"%s\n&rarr; %s\n%g %s",
                truth == predicted ? "h" : "m", shade > 0.62 ? " w" : "", shade,
                c->eval->class_name[truth], c->eval->class_name[predicted], (double)n,
                c->unit);
    if (isfinite(part))
        sp_html_add(report->html, ", %.2f %%", 100 * part);
    sp_html_raw(report->html, "\">");
    if (part >= 0.995 || (part > 0 && part * 100 < 0.5))
        sp_html_raw(report->html, part > 0.9 ? "100" : "&middot;");
    else if (part > 0)
        sp_html_add(report->html, "%.0f", 100 * part);
    if (n > 0 && c->n <= MOST_COUNTED) {
        sp_html_raw(report->html, "<small>");
        add_short_count(report, n);
        sp_html_raw(report->html, "</small>");
    }
    sp_html_raw(report->html, "</i>");
}

static void add_map(const sp_report *report, const counts *c)
{
    char *const *name = c->eval->class_name;

    sp_html_add(report->html,
                "<div class=\"map%s\" style=\"--n:%d\" aria-label=\"confusion matrix; "
                "arrow keys show the numbers of a cell\"><b></b>",
                c->n > MOST_WORDED ? " dense" : "", c->n);
    for (int k = 0; k < c->n; k++)
        sp_html_add(report->html, "<b class=\"c\" title=\"%s\">%d</b>", name[k], k);
    for (int truth = 0; truth < c->n; truth++) {
        sp_html_add(report->html, "<b title=\"%s\">%d %s</b>", name[truth], truth,
                    name[truth]);
        for (int k = 0; k < c->n; k++)
            add_map_cell(report, c, truth, k);
        sp_html_raw(report->html, "\n");
    }
    sp_html_raw(report->html, "</div>\n");
}

/* Lists the largest confusions by their number. */
static void add_worst(const sp_report *report, const counts *c)
{
    int64_t below = INT64_MAX;
    int listed = 0;

    sp_html_raw(report->html, "<ul class=\"keys soft\">");
    while (listed < WORST) {
        int64_t most = 0;

        for (int64_t i = 0; i < (int64_t)c->n * c->n; i++)
            if (i / c->n != i % c->n && c->confusion[i] < below &&
                c->confusion[i] > most)
                most = c->confusion[i];
        if (most == 0)
            break;
        for (int64_t i = 0; i < (int64_t)c->n * c->n && listed < WORST; i++) {
            if (i / c->n == i % c->n || c->confusion[i] != most)
                continue;
            sp_html_add(report->html, "<li>%s &rarr; %s: %g</li>",
                        c->eval->class_name[i / c->n], c->eval->class_name[i % c->n],
                        (double)most);
            listed++;
        }
        below = most;
    }
    sp_html_raw(report->html, "</ul>\n");
}

static void add_confusion(const sp_report *report, int run, const counts *c)
{
    (void)run;
    if (c->n <= MOST_MAPPED)
        add_map(report, c);
    else
        sp_html_add(report->html,
                    "<p>%d classes are too many to draw; the largest confusions "
                    "are</p>\n",
                    c->n);
    add_worst(report, c);
}

void sp_report_add_confusions(const sp_report *report)
{
    add_section(report,
                "<h2>Confusion</h2>\n"
                "<p class=\"soft\">Rows are the truth, columns the prediction; a cell "
                "is the share of its row in percent, with its count below if there is "
                "room. Blue is right, orange is wrong.</p>\n",
                add_confusion);
}

/* ---- CSV ---- */

/* Quotes a text as RFC 4180 does. Line breaks become blanks. A text that a spreadsheet
 * would read as a formula gets an apostrophe before it. */
static void report_add_quoted(sp_html *csv, const char *text)
{
    sp_html_raw(csv, "\"");
    if (*text && strchr("=+-@\t\r", *text))
        sp_html_raw(csv, "'");
    for (; *text; text++) {
        const char one[2] = {*text == '\n' || *text == '\r' ? ' ' : *text, '\0'};

        sp_html_raw(csv, *text == '"' ? "\"\"" : one);
    }
    sp_html_raw(csv, "\"");
}

static void add_value(sp_html *csv, double value)
{
    if (isfinite(value))
        sp_html_add(csv, ",%.17g", value);
    else
        sp_html_raw(csv, ",");
}

void sp_report_add_csv(const sp_report *report, sp_html *csv)
{
    assert(csv && csv != report->html);
    sp_html_raw(csv, "run,step,epoch,unit,class,count,predicted,iou,precision,recall,"
                     "merged_iou\r\n");
    for (int run = 0; run < report->n; run++) {
        counts c;

        if (!classes_count(&report->history[run], &c))
            continue;
        for (int k = 0; k < c.n; k++) {
            report_add_quoted(csv, report->history[run].name);
            add_value(csv, c.eval->step);
            add_value(csv, c.eval->epoch);
            sp_html_add(csv, ",%s,", c.unit);
            report_add_quoted(csv, c.eval->class_name[k]);
            sp_html_add(csv, ",%" PRId64 ",%" PRId64,
                        sp_metrics_truth(c.confusion, c.n, k),
                        sp_metrics_predicted(c.confusion, c.n, k));
            add_value(csv, report_classes_iou_of(&c, k));
            add_value(csv, precision_of(&c, k));
            add_value(csv, recall_of(&c, k));
            add_value(csv, c.merged_iou ? c.merged_iou[k] : NAN);
            sp_html_raw(csv, "\r\n");
        }
    }
}
