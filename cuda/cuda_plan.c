/* Plans of the host's builder, moved to the device: built in the arena's host part,
 * then copied as one range, so that a pointer into one is a pointer into the other at
 * the same distance. */
#include <string.h>

#include "../tests/cuda_map_host.h"
#include "cpu/cpu.h"
#include "cuda_ops.h"

typedef struct move {
    const char *from; /* host */
    char *to;         /* device */
} move;

static const void *moved(const move *m, const void *p)
{
    return p ? m->to + ((const char *)p - m->from) : NULL;
}

/* What the host reads stays: sample rows, sample tiles, the order. */
static void move_pointers(const move *m, sp_plan *plan)
{
    for (int i = 0; i < plan->n_levels; i++) {
        sp_level *level = &plan->level[i];
        level->key = moved(m, level->key);
        level->parent = moved(m, level->parent);
    }
    for (int i = 0; i < plan->n_maps; i++) {
        sp_map *map = &plan->map[i];
        map->start = moved(m, map->start);
        map->in = moved(m, map->in);
        map->out = moved(m, map->out);
        map->tile_row = moved(m, map->tile_row);
    }
}

static sp_status keep(sp_arena *host, const void **array, size_t bytes)
{
    void *to;

    SP_TRY(sp_arena_take(host, bytes, &to));
    if (bytes)
        memcpy(to, *array, bytes);
    *array = to;
    return SP_OK;
}

/* The device's form in the arena; its arrays are those of `from`, which stays. */
static sp_status keep_map(sp_arena *host, cuda_map from, cuda_map **out)
{
    const size_t n = sizeof(int32_t), rows = (size_t)from.n_out,
                 pairs = (size_t)from.pairs;

    SP_TRY(SP_TAKE(host, 1, out));
    SP_TRY(keep(host, (const void **)&from.mask, rows * (size_t)from.n_words * n));
    SP_TRY(keep(host, (const void **)&from.first, (rows + 1) * n));
    SP_TRY(keep(host, (const void **)&from.nbr, pairs * n));
    SP_TRY(keep(host, (const void **)&from.order, rows * n));
    SP_TRY(keep(host, (const void **)&from.pair_in, pairs * n));
    SP_TRY(keep(host, (const void **)&from.pair_out, pairs * n));
    SP_TRY(keep(host, (const void **)&from.pair_start_host,
                ((size_t)(from.n_samples * from.K) + 1) * n));
    **out = from;
    return SP_OK;
}

static sp_status make_map(sp_arena *host, const sp_map *m, int n_samples,
                          cuda_map **out)
{
    cuda_map map = cuda_map_host(m, n_samples);
    const sp_status rc = keep_map(host, map, out);

    cuda_map_host_free(&map);
    return rc;
}

static void move_map(const move *m, cuda_map *map)
{
    map->mask = moved(m, map->mask);
    map->first = moved(m, map->first);
    map->nbr = moved(m, map->nbr);
    map->order = moved(m, map->order);
    map->pair_in = moved(m, map->pair_in);
    map->pair_out = moved(m, map->pair_out);
    map->pair_start = moved(m, map->pair_start_host);
}

sp_status sp_cuda_plan_build(sp_backend *be, const sp_plan_spec *spec,
                             const int32_t *coords, const int32_t *sample_row,
                             int n_samples, sp_arena *arena, sp_plan *plan)
{
    sp_arena *host = sp_cuda_arena_host(arena);
    move m = {.from = host->base};
    cuda_map *device[SP_MAX_MAPS];

    sp_arena_reset(host);
    SP_TRY(sp_cpu_plan_build(be, spec, coords, sample_row, n_samples, host, plan));
    for (int i = 0; i < plan->n_maps; i++) {
        SP_TRY(make_map(host, &plan->map[i], n_samples, &device[i]));
        plan->map[i].device = device[i];
    }
    SP_TRY(sp_arena_take(arena, host->used, (void **)&m.to));
    SP_TRY(sp_cuda_upload(be, m.to, host->base, host->used));
    move_pointers(&m, plan);
    for (int i = 0; i < plan->n_maps; i++)
        move_map(&m, device[i]);
    return SP_OK;
}
