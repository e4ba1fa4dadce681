/* A sample's points from a whole scan, and the functions that cutting shares. */
#include "vox/vox_cloud.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"
#include "base/sp_log.h"
#include "compute/sp_backend.h"
#include "scan/sp_gridding.h"
#include "vox/vox_spill.h"
#include "vox/vox_sweeps.h"

sp_status vox_features_default(vox_options *o)
{
    const sp_scan_options options = vox_scan_options(o);
    sp_scan *scan;
    bool has_intensity;

    assert(o->n_inputs > 0);
    SP_TRY(sp_scan_open(&scan, o->input[0], &options));
    has_intensity = sp_scan_has(scan, "intensity");
    sp_scan_close(scan);
    o->left_out = has_intensity ? NULL : "intensity";
    return vox_read_features(o, &(sp_option){.offset = 0},
                             has_intensity ? "one,height,intensity" : "one,height");
}

void vox_warn_left_out(const sp_scan *scan, const vox_options *o, int file)
{
    static bool is_told;

    if (!o->left_out || is_told || !sp_scan_has(scan, o->left_out))
        return;
    is_told = true;
    sp_log_warn("%s has the attribute %s, which is left out since %s, the first input, "
                "lacks it; --features says which columns to take",
                o->input[file], o->left_out, o->input[0]);
}

/* Warns once. Heights, and turns about z, would be about a slanted axis. */
static void warn_of_centre(const sp_scan *scan)
{
    static bool is_told;

    if (is_told || !sp_scan_is_geocentric(scan))
        return;
    is_told = true;
    sp_log_warn("%s: its x, y and z are distances from the centre of the Earth, as its "
                "records say: z is no height; project the scan if heights, or turns "
                "about the vertical, matter",
                sp_scan_path(scan));
}

void vox_warn_of_notes(const sp_scan *scan)
{
    static bool is_told;
    static char last[256]; /* a scan may be read several times */
    const char *label = sp_scan_note(scan, SP_SCAN_NOTE_LABEL);
    const char *count = sp_scan_note(scan, SP_SCAN_NOTE_COUNT);

    if (label && !is_told)
        sp_log_warn("%s", label);
    is_told = is_told || label;
    if (count && strncmp(last, count, sizeof last - 1) != 0)
        sp_log_warn("%s", count);
    if (count)
        snprintf(last, sizeof last, "%s", count);
}

static sp_status scan_open_at(sp_scan **scan, const vox_options *o, const char *path)
{
    const sp_scan_options options = vox_scan_options(o);
    const char *name[VOX_MAX_FEATURES];
    int n = 0;

    SP_TRY(sp_scan_open(scan, path, &options));
    SP_TRY(sp_scan_check_units(*scan, o->with_degrees));
    warn_of_centre(*scan);
    for (int i = 0; i < o->n_features; i++)
        if (o->feature[i].kind == VOX_ATTRIBUTE)
            name[n++] = o->feature[i].name;
    return sp_scan_select(*scan, n, name);
}

sp_status vox_scan_keep_near(sp_scan *scan, const vox_options *o, int file)
{
    double window[4];
    vox_box all;
    vox_layout layout;

    /* Maps of points have rows of the whole file. */
    if (!o->has_bounds || (o->with_points && !o->is_window))
        return SP_OK;
    memcpy(window, o->bounds, sizeof window);
    if (o->is_window) {
        if (!sp_scan_extent(scan, all.low, all.high) ||
            vox_cut_layout(o, file, &all, &layout) != SP_OK)
            return SP_OK; /* it cannot be cut either */
        if (vox_box_meets(&all, window, o->block + 2 * o->overlap))
            vox_layout_surround(o, &layout, window);
    }
    return sp_scan_keep_near(scan, window);
}

sp_status vox_scan_open(sp_scan **scan, const vox_options *o, int file)
{
    assert(file >= 0 && file < o->n_inputs);
    SP_TRY(scan_open_at(scan, o, o->input[file]));
    return vox_scan_keep_near(*scan, o, file);
}

vox_source vox_source_of(const sp_scan *scan)
{
    const char *unit = sp_scan_unit(scan);
    vox_source source = {.is_labelled = sp_scan_is_labelled(scan)};

    snprintf(source.format, sizeof source.format, "%s", sp_scan_format_name(scan));
    snprintf(source.unit, sizeof source.unit, "%s", unit ? unit : "");
    return source;
}

bool vox_is_within(const vox_options *o, const double *xyz)
{
    if (sp_scan_is_missing(xyz))
        return false;
    return !o->has_bounds || (xyz[0] >= o->bounds[0] && xyz[0] < o->bounds[2] &&
                              xyz[1] >= o->bounds[1] && xyz[1] < o->bounds[3]);
}

void vox_codes_count(vox_codes *codes, int32_t code)
{
    if (code >= 0 && code <= VOX_MAX_CODE)
        codes->n[code]++;
}

void vox_codes_count_missing(vox_codes *codes, const vox_options *o, int file,
                             int64_t n)
{
    assert(file >= 0 && file < o->n_inputs && n >= 0);
    codes->n_missing += n;
    if (n > 0 && codes->missing_from_end < o->n_inputs - file)
        codes->missing_from_end = o->n_inputs - file;
}

sp_status vox_codes_tell_missing(vox_codes *codes, const vox_options *o, sp_comm *comm,
                                 const char *what)
{
    SP_TRY(
        sp_comm_allreduce(comm, SP_SCOPE_WORLD, &codes->n_missing, 1, SP_I64, SP_SUM));
    SP_TRY(sp_comm_allreduce(comm, SP_SCOPE_WORLD, &codes->missing_from_end, 1, SP_I64,
                             SP_MAX));
    if (codes->n_missing > 0)
        sp_log_warn0("rows without a point, as their coordinates are NaN: "
                     "%" PRId64 ", the first ones in %s; %s",
                     codes->n_missing, o->input[o->n_inputs - codes->missing_from_end],
                     what);
    return SP_OK;
}

int32_t vox_class_of(const vox_options *o, int32_t code)
{
    if (code < 0)
        return SP_IGNORE;
    if (o->map.n == 0)
        return code;
    return code <= VOX_MAX_CODE ? o->map.class_of[code] : SP_IGNORE;
}

void vox_features_of(const vox_options *o, const double *attr, float *to)
{
    assert(o->n_features >= 0 && (to || o->n_features == 0));
    for (int i = 0; i < o->n_features; i++) {
        const vox_feature *f = &o->feature[i];

        to[i] = f->kind == VOX_ATTRIBUTE ? (float)(*attr++ / f->divisor)
                : f->kind == VOX_ONE     ? (float)(1 / f->divisor)
                                         : 0.0F;
    }
}

sp_status vox_cloud_reserve(vox_cloud *c, const vox_options *o, int64_t n)
{
    const size_t room = (size_t)(n + n / 2);

    assert(n >= 0 && c->capacity >= 0);
    if (n <= c->capacity)
        return SP_OK;
    if (!sp_list_resize(&c->xyz, room * 3 * sizeof *c->xyz) ||
        !sp_list_resize(&c->features,
                        room * (size_t)o->n_features * sizeof *c->features + 1) ||
        !sp_list_resize(&c->label, room * sizeof *c->label) ||
        !sp_list_resize(&c->index, room * sizeof *c->index) ||
        !sp_list_resize(&c->is_owned, room * sizeof *c->is_owned) ||
        !sp_list_resize(&c->home, room * sizeof *c->home) ||
        !sp_list_resize(&c->home_row, room * sizeof *c->home_row))
        return SP_FAIL(SP_EMEM, "no memory for a sample of %zu points%s", room,
                       o->block > 0 ? "" : "; cut the scan with --block");
    c->capacity = (int64_t)room;
    return SP_OK;
}

static void cloud_append(vox_cloud *c, const vox_options *o, const sp_scan_points *p,
                         int n_attrs, vox_codes *codes)
{
    for (int64_t i = 0; i < p->n; i++) {
        int64_t to = c->n;

        if (!vox_is_within(o, p->xyz + 3 * i))
            continue;
        memcpy(c->xyz + 3 * to, p->xyz + 3 * i, 3 * sizeof *c->xyz);
        vox_features_of(o, p->attr + i * n_attrs, c->features + to * o->n_features);
        vox_codes_count(codes, p->label[i]);
        c->label[to] = vox_class_of(o, p->label[i]);
        c->index[to] = (uint64_t)(p->first_row + i);
        c->is_owned[to] = 1;
        c->n++;
    }
}

int vox_attributes_of(const vox_options *o)
{
    int n = 0;

    for (int i = 0; i < o->n_features; i++)
        n += o->feature[i].kind == VOX_ATTRIBUTE;
    return n;
}

/* Appends points of the scan that is `age` scans before the sample's own. They shape
 * its voxels and features only; their coordinates, also as features, are moved. */
static void append_earlier(vox_cloud *c, const vox_options *o, const sp_scan *scan,
                           int age, const vox_motion *motion, const sp_scan_points *p)
{
    for (int64_t i = 0; i < p->n; i++) {
        const double *attr = p->attr + i * vox_attributes_of(o);
        double *xyz = c->xyz + 3 * c->n;
        float *to = c->features + c->n * o->n_features;

        if (sp_scan_is_missing(p->xyz + 3 * i))
            continue;
        memcpy(xyz, p->xyz + 3 * i, 3 * sizeof *xyz);
        vox_motion_apply(motion, xyz);
        if (!vox_is_within(o, xyz))
            continue;
        vox_features_of(o, attr, to);
        for (int f = 0; f < o->n_features; f++) {
            const vox_feature *column = &o->feature[f];
            const int a = column->kind == VOX_ATTRIBUTE
                              ? sp_scan_axis_of(scan, column->name)
                              : -1;

            if (column->kind == VOX_AGE)
                to[f] = (float)(age / column->divisor);
            else if (a >= 0)
                to[f] = (float)(xyz[a] / column->divisor);
        }
        c->label[c->n] =
            o->with_sweep_labels ? vox_class_of(o, p->label[i]) : SP_IGNORE;
        c->index[c->n] = (uint64_t)(p->first_row + i);
        c->is_owned[c->n++] = SP_POINT_FOREIGN;
    }
}

/* Loads the scan `age` scans before the input, if it is there. */
static sp_status cloud_load_earlier(vox_cloud *c, const vox_options *o, int file,
                                    int age)
{
    SP_CLOSED_BY(sp_scan_done) sp_scan *scan = NULL;
    SP_CLOSED_BY(sp_scan_points_destroy) sp_scan_points points = {0};
    SP_FREED char *path = NULL;
    vox_motion motion;

    SP_TRY(vox_sweeps_find(o->sweeps, o->input[file], age, &path, &motion));
    if (!path)
        return SP_OK;
    SP_TRY(scan_open_at(&scan, o, path));
    do {
        SP_TRY(sp_scan_next(scan, SP_SCAN_BLOCK, &points));
        SP_TRY(vox_cloud_reserve(c, o, c->n + points.n));
        append_earlier(c, o, scan, age, &motion, &points);
        SP_TRY(vox_options_check_stop(o));
    } while (points.n > 0);
    return SP_OK;
}

sp_status vox_cloud_load(vox_cloud *c, const vox_options *o, int file, vox_codes *codes)
{
    SP_CLOSED_BY(sp_scan_done) sp_scan *scan = NULL;
    SP_CLOSED_BY(sp_scan_points_destroy) sp_scan_points points = {0};

    assert(codes && file >= 0 && file < o->n_inputs);
    c->n = c->n_rows = 0;
    c->is_block = false;
    SP_TRY(vox_scan_open(&scan, o, file));
    vox_warn_left_out(scan, o, file);
    c->source = vox_source_of(scan);
    do {
        SP_TRY(sp_scan_next(scan, SP_SCAN_BLOCK, &points));
        SP_TRY(vox_cloud_reserve(c, o, c->n + points.n));
        cloud_append(c, o, &points, vox_attributes_of(o), codes);
        vox_codes_count_missing(codes, o, file, points.n_missing);
        c->n_rows += points.n;
        SP_TRY(vox_options_check_stop(o));
    } while (points.n > 0);
    vox_warn_of_notes(scan);
    for (int age = 1; o->sweeps && c->n > 0 && age < o->n_sweeps; age++)
        SP_TRY(cloud_load_earlier(c, o, file, age));
    return SP_OK;
}

void vox_cloud_destroy(vox_cloud *c)
{
    free(c->xyz);
    free(c->features);
    free(c->label);
    free(c->index);
    free(c->is_owned);
    free(c->home);
    free(c->home_row);
    *c = (vox_cloud){0};
}
