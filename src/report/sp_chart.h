/* Curves as SVG within HTML. The curves stretch with the page; ticks, labels and the
 * numbers under the pointer keep their size. Local. */
#ifndef SP_CHART_H
#define SP_CHART_H

#include "report/sp_html.h"

typedef struct sp_series {
    const char *name; /* any text; shown under the pointer */
    int colour;       /* 0 .. 7: colour number in the page's style */
    int n;
    const double *x, *y; /* [n] steps, rising; no point is drawn if y is NAN */
} sp_series;

typedef struct sp_chart {
    const char *title; /* any text */
    double lo, hi;     /* of the y axis; NAN: as the values are */
    bool is_smoothed;  /* noisy values: the running mean is emphasized */
    bool is_small;     /* one of many beside each other */
    bool is_linear;    /* the axis is never logarithmic */
} sp_chart;

/* Appends the chart; nothing if no series has two points to join or one to mark. */
void sp_chart_add(sp_html *html, const sp_chart *chart, const sp_series *series, int n);

#endif
