/* Kernel maps: look-ups of a tile's output rows, sorted into pairs by offset.
 *
 * The number of pairs is known only in the end. So `in` grows tile by tile at the top
 * of the arena, where it stays, and `out` at that of the scratch, from where it
 * follows. */
#include "cpu/cpu_plan.h"

#include <assert.h>
#include <string.h>

/* ---- the look-ups of a map ---- */

/* The number of levels to go up until every partner of a row is at most one neighbour
 * away: 0, 1, 2, 3 for offsets of at most 1, 2, 4, 8 steps. */
static int reach(int kernel)
{
    int far = kernel % 2 ? kernel / 2 : kernel - 1;

    return far <= 1 ? 0 : far <= 2 ? 1 : far <= 4 ? 2 : 3;
}

static plan_lookup lookup_of(const cpu_plan_builder *b, sp_map_key key)
{
    bool is_swapped = key.level_out < key.level_in ||
                      (key.level_out == key.level_in && key.is_swapped);
    int fine = key.level_out < key.level_in ? key.level_out : key.level_in;
    int coarse = key.level_out < key.level_in ? key.level_in : key.level_out;
    int top = fine + reach(key.kernel);

    /* Looking up from the parents instead saves the table of the finest level. */
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

/* Is it the 2^3 kernel of stride 2? Then the child words are the map, and no table is
 * needed. */
static bool is_children(const plan_lookup *q)
{
    return q->kernel == 2 && q->shift == 1;
}

void sp_cpu_plan_table_range(const cpu_plan_builder *b, int *lowest, int *highest)
{
    *lowest = PLAN_LEVELS;
    *highest = -1;
    for (int m = 0; m < b->spec->n_maps; m++) {
        plan_lookup q = lookup_of(b, b->spec->map[m]);

        if (is_children(&q))
            continue;
        *lowest = q.top < *lowest ? q.top : *lowest;
        *highest = q.top > *highest ? q.top : *highest;
    }
}

/* The offset at which every output row is its own partner, -1 if there is none: the
 * zero offset of a kernel without stride. */
static int centre_of(const plan_lookup *q)
{
    int n = q->kernel;

    if (q->shift)
        return -1;
    return n % 2 ? n * n * n / 2 : 0;
}

/* ---- arrays of known size ---- */

static sp_status take_tiles(cpu_plan_builder *b, const cpu_plan_level *out, sp_map *m)
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

/* Gives map m its tiles; maps with the same output rows share them. */
static sp_status share_tiles(cpu_plan_builder *b, int m)
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

sp_status sp_cpu_plan_take_maps(cpu_plan_builder *b)
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

/* An array of int32 that grows at the top of an arena. */
typedef struct plan_stream {
    sp_arena *arena;
    /* bytes: where the array begins, its size, and those taken for it */
    size_t begin, used, room;
} plan_stream;

static plan_stream stream_open(sp_arena *arena)
{
    return (plan_stream){arena, arena->used, 0, 0};
}

static int32_t *stream_data(const plan_stream *s)
{
    return (int32_t *)(void *)(s->arena->base + s->begin);
}

static sp_status stream_add(plan_stream *s, const int32_t *from, int32_t n)
{
    enum { STEP = 1 << 18 };
    const size_t bytes = (size_t)n * sizeof *from;
    void *more;

    while (s->used + bytes > s->room) {
        SP_TRY(sp_arena_take(s->arena, STEP, &more));
        assert((char *)more == s->arena->base + s->begin + s->room);
        s->room += STEP;
    }
    if (n)
        memcpy((char *)stream_data(s) + s->used, from, bytes);
    s->used += bytes;
    return SP_OK;
}

/* Returns the bytes that the array does not use to the arena. */
static void stream_close(plan_stream *s)
{
    enum { ALIGN = 128 }; /* that of arenas */

    sp_arena_rewind(s->arena, s->begin + (s->used + ALIGN - 1) / ALIGN * ALIGN);
}

/* Appends a finished tile to its map: its part of `start`, and its pairs. */
static sp_status put_tile(const plan_tile *tile, sp_map *map, int32_t *start, int t,
                          plan_stream *in, plan_stream *out)
{
    int64_t at = map->pairs;

    if (map->pairs + tile->n > INT32_MAX)
        return SP_FAIL(
            SP_EDATA, "more than 2^31 pairs in one kernel map: set batch.voxel_budget");
    for (int k = 0; k < map->K; k++) {
        start[(size_t)t * (size_t)map->K + (size_t)k] = (int32_t)at;
        at += tile->count[k];
    }
    assert(at == map->pairs + tile->n);
    map->pairs = at;
    SP_TRY(stream_add(out, tile->pair, tile->n));
    return stream_add(in, tile->pair + tile->n, tile->n);
}

static sp_status put_tiles(const cpu_plan_builder *b, int m, plan_stage *stage,
                           plan_tile *tile, plan_stream *in, plan_stream *out)
{
    sp_map *map = &b->plan->map[m];
    plan_lookup q = lookup_of(b, map->key);
    plan_lanes lanes;
    bool is_lanes = !is_children(&q) && sp_cpu_plan_lanes_open(&lanes, &q);

    for (int t = 0; t < map->n_tiles; t++) {
        tile->first = map->tile_row[t];
        tile->last = map->tile_row[t + 1];
        if (is_children(&q))
            b->loops->children(&q, stage, tile);
        else if (is_lanes)
            b->loops->lanes(&lanes, stage, tile);
        else
            sp_cpu_plan_rows(&q, stage, tile);
        SP_TRY(put_tile(tile, map, b->start[m], t, in, out));
    }
    b->start[m][(size_t)map->n_tiles * (size_t)map->K] = (int32_t)map->pairs;
    return SP_OK;
}

static sp_status put_map(const cpu_plan_builder *b, int m, plan_stage *stage,
                         plan_tile *tile)
{
    sp_map *map = &b->plan->map[m];
    plan_stream in = stream_open(b->arena), out = stream_open(b->scratch);
    int32_t *to;

    SP_TRY(put_tiles(b, m, stage, tile, &in, &out));
    stream_close(&in);
    SP_TRY(SP_TAKE(b->arena, map->pairs, &to));
    if (map->pairs)
        memcpy(to, stream_data(&out), (size_t)map->pairs * sizeof *to);
    map->in = stream_data(&in);
    map->out = to;
    sp_arena_rewind(b->scratch, out.begin);
    return SP_OK;
}

/* Builds all maps with one stage and one tile, which have room for rows of whole
 * vectors and for one more vector, because vector loops store beyond the last pair. */
sp_status sp_cpu_plan_maps(cpu_plan_builder *b)
{
    enum { VECTOR = 16 };
    plan_stage stage;
    plan_tile tile;
    int most = 1;

    for (int m = 0; m < b->spec->n_maps; m++)
        most = b->plan->map[m].K > most ? b->plan->map[m].K : most;
    most = (most + VECTOR - 1) / VECTOR * VECTOR * SP_TILE + VECTOR;
    SP_TRY(SP_TAKE(b->scratch, most, &stage.in));
    SP_TRY(SP_TAKE(b->scratch, most, &stage.tag));
    SP_TRY(SP_TAKE(b->scratch, 2 * most, &tile.pair));
    for (int m = 0; m < b->spec->n_maps; m++)
        SP_TRY(put_map(b, m, &stage, &tile));
    return SP_OK;
}
