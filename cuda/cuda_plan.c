/* Plans of the host's builder, moved to the device: built in the arena's host part,
 * then copied as one range, so that a pointer into one is a pointer into the other at
 * the same distance. */
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

sp_status sp_cuda_plan_build(sp_backend *be, const sp_plan_spec *spec,
                             const int32_t *coords, const int32_t *sample_row,
                             int n_samples, sp_arena *arena, sp_plan *plan)
{
    sp_arena *host = sp_cuda_arena_host(arena);
    move m = {.from = host->base};

    sp_arena_reset(host);
    SP_TRY(sp_cpu_plan_build(be, spec, coords, sample_row, n_samples, host, plan));
    SP_TRY(sp_arena_take(arena, host->used, (void **)&m.to));
    SP_TRY(sp_cuda_upload(be, m.to, host->base, host->used));
    move_pointers(&m, plan);
    return SP_OK;
}
