#include "plan_oracle.h"

#include "test.h"

/* ---- a hash set of (sample, coordinate) with the row ---- */

typedef struct table {
    size_t mask;
    int32_t (*cell)[5]; /* sample, x, y, z, row; row -1: free */
} table;

static void table_open(table *t, int32_t n)
{
    size_t i;

    for (t->mask = 15; t->mask < 2 * (size_t)n; t->mask = 2 * t->mask + 1)
        ;
    t->cell = malloc((t->mask + 1) * sizeof *t->cell);
    assert_non_null(t->cell);
    for (i = 0; i <= t->mask; i++)
        t->cell[i][4] = -1;
}

/* The place of a coordinate: free, or holding it. */
static int32_t *table_at(const table *t, int32_t b, const int64_t c[3])
{
    uint64_t h = (uint64_t)b * 0x9e3779b97f4a7c15u;
    int d;

    for (d = 0; d < 3; d++)
        h = (h ^ (uint64_t)c[d]) * 0xff51afd7ed558ccdu, h ^= h >> 29;
    for (;; h++) {
        int32_t *cell = t->cell[h & t->mask];
        if (cell[4] < 0 ||
            (cell[0] == b && cell[1] == c[0] && cell[2] == c[1] && cell[3] == c[2]))
            return cell;
    }
}

static int32_t table_put(table *t, int32_t b, const int64_t c[3], int32_t row)
{
    int32_t *cell = table_at(t, b, c);

    if (cell[4] < 0) {
        cell[0] = b;
        cell[1] = (int32_t)c[0];
        cell[2] = (int32_t)c[1];
        cell[3] = (int32_t)c[2];
        cell[4] = row;
    }
    return cell[4];
}

/* ---- levels ---- */

typedef struct oracle {
    int64_t (*c[SP_MAX_LEVELS])[3]; /* of the rows of each level */
    int32_t *b[SP_MAX_LEVELS];      /* sample */
    table rows[SP_MAX_LEVELS];
} oracle;

static void level_take(oracle *o, int l, int32_t n)
{
    o->c[l] = malloc(((size_t)n + 1) * sizeof *o->c[l]);
    o->b[l] = malloc(((size_t)n + 1) * sizeof *o->b[l]);
    assert_true(o->c[l] && o->b[l]);
    table_open(&o->rows[l], n);
}

static void fine_level(oracle *o, const int32_t *coords, const int32_t *sample_row,
                       int n_samples, const sp_plan *p)
{
    int32_t i, n = n_samples ? sample_row[n_samples] : 0;
    char *seen = calloc((size_t)n + 1, 1);
    int b, d;

    assert_int_equal(p->level[0].n, n);
    level_take(o, 0, n);
    for (b = 0; b < n_samples; b++)
        for (i = sample_row[b]; i < sample_row[b + 1]; i++) {
            int32_t from = p->order[i];
            assert_in_range(from, sample_row[b], sample_row[b + 1] - 1);
            assert_false(seen[from]++);
            for (d = 0; d < 3; d++)
                o->c[0][i][d] = coords[3 * (size_t)from + (size_t)d];
            o->b[0][i] = b;
            assert_int_equal(table_put(&o->rows[0], b, o->c[0][i], i), i);
        }
    free(seen);
}

/* Coordinates of level l are those its rows' children floor to; rows rise with
 * children. */
static void coarse_level(oracle *o, int l, const sp_plan *p)
{
    const sp_level *fine = &p->level[l - 1];
    int64_t s = (int64_t)1 << l;
    int32_t i, next = 0;
    int d;

    level_take(o, l, p->level[l].n);
    for (i = 0; i < fine->n; i++) {
        int64_t c[3];
        for (d = 0; d < 3; d++)
            c[d] = (o->c[l - 1][i][d] >> l) * s;
        if (table_at(&o->rows[l], o->b[l - 1][i], c)[4] < 0) {
            memcpy(o->c[l][next], c, sizeof c);
            o->b[l][next] = o->b[l - 1][i];
            table_put(&o->rows[l], o->b[l - 1][i], c, next++);
        }
        assert_int_equal(fine->parent[i], next - 1);
    }
    assert_int_equal(p->level[l].n, next);
}

/* Base of each axis: the sample's least coordinate, down to the coarsest stride. */
static void find_base(const oracle *o, const sp_plan *p, int b, int64_t base[3])
{
    const int32_t *row = p->level[0].sample_row;
    int32_t i;
    int d;

    for (d = 0; d < 3; d++) {
        base[d] = INT64_MAX;
        for (i = row[b]; i < row[b + 1]; i++)
            base[d] = o->c[0][i][d] < base[d] ? o->c[0][i][d] : base[d];
        base[d] = (base[d] >> (p->n_levels - 1)) * ((int64_t)1 << (p->n_levels - 1));
    }
}

static uint64_t key_of(const int64_t c[3], const int64_t base[3], int l)
{
    uint64_t key = 0;
    int bit;

    for (bit = 0; bit < 63; bit++)
        key |= (uint64_t)((c[bit % 3] - base[bit % 3]) >> l >> bit / 3 & 1) << bit;
    return key;
}

static void check_sample_rows(const oracle *o, const sp_plan *p, int l)
{
    const int32_t *row = p->level[l].sample_row;
    int32_t i;
    int b;

    assert_int_equal(row[0], 0);
    assert_int_equal(row[p->n_samples], p->level[l].n);
    for (b = 0; b < p->n_samples; b++) {
        int64_t base[3];
        find_base(o, p, b, base);
        for (i = row[b]; i < row[b + 1]; i++) {
            assert_int_equal(o->b[l][i], b);
            assert_true(p->level[l].key[i] == key_of(o->c[l][i], base, l));
            if (i > row[b])
                assert_true(p->level[l].key[i] > p->level[l].key[i - 1]);
        }
    }
}

/* ---- maps ---- */

static void check_tiles(const sp_map *m, const sp_plan *p)
{
    const int32_t *row = p->level[m->key.level_out].sample_row;
    int b, t;

    assert_int_equal(m->sample_tile[0], 0);
    assert_int_equal(m->sample_tile[p->n_samples], m->n_tiles);
    assert_int_equal(m->tile_row[m->n_tiles], m->n_out);
    for (b = 0; b < p->n_samples; b++)
        assert_int_equal(m->tile_row[m->sample_tile[b]], row[b]);
    for (t = 0; t < m->n_tiles; t++)
        assert_in_range(m->tile_row[t + 1] - m->tile_row[t], 1, SP_TILE);
}

/* Partner of output row i at offset k, or -1. */
static int32_t partner(const oracle *o, const sp_map *m, int32_t i, int k)
{
    int in = m->key.level_in, out = m->key.level_out, d[3], a;
    bool is_swapped = out < in || (in == out && m->key.is_swapped);
    int64_t step = (int64_t)1 << (in < out ? in : out), c[3];

    sp_kernel_offset(m->key.kernel, k, d);
    for (a = 0; a < 3; a++)
        c[a] = o->c[out][i][a] + (is_swapped ? -step : step) * d[a];
    return table_at(&o->rows[in], o->b[out][i], c)[4];
}

static void check_map(const oracle *o, const sp_map *m)
{
    int32_t at = 0, i;
    int t, k;

    for (t = 0; t < m->n_tiles; t++)
        for (k = 0; k < m->K; k++) {
            assert_int_equal(m->start[t * m->K + k], at);
            for (i = m->tile_row[t]; i < m->tile_row[t + 1]; i++) {
                int32_t j = partner(o, m, i, k);
                if (m->is_full && k == m->centre)
                    assert_int_equal(i, j);
                if (j < 0)
                    continue;
                assert_true(at < m->pairs);
                assert_int_equal(m->in[at], j);
                assert_int_equal(m->out[at], i);
                at++;
            }
        }
    assert_int_equal(m->pairs, at);
    assert_int_equal(m->start[m->n_tiles * m->K], at);
}

void oracle_check(const sp_plan_spec *spec, const int32_t *coords,
                  const int32_t *sample_row, int n_samples, const sp_plan *plan)
{
    oracle o;
    int l, m;

    assert_int_equal(plan->n_samples, n_samples);
    assert_int_equal(plan->n_levels, spec->n_levels);
    assert_int_equal(plan->n_maps, spec->n_maps);
    fine_level(&o, coords, sample_row, n_samples, plan);
    for (l = 1; l < spec->n_levels; l++)
        coarse_level(&o, l, plan);
    assert_null(plan->level[spec->n_levels - 1].parent);
    for (l = 0; l < spec->n_levels; l++)
        check_sample_rows(&o, plan, l);
    for (m = 0; m < spec->n_maps; m++) {
        const sp_map *map = &plan->map[m];
        sp_map_key key = spec->map[m];
        assert_memory_equal(&map->key, &key, sizeof key);
        assert_int_equal(map->K, key.kernel * key.kernel * key.kernel);
        assert_int_equal(map->n_in, plan->level[key.level_in].n);
        assert_int_equal(map->n_out, plan->level[key.level_out].n);
        if (key.level_in == key.level_out)
            assert_true(map->is_full);
        check_tiles(map, plan);
        check_map(&o, map);
    }
    for (l = 0; l < spec->n_levels; l++) {
        free(o.c[l]);
        free(o.b[l]);
        free(o.rows[l].cell);
    }
}

void oracle_same(const sp_plan *a, const sp_plan *b)
{
    int m;

    assert_int_equal(a->n_maps, b->n_maps);
    assert_int_equal(a->level[0].n, b->level[0].n);
    assert_memory_equal(a->order, b->order, (size_t)a->level[0].n * 4);
    for (m = 0; m < a->n_maps; m++) {
        const sp_map *x = &a->map[m], *y = &b->map[m];
        assert_int_equal(x->pairs, y->pairs);
        assert_int_equal(x->n_tiles, y->n_tiles);
        assert_memory_equal(x->start, y->start, ((size_t)x->n_tiles * x->K + 1) * 4);
        assert_memory_equal(x->in, y->in, (size_t)x->pairs * 4);
        assert_memory_equal(x->out, y->out, (size_t)x->pairs * 4);
    }
}

/* ---- inputs ---- */

void oracle_map(sp_plan_spec *spec, int level_in, int level_out, int kernel,
                int is_swapped)
{
    int top = level_in > level_out ? level_in : level_out;

    spec->map[spec->n_maps++] = (sp_map_key){(uint8_t)level_in, (uint8_t)level_out,
                                             (uint8_t)kernel, (uint8_t)is_swapped};
    spec->n_levels = top + 1 > spec->n_levels ? top + 1 : spec->n_levels;
}

static uint32_t draw(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Draws until n distinct ones are there. */
static void distinct(int32_t *coords, int32_t n, uint32_t seed,
                     void (*make)(uint32_t *, const int32_t *, int32_t, int32_t *),
                     const int32_t *at)
{
    uint32_t state = seed * 2654435761u + 1;
    table t;
    int32_t i;

    table_open(&t, n);
    for (i = 0; i < n;) {
        int64_t c[3];
        int d;
        make(&state, at, n, coords + 3 * (size_t)i);
        for (d = 0; d < 3; d++)
            c[d] = coords[3 * (size_t)i + (size_t)d];
        if (table_put(&t, 0, c, i) == i)
            i++;
    }
    free(t.cell);
}

static void on_surface(uint32_t *state, const int32_t *at, int32_t n, int32_t *c)
{
    int32_t edge = 3 + (int32_t)(1.6 * sqrt(n)), x, y;

    x = (int32_t)(draw(state) % (uint32_t)edge);
    y = (int32_t)(draw(state) % (uint32_t)edge);
    c[0] = at[0] + x;
    c[1] = at[1] + y;
    c[2] = at[2] + x / 3 + (x * y >> 4) % 5 + (int32_t)(draw(state) % 3);
}

static void anywhere(uint32_t *state, const int32_t *at, int32_t n, int32_t *c)
{
    int d;

    (void)n;
    for (d = 0; d < 3; d++)
        c[d] = at[0] + (int32_t)(draw(state) % (uint32_t)(at[1] - at[0]));
}

void oracle_surface(int32_t *coords, int32_t n, const int32_t at[3], uint32_t seed)
{
    distinct(coords, n, seed, on_surface, at);
}

void oracle_scatter(int32_t *coords, int32_t n, int32_t lo, int32_t hi, uint32_t seed)
{
    int32_t at[2] = {lo, hi};

    distinct(coords, n, seed, anywhere, at);
}
