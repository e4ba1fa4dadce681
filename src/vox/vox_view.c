/* spvox view: a picture of a shard's sample, of its predictions, or of a scan.
 *
 *     file --vox_view_load_*--> points, classes --colours--> sp_figure --> PNG */
#include "vox/vox_view.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/sp_file.h"
#include "base/sp_list.h"
#include "base/sp_log.h"
#include "h5/sp_h5.h"
#include "report/sp_canvas.h"
#include "report/sp_figure.h"
#include "vox/vox.h"

typedef struct arguments {
    vox_view_request load;
    const char *out;
    double below; /* metre above the lowest point; 0: not given */
} arguments;

/* ---- options ---- */

#define AT(member) .offset = offsetof(arguments, member)
/* clang-format off */
static const sp_option option_table[] = {
{{"-o", "PICTURE.png", "the picture"}, SP_OPTION_TEXT, AT(out)},
{{"--out", "PICTURE.png", "the same"}, SP_OPTION_TEXT, AT(out)},
{{"--sample", "N", "number of the sample in the shard, from 0 (0)"},
 SP_OPTION_WHOLE, AT(load.sample), 0, INT64_MAX},
{{"--by", "labels|prediction|error|feature", "what the colours tell (predictions "
  "where they are named, else labels, else the height)"},
 SP_OPTION_WORD, AT(load.by), VOX_BY_LABELS},
{{"--feature", "NAME", "the column of --by feature: one of the shard's, or an "
  "attribute of the scan; z is the height (z)"}, SP_OPTION_TEXT, AT(load.feature)},
{{"--from", "top|oblique|sensor", "the side: from above, from above the south-east, or "
  "all round from the origin of a mobile scan (top)"},
 SP_OPTION_WORD, AT(load.from), SP_FROM_TOP},
{{"--below", "M", "hides points more than M metre above the lowest one, such as the "
  "ceiling of a room; if classes are shown, a class \"ceiling\" is hidden without "
  "this option, but not --from sensor"}, SP_OPTION_REAL, AT(below)},
{{"--map", "LIST", "classes of a scan's codes, as in spvox convert"},
 SP_OPTION_READ, AT(load.map), .read = vox_read_map},
{{"--columns", "LIST", "as in spvox convert"}, SP_OPTION_TEXT, AT(load.columns)},
{{"--label-field", "NAME", "as in spvox convert"}, SP_OPTION_TEXT, AT(load.label_field)},
SP_OPTION_HELP_ROW,
};
/* clang-format on */

const sp_usage vox_view_usage = {
    .line = "usage: spvox view FILE [PREDICTIONS] [OPTIONS] -o PICTURE.png",
    .text = "Draws a sample of a shard, its predictions (the file of the same name "
            "that sptrain predict wrote), or a raw scan, shaded by depth, with "
            "legend and scale bar.",
    .options = SP_WORD_ROWS(option_table),
};

/* ---- colours ---- */

/* The picture's colours: index 0 is for points without a class. */
typedef struct colours {
    uint16_t *index;    /* [points] */
    sp_colour *palette; /* [n] */
    int n;
    sp_legend_row *row; /* [n] */
    int n_rows;
    double lo, hi;
} colours;

static sp_status view_allocate(colours *c, int64_t points, int n)
{
    c->n = n;
    SP_TRY(SP_NEW(&c->index, points, "the colours of a picture"));
    SP_TRY(SP_NEW(&c->palette, n, "the colours of a picture"));
    SP_TRY(SP_NEW(&c->row, n, "the colours of a picture"));
    return SP_OK;
}

/* Counts the points of each colour and keeps the rows that have any; index 0, for
 * points without a class, becomes the last row. */
static void view_count_rows(colours *c, int64_t points)
{
    sp_legend_row none;
    int kept = 0;

    for (int64_t i = 0; i < points; i++)
        c->row[c->index[i]].n++;
    none = c->row[0];
    for (int k = 1; k < c->n; k++)
        if (c->row[k].n > 0)
            c->row[kept++] = c->row[k];
    if (none.n > 0)
        c->row[kept++] = none;
    c->n_rows = kept;
}

static sp_colour view_colour_of(const vox_view_points *p, int class)
{
    const int index = p->class_colour ? p->class_colour[class] : class;

    return index < 0 ? sp_palette_ignored : sp_palette_class(index);
}

static sp_status colour_classes(colours *c, const vox_view_points *p,
                                const int32_t *class)
{
    if (p->n_classes > UINT16_MAX)
        return SP_FAIL(SP_EDATA,
                       "class %d: a picture shows classes 0 to %d; --map chooses some",
                       p->n_classes - 1, UINT16_MAX - 1);
    SP_TRY(view_allocate(c, p->n, p->n_classes + 1));
    c->palette[0] = sp_palette_ignored;
    for (int k = 0; k < p->n_classes; k++)
        c->palette[k + 1] = view_colour_of(p, k);
    for (int64_t i = 0; i < p->n; i++)
        c->index[i] = (uint16_t)(class[i] + 1);
    for (int k = 0; k <= p->n_classes; k++)
        c->row[k] = (sp_legend_row){c->palette[k],
                                    k ? p->class_name[k - 1] : "without a class", 0};
    return SP_OK;
}

static sp_status colour_errors(colours *c, const vox_view_points *p)
{
    SP_TRY(view_allocate(c, p->n, 3));
    c->palette[0] = sp_palette_ignored;
    c->palette[1] = sp_palette_right;
    c->palette[2] = sp_palette_wrong;
    c->row[0] = (sp_legend_row){c->palette[0], "without a class", 0};
    c->row[1] = (sp_legend_row){c->palette[1], "right", 0};
    c->row[2] = (sp_legend_row){c->palette[2], "wrong", 0};
    for (int64_t i = 0; i < p->n; i++)
        c->index[i] = p->label[i] < 0 ? 0 : p->label[i] == p->prediction[i] ? 1 : 2;
    return SP_OK;
}

static int view_compare(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

/* Finds the range of from[0], from[stride], ... of n points, at least one. One in
 * `beyond` of 200,000 of them may lie beyond either end. */
static sp_status view_find_range(const float *from, int stride, int64_t n, int beyond,
                                 double *lo, double *hi)
{
    enum { SAMPLE = 200000 };
    const int64_t step = (n + SAMPLE - 1) / SAMPLE;
    float *value;
    int taken = 0;

    assert(n > 0);
    SP_TRY(SP_NEW(&value, SAMPLE, "the range of a picture"));
    for (int64_t i = 0; i < n; i += step)
        value[taken++] = from[stride * i];
    qsort(value, (size_t)taken, sizeof *value, view_compare);
    *lo = value[taken / beyond];
    *hi = value[taken - 1 - taken / beyond];
    free(value);
    return SP_OK;
}

static sp_status colour_values(colours *c, const vox_view_points *p)
{
    double width;

    SP_TRY(view_allocate(c, p->n, SP_RAMP));
    SP_TRY(view_find_range(p->value, 1, p->n, 100, &c->lo, &c->hi));
    width = c->hi > c->lo ? c->hi - c->lo : 1;
    for (int i = 0; i < SP_RAMP; i++)
        c->palette[i] = sp_palette_ramp(i);
    for (int64_t i = 0; i < p->n; i++) {
        const double part = (p->value[i] - c->lo) / width;

        c->index[i] = (uint16_t)(fmin(fmax(part, 0), 1) * (SP_RAMP - 1) + 0.5);
    }
    return SP_OK;
}

static sp_status view_colour(colours *c, const vox_view_points *p)
{
    if (p->n == 0)
        return SP_FAIL(SP_EDATA, "there is no point to draw");
    switch (p->by) {
    case VOX_BY_FEATURE:
        return colour_values(c, p);
    case VOX_BY_ERROR:
        SP_TRY(colour_errors(c, p));
        break;
    case VOX_BY_PREDICTION:
        SP_TRY(colour_classes(c, p, p->prediction));
        break;
    default:
        SP_TRY(colour_classes(c, p, p->label));
    }
    view_count_rows(c, p->n);
    return SP_OK;
}

/* ---- hidden points ---- */

/* Finds the points that are not drawn, *n of them; *hidden is the caller's, and NULL if
 * all are drawn. */
static sp_status find_hidden(const arguments *a, const vox_view_points *p,
                             uint8_t **hidden, int64_t *n)
{
    const int32_t *class = p->label ? p->label : p->prediction;
    double lowest, highest;

    *n = 0;
    SP_TRY(SP_NEW(hidden, p->n, "the points of a picture"));
    /* Scans have stray points: one in a thousand may lie below the ground. */
    SP_TRY(view_find_range(p->xyz + 2, 3, p->n, 1000, &lowest, &highest));
    for (int64_t i = 0; i < p->n; i++) {
        const bool is_ceiling = class && class[i] >= 0 &&
                                sp_render_hides(p->class_name[class[i]], a->load.from);

        (*hidden)[i] =
            is_ceiling || (a->below > 0 && p->xyz[3 * i + 2] - lowest > a->below);
        *n += (*hidden)[i];
    }
    /* All points are drawn if these rules would hide every one. */
    if (*n > 0 && *n < p->n)
        return SP_OK;
    free(*hidden);
    *hidden = NULL;
    *n = 0;
    return SP_OK;
}

/* ---- the command ---- */

static sp_status view_draw(const arguments *a, const vox_view_points *p,
                           const colours *c, const uint8_t *hidden, int64_t n_hidden,
                           sp_canvas *canvas)
{
    static const char *const from[] = {"from above", "from above the south-east",
                                       "all round from the sensor"};
    static const char *const by[] = {"", "labels", "prediction", "error", "feature"};
    const sp_cloud cloud = {p->n, p->xyz, c->index, c->palette, p->cell, hidden};
    const char *feature = a->load.feature ? a->load.feature : "z";
    char title[4400], subtitle[300], count[SP_COUNT_TEXT], cell[48] = "";
    char more[64] = "";

    snprintf(title, sizeof title, "%s%s%s", sp_file_name(a->load.path),
             *p->sample_name ? " \xc2\xb7 " : "", p->sample_name);
    if (p->cell > 0)
        snprintf(cell, sizeof cell, " of %g m", p->cell);
    if (n_hidden > 0)
        snprintf(more, sizeof more, ", %s of them hidden",
                 sp_figure_count(n_hidden, count));
    snprintf(subtitle, sizeof subtitle, "%s%s%.80s \xc2\xb7 %s \xc2\xb7 %s %s%s%s",
             by[p->by], p->by == VOX_BY_FEATURE ? " " : "",
             p->by == VOX_BY_FEATURE ? feature : "", from[a->load.from],
             sp_figure_count(p->n, count), p->unit, cell, more);
    return sp_figure_draw(&(sp_figure){.title = title,
                                       .subtitle = subtitle,
                                       .what = p->by == VOX_BY_FEATURE ? feature
                                               : p->by == VOX_BY_ERROR ? "prediction"
                                                                       : "class",
                                       .unit = p->by == VOX_BY_FEATURE ? "" : p->unit,
                                       .row = c->row,
                                       .n_rows = c->n_rows,
                                       .lo = c->lo,
                                       .hi = c->hi},
                          &cloud, a->load.from, canvas);
}

static sp_status write_picture(const char *path, const sp_canvas *canvas)
{
    SP_FREED char *bytes = NULL;
    size_t n;

    SP_TRY(sp_png_encode(canvas, &bytes, &n));
    SP_TRY(sp_file_make_folder_of(path));
    return sp_file_replace(path, bytes, n, 0);
}

/* Loads the file that is named first, with the predictions that are named second. */
static sp_status view_load(const arguments *a, vox_view_points *points)
{
    const vox_view_request *q = &a->load;
    const char *misfit = q->map.n > 0     ? "--map"
                         : q->columns     ? "--columns"
                         : q->label_field ? "--label-field"
                                          : NULL;
    bool is_h5;

    SP_TRY(sp_file_check_input(q->path));
    is_h5 = sp_file_begins(q->path, SP_H5_SIGNATURE, 8);
    if (!is_h5 && q->prediction)
        return SP_FAIL(SP_EUSAGE, "%s: predictions belong to a shard, not to a scan",
                       q->path);
    if (is_h5 && misfit)
        return SP_FAIL(SP_EUSAGE,
                       "%s: a shard has its own classes and columns: leave out %s, "
                       "which is for a scan",
                       q->path, misfit);
    return is_h5 ? vox_view_load_shard(points, q) : vox_view_load_scan(points, q);
}

static void colours_free(colours *c)
{
    free(c->index);
    free(c->palette);
    free(c->row);
}

static sp_status view_picture(const arguments *a, const vox_view_points *points,
                              sp_canvas *canvas)
{
    SP_CLOSED_BY(colours_free) colours c = {0};
    SP_FREED uint8_t *hidden = NULL;
    int64_t n_hidden = 0;

    SP_TRY(view_colour(&c, points));
    SP_TRY(find_hidden(a, points, &hidden, &n_hidden));
    return view_draw(a, points, &c, hidden, n_hidden, canvas);
}

static sp_status view(const arguments *a)
{
    SP_CLOSED_BY(vox_view_destroy) vox_view_points points = {0};
    SP_CLOSED_BY(sp_canvas_destroy) sp_canvas canvas = {0};
    sp_status rc;

    SP_TRY(view_load(a, &points));
    rc = view_picture(a, &points, &canvas);
    if (rc == SP_EDATA)
        return SP_FAIL(rc, "%s: %s", a->load.path, sp_error_last()->message);
    SP_TRY(rc);
    return write_picture(a->out, &canvas);
}

/* The picture replaces a file of its name, which must not be an input. A name that does
 * not end in .png is a mistyped one, perhaps of a scan or a shard. */
static sp_status view_check_out(const char *out, int n, char *const *file)
{
    struct stat st;

    if (!sp_file_ends_in(out, ".png"))
        return SP_FAIL(SP_EUSAGE,
                       "spvox view: -o %s: expected a name that ends in .png", out);
    for (int i = 0; i < n; i++)
        if (sp_file_is_same(out, file[i]))
            return SP_FAIL(SP_EUSAGE, "spvox view: -o %s would replace its input", out);
    if (lstat(out, &st) == 0 && !S_ISREG(st.st_mode))
        return SP_FAIL(SP_EUSAGE, "spvox view: -o %s exists and is no regular file",
                       out);
    return SP_OK;
}

static sp_status view_check(const arguments *a, int n, char *const *file)
{
    if (!sp_png_is_built())
        return SP_FAIL(SP_EUSAGE, "this build has no libpng, so it draws no pictures: "
                                  "install libpng-dev and configure anew");
    if (n < 1 || n > 2)
        return SP_FAIL(SP_EUSAGE,
                       "spvox view: expected FILE [PREDICTIONS], found %d "
                       "file%s",
                       n, sp_plural(n));
    if (a->load.feature && a->load.by != VOX_BY_DEFAULT && a->load.by != VOX_BY_FEATURE)
        return SP_FAIL(SP_EUSAGE, "spvox view: --feature %s: expected --by feature",
                       a->load.feature);
    if (!a->out)
        return SP_FAIL(SP_EUSAGE, "spvox view: -o PICTURE.png is missing");
    return view_check_out(a->out, n, file);
}

static void view_arguments_free(arguments **a)
{
    for (int i = 0; *a && i < (*a)->load.map.n; i++)
        free((*a)->load.map.name[i]);
    free(*a);
}

sp_status vox_view(int argc, char **argv, sp_comm *comm)
{
    SP_CLOSED_BY(view_arguments_free) arguments *a = NULL;
    int n;

    assert(argc >= 1 && argv && comm);
    SP_TRY(SP_NEW(&a, 1, "the options"));
    a->load.sample = -1;
    memset(a->load.map.class_of, 0xff, sizeof a->load.map.class_of);
    SP_TRY(sp_options_read(a, SP_WORD_TABLE(option_table), "spvox", argc, argv, &n));
    a->load.path = argv[1];
    a->load.prediction = n > 1 ? argv[2] : NULL;
    a->load.threads = comm->cores;
    SP_TRY(view_check(a, n, argv + 1));
    return comm->rank == 0 ? view(a) : SP_OK;
}
