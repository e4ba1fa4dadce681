/* Displacements of single voxels: noise, and elastic distortions.
 *
 * The nodes of a distortion's grid are computed in tiles of EDGE^3 cells, which a small
 * cache holds. Rows are sorted by tile first, so that each tile is computed about once
 * and memory does not grow with the extent of the sample. Most of a tile's time are its
 * normal deviates; the smoothing needs HALO nodes around it. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/sp_number.h"
#include "base/sp_rng.h"
#include "compute/sp_plan.h"
#include "data/sp_augment_internal.h"

enum {
    EDGE = 8,         /* cells of a tile in an axis */
    NODES = EDGE + 1, /* nodes of a tile in an axis */
    HALO = 2,         /* nodes that smoothing reaches */
    RAW = NODES + 2 * HALO,
    PARTS = 4,     /* numbers of a node: its displacement, and one not used */
    TILES = 8,     /* of the cache */
    NODE_BITS = 20 /* of the number of a node in an axis */
};

typedef struct tile {
    bool is_there;
    int64_t at[3]; /* its first cell over EDGE */
    float node[NODES][NODES][NODES][PARTS];
} tile;

/* The field of one distortion. */
typedef struct field {
    sp_rng rng;
    uint64_t number; /* of the distortion */
    double cells;    /* of the grid in a new voxel, at most 1 */
    double magnitude;
    tile tile[TILES];
    /* A tile smoothed along z, and along y too. */
    float along_z[RAW][RAW][NODES][PARTS], along_y[RAW][NODES][NODES][PARTS];
} field;

bool sp_augment_is_displaced(const sp_augment *aug)
{
    return aug->noise > 0 || aug->elastic.n > 0;
}

double sp_augment_reach(const sp_augment *aug)
{
    double most = NORMAL_MOST * aug->noise;

    if (aug->noise_clip > 0 && aug->noise_clip < most)
        most = aug->noise_clip;
    for (int i = 0; i + 1 < aug->elastic.n; i += 2)
        most += NORMAL_MOST * aug->elastic.at[i + 1];
    return most;
}

static void add_noise(const sp_augment *aug, int32_t n, float *d)
{
    const sp_rng rng = sp_rng_open(aug->seed, SP_RNG_NOISE, aug->epoch, aug->sample);
    const int64_t all = 3 * (int64_t)n;
    const float width = (float)aug->noise;
    const float clip = aug->noise_clip > 0 ? (float)aug->noise_clip : INFINITY;
    float normal[BATCH];

    for (int64_t done = 0; done < all; done += BATCH) {
        const int64_t m = sp_least(BATCH, all - done);

        sp_rng_normals(&rng, (uint64_t)done, m, normal);
        for (int64_t i = 0; i < m; i++) {
            const float x = width * normal[i];

            d[done + i] += x > clip ? clip : x < -clip ? -clip : x;
        }
    }
}

/* ---- the nodes of a tile ---- */

/* Smooths n + 2 HALO vectors of `width` numbers, `step` numbers apart, to n: the mean
 * over three neighbours, taken twice. */
SP_WIDE static void smooth(const float *from, int64_t step, int n, int width, float *to)
{
    for (int i = 0; i < n; i++, from += step, to += width)
        for (int a = 0; a < width; a++)
            to[a] =
                (from[a] + from[a + 4 * step] +
                 2 * (from[a + step] + from[a + 3 * step]) + 3 * from[a + 2 * step]) *
                (1.0F / 9);
}

/* The number of a node in an axis. Nodes in a row, from the least that a sample in the
 * coordinate range has, have numbers in a row. */
static uint64_t number_of(int64_t at)
{
    const int64_t first = -((int64_t)1 << (NODE_BITS - 1));

    return (uint64_t)(at - first) & (((uint64_t)1 << NODE_BITS) - 1);
}

/* Draws the RAW nodes from z on at (x, y). */
static void draw_nodes(const field *f, int64_t x, int64_t y, int64_t z,
                       float to[RAW][PARTS])
{
    uint64_t node = f->number;

    node = node << NODE_BITS | number_of(x);
    node = node << NODE_BITS | number_of(y);
    node = node << NODE_BITS | number_of(z);
    sp_rng_normals(&f->rng, PARTS * node, (int64_t)RAW * PARTS, to[0]);
}

static void make_tile(field *f, const int64_t at[3], tile *t)
{
    const int64_t x = at[0] * EDGE - HALO, y = at[1] * EDGE - HALO;
    const int64_t z = at[2] * EDGE - HALO;
    float raw[RAW][PARTS];

    for (int i = 0; i < RAW; i++) {
        for (int j = 0; j < RAW; j++) {
            draw_nodes(f, x + i, y + j, z, raw);
            smooth(raw[0], PARTS, NODES, PARTS, f->along_z[i][j][0]);
        }
        smooth(f->along_z[i][0][0], NODES * PARTS, NODES, NODES * PARTS,
               f->along_y[i][0][0]);
    }
    smooth(f->along_y[0][0][0], NODES * NODES * PARTS, NODES, NODES * NODES * PARTS,
           t->node[0][0][0]);
    memcpy(t->at, at, sizeof t->at);
    t->is_there = true;
}

static uint64_t hash_tile(const int64_t at[3])
{
    return sp_rng_mix((uint64_t)at[0] << 40 ^ (uint64_t)at[1] << 20 ^ (uint64_t)at[2]);
}

static const tile *find_tile(field *f, const int64_t at[3])
{
    tile *t = &f->tile[hash_tile(at) % TILES];

    if (!t->is_there || memcmp(t->at, at, sizeof t->at) != 0)
        make_tile(f, at, t);
    return t;
}

/* ---- rows ---- */

/* The cell of row i, and its place in it. */
static void find_cell(const field *f, const sp_rows *rows, const affine *map, int32_t i,
                      int64_t cell[3], float part[3])
{
    double v[3];

    affine_turn(map, rows, i, v);
    for (int a = 0; a < 3; a++) {
        v[a] *= f->cells;
        /* the floor without a call: a cell is no smaller than a voxel */
        cell[a] = (int64_t)(v[a] + 2 * SP_COORD_LIMIT) - 2 * SP_COORD_LIMIT;
        part[a] = (float)(v[a] - (double)cell[a]);
    }
}

/* Adds the field at a place of a tile's cell to d [3]. */
static void interpolate(const tile *t, const int64_t cell[3], const float part[3],
                        float magnitude, float *d)
{
    const int64_t x = cell[0] & (EDGE - 1), y = cell[1] & (EDGE - 1);
    const int64_t z = cell[2] & (EDGE - 1);
    float along_z[4][PARTS], sum[PARTS];

    for (int k = 0; k < 4; k++) {
        const float *node = t->node[x + (k >> 1)][y + (k & 1)][z];

        for (int a = 0; a < PARTS; a++)
            along_z[k][a] = node[a] + part[2] * (node[PARTS + a] - node[a]);
    }
    for (int a = 0; a < PARTS; a++) {
        const float low = along_z[0][a] + part[1] * (along_z[1][a] - along_z[0][a]);
        const float high = along_z[2][a] + part[1] * (along_z[3][a] - along_z[2][a]);

        sum[a] = low + part[0] * (high - low);
    }
    for (int a = 0; a < 3; a++)
        d[a] += magnitude * sum[a];
}

static void to_tile(const int64_t cell[3], int64_t at[3])
{
    for (int a = 0; a < 3; a++)
        at[a] = (cell[a] - (cell[a] & (EDGE - 1))) / EDGE;
}

/* Rows are sorted by this number of hashes of tiles. */
static int32_t buckets_of(int64_t n)
{
    int32_t buckets = 16;

    while (buckets < n / 8)
        buckets *= 2;
    return buckets;
}

/* Writes the rows to order [n], a tile's rows together: bucket [n] and end [buckets +
 * 1] are scratch. */
static void sort_by_tile(const field *f, const sp_rows *rows, const affine *map,
                         int32_t buckets, int32_t *bucket, int32_t *end, int32_t *order)
{
    int64_t cell[3], at[3];
    float part[3];

    memset(end, 0, ((size_t)buckets + 1) * sizeof *end);
    for (int32_t i = 0; i < rows->n; i++) {
        find_cell(f, rows, map, i, cell, part);
        to_tile(cell, at);
        bucket[i] = (int32_t)(hash_tile(at) >> 32 & (uint64_t)(buckets - 1));
        end[bucket[i] + 1]++;
    }
    for (int32_t b = 0; b < buckets; b++)
        end[b + 1] += end[b];
    for (int32_t i = 0; i < rows->n; i++)
        order[end[bucket[i]]++] = i;
}

sp_status sp_augment_displacements(const sp_augment *aug, const sp_rows *rows,
                                   const affine *map, int32_t *spare, sp_arena *arena,
                                   float *d)
{
    const size_t used = arena->used;
    const int32_t n = rows->n, buckets = buckets_of(n);
    int32_t *end, *order = spare + n;
    int64_t cell[3], at[3];
    float part[3];
    const tile *t = NULL;
    field *f;

    if (aug->noise > 0)
        add_noise(aug, n, d);
    if (aug->elastic.n == 0)
        return SP_OK;
    SP_TRY(SP_ALLOC(arena, 1, &f));
    SP_TRY(SP_ALLOC(arena, (int64_t)buckets + 1, &end));
    for (int k = 0; k + 1 < aug->elastic.n; k += 2) {
        f->rng = sp_rng_open(aug->seed, SP_RNG_ELASTIC, aug->epoch, aug->sample);
        f->number = (uint64_t)k / 2;
        f->cells = fmin(aug->edge / aug->elastic.at[k], 1);
        f->magnitude = aug->elastic.at[k + 1];
        for (int i = 0; i < TILES; i++)
            f->tile[i].is_there = false;
        sort_by_tile(f, rows, map, buckets, spare, end, order);
        for (int32_t i = 0; i < n; i++) {
            find_cell(f, rows, map, order[i], cell, part);
            to_tile(cell, at);
            if (i == 0 || at[0] != t->at[0] || at[1] != t->at[1] || at[2] != t->at[2])
                t = find_tile(f, at);
            interpolate(t, cell, part, (float)f->magnitude, d + 3 * (int64_t)order[i]);
        }
    }
    sp_arena_rewind(arena, used);
    return SP_OK;
}

int64_t sp_augment_bytes(int64_t n, bool with_displacement)
{
    assert(n >= 0);
    if (!with_displacement)
        return 12 * n;
    return 24 * n + (int64_t)sizeof(field) + 4 * ((int64_t)buckets_of(n) + 1);
}
