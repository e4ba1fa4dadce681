/* Kernel maps: look-ups of a tile's output rows, cut into pairs by offset.
 *
 * While maps are built their pairs stand tile by tile, `in` before `out`, above all
 * scratch: the numbers are known only in the end. Then they move down over the scratch,
 * each map's `in` and `out` in one piece, and the arena keeps exactly the plan. */
#include "cpu/cpu_plan.h"

#include <assert.h>
#include <string.h>

/* ---- what a map is ---- */

/* Levels up from which every partner of a row is within one neighbour: offsets of at
 * most 1, 2, 4 or 8 steps. */
static int reach(int kernel)
{
    int far = kernel % 2 ? kernel / 2 : kernel - 1;

    return far <= 1 ? 0 : far <= 2 ? 1 : far <= 4 ? 2 : 3;
}

static plan_lookup lookup_of(const plan_builder *b, sp_map_key key)
{
    bool is_swapped = key.level_out < key.level_in ||
                      (key.level_out == key.level_in && key.is_swapped);
    int fine = key.level_out < key.level_in ? key.level_out : key.level_in;
    int coarse = key.level_out < key.level_in ? key.level_in : key.level_out;
    int top = fine + reach(key.kernel);

    /* One level up and down again spares the table of the finest level. */
    if (top == fine && coarse == fine && !b->level[fine].nbr)
        top++;
    return (plan_lookup){.level = b->level,
                         .to = key.level_out,
                         .from = key.level_in,
                         .top = top > coarse ? top : coarse,
                         .kernel = key.kernel,
                         .shift = coarse - fine,
                         .is_swapped = is_swapped};
}

/* 2^3 kernel of stride 2: the child word is the map, and no table is needed. */
static bool is_children(const plan_lookup *q)
{
    return q->kernel == 2 && q->shift == 1;
}

int sp_cpu_plan_lowest_table(const plan_builder *b)
{
    int lowest = b->n_levels - 1, m;

    for (m = 0; m < b->spec->n_maps; m++) {
        plan_lookup q = lookup_of(b, b->spec->map[m]);
        if (!is_children(&q) && q.top < lowest)
            lowest = q.top;
    }
    return lowest;
}

/* Every output row is its own partner where the zero offset is in the kernel and no
 * stride separates them. */
static int centre_of(const plan_lookup *q)
{
    int n = q->kernel;

    if (q->shift)
        return -1;
    return n % 2 ? n * n * n / 2 : 0;
}

/* ---- arrays of known size ---- */

static sp_status take_tiles(plan_builder *b, const plan_level *out, sp_map *m)
{
    int32_t *tile_row, *sample_tile, row;
    int s, t = 0;

    SP_TRY(SP_TAKE(b->arena, b->n_samples + 1, &sample_tile));
    sample_tile[0] = 0;
    for (s = 0; s < b->n_samples; s++) {
        int32_t n = out->sample_row[s + 1] - out->sample_row[s];
        sample_tile[s + 1] = sample_tile[s] + (n + SP_TILE - 1) / SP_TILE;
    }
    m->n_tiles = sample_tile[b->n_samples];
    SP_TRY(SP_TAKE(b->arena, m->n_tiles + 1, &tile_row));
    for (s = 0; s < b->n_samples; s++)
        for (row = out->sample_row[s]; row < out->sample_row[s + 1]; row += SP_TILE)
            tile_row[t++] = row;
    tile_row[t] = out->n;
    m->tile_row = tile_row;
    m->sample_tile = sample_tile;
    return SP_OK;
}

/* Maps with the same output rows share their tiles. */
static sp_status share_tiles(plan_builder *b, int m)
{
    sp_map *map = b->plan->map;
    int i;

    for (i = 0; i < m; i++)
        if (map[i].key.level_out == map[m].key.level_out) {
            map[m].n_tiles = map[i].n_tiles;
            map[m].tile_row = map[i].tile_row;
            map[m].sample_tile = map[i].sample_tile;
            return SP_OK;
        }
    return take_tiles(b, &b->level[map[m].key.level_out], &map[m]);
}

sp_status sp_cpu_plan_take_maps(plan_builder *b)
{
    int m;

    for (m = 0; m < b->spec->n_maps; m++) {
        sp_map *map = &b->plan->map[m];
        plan_lookup q = lookup_of(b, b->spec->map[m]);
        map->key = b->spec->map[m];
        map->n_in = b->level[q.from].n;
        map->n_out = b->level[q.to].n;
        map->K = q.kernel * q.kernel * q.kernel;
        map->centre = centre_of(&q);
        map->is_full = map->centre >= 0;
        SP_TRY(share_tiles(b, m));
        SP_TRY(
            SP_TAKE(b->arena, (size_t)map->n_tiles * (size_t)map->K + 1, &b->start[m]));
        map->start = b->start[m];
    }
    return SP_OK;
}

/* ---- pairs, tile by tile ---- */

/* The top of the arena, growing. */
typedef struct plan_stream {
    sp_arena *arena;
    size_t room; /* bytes taken beyond `used` */
    char *at;
} plan_stream;

static sp_status stream_reserve(plan_stream *s, size_t bytes)
{
    enum { STEP = 1 << 18 };
    void *more;

    if (s->room >= bytes)
        return SP_OK;
    bytes = (bytes - s->room + STEP - 1) / STEP * STEP;
    SP_TRY(sp_arena_take(s->arena, bytes, &more));
    assert(s->room == 0 ||
           (char *)more == s->at + s->room); /* nobody took in between */
    if (s->room == 0)
        s->at = more;
    s->room += bytes;
    return SP_OK;
}

/* Where the loops may write a tile of this map. */
static sp_status stream_tile(plan_stream *s, const sp_map *map, plan_tile *tile)
{
    size_t most = (size_t)(tile->last - tile->first) * (size_t)map->K;

    /* Vector loops store whole vectors: one beyond the last pair. */
    SP_TRY(stream_reserve(s, 8 * (most + 16)));
    tile->pair = (int32_t *)s->at;
    return SP_OK;
}

/* Tile t is written: count it in. */
static sp_status put_tile(plan_stream *s, const plan_tile *tile, sp_map *map,
                          int32_t *start, int t)
{
    int64_t at = map->pairs;
    int k;

    if (map->pairs + tile->n > INT32_MAX)
        return SP_FAIL(
            SP_EDATA, "more than 2^31 pairs in one kernel map: set batch.voxel_budget");
    for (k = 0; k < map->K; k++) {
        start[(size_t)t * (size_t)map->K + (size_t)k] = (int32_t)at;
        at += tile->count[k];
    }
    assert(at == map->pairs + tile->n);
    map->pairs = at;
    s->at += (size_t)tile->n * 8;
    s->room -= (size_t)tile->n * 8;
    return SP_OK;
}

static sp_status put_map(const plan_builder *b, plan_stream *s, plan_stage *stage,
                         int m)
{
    sp_map *map = &b->plan->map[m];
    plan_lookup q = lookup_of(b, map->key);
    plan_lanes lanes;
    bool is_lanes = !is_children(&q) && sp_cpu_plan_lanes_open(&lanes, &q);
    plan_tile tile;
    int t;

    for (t = 0; t < map->n_tiles; t++) {
        tile.first = map->tile_row[t];
        tile.last = map->tile_row[t + 1];
        SP_TRY(stream_tile(s, map, &tile));
        if (is_children(&q))
            b->loops->children(&q, stage, &tile);
        else if (is_lanes)
            b->loops->lanes(&lanes, stage, &tile);
        else
            sp_cpu_plan_rows(&q, stage, &tile);
        SP_TRY(put_tile(s, &tile, map, b->start[m], t));
    }
    b->start[m][(size_t)map->n_tiles * (size_t)map->K] = (int32_t)map->pairs;
    return SP_OK;
}

/* ---- down to where they stay ---- */

static size_t round_up(size_t bytes)
{
    return (bytes + 127) & ~(size_t)127;
}

static void split_tiles(const char *from, sp_map *map, int32_t *in, int32_t *out)
{
    int t;

    for (t = 0; t < map->n_tiles; t++) {
        size_t at = (size_t)map->start[(size_t)t * (size_t)map->K];
        size_t n = (size_t)map->start[((size_t)t + 1) * (size_t)map->K] - at;
        memcpy(out + at, from, n * 4);
        memcpy(in + at, from + n * 4, n * 4);
        from += n * 8;
    }
    map->in = in;
    map->out = out;
}

/* Move map m from `from` to the arena's byte *end, which is not above `from`. */
static sp_status settle_map(plan_builder *b, int m, const char *from, size_t *end)
{
    sp_map *map = &b->plan->map[m];
    size_t each = round_up((size_t)map->pairs * 4);
    char *to = b->arena->base + *end;

    assert(to <= from);
    if (to + 2 * each > from && map->pairs) { /* in its own way: by a detour */
        void *aside;
        SP_TRY(sp_arena_take(b->arena, (size_t)map->pairs * 8, &aside));
        memcpy(aside, from, (size_t)map->pairs * 8);
        from = aside;
    }
    split_tiles(from, map, (int32_t *)to, (int32_t *)(to + each));
    *end += 2 * each;
    return SP_OK;
}

sp_status sp_cpu_plan_maps(plan_builder *b, size_t keep)
{
    plan_stream stream = {.arena = b->arena};
    const char *from[SP_MAX_MAPS];
    plan_stage stage;
    char *gap;
    int m;

    SP_TRY(SP_TAKE(b->arena, PLAN_MAX_K * SP_TILE + 16, &stage.in));
    SP_TRY(SP_TAKE(b->arena, PLAN_MAX_K * SP_TILE + 16, &stage.tag));
    /* Rounding at the destination must not overtake the source. */
    SP_TRY(SP_TAKE(b->arena, 256 * SP_MAX_MAPS, &gap));
    SP_TRY(stream_reserve(&stream, 1));
    for (m = 0; m < b->spec->n_maps; m++) {
        from[m] = stream.at;
        SP_TRY(put_map(b, &stream, &stage, m));
    }
    for (m = 0; m < b->spec->n_maps; m++)
        SP_TRY(settle_map(b, m, from[m], &keep));
    sp_arena_rewind(b->arena, keep);
    return SP_OK;
}
