#include "scan/sp_gridding.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sp_list.h"
#include "base/sp_rng.h"
#include "compute/sp_backend.h"

/* A voxel's Morton key and the number of the point (or row) that it came from. */
typedef struct item {
    uint64_t key;
    uint32_t row;
} item;

enum {
    BUFFERS = 16,
    AHEAD = 16 /* points to request memory for before they are read */
};

/* The memory of a grid, by buffer_name; the sample's arrays point into it. */
struct sp_grid_buffers {
    void *at[BUFFERS];
    size_t bytes[BUFFERS];
};

enum buffer_name {
    B_ITEMS,
    B_SPARE,
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

/* ---- Morton keys ---- */

static uint64_t morton(const int32_t c[3])
{
    static const int32_t least[3] = {-SP_COORD_LIMIT, -SP_COORD_LIMIT, -SP_COORD_LIMIT};

    return sp_morton_key(c, least);
}

/* Sorts n items by key with a stable radix sort, which skips digits that are equal in all
 * keys, and returns the one of both arrays that has the result. Measured, digits of 11
 * bits are faster than bytes. */
static item *gridding_sort_items(item *items, item *spare, int64_t n)
{
    enum { BITS = 11, DIGITS = 1 << BITS };
    item *from = items, *to = spare, *swap;
    uint64_t all_or = 0, all_and = ~(uint64_t)0;
    uint32_t at[DIGITS + 1];

    assert(n <= UINT32_MAX);
    for (int64_t i = 0; i < n; i++) {
        all_or |= items[i].key;
        all_and &= items[i].key;
    }
    for (int shift = 0; shift < 64; shift += BITS) {
        if (n == 0 || ((all_or ^ all_and) >> shift & (DIGITS - 1)) == 0)
            continue;
        memset(at, 0, sizeof at);
        for (int64_t i = 0; i < n; i++)
            at[(from[i].key >> shift & (DIGITS - 1)) + 1]++;
        for (int d = 0; d < DIGITS; d++)
            at[d + 1] += at[d];
        for (int64_t i = 0; i < n; i++)
            to[at[from[i].key >> shift & (DIGITS - 1)]++] = from[i];
        swap = from;
        from = to;
        to = swap;
    }
    return from;
}

/* ---- cost ---- */

/* The cubes of 4^3 voxels that hold any, in a hash table. A place depends on a random
 * secret of this process, so that a hostile file cannot make all cubes collide. The
 * counts do not depend on the secret. */
typedef struct cube {
    uint64_t key;  /* of its voxels without the last 6 bits, plus 1; 0: empty */
    uint64_t mask; /* bit i: it holds the voxel with these last 6 bits */
} cube;

typedef struct cube_table {
    cube *at; /* [mask + 1] */
    uint64_t mask, secret;
} cube_table;

/* Finds the place of a cube, or the empty place for it. */
static cube *find_cube(const cube_table *table, uint64_t key)
{
    uint64_t h = sp_rng_mix(key ^ table->secret) & table->mask;

    while (table->at[h].key && table->at[h].key != key + 1)
        h = (h + 1) & table->mask;
    return &table->at[h];
}

/* The neighbours of each voxel of a cube by the 13 offsets after the centre, half of
 * all: the cube of each among the 27 around, and its bit there. */
enum { CUBE = 64, HALF = 13, AROUND = 27 };
typedef struct neighbours {
    uint8_t cube[CUBE][HALF], bit[CUBE][HALF];
} neighbours;

static void list_neighbours(neighbours *list)
{
    int d[3];

    for (uint64_t voxel = 0; voxel < CUBE; voxel++)
        for (int k = 0; k < HALF; k++) {
            uint64_t bit = 0;
            int around = 0;

            sp_kernel_offset(3, k + AROUND / 2 + 1, d);
            for (int a = 2; a >= 0; a--) {
                const int at = sp_morton_gather(voxel >> a) + d[a] + 4; /* 3 to 8 */

                around = 3 * around + at / 4;
                bit |= sp_morton_spread((uint32_t)at % 4) << a;
            }
            list->cube[voxel][k] = (uint8_t)around;
            list->bit[voxel][k] = (uint8_t)bit;
        }
}

/* The voxels of cube `around` of the 27 around the cube of this key. */
static uint64_t mask_around(const cube_table *table, uint64_t key, int around)
{
    uint64_t other = 0;

    for (int a = 0; a < 3; a++, around /= 3) {
        const int32_t at = sp_morton_gather(key >> a) + around % 3 - 1;

        if (at < 0 || at >= SP_COORD_LIMIT / 2)
            return 0; /* outside the grid of 2^18 cubes an axis */
        other |= sp_morton_spread((uint32_t)at) << a;
    }
    return find_cube(table, other)->mask;
}

/* Counts the pairs of a kernel of edge 3: every voxel with itself, and each pair of
 * neighbours in both directions. A cube that is needed is looked up once for all voxels
 * of a cube. */
static int64_t gridding_count_pairs(const item *items, int64_t n,
                                    const cube_table *table)
{
    uint64_t mask[AROUND] = {0};
    uint32_t found = 0;
    int64_t pairs = n;
    neighbours list;

    list_neighbours(&list);
    for (int64_t i = 0; i < n; i++) {
        cube *own = find_cube(table, items[i].key / CUBE);

        own->key = items[i].key / CUBE + 1;
        own->mask |= (uint64_t)1 << items[i].key % CUBE;
    }
    for (int64_t i = 0; i < n; i++) {
        const uint8_t *around = list.cube[items[i].key % CUBE];
        const uint8_t *bit = list.bit[items[i].key % CUBE];

        if (i == 0 || items[i].key / CUBE != items[i - 1].key / CUBE)
            found = 0;
        for (int k = 0; k < HALF; k++) {
            if (!(found >> around[k] & 1))
                mask[around[k]] = mask_around(table, items[i].key / CUBE, around[k]);
            found |= (uint32_t)1 << around[k];
            pairs += 2 * (int64_t)(mask[around[k]] >> bit[k] & 1);
        }
    }
    return pairs;
}

/* Computes the cost columns from sorted items, one per voxel. */
static sp_status cost_of_sorted(const item *items, int64_t n,
                                int64_t cost[SP_COST_COLUMNS])
{
    cube_table table = {.secret = 0};
    uint64_t size = 16, n_cubes = n > 0;

    for (int level = 0; level < SP_COST_COLUMNS - 1; level++)
        cost[level] = n > 0;
    for (int64_t i = 1; i < n; i++) {
        const uint64_t change = items[i].key ^ items[i - 1].key;

        for (int level = 0; level < SP_COST_COLUMNS - 1; level++)
            cost[level] += change >> 3 * level != 0;
        n_cubes += change / CUBE != 0;
    }
    while (size < 2 * n_cubes)
        size *= 2;
    table.mask = size - 1;
    SP_TRY(SP_NEW(&table.at, size, "voxelization"));
    if (getentropy(&table.secret, sizeof table.secret) != 0)
        table.secret = (uintptr_t)table.at;
    cost[SP_COST_COLUMNS - 1] = gridding_count_pairs(items, n, &table);
    free(table.at);
    return SP_OK;
}

sp_status sp_grid_cost(const int32_t *coords, int64_t n, int64_t cost[SP_COST_COLUMNS])
{
    SP_FREED item *items = NULL;

    assert(n >= 0 && (coords || n == 0) && cost);
    SP_TRY(SP_NEW(&items, 2 * ((size_t)n + 1), "cost of a sample"));
    for (int64_t i = 0; i < n; i++)
        items[i] = (item){morton(coords + 3 * i), (uint32_t)i};
    return cost_of_sorted(gridding_sort_items(items, items + n, n), n, cost);
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

/* The sums of a voxel's points while they are read. */
typedef struct voxel_sums {
    double place[3]; /* in the voxel, in edges */
    double *feature; /* [c] */
    int32_t *votes;  /* [n_votes] the labels */
    int64_t n, n_votes;
} voxel_sums;

static void voxel_sums_add(voxel_sums *sums, const sp_points *points,
                           const sp_grid_options *options, int64_t i,
                           const int32_t coords[3])
{
    for (int a = 0; a < 3; a++)
        sums->place[a] +=
            (points->xyz[3 * i + a] - options->origin[a]) / options->voxel_size -
            (double)(options->begin[a] + coords[a]);
    for (int a = 0; a < points->c; a++)
        sums->feature[a] += points->features[i * points->c + a];
    if (points->label && points->label[i] != SP_IGNORE)
        sums->votes[sums->n_votes++] = points->label[i];
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

/* Asks for the memory of a point, which sorted points read in no order of addresses. */
static void fetch_point(const sp_points *points, int64_t row)
{
    __builtin_prefetch(points->xyz + 3 * row);
    if (points->c > 0)
        __builtin_prefetch(points->features + row * points->c);
    if (points->label)
        __builtin_prefetch(points->label + row);
}

/* Reads the points in their sorted order and writes a row per voxel. One loop over
 * points has one branch per voxel that a processor predicts badly; loops over a voxel's
 * points had several. items shrinks to one entry per voxel. */
static void read_sorted(sp_grid *grid, const sp_points *points,
                        const sp_grid_options *options, item *items, voxel_sums *sums,
                        uint32_t *row_of)
{
    sp_sample *s = &grid->sample;
    int64_t row = -1;

    for (int64_t i = 0; i < points->n; i++) {
        const item now = items[i];

        if (i + AHEAD < points->n)
            fetch_point(points, items[i + AHEAD].row);
        if (i == 0 || now.key != items[row].key) { /* row <= i: already read */
            if (i > 0)
                voxel_sums_write(sums, grid, points->c, row, options->ignore_conflicts);
            items[++row].key = now.key;
            for (int a = 0; a < 3; a++)
                s->coords[3 * row + a] =
                    sp_morton_gather(now.key >> a) - SP_COORD_LIMIT;
        }
        row_of[now.row] = (uint32_t)row;
        voxel_sums_add(sums, points, options, now.row, s->coords + 3 * row);
    }
    if (points->n > 0)
        voxel_sums_write(sums, grid, points->c, row, options->ignore_conflicts);
    s->n = row + 1;
}

/* Turns sorted points into rows; items shrinks to one entry per voxel. */
static sp_status fill_rows(sp_grid *grid, const sp_points *points,
                           const sp_grid_options *options, item *items,
                           int64_t n_voxels)
{
    sp_sample *s = &grid->sample;
    voxel_sums sums = {.n = 0};
    uint32_t *row_of;

    SP_TRY(GROW(grid, B_VOTES, points->n, &sums.votes));
    SP_TRY(GROW(grid, B_SUMS, points->c, &sums.feature));
    memset(sums.feature, 0, (size_t)points->c * sizeof *sums.feature);
    SP_TRY(GROW(grid, B_ROW_OF, points->n, &row_of));
    SP_TRY(GROW(grid, B_COUNT, n_voxels, &grid->count));
    SP_TRY(GROW(grid, B_COORDS, 3 * n_voxels, &s->coords));
    SP_TRY(GROW(grid, B_FEATURES, n_voxels * points->c, &s->features));
    SP_TRY(GROW(grid, B_LABELS, n_voxels, &s->labels));
    SP_TRY(GROW(grid, B_SUBVOXEL, 3 * n_voxels, &s->subvoxel));
    read_sorted(grid, points, options, items, &sums, row_of);
    if (options->with_points)
        SP_TRY(fill_point_map(grid, points, row_of));
    if (options->with_points)
        SP_TRY(fill_context(grid, points, row_of));
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
    item *items, *spare;
    int64_t n_voxels = points->n > 0;
    int32_t c[3];

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
    SP_TRY(GROW(grid, B_ITEMS, points->n, &items));
    SP_TRY(GROW(grid, B_SPARE, points->n, &spare));
    for (int64_t i = 0; i < points->n; i++) {
        SP_TRY(voxel_of_point(points, options, i, c));
        items[i] = (item){morton(c), (uint32_t)i};
    }
    items = gridding_sort_items(items, spare, points->n);
    for (int64_t i = 1; i < points->n; i++)
        n_voxels += items[i].key != items[i - 1].key;
    SP_TRY(fill_rows(grid, points, options, items, n_voxels));
    memset(grid->cost, 0, sizeof grid->cost);
    return options->without_cost ? SP_OK
                                 : cost_of_sorted(items, grid->sample.n, grid->cost);
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
static bool find_voxel(const item *voxel, int64_t n, uint64_t key, uint32_t *row)
{
    int64_t low = 0, high = n;

    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;

        if (voxel[middle].key <= key)
            low = middle;
        else
            high = middle;
    }
    *row = (uint32_t)low;
    return n > 0 && voxel[low].key == key;
}

sp_status sp_grid_locate(sp_grid *grid, const sp_points *points,
                         const sp_grid_options *options)
{
    const sp_sample *s = &grid->sample;
    uint32_t *row_of;
    item *voxel;
    int32_t c[3];

    assert(grid->own && points && options && s->coords);
    SP_TRY(GROW(grid, B_ITEMS, s->n, &voxel));
    SP_TRY(GROW(grid, B_ROW_OF, points->n, &row_of));
    for (int64_t i = 0; i < s->n; i++)
        voxel[i].key = morton(s->coords + 3 * i);
    for (int64_t i = 0; i < points->n; i++) {
        SP_TRY(voxel_of_point(points, options, i, c));
        if (!find_voxel(voxel, s->n, morton(c), &row_of[i]))
            return SP_FAIL(SP_EDATA,
                           "the point at %.12g, %.12g, %.12g was not in the scan when "
                           "a scan near it was labelled",
                           points->xyz[3 * i], points->xyz[3 * i + 1],
                           points->xyz[3 * i + 2]);
    }
    SP_TRY(fill_point_map(grid, points, row_of));
    return fill_context(grid, points, row_of);
}
