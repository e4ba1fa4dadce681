/* Scans: records of fields to points. */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"
#include "base/sp_number.h"
#include "scan/sp_scan_format.h"

uint64_t sp_scan_bits(const unsigned char *from, int bytes, bool is_big)
{
    uint64_t u = 0;

    if (!is_big && bytes == 4)
        return sp_get32(from);
    if (!is_big && bytes == 2)
        return sp_get16(from);
    if (!is_big && bytes == 8)
        return sp_get64(from);
    for (int i = 0; i < bytes; i++)
        u |= (uint64_t)from[is_big ? bytes - 1 - i : i] << 8 * i;
    return u;
}

static double raw_value(const sp_scan_field *f, const unsigned char *bytes)
{
    uint64_t u = sp_scan_bits(bytes, f->size, f->is_big);
    float f32;
    double f64;

    if (f->kind == 'f' && f->size == 8) {
        memcpy(&f64, &u, sizeof f64);
        return f64;
    }
    if (f->kind == 'f' && f->size == 4) {
        uint32_t low = (uint32_t)u;

        memcpy(&f32, &low, sizeof f32);
        return f32;
    }
    if (f->kind == 'f')
        return sp_half_to_float((uint16_t)u);
    if (f->kind == 'i') {
        int unused = 64 - 8 * f->size;

        return (double)((int64_t)(u << unused) >> unused);
    }
    u >>= f->shift;
    return (double)(f->bits ? u & ((UINT64_C(1) << f->bits) - 1) : u);
}

/* Scales a value with two roundings, as other readers of scaled integers do: the
 * product is stored to memory, so that no compiler fuses it with the sum. */
static double stored_value(const sp_scan_field *f, const unsigned char *record)
{
    volatile double scaled;

    if (f->wide_at > 0 && record[f->wide_at] > 31)
        return record[f->wide_at];
    scaled = raw_value(f, record + f->at) * f->scale;
    return scaled + f->add;
}

static bool is_no_data(const sp_scan_field *f, const unsigned char *record)
{
    return f->kind == 'f'
               ? raw_value(f, record + f->at) == f->no_data
               : sp_scan_bits(record + f->at, f->size, f->is_big) == f->no_data_bits;
}

/* The same, or NaN if the number means "no value". */
static double decode_value(const sp_scan_field *f, const unsigned char *record)
{
    return f->has_no_data && is_no_data(f, record) ? NAN : stored_value(f, record);
}

static sp_status decode_reserve(sp_scan *scan, sp_scan_points *out, int64_t max)
{
    size_t n = (size_t)max;

    if (scan->record_capacity < max) {
        if (!sp_list_resize(&scan->record, n * (size_t)scan->record_bytes))
            return SP_FAIL(SP_EMEM, "%s: no memory for %zu points", scan->path, n);
        scan->record_capacity = max;
    }
    if (out->capacity >= max)
        return SP_OK;
    sp_scan_points_destroy(out);
    SP_TRY(SP_NEW(&out->xyz, n * 3, scan->path));
    SP_TRY(SP_NEW(&out->label, n, scan->path));
    SP_TRY(SP_NEW(&out->attr, n * ((size_t)scan->n_selected + 1), scan->path));
    out->capacity = max;
    return SP_OK;
}

sp_status sp_scan_records(sp_scan *scan, int64_t max, unsigned char *to, int64_t *n)
{
    assert(max >= 0 && to && n);
    assert(scan->row >= 0 && (scan->n_points < 0 || scan->row <= scan->n_points));
    *n = 0;
    if (scan->end_row >= 0 && scan->row >= scan->end_row)
        return SP_OK;
    if (scan->end_row >= 0 && max > scan->end_row - scan->row)
        max = scan->end_row - scan->row;
    if (scan->n_points >= 0 && max > scan->n_points - scan->row)
        max = scan->n_points - scan->row;
    *n = max;
    if (scan->format->fill)
        return scan->format->fill(scan, max, to, n);
    return sp_scan_pread(scan, to, (size_t)(*n * scan->record_bytes),
                         scan->data_at + scan->row * scan->record_bytes);
}

/* Do programs write an unlabelled point this way? NaN is CloudCompare's, the largest
 * numbers are what -1 becomes in an unsigned field of PCL. */
static bool is_unlabelled(double x)
{
    return isnan(x) || x == (double)UINT32_MAX || x == 0x1p64;
}

static sp_status decode_label(const sp_scan *scan, const unsigned char *record,
                              int64_t row, int32_t *label)
{
    double x = decode_value(&scan->field[scan->label], record);

    if (is_unlabelled(x))
        x = SP_SCAN_UNLABELLED;
    if (!(x >= INT32_MIN && x <= INT32_MAX) || x != floor(x))
        return SP_FAIL(SP_EDATA,
                       "%s: point %" PRId64 ": label %.17g, expected an integer from "
                       "-2147483648 to 2147483647",
                       scan->path, row, x);
    *label = x < 0 ? SP_SCAN_UNLABELLED : (int32_t)x;
    return SP_OK;
}

/* Decodes one field of n records and returns whether all values are finite. Each field
 * has its own loop, which keeps its description in registers. */
static bool decode(const sp_scan *scan, int field, int64_t n, double *to, int stride)
{
    const sp_scan_field *f = &scan->field[field];
    const unsigned char *record = scan->record;
    bool is_finite = true;

    for (int64_t i = 0; i < n; i++, record += scan->record_bytes, to += stride) {
        *to = decode_value(f, record);
        is_finite = is_finite && isfinite(*to);
    }
    return is_finite;
}

static sp_status refuse_number(const sp_scan *scan, int field, int64_t i, double x)
{
    return SP_FAIL(SP_EDATA, "%s: point %" PRId64 ": %s is %g, expected a number",
                   scan->path, scan->row + i, scan->field[field].name, x);
}

/* Counts the missing points. Refuses infinite coordinates, which no sensor writes, and NaN
 * too if each record is a point, as in SemanticKITTI. */
static sp_status decode_find_missing(const sp_scan *scan, sp_scan_points *p, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const bool is_missing = sp_scan_is_missing(p->xyz + 3 * i);

        for (int a = 0; a < 3; a++)
            if (isinf(p->xyz[3 * i + a]) || (is_missing && scan->format->is_dense))
                return refuse_number(scan, scan->axis[a], i, p->xyz[3 * i + a]);
        p->n_missing += is_missing;
    }
    return SP_OK;
}

/* Replaces values of the selected attribute k that are not finite by the option, or
 * refuses them, but missing points' values. */
static sp_status check_attribute(const sp_scan *scan, const sp_scan_points *p,
                                 int64_t n, int k)
{
    const sp_scan_field *f = &scan->field[scan->selected[k]];

    for (int64_t i = 0; i < n; i++) {
        double *x = &p->attr[i * scan->n_selected + k];

        if (isfinite(*x) || sp_scan_is_missing(p->xyz + 3 * i))
            continue;
        if (!scan->options.missing)
            return SP_FAIL(SP_EDATA,
                           "%s: point %" PRId64 ": %s is %s, expected a number; "
                           "--missing 0 takes 0 for such values, and without %s in "
                           "--features they do not matter",
                           scan->path, scan->row + i, f->name,
                           f->has_no_data && isnan(*x) ? "NaN or its no_data"
                           : isnan(*x)                 ? "nan"
                                                       : "infinite",
                           f->name);
        *x = *scan->options.missing;
    }
    return SP_OK;
}

static sp_status decode_labels(const sp_scan *scan, const sp_scan_points *p, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        p->label[i] = SP_SCAN_UNLABELLED;
        if (scan->label >= 0 &&
            !(p->n_missing > 0 && sp_scan_is_missing(p->xyz + 3 * i)))
            SP_TRY(decode_label(scan, scan->record + i * scan->record_bytes,
                                scan->row + i, &p->label[i]));
    }
    return SP_OK;
}

/* Decodes the selected field i of n records for a copy of the scan, which keeps
 * infinities and NaN, exact integers of eight bytes, and "no value" numbers. */
static void decode_copy(const sp_scan *scan, int i, int64_t n, double *to)
{
    const sp_scan_field *f = &scan->field[scan->selected[i]];
    const unsigned char *record = scan->record;
    char kind;
    int size;

    sp_scan_attribute(scan, scan->selected[i], &kind, &size);
    for (; n > 0; n--, record += scan->record_bytes, to += scan->n_selected)
        if (kind != 'f' && size == 8)
            memcpy(to, &(uint64_t){sp_scan_bits(record + f->at, 8, f->is_big)},
                   sizeof *to);
        else
            *to = stored_value(f, record);
}

sp_status sp_scan_next(sp_scan *scan, int64_t max, sp_scan_points *out)
{
    const int64_t end = scan->end_row >= 0 ? scan->end_row : scan->n_points;
    int64_t n = 0, left = end - scan->row;
    int64_t bytes = scan->record_bytes + 8 * (int64_t)(scan->n_selected + 4);
    bool is_finite = true;

    assert(max >= 1 && out);
    assert(scan->record_bytes >= 0 && scan->n_selected >= 0);
    if (max > SP_SCAN_ROOM / bytes)
        max = SP_SCAN_ROOM / bytes;
    if (end >= 0 && left < max)
        max = left > 0 ? left : 1;
    SP_TRY(decode_reserve(scan, out, max));
    SP_TRY(sp_scan_records(scan, max, scan->record, &n));
    for (int a = 0; a < 3; a++)
        is_finite &= decode(scan, scan->axis[a], n, out->xyz + a, 3);
    out->n_missing = 0;
    if (!is_finite)
        SP_TRY(decode_find_missing(scan, out, n));
    for (int i = 0; i < scan->n_selected; i++)
        if (scan->is_copied)
            decode_copy(scan, i, n, out->attr + i);
        else if (!decode(scan, scan->selected[i], n, out->attr + i, scan->n_selected))
            SP_TRY(check_attribute(scan, out, n, i));
    SP_TRY(decode_labels(scan, out, n));
    SP_TRY(sp_scan_beside_next(scan, out, n));
    out->n = n;
    out->first_row = scan->row;
    scan->row += n;
    return SP_OK;
}

void sp_scan_points_destroy(sp_scan_points *points)
{
    free(points->xyz);
    free(points->label);
    free(points->attr);
    *points = (sp_scan_points){0};
}
