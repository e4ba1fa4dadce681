#include "report/sp_render.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <strings.h>

#include "base/sp_list.h"

/* The oblique view: turned by this angle about z, seen from this height. */
#define AZIMUTH   0.5236 /* 30 degrees */
#define ELEVATION 0.6981 /* 40 degrees */
#define DEGREES   57.29577951308232
/* Elevations of the sensor's view are stretched by this factor. */
#define STRETCH 3.0

enum {
    SAMPLE = 200000, /* points from which the borders are found */
    STRAY = 1000,    /* one in STRAY may lie outside, if it is far outside */
    MARGIN = 12,     /* pixels around the cloud */
    CLOSE = 8        /* pixels of a square that is searched for gaps */
};

typedef struct place {
    float u, v, depth; /* depth grows away from the eye */
} place;

/* Sines and cosines of the oblique view. */
typedef struct axes {
    float ca, sa, ce, se;
    sp_render_from from;
} axes;

static axes axes_of(sp_render_from from)
{
    return (axes){(float)cos(AZIMUTH), (float)sin(AZIMUTH), (float)cos(ELEVATION),
                  (float)sin(ELEVATION), from};
}

static inline place project(const axes *a, const float *p)
{
    if (a->from == SP_FROM_TOP)
        return (place){p[0], p[1], -p[2]};
    if (a->from == SP_FROM_OBLIQUE) {
        const float across = a->ca * p[0] + a->sa * p[1];
        const float along = a->ca * p[1] - a->sa * p[0];

        return (place){across, along * a->se + p[2] * a->ce,
                       along * a->ce - p[2] * a->se};
    }
    {
        const float flat = sqrtf(p[0] * p[0] + p[1] * p[1]);

        return (place){(float)(-atan2f(p[1], p[0]) * DEGREES),
                       (float)(STRETCH * DEGREES * atan2f(p[2], flat)),
                       sqrtf(flat * flat + p[2] * p[2])};
    }
}

bool sp_render_hides(const char *class_name, sp_render_from from)
{
    return from != SP_FROM_SENSOR && strcasecmp(class_name, "ceiling") == 0;
}

static inline bool is_hidden(const sp_cloud *cloud, int64_t i)
{
    return cloud->hidden && cloud->hidden[i];
}

/* ---- borders ---- */

/* Returns the value that would be at `rank` if the values were sorted (C. A. R. Hoare's
 * Find); their order changes. Sorting them all needed most of the time of a picture. */
static float ranked(float *value, int n, int rank)
{
    int first = 0, last = n - 1;

    while (first < last) {
        const float middle = value[first + (last - first) / 2];
        int i = first, k = last;

        while (i <= k) {
            while (value[i] < middle)
                i++;
            while (middle < value[k])
                k--;
            if (i <= k) {
                const float other = value[i];

                value[i++] = value[k];
                value[k--] = other;
            }
        }
        if (rank <= k)
            last = k;
        else if (rank >= i)
            first = i;
        else
            break;
    }
    return value[rank];
}

/* Finds the range of n values without the few that lie far outside of all others. */
static void render_find_range(float *value, int n, double *lo, double *hi)
{
    const int out = n / STRAY;
    double least = INFINITY, most = -INFINITY, width;

    for (int i = 0; i < n; i++) {
        least = fmin(least, value[i]);
        most = fmax(most, value[i]);
    }
    *lo = ranked(value, n, out);
    *hi = ranked(value, n, n - 1 - out);
    width = *hi - *lo;
    if (*lo - least < width / 4)
        *lo = least;
    if (most - *hi < width / 4)
        *hi = most;
}

/* Samples points at even distances and finds the ranges of both axes. */
static sp_status find_borders(const sp_cloud *cloud, sp_render_from from, double lo[2],
                              double hi[2])
{
    const int64_t step = (cloud->n + SAMPLE - 1) / SAMPLE;
    const axes a = axes_of(from);
    SP_FREED float *u = NULL;
    float *v;
    int n = 0;

    SP_TRY(SP_NEW(&u, 2 * SAMPLE, "the borders of a picture"));
    v = u + SAMPLE;
    for (int64_t i = 0; i < cloud->n; i += step) {
        const place p = project(&a, cloud->xyz + 3 * i);

        if (is_hidden(cloud, i))
            continue;
        u[n] = p.u;
        v[n++] = p.v;
    }
    if (n > 0) {
        render_find_range(u, n, &lo[0], &hi[0]);
        render_find_range(v, n, &lo[1], &hi[1]);
    }
    return n > 0 ? SP_OK : SP_FAIL(SP_EDATA, "there is no point to draw");
}

/* True if, seen from above, the origin lies among the points: at least three of its
 * four sides have some. */
static bool is_around_origin(const sp_cloud *cloud)
{
    bool is_left = false, is_right = false, is_before = false, is_behind = false;

    for (int64_t i = 0; i < cloud->n; i++) {
        is_left = is_left || cloud->xyz[3 * i + 1] > 0;
        is_right = is_right || cloud->xyz[3 * i + 1] < 0;
        is_before = is_before || cloud->xyz[3 * i] > 0;
        is_behind = is_behind || cloud->xyz[3 * i] < 0;
    }
    return is_left + is_right + is_before + is_behind >= 3;
}

sp_status sp_render_open(sp_render *view, const sp_cloud *cloud, sp_render_from from,
                         int width, int height)
{
    const double room_u = width - 2.0 * MARGIN, room_v = height - 2.0 * MARGIN;
    double lo[2] = {0, 0}, hi[2] = {0, 0}, half;

    assert(cloud->n >= 0 &&
           (cloud->n == 0 || (cloud->xyz && cloud->colour && cloud->palette)));
    assert(width > 4 * MARGIN && height > 4 * MARGIN);
    if (cloud->n == 0)
        return SP_FAIL(SP_EDATA, "there is no point to draw");
    if (from == SP_FROM_SENSOR && !is_around_origin(cloud))
        return SP_FAIL(SP_EUSAGE,
                       "--from sensor: the points do not lie around the origin, where "
                       "a mobile scan has its sensor; take top or oblique");
    SP_TRY(find_borders(cloud, from, lo, hi));
    half = from == SP_FROM_SENSOR ? 0.5 : fmax(cloud->cell / 2, 0.005);
    for (int i = 0; i < 2; i++) {
        lo[i] -= half;
        hi[i] += half;
    }
    *view = (sp_render){.from = from, .width = width};
    view->scale = fmin(room_u / (hi[0] - lo[0]), room_v / (hi[1] - lo[1]));
    view->height = (int)ceil((hi[1] - lo[1]) * view->scale) + 2 * MARGIN;
    if (view->height < height / 4)
        view->height = height / 4;
    view->u0 = (lo[0] + hi[0]) / 2 - width / 2.0 / view->scale;
    view->v1 = (lo[1] + hi[1]) / 2 + view->height / 2.0 / view->scale;
    return SP_OK;
}

/* ---- painting ---- */

void sp_raster_destroy(sp_raster *r)
{
    free(r->depth);
    free(r->point);
    free(r->shade);
    *r = (sp_raster){0};
}

static sp_status render_allocate(sp_raster *r, const sp_render *view, int smooth)
{
    size_t n;

    *r = (sp_raster){.width = view->width * smooth,
                     .height = view->height * smooth,
                     .smooth = smooth,
                     .scale = view->scale * smooth};
    n = (size_t)r->width * (size_t)r->height;
    SP_TRY(SP_NEW(&r->depth, n, "a picture"));
    SP_TRY(SP_NEW(&r->point, n, "a picture"));
    SP_TRY(SP_NEW(&r->shade, n, "a picture"));
    for (size_t i = 0; i < n; i++) {
        r->depth[i] = INFINITY;
        r->point[i] = SP_NO_POINT;
    }
    return SP_OK;
}

/* Paints a rectangle of pixels for each point; the nearest one is kept, and the first
 * of several at one depth. */
static void render_paint(sp_raster *r, const sp_render *view, const sp_cloud *cloud,
                         int wide, int high)
{
    const axes a = axes_of(view->from);
    const float scale = (float)r->scale, u0 = (float)view->u0, v1 = (float)view->v1;
    const float left = (float)(wide - 1) / 2, top = (float)(high - 1) / 2;

    for (int64_t i = 0; i < cloud->n; i++) {
        const place p = project(&a, cloud->xyz + 3 * i);
        const float fx = (p.u - u0) * scale - left, fy = (v1 - p.v) * scale - top;
        const float depth = p.depth * scale;
        int x, y;

        if (is_hidden(cloud, i) ||
            !(fx > -1e6f && fx < 1e6f && fy > -1e6f && fy < 1e6f))
            continue;
        x = (int)floorf(fx);
        y = (int)floorf(fy);
        for (int row = y < 0 ? 0 : y; row < y + high && row < r->height; row++)
            for (int at = x < 0 ? 0 : x; at < x + wide && at < r->width; at++) {
                const size_t k = (size_t)row * (size_t)r->width + (size_t)at;

                if (depth < r->depth[k]) {
                    r->depth[k] = depth;
                    r->point[k] = (uint32_t)i;
                }
            }
    }
}

/* The edge of a point's square where points have no size: three quarters more than the
 * mean distance between painted pixels within the squares of the picture that have any,
 * since scanners do not place points evenly. */
static int render_find_gap(const sp_raster *r)
{
    int64_t painted = 0, covered = 0;

    for (int y = 0; y + CLOSE <= r->height; y += CLOSE)
        for (int x = 0; x + CLOSE <= r->width; x += CLOSE) {
            int here = 0;

            for (int k = 0; k < CLOSE * CLOSE; k++)
                here += r->point[(size_t)(y + k / CLOSE) * (size_t)r->width +
                                 (size_t)(x + k % CLOSE)] != SP_NO_POINT;
            painted += here;
            covered += here > 0 ? CLOSE * CLOSE : 0;
        }
    if (painted == 0)
        return 1;
    return (int)fmin(ceil(1.75 * sqrt((double)covered / (double)painted)), 9);
}

static void paint_points(sp_raster *r, const sp_render *view, const sp_cloud *cloud)
{
    const bool is_sensor = view->from == SP_FROM_SENSOR;
    int size = 1;

    if (cloud->cell > 0 && !is_sensor) {
        /* From the side a cube is higher than its edge. */
        const double edge =
            cloud->cell * r->scale * (view->from == SP_FROM_OBLIQUE ? 1.2 : 1);

        size = (int)fmin(fmax(ceil(edge), 1), 4096);
        render_paint(r, view, cloud, size, size);
        return;
    }
    render_paint(r, view, cloud, 1, 1);
    size = render_find_gap(r);
    size = size < r->smooth ? r->smooth : size;
    /* The lines of a sensor are farther apart than the points on them. */
    render_paint(r, view, cloud, is_sensor ? (size + 1) / 2 : size,
                 is_sensor ? size * 3 / 2 : size);
}

/* ---- shading ---- */

static inline float depth_at(const sp_raster *r, int x, int y, float otherwise)
{
    float d;

    if (x < 0 || y < 0 || x >= r->width || y >= r->height)
        return otherwise;
    d = r->depth[(size_t)y * (size_t)r->width + (size_t)x];
    return d < INFINITY ? d : otherwise;
}

/* The light that a pixel loses to its eight neighbours at a distance: the sum of the
 * logarithms of their distances in front of it, computed as one logarithm of a product.
 * It grows slowly: a step of a kerb shows beside a house. */
static inline float render_loss(const sp_raster *r, int x, int y, int distance,
                                float depth, float unit)
{
    static const int dx[] = {1, 1, 0, -1, -1, -1, 0, 1};
    static const int dy[] = {0, 1, 1, 1, 0, -1, -1, -1};
    float product = 1;

    for (int i = 0; i < 8; i++) {
        const float front = unit * (depth - depth_at(r, x + dx[i] * distance,
                                                     y + dy[i] * distance, depth));

        product *= front > 0.5f ? front + 0.5f : 1;
    }
    return product > 1 ? log2f(product) : 0;
}

/* Shades by eight neighbours at two distances. `unit` is a depth that counts as one
 * step: depths of the sensor's view are ranges, not pixels. */
static void shade(sp_raster *r, float unit)
{
    const float strength = 0.055f;

    for (int y = 0; y < r->height; y++)
        for (int x = 0; x < r->width; x++) {
            const size_t k = (size_t)y * (size_t)r->width + (size_t)x;
            const float depth = r->depth[k];
            float sum;

            r->shade[k] = 1;
            if (!(depth < INFINITY))
                continue;
            sum = render_loss(r, x, y, r->smooth, depth, unit) +
                  render_loss(r, x, y, 3 * r->smooth, depth, unit) / 3;
            if (sum > 0)
                r->shade[k] = fmaxf(expf(-strength * sum), 0.25f);
        }
}

/* Steps of light in a picture that keeps to few colours. */
enum { LIGHTS = 10 };

static sp_colour lit(sp_colour c, float light, bool is_stepped)
{
    if (is_stepped)
        light = (float)((int)(light * LIGHTS + 0.5f)) / LIGHTS;
    return (sp_colour){(uint8_t)((float)c.r * light + 0.5f),
                       (uint8_t)((float)c.g * light + 0.5f),
                       (uint8_t)((float)c.b * light + 0.5f), c.a};
}

/* Paints the mean of a square of smooth x smooth pixels over the canvas. A picture of
 * single pixels keeps to few colours. */
static void shrink_one(const sp_raster *r, const sp_cloud *cloud, sp_canvas *canvas,
                       int x, int y, int to_x, int to_y)
{
    const int smooth = r->smooth;
    int red = 0, green = 0, blue = 0, n = 0;

    for (int k = 0; k < smooth * smooth; k++) {
        const size_t at = (size_t)(y * smooth + k / smooth) * (size_t)r->width +
                          (size_t)(x * smooth + k % smooth);
        sp_colour c;

        if (r->point[at] == SP_NO_POINT)
            continue;
        c = lit(cloud->palette[cloud->colour[r->point[at]]], r->shade[at], smooth == 1);
        red += c.r;
        green += c.g;
        blue += c.b;
        n++;
    }
    if (n > 0)
        sp_canvas_blend(canvas, to_x, to_y,
                        (sp_colour){(uint8_t)(red / n), (uint8_t)(green / n),
                                    (uint8_t)(blue / n), 255},
                        (float)n / (float)(smooth * smooth));
}

sp_status sp_render_paint(const sp_render *view, const sp_cloud *cloud, int smooth,
                          sp_raster *raster)
{
    assert(view->scale > 0 && smooth >= 1 && smooth <= 4);
    *raster = (sp_raster){0};
    if (cloud->n >= SP_NO_POINT)
        return SP_FAIL(SP_EDATA, "%lld points: a picture takes fewer than 2^32",
                       (long long)cloud->n);
    SP_TRY(render_allocate(raster, view, smooth));
    paint_points(raster, view, cloud);
    /* A range of 10 cm is a step in the sensor's view. */
    shade(raster,
          view->from == SP_FROM_SENSOR ? 10 / (float)raster->scale : 1 / (float)smooth);
    return SP_OK;
}

void sp_render_colour(const sp_raster *raster, const sp_cloud *cloud, sp_canvas *canvas,
                      int x, int y)
{
    assert(canvas->pixel && raster->smooth > 0 && x >= 0 && y >= 0);
    assert(x + raster->width / raster->smooth <= canvas->width);
    assert(y + raster->height / raster->smooth <= canvas->height);
    for (int row = 0; row < raster->height / raster->smooth; row++)
        for (int at = 0; at < raster->width / raster->smooth; at++)
            shrink_one(raster, cloud, canvas, at, row, x + at, y + row);
}

sp_status sp_render_draw(const sp_render *view, const sp_cloud *cloud, int smooth,
                         sp_canvas *canvas, int x, int y)
{
    SP_CLOSED_BY(sp_raster_destroy) sp_raster raster = {0};

    SP_TRY(sp_render_paint(view, cloud, smooth, &raster));
    sp_render_colour(&raster, cloud, canvas, x, y);
    return SP_OK;
}
