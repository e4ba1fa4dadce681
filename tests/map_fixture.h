/* Batches of random voxels and their kernel maps by brute force: a dense grid per
 * sample tells which row stands where, so nothing here resembles how plans are built.
 * Also random tensors and backends of each instruction set. What a fixture function
 * returns is freed by its owner.
 */
#ifndef MAP_FIXTURE_H
#define MAP_FIXTURE_H

#include "sp_backend.h"
#include "sp_rng.h"

enum { FX_BOX = 32, FX_SAMPLES = 4 }; /* coordinates in [-16, 16) */

/* One level: coordinates in units of the finest voxel, rows by (sample, Morton key). */
typedef struct fx_level {
    int n, n_samples, stride;
    int32_t (*at)[3];
    int32_t sample_row[FX_SAMPLES + 1];
    int32_t *grid; /* [sample][z][y][x] row or -1 */
} fx_level;

static inline size_t fx_cell(int b, const int32_t at[3])
{
    size_t cell = (size_t)b;

    for (int i = 2; i >= 0; i--)
        cell = cell * FX_BOX + (size_t)(at[i] + FX_BOX / 2);
    return cell;
}

/* Row at a coordinate of sample b, -1: none. */
static inline int32_t fx_find(const fx_level *l, int b, const int32_t at[3])
{
    for (int i = 0; i < 3; i++)
        if (at[i] < -FX_BOX / 2 || at[i] >= FX_BOX / 2)
            return -1;
    return l->grid[fx_cell(b, at)];
}

static inline uint32_t fx_morton(const int32_t at[3])
{
    uint32_t key = 0;

    for (int bit = 0; bit < 5; bit++)
        for (int i = 0; i < 3; i++)
            key |= ((uint32_t)(at[i] + FX_BOX / 2) >> bit & 1) << (3 * bit + i);
    return key;
}

/* The level of the cells marked in grid (any value >= 0), which it takes over. */
static inline fx_level fx_level_take(int32_t *grid, int n_samples, int stride)
{
    const int cells = FX_BOX * FX_BOX * FX_BOX;
    fx_level l = {.n_samples = n_samples, .stride = stride, .grid = grid};
    int32_t *cell_of = malloc((size_t)cells * sizeof *cell_of), at[3];

    l.at = malloc((size_t)n_samples * (size_t)cells * sizeof *l.at);
    for (int cell = 0; cell < cells; cell++) { /* cell_of: by Morton key */
        at[0] = cell % FX_BOX - FX_BOX / 2;
        at[1] = cell / FX_BOX % FX_BOX - FX_BOX / 2;
        at[2] = cell / FX_BOX / FX_BOX - FX_BOX / 2;
        cell_of[fx_morton(at)] = cell;
    }
    for (int b = 0; b < n_samples; b++) {
        l.sample_row[b] = l.n;
        for (int key = 0; key < cells; key++) {
            int cell = cell_of[key];
            if (grid[b * cells + cell] < 0)
                continue;
            l.at[l.n][0] = cell % FX_BOX - FX_BOX / 2;
            l.at[l.n][1] = cell / FX_BOX % FX_BOX - FX_BOX / 2;
            l.at[l.n][2] = cell / FX_BOX / FX_BOX - FX_BOX / 2;
            grid[b * cells + cell] = l.n++;
        }
    }
    l.sample_row[n_samples] = l.n;
    free(cell_of);
    return l;
}

static inline int32_t *fx_grid(int n_samples)
{
    size_t bytes = (size_t)n_samples * FX_BOX * FX_BOX * FX_BOX * sizeof(int32_t);
    int32_t *grid = malloc(bytes);

    return memset(grid, 0xff, bytes);
}

/* Sample b has rows[b] voxels near a surface, the same ones for the same (seed + b). */
static inline fx_level fx_voxels(int n_samples, const int *rows, uint64_t seed)
{
    int32_t *grid = fx_grid(n_samples), at[3];

    for (int b = 0; b < n_samples; b++) {
        sp_rng rng = sp_rng_open(seed + (uint64_t)b, SP_RNG_SCENE, 1, 0);
        for (int n = 0; n < rows[b];) {
            at[0] = (int)(sp_rng_u32(&rng) % FX_BOX) - FX_BOX / 2;
            at[1] = (int)(sp_rng_u32(&rng) % FX_BOX) - FX_BOX / 2;
            at[2] = (at[0] + at[1]) / 4 + (int)(sp_rng_u32(&rng) % 3);
            n += grid[fx_cell(b, at)] < 0;
            grid[fx_cell(b, at)] = 0;
        }
    }
    return fx_level_take(grid, n_samples, 1);
}

/* Distinct floor(c / 2s) * 2s. */
static inline fx_level fx_coarser(const fx_level *fine)
{
    int32_t *grid = fx_grid(fine->n_samples), at[3];
    const int s = 2 * fine->stride;

    for (int b = 0; b < fine->n_samples; b++)
        for (int i = fine->sample_row[b]; i < fine->sample_row[b + 1]; i++) {
            for (int d = 0; d < 3; d++)
                at[d] = (fine->at[i][d] + FX_BOX) / s * s - FX_BOX;
            grid[fx_cell(b, at)] = 0;
        }
    return fx_level_take(grid, fine->n_samples, s);
}

static inline void fx_level_free(fx_level *l)
{
    free(l->at);
    free(l->grid);
    memset(l, 0, sizeof *l);
}

static inline int fx_log2(int stride)
{
    return stride == 1 ? 0 : 1 + fx_log2(stride / 2);
}

/* Partner of row o of `out` at offset k, -1: none. is_swapped: o is an input of the
 * convolution whose output the partner is. */
static inline int32_t fx_partner(const fx_level *in, const fx_level *out, int b, int o,
                                 int kernel, int k, bool is_swapped)
{
    const int s = in->stride < out->stride ? in->stride : out->stride;
    int32_t at[3];
    int d[3];

    sp_kernel_offset(kernel, k, d);
    for (int i = 0; i < 3; i++)
        at[i] = out->at[o][i] + (is_swapped ? -1 : 1) * s * d[i];
    return fx_find(in, b, at);
}

static inline void fx_map_tiles(sp_map *m, const fx_level *out)
{
    int32_t *row = malloc(((size_t)out->n / SP_TILE + FX_SAMPLES + 2) * sizeof *row);
    int32_t *tile = malloc((FX_SAMPLES + 1) * sizeof *tile);

    m->n_tiles = 0;
    for (int b = 0; b < out->n_samples; b++) {
        tile[b] = m->n_tiles;
        for (int r = out->sample_row[b]; r < out->sample_row[b + 1]; r += SP_TILE)
            row[m->n_tiles++] = r;
    }
    tile[out->n_samples] = m->n_tiles;
    row[m->n_tiles] = out->n;
    m->tile_row = row;
    m->sample_tile = tile;
}

/* The map from `in` to `out`; is_swapped is needed on one level only. */
static inline sp_map fx_map(const fx_level *in, const fx_level *out, int kernel,
                            bool is_swapped)
{
    const int K = kernel * kernel * kernel;
    sp_map m = {.key = {(uint8_t)fx_log2(in->stride), (uint8_t)fx_log2(out->stride),
                        (uint8_t)kernel, is_swapped},
                .n_in = in->n,
                .n_out = out->n,
                .K = K,
                .is_full = in->stride == out->stride && kernel % 2 == 1,
                .centre = kernel % 2 ? K / 2 : -1};
    int32_t *start, *from = malloc(((size_t)out->n * K + 1) * sizeof *from);
    int32_t *to = malloc(((size_t)out->n * K + 1) * sizeof *to);
    int n = 0, b = 0;

    is_swapped |= in->stride > out->stride;
    fx_map_tiles(&m, out);
    start = malloc(((size_t)m.n_tiles * K + 1) * sizeof *start);
    for (int t = 0; t < m.n_tiles; t++) {
        while (m.tile_row[t] >= out->sample_row[b + 1])
            b++;
        for (int k = 0; k < K; k++) {
            start[t * K + k] = n;
            for (int o = m.tile_row[t]; o < m.tile_row[t + 1]; o++) {
                from[n] = fx_partner(in, out, b, o, kernel, k, is_swapped);
                to[n] = o;
                n += from[n] >= 0;
            }
        }
    }
    start[m.n_tiles * K] = n;
    m.pairs = n;
    m.start = start;
    m.in = from;
    m.out = to;
    return m;
}

static inline void fx_map_free(sp_map *m)
{
    free((void *)m->start);
    free((void *)m->in);
    free((void *)m->out);
    free((void *)m->tile_row);
    free((void *)m->sample_tile);
    memset(m, 0, sizeof *m);
}

/* ---- tensors: `ld - c` numbers between rows are FX_GUARD and must stay ---- */

#define FX_GUARD 12345.0f

/* Values in [-1, 1), element (i, j) a function of (seed, i, j) alone. */
static inline sp_tensor fx_tensor(int64_t n, int c, int ld, uint64_t seed)
{
    sp_rng rng = sp_rng_open(seed, SP_RNG_INIT, 7, 0);
    sp_tensor t = {malloc(((size_t)n * ld + 1) * sizeof(float)), n, c, ld, SP_ELEM_F32};

    for (int64_t i = 0; i < n; i++)
        for (int j = 0; j < ld; j++)
            t.data[i * ld + j] =
                j < c
                    ? 2 * sp_rng_to_unit(sp_rng_at(&rng, (uint64_t)(i * 4096 + j))) - 1
                    : FX_GUARD;
    t.data[n * ld] = FX_GUARD;
    return t;
}

static inline float *fx_floats(size_t n, uint64_t seed)
{
    return fx_tensor(1, (int)n, (int)n, seed).data;
}

static inline float fx_at(sp_tensor t, int64_t i, int j)
{
    return t.data[i * t.ld + j];
}

static inline void fx_guards(sp_tensor t)
{
    for (int64_t i = 0; i < t.n; i++)
        for (int j = t.c; j < t.ld; j++)
            assert_true(fx_at(t, i, j) == FX_GUARD);
    assert_true(t.data[t.n * t.ld] == FX_GUARD);
}

/* Largest difference, relative to max(1, largest value). */
static inline double fx_error(sp_tensor a, sp_tensor b)
{
    double most = 0, scale = 1;

    for (int64_t i = 0; i < a.n; i++)
        for (int j = 0; j < a.c; j++) {
            double d = fabs((double)fx_at(a, i, j) - fx_at(b, i, j));
            most = d > most || isnan(d) ? d : most;
            scale = fmax(scale, fabs(fx_at(b, i, j)));
        }
    return most / scale;
}

static inline bool fx_equal(sp_tensor a, sp_tensor b)
{
    for (int64_t i = 0; i < a.n; i++)
        if (memcmp(a.data + i * a.ld, b.data + i * b.ld, (size_t)a.c * sizeof(float)))
            return false;
    return true;
}

static inline sp_tensor fx_rows(sp_tensor t, int64_t row, int64_t end)
{
    return (sp_tensor){t.data + row * t.ld, end - row, t.c, t.ld, t.elem};
}

static inline sp_tensor fx_flat(float *data, size_t n)
{
    return (sp_tensor){data, 1, (int)n, (int)n, SP_ELEM_F32};
}

/* ---- backends ---- */

static const char *const fx_isas[] = {"portable", "avx2", "avx512"};
enum { FX_ISAS = 3 };

/* False where this machine or build lacks the version. */
static inline bool fx_open(sp_backend *be, const char *isa, int threads)
{
    setenv("SP_CPU_ISA", isa, 1);
    be->ops = sp_backend_find("cpu");
    return be->ops->open(be, 0, threads) == SP_OK;
}

static inline sp_backend fx_reference(void)
{
    sp_backend be = {.ops = sp_backend_reference()};

    OK(be.ops->open(&be, 0, 1));
    return be;
}

static inline float *fx_pack(sp_backend *be, const float *w, int K, int c_in, int c_out,
                             bool is_grad_input, bool is_mirrored)
{
    size_t n = be->ops->conv_pack_floats(be, K, c_in, c_out, is_grad_input);
    float *packed = malloc((n + 1) * sizeof *packed);

    packed[n] = FX_GUARD;
    const sp_pack_args args = {w, K, c_in, c_out, is_grad_input, is_mirrored, packed};

    OK(be->ops->conv_pack(be, &args, 1));
    assert_true(packed[n] == FX_GUARD);
    return packed;
}

#endif
