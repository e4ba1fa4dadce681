/* Raw scans for spvox view. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"
#include "compute/sp_backend.h"
#include "scan/sp_scan.h"
#include "vox/vox_view.h"

/* Codes that a format defines: their names, and the palette's colours for them (-1: as
 * points without a class), so that ground, greens and water look as maps have them. */
typedef struct code {
    int code;
    const char *name;
    int colour;
} code;

/* ASPRS, LAS 1.4 R15, table 17. */
static const code las_codes[] = {
    {0, "never classified", 4},
    {1, "unclassified", 4},
    {2, "ground", 10},
    {3, "low vegetation", 14},
    {4, "medium vegetation", 8},
    {5, "high vegetation", 1},
    {6, "building", 2},
    {7, "low noise", 9},
    {8, "model key point", 0},
    {9, "water", 3},
    {10, "rail", 7},
    {11, "road surface", 5},
    {12, "overlap", 13},
    {13, "wire guard", 6},
    {14, "wire conductor", 0},
    {15, "transmission tower", 12},
    {16, "wire connector", 6},
    {17, "bridge deck", 7},
    {18, "high noise", 9},
    {19, "overhead structure", 12},
    {20, "ignored ground", 4},
    {21, "snow", 13},
    {22, "temporal exclusion", 4},
};
/* J. Behley and others: SemanticKITTI (2019). */
static const code kitti_codes[] = {
    {0, "unlabeled", -1},
    {1, "outlier", -1},
    {10, "car", 3},
    {11, "bicycle", 13},
    {13, "bus", 18},
    {15, "motorcycle", 28},
    {16, "on rails", 18},
    {18, "truck", 33},
    {20, "other vehicle", 48},
    {30, "person", 2},
    {31, "bicyclist", 17},
    {32, "motorcyclist", 32},
    {40, "road", 4},
    {44, "parking", 12},
    {48, "sidewalk", 7},
    {49, "other ground", 29},
    {50, "building", 0},
    {51, "fence", 10},
    {52, "other structure", 15},
    {60, "lane marking", 6},
    {70, "vegetation", 1},
    {71, "trunk", 11},
    {72, "terrain", 8},
    {80, "pole", 5},
    {81, "traffic sign", 21},
    {99, "other object", 14},
    {252, "moving car", 18},
    {253, "moving bicyclist", 17},
    {254, "moving person", 32},
    {255, "moving motorcyclist", 47},
    {256, "moving on rails", 18},
    {257, "moving bus", 18},
    {258, "moving truck", 33},
    {259, "moving other vehicle", 48},
};

/* One reading of a scan. */
typedef struct reading {
    vox_view_points *points;
    const vox_view_request *request;
    sp_scan *scan;
    double origin[3]; /* that the coordinates are relative to */
    bool is_begun, wants_value, has_attribute;
} reading;

static sp_status view_make_room(reading *r, int64_t n)
{
    vox_view_points *p = r->points;
    const size_t room = 2 * (size_t)n;

    if (n <= p->capacity)
        return SP_OK;
    if (!sp_list_resize(&p->xyz, room * 3 * sizeof *p->xyz) ||
        !(r->wants_value ? sp_list_resize(&p->value, room * sizeof *p->value)
                         : sp_list_resize(&p->label, room * sizeof *p->label)))
        return SP_FAIL(SP_EMEM, "%s: no memory for %zu points", r->request->path, room);
    p->capacity = (int64_t)room;
    return SP_OK;
}

/* ---- classes ---- */

static bool is_kitti(const sp_scan *scan)
{
    const char *path = sp_scan_path(scan);
    const size_t n = strlen(path);

    return n > 4 && strcmp(path + n - 4, ".bin") == 0;
}

/* Finds a code in the table of the scan's format; NULL if not found. */
static const code *find_code(const sp_scan *scan, int c)
{
    const bool is_las = sp_scan_has(scan, "classification");
    const code *table = is_las ? las_codes : is_kitti(scan) ? kitti_codes : NULL;
    const size_t n = is_las ? sizeof las_codes / sizeof *las_codes
                            : sizeof kitti_codes / sizeof *kitti_codes;

    for (size_t i = 0; table && i < n; i++)
        if (table[i].code == c)
            return &table[i];
    return NULL;
}

/* Adds the classes up to a code that is met first. */
static sp_status add_class(reading *r, int32_t met)
{
    vox_view_points *p = r->points;
    char name[48];

    if (!sp_list_resize(&p->class_name, ((size_t)met + 2) * sizeof *p->class_name))
        return SP_FAIL(SP_EMEM, "no memory for the name of a class");
    for (; p->n_classes <= met; p->n_classes++) {
        const int c = p->n_classes;
        const code *known = find_code(r->scan, c);

        snprintf(name, sizeof name, "%d%s%s", c, known ? " " : "",
                 known ? known->name : "");
        if (!(p->class_name[c] = strdup(name)))
            return SP_FAIL(SP_EMEM, "no memory for the name of a class");
    }
    return SP_OK;
}

/* Chooses the colours of codes. Those that no table has get the colours of 0, 1, 2, ...
 * in their order, so that the few codes of a scan differ. */
static sp_status choose_colours(reading *r)
{
    vox_view_points *p = r->points;
    int next = 0;

    SP_TRY(SP_NEW(&p->class_colour, p->n_classes, "the colours of classes"));
    for (int64_t i = 0; i < p->n; i++)
        if (p->label[i] >= 0)
            p->class_colour[p->label[i]] = 1; /* it occurs */
    for (int c = 0; c < p->n_classes; c++) {
        const code *known = find_code(r->scan, c);

        p->class_colour[c] = known ? known->colour : p->class_colour[c] ? next++ : 0;
    }
    return SP_OK;
}

static sp_status view_copy_map(reading *r)
{
    const vox_map *map = &r->request->map;
    vox_view_points *p = r->points;

    p->class_name = calloc((size_t)map->n + 1, sizeof *p->class_name);
    for (; p->class_name && p->n_classes < map->n; p->n_classes++)
        if (!(p->class_name[p->n_classes] = strdup(map->name[p->n_classes])))
            break;
    return p->n_classes == map->n ? SP_OK
                                  : SP_FAIL(SP_EMEM, "no memory for names of classes");
}

static sp_status view_class_of(reading *r, int32_t met, int32_t *class)
{
    const vox_map *map = &r->request->map;

    *class = SP_IGNORE;
    if (met < 0 || met > VOX_MAX_CODE)
        return SP_OK;
    if (map->n > 0) {
        *class = map->class_of[met];
        return SP_OK;
    }
    if (met >= r->points->n_classes)
        SP_TRY(add_class(r, met));
    *class = met;
    return SP_OK;
}

/* ---- points ---- */

static sp_status view_add_points(reading *r, const sp_scan_points *block)
{
    vox_view_points *p = r->points;

    SP_TRY(view_make_room(r, p->n + block->n));
    for (int64_t i = 0; i < block->n; i++) {
        const double *xyz = block->xyz + 3 * i;

        if (sp_scan_is_missing(xyz))
            continue;
        if (!r->is_begun && r->request->from != SP_FROM_SENSOR)
            memcpy(r->origin, xyz, sizeof r->origin);
        r->is_begun = true;
        for (int k = 0; k < 3; k++)
            p->xyz[3 * p->n + k] = (float)(xyz[k] - r->origin[k]);
        if (r->wants_value)
            p->value[p->n] = (float)(r->has_attribute ? block->attr[i] : xyz[2]);
        else
            SP_TRY(view_class_of(r, block->label[i], &p->label[p->n]));
        p->n++;
    }
    return SP_OK;
}

static sp_status view_read_points(reading *r)
{
    SP_CLOSED_BY(sp_scan_points_destroy) sp_scan_points block = {0};

    do {
        SP_TRY(sp_scan_next(r->scan, SP_SCAN_BLOCK, &block));
        SP_TRY(view_add_points(r, &block));
    } while (block.n > 0);
    return SP_OK;
}

static sp_status view_scan_choose_values(reading *r)
{
    const vox_view_request *q = r->request;
    vox_view_by *by = &r->points->by;

    *by = q->by;
    if (*by == VOX_BY_DEFAULT)
        *by = sp_scan_is_labelled(r->scan) && !q->feature ? VOX_BY_LABELS
                                                          : VOX_BY_FEATURE;
    if (*by == VOX_BY_PREDICTION || *by == VOX_BY_ERROR)
        return SP_FAIL(
            SP_EUSAGE,
            "%s: a scan has no predictions; spvox apply writes them onto it, "
            "and --by labels then shows them",
            q->path);
    if (*by == VOX_BY_LABELS && !sp_scan_is_labelled(r->scan))
        return SP_FAIL(SP_EUSAGE, "%s: no labels, so --by labels is not possible",
                       q->path);
    r->wants_value = *by == VOX_BY_FEATURE;
    r->has_attribute = r->wants_value && q->feature && strcmp(q->feature, "z") != 0;
    return r->has_attribute ? sp_scan_select(r->scan, 1, &q->feature) : SP_OK;
}

sp_status vox_view_load_scan(vox_view_points *points, const vox_view_request *request)
{
    const sp_scan_options options = {.columns = request->columns,
                                     .label_field = request->label_field,
                                     .n_threads = request->threads};
    SP_CLOSED_BY(sp_scan_done) sp_scan *scan = NULL;
    reading r = {.points = points, .request = request};

    assert(!points->xyz && "the points are zeroed");
    assert(request->path);
    points->unit = "points";
    SP_TRY(SP_NEW(&points->sample_name, 0, "a name"));
    if (request->sample > 0)
        return SP_FAIL(SP_EUSAGE, "%s: --sample is for shards; a scan is drawn whole",
                       request->path);
    SP_TRY(sp_scan_open(&scan, request->path, &options));
    r.scan = scan;
    SP_TRY(view_scan_choose_values(&r));
    if (request->map.n > 0)
        SP_TRY(view_copy_map(&r));
    SP_TRY(view_read_points(&r));
    return !r.wants_value && request->map.n == 0 ? choose_colours(&r) : SP_OK;
}
