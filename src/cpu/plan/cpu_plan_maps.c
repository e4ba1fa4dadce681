/* Kernel maps: look-ups of a tile's output rows, sorted into pairs by offset.
 *
 *     2^3, stride 2   the number of pairs is known, so they are written to their place
 *     part of one     another map with the same levels has a larger kernel: the pairs
 *                     are taken from some of its offsets
 *     other           the number of pairs is known only in the end. `in` grows tile by
 *                     tile at the end of the arena and stays there; `out` grows at the
 *                     end of the scratch and is copied after `in` when it is complete
 *
 * Levels are done from the roots down. A map that is read off the neighbour table of
 * its level is built along with it, tile by tile. */
#include "cpu/plan/cpu_plan.h"

#include <assert.h>
#include <string.h>

#include "base/sp_number.h"

/* ---- the look-ups of a map ---- */

static plan_lookup lookup_of(const cpu_plan_builder *b, sp_map_key key)
{
    int fine = key.level_out < key.level_in ? key.level_out : key.level_in;
    int coarse = key.level_out < key.level_in ? key.level_in : key.level_out;
    int top = fine + sp_kernel_reach(key.kernel);

    /* Looking up from the parents instead saves the table of the finest level. */
    if (top == fine && coarse == fine && !b->level[fine].near)
        top++;
    return (plan_lookup){.level = b->level,
                         .to = key.level_out,
                         .from = key.level_in,
                         .top = top > coarse ? top : coarse,
                         .kernel = key.kernel,
                         .shift = coarse - fine,
                         .is_swapped = sp_map_is_exchanged(key)};
}

/* Is it the 2^3 kernel of stride 2? Then the child words are the map, and no table is
 * needed. */
static bool is_children(const plan_lookup *q)
{
    return q->kernel == 2 && q->shift == 1;
}

/* The levels whose neighbour tables the spec's maps read, from lowest to highest;
 * highest < lowest if no table is read. */
static void table_range(const cpu_plan_builder *b, int *lowest, int *highest)
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

/* ---- arrays of known size ---- */

/* Lists the first tile of each sample. Returns the number of all tiles; of an estimate
 * the most, since the last tile of each sample may be short. */
static int list_tiles(const cpu_plan_builder *b, const cpu_plan_level *out,
                      int32_t *sample_tile)
{
    if (b->counts)
        return out->n / SP_TILE + b->n_samples;
    sample_tile[0] = 0;
    for (int s = 0; s < b->n_samples; s++) {
        int32_t n = out->sample_row[s + 1] - out->sample_row[s];
        sample_tile[s + 1] = sample_tile[s] + (n + SP_TILE - 1) / SP_TILE;
    }
    return sample_tile[b->n_samples];
}

static sp_status maps_list_tiles(cpu_plan_builder *b, const cpu_plan_level *out,
                                 sp_map *m)
{
    int32_t *tile_row, *sample_tile;
    int t = 0;

    SP_TRY(SP_ALLOC(b->arena, b->n_samples + 1, &sample_tile));
    m->n_tiles = list_tiles(b, out, sample_tile);
    SP_TRY(SP_ALLOC(b->arena, m->n_tiles + 1, &tile_row));
    if (b->counts)
        return SP_OK;
    for (int s = 0; s < b->n_samples; s++)
        for (int32_t row = out->sample_row[s]; row < out->sample_row[s + 1];
             row += SP_TILE)
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

    for (int i = 0; i < m; i++)
        if (map[i].key.level_out == map[m].key.level_out) {
            map[m].n_tiles = map[i].n_tiles;
            map[m].tile_row = map[i].tile_row;
            map[m].sample_tile = map[i].sample_tile;
            return SP_OK;
        }
    return maps_list_tiles(b, &b->level[map[m].key.level_out], &map[m]);
}

sp_status sp_cpu_plan_alloc_maps(cpu_plan_builder *b)
{
    for (int m = 0; m < b->spec->n_maps; m++) {
        sp_map *map = &b->plan->map[m];
        plan_lookup q = lookup_of(b, b->spec->map[m]);
        map->key = b->spec->map[m];
        map->n_in = b->level[q.from].n;
        map->n_out = b->level[q.to].n;
        map->K = q.kernel * q.kernel * q.kernel;
        map->centre = sp_kernel_centre(map->key);
        map->is_full = map->centre >= 0;
        SP_TRY(share_tiles(b, m));
        SP_TRY(SP_ALLOC(b->arena, (size_t)map->n_tiles * (size_t)map->K + 1,
                        &b->start[m]));
        map->start = b->start[m];
    }
    return SP_OK;
}

/* ---- pairs, tile by tile ---- */

enum { STREAM_STEP = 1 << 18 }; /* bytes */

/* An array of int32 that grows at the top of an arena. */
typedef struct plan_stream {
    sp_arena *arena;
    /* bytes: where the array begins, its size, and the bytes taken for it */
    size_t begin, used, room;
} plan_stream;

static plan_stream stream_open(sp_arena *arena)
{
    return (plan_stream){arena, arena->used, 0, 0};
}

static int32_t *stream_data(const plan_stream *s)
{
    char *base = s->arena->base;

    return base ? (int32_t *)(void *)(base + s->begin) : NULL;
}

/* Makes room for n more numbers; *at is the place of the first. */
static sp_status stream_room(plan_stream *s, size_t n, int32_t **at)
{
    void *more;

    while (s->used + n * sizeof **at > s->room) {
        SP_TRY(sp_arena_alloc(s->arena, STREAM_STEP, &more));
        assert((char *)more == s->arena->base + s->begin + s->room);
        s->room += STREAM_STEP;
    }
    *at = stream_data(s) + s->used / sizeof **at;
    return SP_OK;
}

/* Returns the bytes that the array does not use to the arena. */
static void stream_close(plan_stream *s)
{
    enum { ALIGN = 128 }; /* of arenas */

    sp_arena_rewind(s->arena, s->begin + sp_multiple(s->used, ALIGN));
}

/* The state while the maps of a plan are built. */
typedef struct plan_work {
    cpu_plan_builder *b;
    plan_stage stage;
    plan_tile tile;
    bool is_done[SP_MAX_MAPS];
} plan_work;

/* Begins tile t of map m. */
static void begin_tile(plan_work *w, const sp_map *map, int t)
{
    w->tile.first = map->tile_row[t];
    w->tile.last = map->tile_row[t + 1];
}

/* Counts tile t into its map, which has the pairs of the tiles before. */
static sp_status plan_count_tile(plan_work *w, int m, int t)
{
    sp_map *map = &w->b->plan->map[m];
    int32_t *start = w->b->start[m] + (size_t)t * (size_t)map->K;
    int64_t at = map->pairs;

    if (map->pairs + w->tile.n > INT32_MAX)
        return SP_FAIL(
            SP_EDATA, "more than 2^31 pairs in one kernel map: set batch.voxel_budget");
    for (int k = 0; k < map->K; k++) {
        start[k] = (int32_t)at;
        at += w->tile.count[k];
    }
    start[map->K] = (int32_t)at;
    assert(at == map->pairs + w->tile.n);
    map->pairs = at;
    return SP_OK;
}

/* ---- maps with a known number of pairs ---- */

static sp_status cpu_plan_alloc_pairs(plan_work *w, sp_map *map, int64_t pairs)
{
    SP_TRY(SP_ALLOC(w->b->arena, pairs, &w->tile.in));
    SP_TRY(SP_ALLOC(w->b->arena, pairs, &w->tile.out));
    map->in = w->tile.in;
    map->out = w->tile.out;
    return SP_OK;
}

/* Every row of the finer level has one pair. */
static sp_status put_children(plan_work *w, int m, const plan_lookup *q)
{
    sp_map *map = &w->b->plan->map[m];

    SP_TRY(cpu_plan_alloc_pairs(w, map, q->level[q->is_swapped ? q->to : q->from].n));
    for (int t = 0; t < map->n_tiles && !w->b->counts; t++) {
        begin_tile(w, map, t);
        w->b->loops->children(q, &w->stage, &w->tile);
        SP_TRY(plan_count_tile(w, m, t));
        w->tile.in += w->tile.n;
        w->tile.out += w->tile.n;
    }
    return SP_OK;
}

/* The map with the same levels and the smallest kernel that has all offsets of map m
 * and more; -1 if no map does. */
static int larger_map(const cpu_plan_builder *b, int m)
{
    const sp_map_key key = b->spec->map[m];
    int found = -1;

    for (int i = 0; i < b->spec->n_maps; i++) {
        const sp_map_key other = b->spec->map[i];
        const int before = sp_kernel_first(key.kernel) - sp_kernel_first(other.kernel);

        if (other.level_in == key.level_in && other.level_out == key.level_out &&
            other.is_swapped == key.is_swapped && other.kernel > key.kernel &&
            before >= 0 && before + key.kernel <= other.kernel &&
            (found < 0 || other.kernel < b->spec->map[found].kernel))
            found = i;
    }
    return found;
}

/* Lists in offset[] the offsets of a kernel of edge n that one of edge `part` has. */
static void list_offsets(int n, int part, int *offset)
{
    const int before = sp_kernel_first(part) - sp_kernel_first(n);

    for (int z = 0; z < part; z++)
        for (int y = 0; y < part; y++)
            for (int x = 0; x < part; x++)
                *offset++ = ((z + before) * n + y + before) * n + x + before;
}

/* Copies the pairs of the offsets of map m from a map with a larger kernel. */
static sp_status put_part(plan_work *w, int m, const sp_map *from)
{
    sp_map *map = &w->b->plan->map[m];
    int offset[PLAN_MAX_K];
    int64_t pairs = 0;

    list_offsets(from->key.kernel, map->key.kernel, offset);
    for (int t = 0; t < map->n_tiles; t++)
        for (int k = 0; k < map->K; k++) {
            const int32_t *start = &from->start[t * from->K + offset[k]];
            pairs += start[1] - start[0];
        }
    SP_TRY(cpu_plan_alloc_pairs(w, map, pairs));
    for (int t = 0; t < map->n_tiles; t++) {
        w->tile.n = 0;
        for (int k = 0; k < map->K; k++) {
            const int32_t *start = &from->start[t * from->K + offset[k]];
            const int32_t n = w->tile.count[k] = start[1] - start[0];
            for (int32_t i = 0; i < n; i++) {
                w->tile.out[w->tile.n + i] = from->out[start[0] + i];
                w->tile.in[w->tile.n + i] = from->in[start[0] + i];
            }
            w->tile.n += n;
        }
        SP_TRY(plan_count_tile(w, m, t));
        w->tile.in += w->tile.n;
        w->tile.out += w->tile.n;
    }
    return SP_OK;
}

/* ---- other maps ---- */

enum { VECTOR = 16 }; /* numbers that a loop may store after the last pair */

/* The pairs of a tile, at most, and a vector. */
static size_t tile_room(const sp_map *map)
{
    return (size_t)map->K * SP_TILE + VECTOR;
}

/* Makes room for the pairs of an estimate, and in `out` for those that a tile may have
 * and for a step. */
static sp_status count_tiles(plan_work *w, sp_map *map, int64_t pairs, plan_stream *in,
                             plan_stream *out)
{
    enum { STEP = STREAM_STEP / sizeof(int32_t) };

    map->pairs = pairs;
    in->used = (size_t)pairs * sizeof *w->tile.in;
    SP_TRY(SP_ALLOC(in->arena, pairs, &w->tile.in));
    return SP_ALLOC(out->arena, (size_t)pairs + tile_room(map) + STEP, &w->tile.out);
}

/* Finds the pairs of the tiles of a map. table: the look-up that writes the neighbour
 * table of the map's level, tile by tile; NULL: the tables are there. */
static sp_status put_tiles(plan_work *w, int m, const plan_lanes *table,
                           plan_stream *in, plan_stream *out)
{
    cpu_plan_builder *b = w->b;
    const sp_map *map = &b->plan->map[m];
    const plan_lookup q = lookup_of(b, map->key);
    plan_tile *tile = &w->tile;
    plan_lanes lanes;
    const bool is_lanes = sp_cpu_plan_lanes_open(&lanes, &q);

    for (int t = 0; t < map->n_tiles; t++) {
        begin_tile(w, map, t);
        if (table)
            b->loops->table(table, &b->level[q.to], tile->first, tile->last, &w->stage);
        SP_TRY(stream_room(out, tile_room(map), &tile->out));
        if (is_lanes)
            b->loops->find_lanes(&lanes, &w->stage, tile);
        else
            sp_cpu_plan_rows(&q, &w->stage, tile);
        SP_TRY(stream_room(in, (size_t)tile->n, &tile->in));
        if (is_lanes)
            b->loops->put_lanes(&lanes, &w->stage, tile);
        else
            sp_cpu_plan_sort_stage(&w->stage, map->K, tile);
        in->used += (size_t)tile->n * sizeof *tile->in;
        out->used += (size_t)tile->n * sizeof *tile->out;
        SP_TRY(plan_count_tile(w, m, t));
    }
    return SP_OK;
}

static sp_status put_found(plan_work *w, int m, const plan_lanes *table)
{
    sp_map *map = &w->b->plan->map[m];
    const sp_plan_counts *counts = w->b->counts;
    plan_stream in = stream_open(w->b->arena), out = stream_open(w->b->scratch);
    int32_t *to;

    SP_TRY(counts ? count_tiles(w, map, counts->pairs[m], &in, &out)
                  : put_tiles(w, m, table, &in, &out));
    stream_close(&in);
    SP_TRY(SP_ALLOC(w->b->arena, map->pairs, &to));
    if (map->pairs && !counts)
        memcpy(to, stream_data(&out), (size_t)map->pairs * sizeof *to);
    map->in = stream_data(&in);
    map->out = to;
    sp_arena_rewind(w->b->scratch, out.begin);
    return SP_OK;
}

/* ---- all maps ---- */

static sp_status put_map(plan_work *w, int m)
{
    const plan_lookup q = lookup_of(w->b, w->b->spec->map[m]);
    const int larger = larger_map(w->b, m);

    if (w->is_done[m])
        return SP_OK;
    w->is_done[m] = true;
    if (is_children(&q))
        return put_children(w, m, &q);
    if (larger < 0)
        return put_found(w, m, NULL);
    if (w->b->counts)
        return cpu_plan_alloc_pairs(w, &w->b->plan->map[m], w->b->counts->pairs[m]);
    SP_TRY(put_map(w, larger));
    return put_part(w, m, &w->b->plan->map[larger]);
}

/* The map that is read off the neighbour table of level l, row by row; or -1. */
static int map_of_table(const cpu_plan_builder *b, int l)
{
    for (int m = 0; m < b->spec->n_maps; m++) {
        const sp_map_key key = b->spec->map[m];

        if (key.kernel == 3 && !key.is_swapped && key.level_in == l &&
            key.level_out == l && larger_map(b, m) < 0)
            return m;
    }
    return -1;
}

/* Builds the neighbour table of level l, and the map that it holds. */
static sp_status put_level(plan_work *w, int l)
{
    cpu_plan_level *level = &w->b->level[l];
    const int m = map_of_table(w->b, l);
    plan_lanes lanes;

    if (!sp_cpu_plan_open_table(w->b, l, &lanes))
        return SP_OK;
    if (m >= 0) {
        w->is_done[m] = true;
        return put_found(w, m, &lanes);
    }
    w->b->loops->table(&lanes, level, 0, level->n, NULL);
    return SP_OK;
}

/* Builds all maps with one stage, which has room for rows of whole vectors and for one
 * more vector, because vector loops store beyond the last pair. */
sp_status sp_cpu_plan_maps(cpu_plan_builder *b)
{
    plan_work w = {.b = b};
    int most = 1, lowest, highest;

    table_range(b, &lowest, &highest);
    SP_TRY(sp_cpu_plan_alloc_tables(b, lowest, highest));
    for (int m = 0; m < b->spec->n_maps; m++) {
        most = b->plan->map[m].K > most ? b->plan->map[m].K : most;
        if (!b->counts)
            b->start[m][0] = 0;
    }
    most = (most + VECTOR - 1) / VECTOR * VECTOR * SP_TILE + VECTOR;
    SP_TRY(SP_ALLOC(b->scratch, most, &w.stage.found));
    SP_TRY(SP_ALLOC(b->scratch, most, &w.stage.sorted));
    for (int l = b->n_levels - 1; l >= lowest && !b->counts; l--)
        SP_TRY(put_level(&w, l));
    for (int m = 0; m < b->spec->n_maps; m++)
        SP_TRY(put_map(&w, m));
    return SP_OK;
}
