#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"
#include "base/sp_number.h"
#include "scan/sp_gridding_internal.h"

enum buffer_name {
    B_KEYS,
    B_POINTS,
    B_ITEMS,
    B_VOTES,
    B_SUMS,
    B_COUNT,
    B_COORDS,
    B_FEATURES,
    B_LABELS,
    B_SUBVOXEL,
    B_POINT_VOXEL,
    B_POINT_LABELS,
    B_POINT_INDEX,
    B_ROW_OF,
    B_CONTEXT_VOXEL,
    B_CONTEXT_BLOCK,
    B_CONTEXT_POINT,
    BUFFERS
};

/* The memory of a grid; the sample's arrays point into it. */
struct sp_grid_buffers {
    void *at[BUFFERS];
    size_t bytes[BUFFERS];
};

/* Lends the named buffer with at least `bytes` bytes. NULL without memory, with the
 * error recorded. */
static void *gridding_grow(sp_grid *grid, enum buffer_name name, size_t bytes)
{
    struct sp_grid_buffers *own = grid->own;

    if (own->at[name] && own->bytes[name] >= bytes)
        return own->at[name];
    bytes = bytes + bytes / 4 + 64;
    if (!sp_list_resize(&own->at[name], bytes)) {
        SP_FAIL(SP_EMEM, "voxelization: no memory for %zu bytes", bytes);
        return NULL;
    }
    own->bytes[name] = bytes;
    return own->at[name];
}

#define GROW(grid, name, count, pointer)                                               \
    ((*(pointer) =                                                                     \
          gridding_grow((grid), (name), (size_t)(count) * sizeof **(pointer)))         \
         ? SP_OK                                                                       \
         : SP_EMEM)

void sp_grid_destroy(sp_grid *grid)
{
    assert(grid);
    for (int i = 0; grid->own && i < BUFFERS; i++)
        free(grid->own->at[i]);
    free(grid->own);
    memset(grid, 0, sizeof *grid);
}

/* ---- voxels ---- */

/* The origin of the sample along an axis. */
static double gridding_begin_of(const sp_grid_options *options, int axis)
{
    return options->origin[axis] + (double)options->begin[axis] * options->voxel_size;
}

/* Finds the voxel of point i. The range is checked first, so that rounding down is the
 * conversion to an integer. */
static sp_status voxel_of_point(const sp_points *points, const sp_grid_options *options,
                                int64_t i, int32_t c[3])
{
    for (int a = 0; a < 3; a++) {
        const int64_t begin = options->begin[a];
        const double at =
            (points->xyz[3 * i + a] - options->origin[a]) / options->voxel_size;
        int64_t down;

        if (!(at >= (double)(begin - SP_COORD_LIMIT) &&
              at < (double)(begin + SP_COORD_LIMIT)))
            return SP_FAIL(
                SP_EDATA,
                "point %lld: %c = %.17g m lies outside the grid of 2^20 voxels "
                "of %g m around %.17g m",
                (long long)(points->index ? points->index[i] : (uint64_t)i), "xyz"[a],
                points -> xyz[3 * i + a], options -> voxel_size,
                gridding_begin_of(options, a));
        down = (int64_t)at;
        down -= at < (double)down;
        c[a] = (int32_t)(down - begin);
    }
    return SP_OK;
}

/* Majority of the n votes, the labels of a voxel's labelled points. */
static int32_t gridding_majority(int32_t *votes, int64_t n, bool ignore_conflicts)
{
    int64_t best = 0;
    int32_t winner = SP_IGNORE;
    bool is_mixed = false;

    /* There are few points and fewer classes, so each distinct label's votes are moved
     * to the front in turn. */
    for (int64_t i = 0; i < n;) {
        int64_t first = i;
        int32_t label = votes[i];

        for (int64_t j = i; j < n; j++)
            if (votes[j] == label) {
                votes[j] = votes[i];
                votes[i++] = label;
            }
        is_mixed = is_mixed || i < n;
        if (i - first > best) {
            best = i - first;
            winner = label;
        } else if (i - first == best) {
            winner = SP_IGNORE;
        }
    }
    return is_mixed && ignore_conflicts ? SP_IGNORE : winner;
}

/* A point with all that its voxel needs. Points sorted by voxel would be read from all
 * over the caller's arrays; these are written next to points of voxels nearby. */
typedef struct placed {
    uint64_t key; /* Morton, of its voxel */
    uint32_t row;
    int32_t label;
    double inside[3]; /* its place in the voxel, in edges */
    float feature[];  /* [c] */
} placed;

/* The sums of a voxel's points while they are read. */
typedef struct voxel_sums {
    double place[3]; /* in the voxel, in edges */
    double *feature; /* [c] */
    int32_t *votes;  /* [n_votes] the labels */
    int64_t n, n_votes;
} voxel_sums;

static void voxel_sums_add(voxel_sums *sums, const placed *p, int c)
{
    for (int a = 0; a < 3; a++)
        sums->place[a] += p->inside[a];
    for (int a = 0; a < c; a++)
        sums->feature[a] += p->feature[a];
    if (p->label != SP_IGNORE)
        sums->votes[sums->n_votes++] = p->label;
    sums->n++;
}

/* Writes a voxel's means, and begins the next one. The mean place is in 256ths of the
 * voxel's edges. */
static void voxel_sums_write(voxel_sums *sums, sp_grid *grid, int c, int64_t row,
                             bool ignore_conflicts)
{
    const double n = (double)sums->n;
    sp_sample *s = &grid->sample;

    for (int a = 0; a < 3; a++) {
        const double inside = floor(sums->place[a] / n * 256);

        s->subvoxel[3 * row + a] = inside <= 0     ? 0
                                   : inside >= 255 ? 255
                                                   : (uint8_t)inside;
        sums->place[a] = 0;
    }
    for (int a = 0; a < c; a++) {
        s->features[row * c + a] = (float)(sums->feature[a] / n);
        sums->feature[a] = 0;
    }
    s->labels[row] = gridding_majority(sums->votes, sums->n_votes, ignore_conflicts);
    grid->count[row] = (int32_t)sums->n;
    sums->n = sums->n_votes = 0;
}

static sp_status fill_point_map(sp_grid *grid, const sp_points *points,
                                const uint32_t *row_of)
{
    sp_sample *s = &grid->sample;
    int64_t n = 0;

    SP_TRY(GROW(grid, B_POINT_VOXEL, points->n, &s->point_voxel));
    SP_TRY(GROW(grid, B_POINT_LABELS, points->n, &s->point_labels));
    SP_TRY(GROW(grid, B_POINT_INDEX, points->n, &s->point_index));
    for (int64_t i = 0; i < points->n; i++) {
        int64_t to = n;

        if (points->is_owned && points->is_owned[i] != 1)
            continue;
        if (points->home_row && points->is_owned)
            to = points->home_row[i];
        s->point_voxel[to] = row_of[i];
        s->point_labels[to] = points->label ? points->label[i] : SP_IGNORE;
        s->point_index[to] = points->index ? points->index[i] : (uint64_t)i;
        n++;
    }
    s->n_points = n;
    return SP_OK;
}

static sp_status fill_context(sp_grid *grid, const sp_points *points,
                              const uint32_t *row_of)
{
    sp_sample *s = &grid->sample;
    int64_t at = 0;

    if (!points->home || !points->is_owned)
        return SP_OK;
    SP_TRY(GROW(grid, B_CONTEXT_VOXEL, points->n, &s->context_voxel));
    SP_TRY(GROW(grid, B_CONTEXT_BLOCK, points->n, &s->context_block));
    SP_TRY(GROW(grid, B_CONTEXT_POINT, points->n, &s->context_point));
    for (int64_t i = 0; i < points->n; i++) {
        if (points->is_owned[i] != 0)
            continue;
        s->context_voxel[at] = row_of[i];
        s->context_block[at] = points->home[i];
        s->context_point[at++] = points->home_row[i];
    }
    s->n_context = at;
    return SP_OK;
}

/* ---- points by voxel ---- */

enum {
    BATCH = 128,     /* points that are located together */
    PERIOD = 24,     /* coordinates: whole points, and whole registers */
    BUCKET_BITS = 11 /* at most, of the number of a bucket */
};

/* Points that are being located: the options for each coordinate of a period, and the
 * voxels of a batch. */
typedef struct locator {
    double origin[PERIOD], begin[PERIOD], size;
    double padded[3 * BATCH]; /* the coordinates of an incomplete batch */
    double inside[3 * BATCH];
    int32_t coords[3 * BATCH];
    uint64_t key[BATCH];
} locator;

static void locator_open(locator *l, const sp_grid_options *options)
{
    l->size = options->voxel_size;
    for (int i = 0; i < PERIOD; i++) {
        l->origin[i] = options->origin[i % 3];
        l->begin[i] = (double)options->begin[i % 3];
    }
}

/* Does as voxel_of_point for n coordinates, a multiple of PERIOD. False: some are outside
 * of the grid. */
SP_WIDE static bool locator_run(locator *l, const double *xyz, int n)
{
    int is_outside = 0;

    for (int i = 0; i < n; i += PERIOD)
        for (int k = 0; k < PERIOD; k++) {
            const double at = (xyz[i + k] - l->origin[k]) / l->size, down = floor(at);
            const double c = down - l->begin[k];
            const bool is_within = c >= -SP_COORD_LIMIT && c < SP_COORD_LIMIT;

            l->inside[i + k] = at - down;
            l->coords[i + k] = (int32_t)(is_within ? c : 0);
            is_outside |= !is_within;
        }
    for (int i = 0; i < n / 3; i++)
        l->key[i] = sp_grid_key(l->coords + 3 * i);
    return !is_outside;
}

/* Locates m points from `first` on, at most BATCH. */
static sp_status locator_read(locator *l, const sp_points *points,
                              const sp_grid_options *options, int64_t first, int m)
{
    const double *xyz = points->xyz + 3 * first;
    const int n = (3 * m + PERIOD - 1) / PERIOD * PERIOD;
    int32_t c[3];

    if (n > 3 * m) {
        for (int i = 0; i < n; i++)
            l->padded[i] = xyz[i < 3 * m ? i : i % 3];
        xyz = l->padded;
    }
    if (!locator_run(l, xyz, n))
        for (int i = 0; i < m; i++)
            SP_TRY(voxel_of_point(points, options, first + i, c));
    return SP_OK;
}

static inline int gridding_batch(const sp_points *points, int64_t first)
{
    return points->n - first < BATCH ? (int)(points->n - first) : BATCH;
}

/* The points, in buckets by the highest bits of their keys that differ. The keys of a
 * bucket are below those of the next one. */
typedef struct bucket_list {
    unsigned char *at; /* [points] */
    size_t bytes;      /* of a point */
    uint64_t mask;     /* of the bits that differ, and lower ones */
    int shift;
    uint32_t end[1 << BUCKET_BITS];
} bucket_list;

static inline placed *bucket_point(const bucket_list *b, int64_t i)
{
    return (placed *)(void *)(b->at + (size_t)i * b->bytes);
}

/* Finds the keys of all points, and how many points each bucket has: some 256. */
static sp_status bucket_count(bucket_list *b, locator *l, const sp_points *points,
                              const sp_grid_options *options, uint64_t *key)
{
    uint64_t all_or = 0, all_and = ~(uint64_t)0;
    int bits = 0, m;

    for (int64_t i = 0; i < points->n; i += m) {
        m = gridding_batch(points, i);
        SP_TRY(locator_read(l, points, options, i, m));
        for (int k = 0; k < m; k++) {
            key[i + k] = l->key[k];
            all_or |= l->key[k];
            all_and &= l->key[k];
        }
    }
    while (bits < BUCKET_BITS && points->n >> bits > 256)
        bits++;
    b->mask = points->n > 0 ? all_or ^ all_and : 0;
    for (int i = 1; i < 64; i *= 2)
        b->mask |= b->mask >> i;
    while (b->mask >> b->shift >> bits)
        b->shift++;
    for (int64_t i = 0; i < points->n; i++)
        b->end[(key[i] & b->mask) >> b->shift]++;
    return SP_OK;
}

static void bucket_put(bucket_list *b, const locator *l, const sp_points *points,
                       int64_t i, int k)
{
    placed *p = bucket_point(b, b->end[(l->key[k] & b->mask) >> b->shift]++);

    p->key = l->key[k];
    p->row = (uint32_t)i;
    p->label = points->label ? points->label[i] : SP_IGNORE;
    for (int a = 0; a < 3; a++)
        p->inside[a] = l->inside[3 * k + a];
    for (int a = 0; a < points->c; a++)
        p->feature[a] = points->features[i * points->c + a];
}

/* Writes all points into their buckets, in their order. */
static sp_status bucket_fill(bucket_list *b, sp_grid *grid, const sp_points *points,
                             const sp_grid_options *options, uint64_t *key)
{
    uint32_t first = 0;
    locator l;
    int m;

    locator_open(&l, options);
    SP_TRY(bucket_count(b, &l, points, options, key));
    for (uint64_t i = 0; i <= b->mask >> b->shift; i++) {
        const uint32_t n = b->end[i];

        b->end[i] = first;
        first += n;
    }
    b->bytes =
        sp_multiple(sizeof(placed) + (size_t)points->c * sizeof(float), sizeof(double));
    SP_TRY(GROW(grid, B_POINTS, (size_t)points->n * b->bytes, &b->at));
    for (int64_t i = 0; i < points->n; i += m) {
        m = gridding_batch(points, i);
        SP_TRY(locator_read(&l, points, options, i, m));
        for (int k = 0; k < m; k++)
            bucket_put(b, &l, points, i + k, k);
    }
    return SP_OK;
}

/* ---- buckets to rows ---- */

/* Makes room for n rows. */
static sp_status rows_reserve(sp_grid *grid, int64_t n, int c)
{
    sp_sample *s = &grid->sample;

    SP_TRY(GROW(grid, B_COUNT, n, &grid->count));
    SP_TRY(GROW(grid, B_COORDS, 3 * n, &s->coords));
    SP_TRY(GROW(grid, B_FEATURES, n * c, &s->features));
    SP_TRY(GROW(grid, B_LABELS, n, &s->labels));
    return GROW(grid, B_SUBVOXEL, 3 * n, &s->subvoxel);
}

/* The rows while they are made from buckets. */
typedef struct row_maker {
    sp_grid *grid;
    const bucket_list *buckets;
    int c;
    bool ignore_conflicts;
    uint64_t *key;    /* of the rows */
    uint32_t *row_of; /* [points]; NULL: not asked for */
    voxel_sums sums;
} row_maker;

/* Reads n points, which follow the `first` ones in the buckets, as items sort them, and
 * writes a row per voxel. One loop over points has one branch per voxel that a processor
 * predicts badly; loops over a voxel's points had several. */
static void read_sorted(row_maker *r, int64_t first, const sp_grid_item *items,
                        int64_t n)
{
    sp_sample *s = &r->grid->sample;
    int64_t row = s->n - 1;

    for (int64_t i = 0; i < n; i++) {
        const placed *p = bucket_point(r->buckets, first + items[i].row);

        if (i == 0 || p->key != r->key[row]) {
            if (i > 0)
                voxel_sums_write(&r->sums, r->grid, r->c, row, r->ignore_conflicts);
            r->key[++row] = p->key;
            for (int a = 0; a < 3; a++)
                s->coords[3 * row + a] = sp_morton_gather(p->key >> a) - SP_COORD_LIMIT;
        }
        if (r->row_of)
            r->row_of[p->row] = (uint32_t)row;
        voxel_sums_add(&r->sums, p, r->c);
    }
    voxel_sums_write(&r->sums, r->grid, r->c, row, r->ignore_conflicts);
    s->n = row + 1;
}

/* Turns buckets into rows. */
static sp_status fill_rows(row_maker *r)
{
    const bucket_list *b = r->buckets;
    int64_t first = 0, n;
    sp_grid_item *items;

    SP_TRY(GROW(r->grid, B_SUMS, r->c, &r->sums.feature));
    memset(r->sums.feature, 0, (size_t)r->c * sizeof *r->sums.feature);
    SP_TRY(rows_reserve(r->grid, 0, r->c));
    for (uint64_t i = 0; i <= b->mask >> b->shift; i++, first += n) {
        n = b->end[i] - first;
        if (n == 0)
            continue;
        SP_TRY(rows_reserve(r->grid, r->grid->sample.n + n, r->c));
        SP_TRY(GROW(r->grid, B_VOTES, n, &r->sums.votes));
        SP_TRY(GROW(r->grid, B_ITEMS, 2 * n, &items));
        for (int64_t k = 0; k < n; k++)
            items[k] = (sp_grid_item){bucket_point(b, first + k)->key, (uint32_t)k};
        read_sorted(r, first, sp_grid_sort(items, items + n, n), n);
    }
    return SP_OK;
}

static sp_status grid_open(sp_grid *grid)
{
    if (!grid->own && !(grid->own = calloc(1, sizeof *grid->own)))
        return SP_FAIL(SP_EMEM, "voxelization: no memory");
    grid->sample = (sp_sample){.id = grid->sample.id};
    return SP_OK;
}

sp_status sp_grid_points(sp_grid *grid, const sp_points *points,
                         const sp_grid_options *options)
{
    bucket_list buckets = {.shift = 0};
    row_maker rows = {.grid = grid,
                      .buckets = &buckets,
                      .c = points->c,
                      .ignore_conflicts = options->ignore_conflicts};

    assert(grid && points && options);
    assert(points->n >= 0 && (points->xyz || points->n == 0));
    assert(options->voxel_size > 0);
    assert(points->c == 0 || points->n == 0 || points->features);
    assert(!points->home == !points->home_row);
    if (points->n > INT32_MAX)
        return SP_FAIL(SP_EDATA, "%lld points in one sample, at most %d are possible",
                       (long long)points->n, INT32_MAX);
    SP_TRY(grid_open(grid));
    for (int a = 0; a < 3; a++)
        grid->sample.origin[a] = gridding_begin_of(options, a);
    SP_TRY(GROW(grid, B_KEYS, points->n, &rows.key)); /* of points, then of rows */
    if (options->with_points)
        SP_TRY(GROW(grid, B_ROW_OF, points->n, &rows.row_of));
    SP_TRY(bucket_fill(&buckets, grid, points, options, rows.key));
    SP_TRY(fill_rows(&rows));
    if (options->with_points) {
        SP_TRY(fill_point_map(grid, points, rows.row_of));
        SP_TRY(fill_context(grid, points, rows.row_of));
    }
    memset(grid->cost, 0, sizeof grid->cost);
    return options->without_cost
               ? SP_OK
               : sp_grid_cost_of_keys(rows.key, grid->sample.n, grid->cost);
}

/* ---- voxels that are known ---- */

sp_status sp_grid_reserve(sp_grid *grid, int64_t n)
{
    SP_TRY(grid_open(grid));
    grid->sample.n = n;
    SP_TRY(GROW(grid, B_COORDS, 3 * n, &grid->sample.coords));
    return GROW(grid, B_SUBVOXEL, 3 * n, &grid->sample.subvoxel);
}

/* The voxel with this key among the sorted ones. False: no voxel has it. */
static bool find_voxel(const uint64_t *voxel, int64_t n, uint64_t key, uint32_t *row)
{
    int64_t low = 0, high = n;

    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;

        if (voxel[middle] <= key)
            low = middle;
        else
            high = middle;
    }
    *row = (uint32_t)low;
    return n > 0 && voxel[low] == key;
}

sp_status sp_grid_locate(sp_grid *grid, const sp_points *points,
                         const sp_grid_options *options)
{
    const sp_sample *s = &grid->sample;
    uint64_t *voxel;
    uint32_t *row_of;
    int32_t c[3];

    assert(grid->own && points && options && s->coords);
    SP_TRY(GROW(grid, B_KEYS, s->n, &voxel));
    SP_TRY(GROW(grid, B_ROW_OF, points->n, &row_of));
    for (int64_t i = 0; i < s->n; i++)
        voxel[i] = sp_grid_key(s->coords + 3 * i);
    for (int64_t i = 0; i < points->n; i++) {
        SP_TRY(voxel_of_point(points, options, i, c));
        if (!find_voxel(voxel, s->n, sp_grid_key(c), &row_of[i]))
            return SP_FAIL(SP_EDATA,
                           "the point at %.12g, %.12g, %.12g was not in the scan when "
                           "a scan near it was labelled",
                           points->xyz[3 * i], points->xyz[3 * i + 1],
                           points->xyz[3 * i + 2]);
    }
    SP_TRY(fill_point_map(grid, points, row_of));
    return fill_context(grid, points, row_of);
}
