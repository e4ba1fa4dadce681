#include "report/sp_chart.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* A curve has at most two points for each of its COLUMNS columns. */
enum { COLUMNS = 400, SIDE = 1000, SMOOTHED = 40 };

/* The axes: the ranges of x and y in data, y as its logarithm if is_log. */
typedef struct axes {
    double x0, x1, y0, y1;
    bool is_log;
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
static bool axes_find(axes *a, const sp_series *series, int n)
{
    *a = (axes){INFINITY, -INFINITY, INFINITY, -INFINITY, false, 0};
    for (int s = 0; s < n; s++)
        for (int i = 0; i < series[s].n; i++) {
            const double x = series[s].x[i], y = series[s].y[i];

            if (!isfinite(x) || !isfinite(y))
                continue;
            a->x0 = fmin(a->x0, x);
            a->x1 = fmax(a->x1, x);
            a->y0 = fmin(a->y0, y);
            a->y1 = fmax(a->y1, y);
        }
    return a->x0 <= a->x1;
}

/* True if two borders are one number, or too close for ticks that differ. */
static bool axes_are_close(double lo, double hi)
{
    return !(hi - lo > 1e-12 * fmax(fabs(lo), fabs(hi)));
}

/* Moves the borders outwards to round numbers. */
static void axes_round(axes *a, int flags)
{
    if (axes_are_close(a->x0, a->x1)) {
        const double half = fmax(fabs(a->x1) * 1e-6, 0.5);

        a->x0 -= half;
        a->x1 += half;
    }
    if (flags & SP_CHART_SHARE) {
        a->y0 = 0;
        a->y1 = 1;
    } else if (!(flags & SP_CHART_LINEAR) && a->y0 > 0 && a->y1 / a->y0 > 50) {
        a->is_log = true;
        a->y0 = floor(log10(a->y0) * 2) / 2;
        a->y1 = ceil(log10(a->y1) * 2) / 2;
        return;
    }
    if (axes_are_close(a->y0, a->y1)) {
        const double half = fabs(a->y1) / 10;

        a->y0 -= half;
        a->y1 += half > 1e-300 ? half : 1; /* a line of zeros lies on the axis */
    }
    /* An axis begins at zero if that costs little. */
    if (a->y0 > 0 && a->y0 < 0.4 * a->y1)
        a->y0 = 0;
    a->tick = tick_of(a->y1 - a->y0, flags & SP_CHART_SHARE ? 2 : 4);
    a->y0 = floor(a->y0 / a->tick + 1e-9) * a->tick;
    a->y1 = ceil(a->y1 / a->tick - 1e-9) * a->tick;
}

/* Appends a tick at `at` of the side to the list "x" or "y". */
static void chart_add_tick(sp_page *page, json_t *to, const char *list, double at,
                           double value)
{
    const double size = fabs(value);
    char text[32];

    if (size >= 1e6)
        snprintf(text, sizeof text, "%.4gM", value / 1e6);
    else if (size >= 1e4)
        snprintf(text, sizeof text, "%.4gk", value / 1e3);
    else
        snprintf(text, sizeof text, "%.4g", size < 1e-12 ? 0 : value);
    sp_page_put(page, sp_page_add(page, to, list, NULL), "at %f percent %f text %s", at,
                at * 100 / SIDE, text);
}

static void chart_add_ticks(sp_page *page, json_t *to, const axes *a, bool is_small)
{
    const double tick = fmax(tick_of(a->x1 - a->x0, is_small ? 2 : 5), 1);
    const int n_digits = a->y1 - a->y0 < 2.5 ? 6 : 2; /* of a power of ten */

    for (double k = ceil(a->x0 / tick - 1e-9); k * tick <= a->x1 + tick * 1e-6; k++)
        chart_add_tick(page, to, "x", across(a, k * tick), k * tick);
    for (double power = floor(a->y0); a->is_log && power <= a->y1; power++)
        for (int digit = 1; digit < n_digits; digit += digit == 1 ? 1 : 3) {
            const double y = pow(10, power) * digit;

            if (log10(y) >= a->y0 - 1e-9 && log10(y) <= a->y1 + 1e-9)
                chart_add_tick(page, to, "y", up(a, y), y);
        }
    for (double k = ceil(a->y0 / a->tick - 1e-9);
         !a->is_log && k * a->tick <= a->y1 + a->tick * 1e-6; k++)
        chart_add_tick(page, to, "y", up(a, k * a->tick), k * a->tick);
}

/* ---- curves ---- */

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

/* The points of a curve that are drawn, as two texts. */
typedef struct curve {
    FILE *points, *path;
    int n;
} curve;

static void chart_add_point(curve *c, const axes *a, double x, double y)
{
    fprintf(c->points, "%s%.9g,%.9g", c->n ? " " : "", x, y);
    fprintf(c->path, "%s%.1f %.1f", c->n++ ? "L" : "M", across(a, x), up(a, y));
}

/* Keeps the least and the greatest value of each column, in their order, so that no
 * peak is lost. */
static void chart_thin(curve *c, const axes *a, const sp_series *s, const double *y)
{
    int lo = -1, hi = -1, column = 0;

    for (int i = 0; i <= s->n && c->n <= 2 * COLUMNS; i++) {
        int at = -1;

        if (i < s->n &&
            (!isfinite(y[i]) || (a->is_log && y[i] <= 0) || !isfinite(s->x[i])))
            continue;
        if (i < s->n)
            at = s->n > COLUMNS
                     ? (int)fmin(across(a, s->x[i]) * COLUMNS / SIDE, COLUMNS)
                     : i;
        if (lo >= 0 && at != column) {
            if (lo != hi)
                chart_add_point(c, a, s->x[lo < hi ? lo : hi], y[lo < hi ? lo : hi]);
            chart_add_point(c, a, s->x[lo > hi ? lo : hi], y[lo > hi ? lo : hi]);
            lo = hi = -1;
        }
        column = at;
        if (i < s->n) {
            lo = lo < 0 || y[i] < y[lo] ? i : lo;
            hi = hi < 0 || y[i] > y[hi] ? i : hi;
        }
    }
    /* A single point is a line of no length with round ends. */
    if (c->n == 1)
        fputs("h0", c->path);
}

/* Appends a curve of the values y; a name: the pointer shows it with the numbers. */
static void chart_add_curve(sp_page *page, json_t *to, const axes *a,
                            const sp_series *s, const double *y, int colour,
                            const char *name, bool is_faint)
{
    char *points = NULL, *path = NULL;
    size_t n;
    curve c = {open_memstream(&points, &n), open_memstream(&path, &n), 0};

    if (c.points && c.path)
        chart_thin(&c, a, s, y);
    if (!c.points || fclose(c.points) != 0)
        page->is_short = true;
    if (!c.path || fclose(c.path) != 0)
        page->is_short = true;
    if (c.n > 0)
        sp_page_put(page, sp_page_add(page, to, "curve", NULL),
                    "colour %d name %s points %s path %s kind %s", colour % 8, name,
                    points, path, is_faint ? "raw" : "");
    free(points);
    free(path);
}

void sp_chart_add(sp_page *page, const char *list, const char *title, int flags,
                  const sp_series *series, int n)
{
    json_t *at;
    axes a;

    assert(title && n >= 0 && (series || n == 0));
    if (!axes_find(&a, series, n))
        return;
    axes_round(&a, flags);
    at = sp_page_add(page, page->values, list, NULL);
    sp_page_put(page, at, "title %s size %s scale %s x0 %f x1 %f", title,
                flags & SP_CHART_SHARE ? "small" : "", a.is_log ? "logarithmic" : "",
                a.x0, a.x1);
    chart_add_ticks(page, at, &a, flags & SP_CHART_SHARE);
    for (int i = 0; i < n; i++) {
        const sp_series *s = &series[i];
        double *mean =
            flags & SP_CHART_SMOOTHED && s->n > SMOOTHED ? chart_smooth(s) : NULL;

        chart_add_curve(page, at, &a, s, s->y, i, s->name, mean);
        if (mean)
            chart_add_curve(page, at, &a, s, mean, i, NULL, false);
        free(mean);
    }
}
