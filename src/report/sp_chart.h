/* Curves as values of a page: axes with their ticks, and the paths of an SVG of 1000 x
 * 1000. The curves stretch with the page; ticks, labels and the numbers under the
 * pointer keep their size. Local. */
#ifndef SP_CHART_H
#define SP_CHART_H

#include "report/sp_page.h"

typedef struct sp_series {
    const char *name; /* any text; shown under the pointer */
    int n;
    const double *x, *y; /* [n] steps, rising; no point is drawn if y is NAN */
} sp_series;

enum {
    SP_CHART_SMOOTHED = 1, /* noisy values: the running mean is emphasized */
    SP_CHART_LINEAR = 2,   /* the axis is never logarithmic */
    SP_CHART_SHARE = 4 /* y is from 0 to 1, and the chart is one of many small ones */
};

/* Appends the chart to a list of the page; series i has the colour i. Nothing if no
 * series has a point. */
void sp_chart_add(sp_page *page, const char *list, const char *title, int flags,
                  const sp_series *series, int n);

#endif
