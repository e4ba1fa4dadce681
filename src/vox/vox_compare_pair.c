/* Counts pairs of codes of the same points in two files.
 *
 *     by order     both files are read side by side, a block at a time
 *     by position  points of A in cells of a hash table; each point of B takes the
 *                  nearest free one within the resolution of the two files
 *     by a field   the same in one dimension, with equal values
 *
 * Points that share a position (returns of one pulse rounded to one place) are matched
 * in the order of the files. */
#include "vox/vox_compare_classes.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"
#include "base/sp_log.h"
#include "base/sp_signal.h"

/* All points of a file, for matching. */
typedef struct class_points {
    int64_t n;
    double *key; /* [n][3] position, or a field's value and zeros */
    int32_t *code;
} class_points;

/* ---- counting ---- */

/* Counts of one pair of files: a table that grows with the codes that occur. */
typedef struct pair_table {
    int32_t id[VOX_MAX_CODE + 2]; /* of code + 1; -1: it has not occurred */
    int n, room;
    int32_t *code;  /* [n] */
    int64_t *count; /* [room][room] */
} pair_table;

static sp_status pair_table_grow(pair_table *t)
{
    const int room = t->room ? 2 * t->room : 32;
    int64_t *count = calloc((size_t)room * (size_t)room, sizeof *count);
    int32_t *code = count ? realloc(t->code, (size_t)room * sizeof *code) : NULL;

    if (code)
        t->code = code;
    if (!code) {
        free(count);
        return SP_FAIL(SP_EMEM, "no memory for %d classes", room);
    }
    for (int i = 0; i < t->n; i++)
        memcpy(count + (size_t)i * (size_t)room, t->count + (size_t)i * (size_t)t->room,
               (size_t)t->n * sizeof *count);
    free(t->count);
    t->count = count;
    t->room = room;
    return SP_OK;
}

static sp_status pair_table_id(pair_table *t, int32_t code, int *id)
{
    const int at = code < 0 ? 0 : code + 1;

    if (t->id[at] < 0) {
        if (t->n == t->room)
            SP_TRY(pair_table_grow(t));
        t->code[t->n] = at - 1;
        t->id[at] = t->n++;
    }
    *id = t->id[at];
    return SP_OK;
}

static sp_status pair_table_add(pair_table *t, int32_t a, int32_t b)
{
    int i = 0, j = 0;

    SP_TRY(pair_table_id(t, a, &i));
    SP_TRY(pair_table_id(t, b, &j));
    t->count[(size_t)i * (size_t)t->room + (size_t)j]++;
    return SP_OK;
}

static sp_status pair_table_give(const pair_table *t, int64_t file,
                                 vox_code_pairs *counts)
{
    for (int i = 0; i < t->n; i++)
        for (int j = 0; j < t->n; j++) {
            const int64_t n = t->count[(size_t)i * (size_t)t->room + (size_t)j];

            if (n == 0)
                continue;
            if (!sp_list_grow(&counts->pair, counts->n, sizeof *counts->pair))
                return SP_FAIL(SP_EMEM, "no memory for counts");
            counts->pair[counts->n++] =
                (vox_code_pair){file, t->code[i], t->code[j], n};
        }
    return SP_OK;
}

static void pair_table_clear(pair_table *t)
{
    free(t->code);
    free(t->count);
    *t = (pair_table){0};
    memset(t->id, 0xff, sizeof t->id);
}

static void pair_table_free(pair_table **t)
{
    if (*t)
        pair_table_clear(*t);
    free(*t);
}

/* ---- by order ---- */

/* The greatest difference of two values of axis k that may be one coordinate: the steps
 * of both files, halved since each may have been rounded. */
static double tolerance_of(const vox_class_file *a, const vox_class_file *b, int k,
                           double x)
{
    double most = 1e-12 * fabs(x);
    const vox_class_file *f[2] = {a, b};

    for (int i = 0; i < 2; i++)
        most += f[i]->step[k] * (f[i]->is_float[k] ? fabs(x) : 0.5);
    return 1.001 * most;
}

static bool is_same_place(const vox_class_file *a, const vox_class_file *b,
                          const double *x, const double *y)
{
    for (int k = 0; k < 3; k++)
        if (!(fabs(x[k] - y[k]) <= tolerance_of(a, b, k, x[k])) &&
            !(isnan(x[k]) && isnan(y[k])))
            return false;
    return true;
}

/* The place and reason of a difference in two files' points or their order. */
typedef struct order_fault {
    bool is_found, is_count;
    int64_t row;
} order_fault;

static sp_status count_by_order(vox_class_file *a, vox_class_file *b, pair_table *t,
                                order_fault *fault)
{
    int64_t row = 0, n = 0, m = 0, i = 0, j = 0;
    const int32_t *code_a = NULL, *code_b = NULL;
    const double *xyz_a = NULL, *xyz_b = NULL;

    for (;; row++) {
        if (i == n) {
            SP_TRY(vox_classes_next(a, &n, &code_a, &xyz_a));
            i = 0;
        }
        if (j == m) {
            SP_TRY(vox_classes_next(b, &m, &code_b, &xyz_b));
            j = 0;
        }
        if (n == 0 || m == 0)
            break;
        if (xyz_a && xyz_b && !is_same_place(a, b, xyz_a + 3 * i, xyz_b + 3 * j)) {
            *fault = (order_fault){.is_found = true, .row = row};
            return SP_OK;
        }
        SP_TRY(pair_table_add(t, code_a[i++], code_b[j++]));
    }
    if (n != 0 || m != 0)
        *fault = (order_fault){.is_found = true, .is_count = true, .row = row};
    return SP_OK;
}

/* ---- by position or field ---- */

static void class_points_free(class_points *p)
{
    free(p->key);
    free(p->code);
}

static sp_status class_points_read(vox_class_file *f, bool by_field, class_points *p)
{
    size_t room_key = 0, room_code = 0;
    const int32_t *code;
    const double *xyz;
    int64_t n = 0;

    SP_TRY(vox_classes_rewind(f));
    for (;;) {
        SP_TRY(vox_classes_next(f, &n, &code, &xyz));
        if (n == 0)
            return SP_OK;
        if (!sp_list_reserve(&p->key, &room_key,
                             (size_t)(p->n + n) * 3 * sizeof *p->key) ||
            !sp_list_reserve(&p->code, &room_code,
                             (size_t)(p->n + n) * sizeof *p->code))
            return SP_FAIL(SP_EMEM, "%s: no memory for %" PRId64 " points", f->path,
                           p->n + n);
        memcpy(p->code + p->n, code, (size_t)n * sizeof *code);
        for (int64_t i = 0; i < n; i++) {
            double *key = p->key + 3 * (p->n + i);

            key[0] = by_field ? f->points.attr[i] : xyz[3 * i];
            key[1] = by_field ? 0 : xyz[3 * i + 1];
            key[2] = by_field ? 0 : xyz[3 * i + 2];
        }
        p->n += n;
    }
}

/* Points of A by cells. */
typedef struct cell_table {
    const class_points *points;
    double cell[3], reach[3]; /* edge of a cell; greatest difference of a match */
    int64_t n_heads;          /* a power of two */
    int64_t *head, *next;     /* first point of a list; next one; -1: the end */
} cell_table;

static double compare_largest_of(const class_points *a, const class_points *b, int k)
{
    const class_points *p[2] = {a, b};
    double most = 0;

    for (int s = 0; s < 2; s++)
        for (int64_t i = 0; i < p[s]->n; i++)
            most = fmax(most, fabs(p[s]->key[3 * i + k]));
    return isfinite(most) ? most : 0;
}

static int64_t cell_head(const cell_table *t, const int64_t at[3])
{
    uint64_t h = 0;

    for (int k = 0; k < 3; k++)
        h = (h ^ (uint64_t)at[k]) * 0x9e3779b97f4a7c15u, h ^= h >> 29;
    return (int64_t)(h & (uint64_t)(t->n_heads - 1));
}

static int64_t cell_of(const cell_table *t, double x, int k)
{
    const double at = floor(x / t->cell[k]);

    return isfinite(at) && fabs(at) < 0x1p62 ? (int64_t)at : INT64_MIN;
}

static void cell_table_free(cell_table *t)
{
    free(t->head);
    free(t->next);
}

static sp_status cell_table_fill(cell_table *t, const class_points *a)
{
    t->points = a;
    for (t->n_heads = 64; t->n_heads < a->n; t->n_heads *= 2)
        ;
    SP_TRY(SP_NEW(&t->head, t->n_heads, "points to match"));
    SP_TRY(SP_NEW(&t->next, a->n, "points to match"));
    memset(t->head, 0xff, (size_t)t->n_heads * sizeof *t->head);
    /* From the last one on, so that lists are in the order of the file. */
    for (int64_t i = a->n - 1; i >= 0; i--) {
        int64_t at[3], *head;

        for (int k = 0; k < 3; k++)
            at[k] = cell_of(t, a->key[3 * i + k], k);
        head = &t->head[cell_head(t, at)];
        t->next[i] = *head;
        *head = i;
    }
    return SP_OK;
}

/* The distance of a point from a key in units of the reach, INFINITY if too far. */
static double reach_distance(const cell_table *t, int64_t i, const double *key)
{
    double d = 0;

    for (int k = 0; k < 3; k++) {
        const double x = t->points->key[3 * i + k];
        const double away = isnan(x) && isnan(key[k]) ? 0 : fabs(x - key[k]);

        if (!(away <= t->reach[k]))
            return INFINITY;
        d = fmax(d, t->reach[k] > 0 ? away / t->reach[k] : 0);
    }
    return d;
}

/* Takes the nearest free point of A for a key out of the table, or returns -1. */
static int64_t cell_table_remove_nearest(cell_table *t, const double *key)
{
    int64_t low[3], high[3], at[3], *link = NULL;
    double best = INFINITY;

    for (int k = 0; k < 3; k++) {
        low[k] = cell_of(t, key[k] - t->reach[k], k);
        high[k] = cell_of(t, key[k] + t->reach[k], k);
    }
    for (at[0] = low[0]; at[0] <= high[0]; at[0]++)
        for (at[1] = low[1]; at[1] <= high[1]; at[1]++)
            for (at[2] = low[2]; at[2] <= high[2]; at[2]++) {
                int64_t *l = &t->head[cell_head(t, at)];

                for (; *l >= 0 && best > 0; l = &t->next[*l]) {
                    const double d = reach_distance(t, *l, key);

                    if (d < best) {
                        best = d;
                        link = l;
                    }
                }
            }
    if (!link)
        return -1;
    at[0] = *link;
    *link = t->next[at[0]];
    return at[0];
}

static sp_status match_points(const vox_class_file *a, const vox_class_file *b,
                              const class_points *in_a, const class_points *in_b,
                              bool by_field, pair_table *counts)
{
    SP_CLOSED_BY(cell_table_free) cell_table t = {0};
    int64_t n_lost = 0, lost = -1;

    for (int k = 0; k < 3; k++) {
        const double most = compare_largest_of(in_a, in_b, k);

        t.reach[k] = by_field ? 0 : tolerance_of(a, b, k, most);
        t.cell[k] = by_field ? 1 : fmax(4 * t.reach[k], fmax(1e-9, 1e-9 * most));
    }
    SP_TRY(cell_table_fill(&t, in_a));
    for (int64_t j = 0; j < in_b->n; j++) {
        const int64_t i = cell_table_remove_nearest(&t, in_b->key + 3 * j);

        if (i >= 0)
            SP_TRY(pair_table_add(counts, in_a->code[i], in_b->code[j]));
        else if (n_lost++ == 0)
            lost = j;
        if (j % SP_SCAN_BLOCK == 0)
            SP_TRY(sp_signal_check());
    }
    if (n_lost == 0)
        return SP_OK;
    if (by_field)
        return SP_FAIL(SP_EDATA,
                       "%s: %" PRId64 " of %" PRId64 " points have no partner in %s; "
                       "the first is point %" PRId64
                       ": no point with value %.17g is left there",
                       b->path, n_lost, in_b->n, a->path, lost, in_b->key[3 * lost]);
    return SP_FAIL(SP_EDATA,
                   "%s: %" PRId64 " of %" PRId64 " points have no partner in %s; the "
                   "first is point %" PRId64 " at %.10g %.10g %.10g",
                   b->path, n_lost, in_b->n, a->path, lost, in_b->key[3 * lost],
                   in_b->key[3 * lost + 1], in_b->key[3 * lost + 2]);
}

static sp_status count_by_key(vox_class_file *a, vox_class_file *b, bool by_field,
                              pair_table *counts)
{
    SP_CLOSED_BY(class_points_free) class_points in_a = {0};
    SP_CLOSED_BY(class_points_free) class_points in_b = {0};

    if (!a->scan || !b->scan)
        return SP_FAIL(SP_EDATA,
                       "%s: a list of classes has neither positions nor fields: points "
                       "are matched by their order only",
                       a->scan ? b->path : a->path);
    SP_TRY(class_points_read(a, by_field, &in_a));
    SP_TRY(class_points_read(b, by_field, &in_b));
    if (in_a.n != in_b.n)
        return SP_FAIL(SP_EDATA,
                       "%s has %" PRId64 " points, %s has %" PRId64 ": they are not "
                       "the same points",
                       a->path, in_a.n, b->path, in_b.n);
    return match_points(a, b, &in_a, &in_b, by_field, counts);
}

static sp_status refuse_order(const vox_class_file *a, const vox_class_file *b,
                              const order_fault *fault)
{
    if (fault->is_count)
        return SP_FAIL(SP_EDATA,
                       "%s and %s do not have the same number of points: one ends "
                       "after %" PRId64,
                       a->path, b->path, fault->row);
    return SP_FAIL(SP_EDATA,
                   "%s and %s differ in the position of point %" PRId64
                   "; --match position finds points in another order",
                   a->path, b->path, fault->row);
}

static sp_status count_points_of(const vox_compare_options *o, vox_class_file *a,
                                 vox_class_file *b, pair_table *t)
{
    order_fault fault = {0};

    if (o->match_field)
        return count_by_key(a, b, true, t);
    if (o->match == VOX_MATCH_POSITION)
        return count_by_key(a, b, false, t);
    SP_TRY(count_by_order(a, b, t, &fault));
    if (!fault.is_found)
        return SP_OK;
    if (o->match == VOX_MATCH_ORDER || fault.is_count || !a->scan || !b->scan)
        return refuse_order(a, b, &fault);
    pair_table_clear(t);
    SP_TRY(count_by_key(a, b, false, t));
    sp_log_warn("%s and %s have their points in different orders: matched by position",
                a->path, b->path);
    return SP_OK;
}

sp_status vox_compare_pair(const vox_compare_options *o, const vox_file_pair *pair,
                           int64_t file, vox_code_pairs *counts)
{
    SP_CLOSED_BY(vox_classes_close) vox_class_file a = {0};
    SP_CLOSED_BY(vox_classes_close) vox_class_file b = {0};
    SP_CLOSED_BY(pair_table_free) pair_table *t = NULL;

    assert(o && pair && counts);
    SP_TRY(SP_NEW(&t, 1, "counts"));
    memset(t->id, 0xff, sizeof t->id);
    SP_TRY(vox_classes_open(&a, pair->a, o, o->label_field_a));
    SP_TRY(vox_classes_open(&b, pair->b, o, o->label_field_b));
    SP_TRY(count_points_of(o, &a, &b, t));
    return pair_table_give(t, file, counts);
}
