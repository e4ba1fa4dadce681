#include "report/sp_chart.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* A curve has at most two points for each of its COLUMNS columns. */
enum { COLUMNS = 400, SIDE = 1000, SMOOTHED = 40, COLOURS = 8, TICKS = 4 };

/* The axes: the ranges of x and y in data, y as its logarithm if is_log. */
typedef struct axes {
    double x0, x1, y0, y1;
    bool is_log;
    int n_ticks; /* of the y axis, about */
    double tick; /* distance of the ticks of the y axis; not of a logarithmic one */
} axes;

static double across(const axes *a, double x)
{
    return (x - a->x0) / (a->x1 - a->x0) * SIDE;
}

static double up(const axes *a, double y)
{
    const double v = a->is_log ? log10(y) : y;

    return (1 - (v - a->y0) / (a->y1 - a->y0)) * SIDE;
}

/* ---- axes ---- */

/* The distance of about `n` ticks: 1, 2 or 5 times a power of 10. */
static double tick_of(double range, int n)
{
    const double rough = range / n, power = pow(10, floor(log10(rough)));
    const double digit = rough / power;

    return power * (digit < 1.5 ? 1 : digit < 3.5 ? 2 : digit < 7.5 ? 5 : 10);
}

/* Finds the ranges of the values; false if no value is finite. */
static bool find_ranges(axes *a, const sp_chart *chart, const sp_series *series, int n)
{
    double least = INFINITY, lo = INFINITY, hi = -INFINITY;
    bool is_found = false;

    *a = (axes){INFINITY, -INFINITY, 0, 0, false, chart->is_small ? 2 : TICKS, 0};
    for (int s = 0; s < n; s++)
        for (int i = 0; i < series[s].n; i++) {
            const double x = series[s].x[i], y = series[s].y[i];

            if (!isfinite(x) || !isfinite(y))
                continue;
            is_found = true;
            a->x0 = fmin(a->x0, x);
            a->x1 = fmax(a->x1, x);
            lo = fmin(lo, y);
            hi = fmax(hi, y);
            least = y > 0 ? fmin(least, y) : least;
        }
    a->is_log = is_found && !chart->is_linear && lo > 0 && hi / lo > 50;
    a->y0 = a->is_log ? log10(least) : lo;
    a->y1 = a->is_log ? log10(hi) : hi;
    return is_found;
}

/* Moves the borders outwards to round numbers. */
static void round_ranges(axes *a, const sp_chart *chart)
{
    /* Ticks must differ as numbers, however large these are. */
    if (!(a->x1 - a->x0 > 1e-12 * fmax(fabs(a->x0), fabs(a->x1)))) {
        const double half = fmax(fabs(a->x1) * 1e-6, 0.5);

        a->x0 -= half;
        a->x1 += half;
    }
    if (isfinite(chart->lo) && isfinite(chart->hi)) {
        a->y0 = chart->lo;
        a->y1 = chart->hi;
        a->is_log = false;
        a->tick = tick_of(a->y1 - a->y0, a->n_ticks);
        return;
    }
    if (a->is_log) {
        a->y0 = floor(a->y0 * 2) / 2;
        a->y1 = ceil(a->y1 * 2) / 2;
        return;
    }
    if (a->y1 - a->y0 <= 1e-12 * fmax(fabs(a->y0), fabs(a->y1))) {
        const double half = fabs(a->y1) / 10;

        a->y0 -= half;
        a->y1 += half > 1e-300 ? half : 1; /* a line of zeros lies on the axis */
    }
    /* An axis begins at zero if that costs little. */
    if (a->y0 > 0 && a->y0 < 0.4 * a->y1)
        a->y0 = 0;
    a->tick = tick_of(a->y1 - a->y0, a->n_ticks);
    a->y0 = floor(a->y0 / a->tick + 1e-9) * a->tick;
    a->y1 = ceil(a->y1 / a->tick - 1e-9) * a->tick;
}

/* Shows a number with the digits that ticks need. */
static void add_number(sp_html *html, double value)
{
    const double size = fabs(value);

    if (size >= 1e6)
        sp_html_add(html, "%.4gM", value / 1e6);
    else if (size >= 1e4)
        sp_html_add(html, "%.4gk", value / 1e3);
    else if (size < 1e-12)
        sp_html_raw(html, "0");
    else
        sp_html_add(html, "%.4g", value);
}

static void add_y_tick(sp_html *html, const axes *a, double y)
{
    sp_html_add(html, "<span class=\"ty\" style=\"top:%.2f%%\">",
                up(a, y) * 100 / SIDE);
    add_number(html, y);
    sp_html_raw(html, "</span>");
}

/* Calls `add` for each tick of the y axis. */
static void each_y_tick(sp_html *html, const axes *a,
                        void (*add)(sp_html *html, const axes *a, double y))
{
    if (a->is_log) {
        const bool is_narrow = a->y1 - a->y0 < 2.5;

        for (double power = floor(a->y0); power <= a->y1; power++)
            for (int digit = 1; digit < (is_narrow ? 6 : 2);
                 digit += digit == 1 ? 1 : 3) {
                const double y = pow(10, power) * digit;

                if (log10(y) >= a->y0 - 1e-9 && log10(y) <= a->y1 + 1e-9)
                    add(html, a, y);
            }
        return;
    }
    for (double k = ceil(a->y0 / a->tick - 1e-9); k * a->tick <= a->y1 + a->tick * 1e-6;
         k++)
        add(html, a, k * a->tick);
}

static void add_grid_line(sp_html *html, const axes *a, double y)
{
    sp_html_add(html, "M0 %.1fH%d", up(a, y), SIDE);
}

static void add_x_ticks(sp_html *html, const axes *a, bool is_small)
{
    const double tick = fmax(tick_of(a->x1 - a->x0, is_small ? 2 : 5), 1);

    for (double k = ceil(a->x0 / tick - 1e-9); k * tick <= a->x1 + tick * 1e-6; k++) {
        sp_html_add(html, "<span class=\"tx\" style=\"left:%.2f%%\">",
                    across(a, k * tick) * 100 / SIDE);
        add_number(html, k * tick);
        sp_html_raw(html, "</span>");
    }
}

/* ---- curves ---- */

/* The points of a curve that are drawn. */
typedef struct curve {
    int n;
    double x[2 * COLUMNS + 4], y[2 * COLUMNS + 4];
} curve;

static void chart_add_point(curve *c, double x, double y)
{
    assert(c->n < (int)(sizeof c->x / sizeof *c->x));
    c->x[c->n] = x;
    c->y[c->n++] = y;
}

/* Keeps the least and the greatest value of each column, in their order, so that no
 * peak is lost. */
static void thin(curve *c, const axes *a, const sp_series *s, const double *y)
{
    int i = 0;

    c->n = 0;
    while (i < s->n) {
        const int column = (int)fmin(across(a, s->x[i]) * COLUMNS / SIDE, COLUMNS);
        int lo = -1, hi = -1;

        for (; i < s->n; i++) {
            if (!isfinite(y[i]) || (a->is_log && y[i] <= 0) || !isfinite(s->x[i]))
                continue;
            if (s->n > COLUMNS &&
                (int)fmin(across(a, s->x[i]) * COLUMNS / SIDE, COLUMNS) != column &&
                lo >= 0)
                break;
            lo = lo < 0 || y[i] < y[lo] ? i : lo;
            hi = hi < 0 || y[i] > y[hi] ? i : hi;
            if (s->n <= COLUMNS) {
                i++;
                break;
            }
        }
        if (lo < 0)
            continue;
        if (lo != hi)
            chart_add_point(c, s->x[lo < hi ? lo : hi], y[lo < hi ? lo : hi]);
        chart_add_point(c, s->x[lo > hi ? lo : hi], y[lo > hi ? lo : hi]);
        if (c->n > 2 * COLUMNS)
            break;
    }
}

static void add_path(sp_html *html, const axes *a, const curve *c)
{
    sp_html_raw(html, " d=\"");
    for (int i = 0; i < c->n; i++)
        sp_html_add(html, "%s%.1f %.1f", i ? "L" : "M", across(a, c->x[i]),
                    up(a, c->y[i]));
    /* A single point is a line of no length with round ends. */
    if (c->n == 1)
        sp_html_raw(html, "h0");
    sp_html_raw(html, "\"/>");
}

/* The running mean over about a fortieth of the values. *mean is malloc'd; NULL without
 * memory. */
static double *chart_smooth(const sp_series *s)
{
    double *mean = malloc(((size_t)s->n + 1) * sizeof *mean), last = NAN;
    const double part = 2.0 / (fmax((double)s->n / SMOOTHED, 1) + 1);

    for (int i = 0; mean && i < s->n; i++) {
        if (isfinite(s->y[i]))
            last = isfinite(last) ? last + part * (s->y[i] - last) : s->y[i];
        mean[i] = isfinite(s->y[i]) ? last : NAN;
    }
    return mean;
}

/* Adds a curve with its numbers for the pointer. */
static void chart_add_curve(sp_html *html, const axes *a, const sp_chart *chart,
                            const sp_series *s)
{
    double *mean = chart->is_smoothed && s->n > SMOOTHED ? chart_smooth(s) : NULL;
    curve *c = malloc(sizeof *c);

    if (!c) {
        html->is_short = true;
        free(mean);
        return;
    }
    thin(c, a, s, s->y);
    if (c->n > 0) {
        sp_html_add(html, "<path class=\"s s%d%s\" data-n=\"%s\" data-p=\"",
                    s->colour % COLOURS, mean ? " raw" : "", s->name);
        for (int i = 0; i < c->n; i++)
            sp_html_add(html, "%s%.9g,%.9g", i ? " " : "", c->x[i], c->y[i]);
        sp_html_raw(html, "\"");
        add_path(html, a, c);
    }
    if (mean) {
        thin(c, a, s, mean);
        sp_html_add(html, "<path class=\"s s%d\"", s->colour % COLOURS);
        add_path(html, a, c);
    }
    free(mean);
    free(c);
}

void sp_chart_add(sp_html *html, const sp_chart *chart, const sp_series *series, int n)
{
    axes a;

    assert(chart->title && n >= 0 && (series || n == 0));
    if (!find_ranges(&a, chart, series, n))
        return;
    round_ranges(&a, chart);
    sp_html_add(html,
                "<figure class=\"chart%s\"><figcaption>%s%-s</figcaption><div "
                "class=\"plot\" data-x0=\"%.9g\" "
                "data-x1=\"%.9g\" data-x=\"step\"><svg viewBox=\"0 0 %d %d\" "
                "preserveAspectRatio=\"none\" role=\"img\" aria-hidden=\"true\">"
                "<path class=\"grid\" d=\"",
                chart->is_small ? " small" : "", chart->title,
                a.is_log ? " <small>logarithmic</small>" : "", a.x0, a.x1, SIDE, SIDE);
    each_y_tick(html, &a, add_grid_line);
    sp_html_raw(html, "\"/>");
    for (int s = 0; s < n; s++)
        chart_add_curve(html, &a, chart, &series[s]);
    sp_html_raw(html, "</svg>");
    each_y_tick(html, &a, add_y_tick);
    add_x_ticks(html, &a, chart->is_small);
    sp_html_raw(html, "</div></figure>\n");
}
