/* Plan of a batch on the CPU: the coordinate pyramid. cpu_plan.h describes the method.
 */
#include "cpu/plan/cpu_plan.h"
#include "config.h"

#include "cpu/cpu.h"

#include <assert.h>
#include <string.h>

#include "base/sp_number.h"

#define B2(n) (n), (n) + 1, (n) + 1, (n) + 2
#define B4(n) B2(n), B2((n) + 1), B2((n) + 1), B2((n) + 2)
#define B6(n) B4(n), B4((n) + 1), B4((n) + 1), B4((n) + 2)
const uint8_t sp_cpu_plan_bits[256] = {B6(0), B6(1), B6(1), B6(2)};

static sp_status plan_check_rows(const int32_t *sample_row, int n_samples)
{
    if (n_samples && sample_row[n_samples] > PLAN_MAX_ROWS)
        return SP_FAIL(SP_EDATA,
                       "%d voxels in one micro-batch of a rank, at most %d: set "
                       "batch.voxel_budget or use more ranks",
                       sample_row[n_samples], PLAN_MAX_ROWS);
    return SP_OK;
}

/* Allocates level 0, and buffers to sort samples of at most n_max rows in. */
static sp_status alloc_rows(cpu_plan_builder *b, int32_t n_max, plan_sort *sort,
                            int32_t **order)
{
    cpu_plan_level *l = &b->level[0];

    SP_TRY(SP_ALLOC(b->arena, l->n, order));
    SP_TRY(SP_ALLOC(b->arena, l->n, &l->key));
    SP_TRY(SP_ALLOC(b->arena, b->n_samples + 1, &l->sample_row));
    SP_TRY(SP_ALLOC(b->arena, b->n_samples, &b->base));
    return sp_cpu_plan_sort_open(sort, b->loops, b->scratch, n_max);
}

/* Fills level 0: keys and order of every sample. *bits becomes the most bits that a
 * sample's coordinates need. */
static sp_status sort_samples(cpu_plan_builder *b, const int32_t *coords,
                              const int32_t *sample_row, int *bits)
{
    cpu_plan_level *l = &b->level[0];
    const size_t mark = b->scratch->used;
    plan_sort sort;
    int32_t *order, n_max = 0;

    l->n = b->n_samples ? sample_row[b->n_samples] : 0;
    for (int s = 0; s < b->n_samples; s++)
        if (sample_row[s + 1] - sample_row[s] > n_max)
            n_max = sample_row[s + 1] - sample_row[s];
    SP_TRY(alloc_rows(b, n_max, &sort, &order));
    *bits = 0;
    l->sample_row[0] = 0;
    for (int s = 0; s < b->n_samples; s++) {
        int32_t row = sample_row[s], n = sample_row[s + 1] - row;
        int width;
        SP_TRY(sp_cpu_plan_sort(coords + 3 * (size_t)row, n, s, b->spec->n_levels,
                                &sort, l->key + row, order + row, b->base[s], &width));
        for (int32_t i = row; i < row + n; i++)
            order[i] += row;
        *bits = width > *bits ? width : *bits;
        l->sample_row[s + 1] = row + n;
    }
    sp_arena_rewind(b->scratch, mark);
    b->plan->order = order;
    return SP_OK;
}

/* The lowest level where two neighbouring rows of a sample share a voxel. */
static inline int merge_level(uint64_t key, uint64_t next)
{
    return (63 - __builtin_clzll(key ^ next)) / 3 + 1;
}

/* Counts the rows of levels first + 1 .. last - 1 from the keys of level `first`, before
 * these levels are built: a row that merges with its predecessor at level m adds a row
 * only to the levels below m. */
static void plan_count_rows(cpu_plan_builder *b, int first_level, int last_level)
{
    const cpu_plan_level *fine = &b->level[first_level];

    for (int l = first_level + 1; l < last_level; l++)
        b->level[l].sample_row[0] = 0;
    for (int s = 0; s < b->n_samples; s++) {
        int32_t first = fine->sample_row[s], last = fine->sample_row[s + 1];
        /* Two counters of a level, since a counter waits for its own last value. */
        int32_t merged[2][PLAN_LEVELS + 1] = {{0}}, n = last - first;
        for (int32_t i = first + 1; i < last; i++)
            merged[i & 1][merge_level(fine->key[i - 1], fine->key[i])]++;
        for (int l = first_level + 1; l < last_level; l++) {
            n -= merged[0][l - first_level] + merged[1][l - first_level];
            b->level[l].sample_row[s + 1] = b->level[l].sample_row[s] + n;
        }
    }
    for (int l = first_level + 1; l < last_level; l++)
        b->level[l].n = b->level[l].sample_row[b->n_samples];
}

static void fill_level(cpu_plan_builder *b, cpu_plan_level *fine,
                       cpu_plan_level *coarse)
{
    int32_t j = -1;

    for (int s = 0; s < b->n_samples; s++) {
        uint64_t last = ~(uint64_t)0; /* not a key: keys have at most 60 bits */
        uint32_t word = 0;            /* the child word of row j so far */
        for (int32_t i = fine->sample_row[s]; i < fine->sample_row[s + 1]; i++) {
            uint64_t key = fine->key[i] >> 3;
            /* Used without a branch, which would be unpredictable. */
            uint32_t is_new = key != last;
            j += (int32_t)is_new;
            word = (is_new ? (uint32_t)i << 8 : word) | 1u << (fine->key[i] & 7);
            coarse->child[j] = word;
            coarse->key[j] = key;
            fine->parent[i] = j;
            last = key;
        }
    }
    assert(j + 1 == coarse->n);
    coarse->child[coarse->n] = 0;
}

static sp_status plan_alloc_level(cpu_plan_builder *b, int l, sp_arena *arena)
{
    cpu_plan_level *fine = &b->level[l - 1], *coarse = &b->level[l];

    SP_TRY(SP_ALLOC(arena, fine->n, &fine->parent));
    return SP_ALLOC(arena, coarse->n, &coarse->key);
}

/* The first dilated level above l; n_levels if there is none. */
static int next_dilated(const cpu_plan_builder *b, int l)
{
    for (l++; l < b->spec->n_levels; l++)
        if (b->spec->is_dilated[l])
            return l;
    return b->n_levels;
}

/* Builds all levels. The network's levels stay in the plan; the levels above them, and
 * all child words, are scratch. The rows of levels up to the next dilated one are
 * counted at once; a dilated level has to be made to be counted. */
static sp_status build_pyramid(cpu_plan_builder *b)
{
    int n_kept = b->spec->n_levels;

    for (int l = 1; l < b->n_levels; l++)
        SP_TRY(SP_ALLOC(b->arena, b->n_samples + 1, &b->level[l].sample_row));
    if (!b->counts)
        plan_count_rows(b, 0, next_dilated(b, 0));
    for (int l = 1; l < b->n_levels; l++) {
        if (l == n_kept)
            SP_TRY(sp_cpu_plan_alloc_maps(b));
        if (l < n_kept && b->spec->is_dilated[l]) {
            SP_TRY(sp_cpu_plan_dilate_level(b, l));
            if (!b->counts)
                plan_count_rows(b, l, next_dilated(b, l));
            continue;
        }
        SP_TRY(plan_alloc_level(b, l, l < n_kept ? b->arena : b->scratch));
        SP_TRY(SP_ALLOC(b->scratch, (size_t)b->level[l].n + 1, &b->level[l].child));
        if (!b->counts)
            fill_level(b, &b->level[l - 1], &b->level[l]);
    }
    return SP_OK;
}

static void cpu_plan_publish_levels(const cpu_plan_builder *b)
{
    sp_plan *p = b->plan;

    p->n_samples = b->n_samples;
    p->n_levels = b->spec->n_levels;
    p->n_maps = b->spec->n_maps;
    for (int l = p->n_levels; l < b->n_levels; l++)
        p->above += b->level[l].n;
    for (int l = 0; l < p->n_levels; l++) {
        const cpu_plan_level *from = &b->level[l];
        p->level[l] = (sp_level){.n = from->n,
                                 .key = from->key,
                                 .parent = l + 1 < p->n_levels ? from->parent : NULL,
                                 .sample_row = from->sample_row};
    }
}

/* The first ones of this build that the processor has. */
static const plan_loops *best_loops(void)
{
#define ENTRY(version) &sp_cpu_plan_##version,
    static const plan_loops *const loops[] = {SP_PLAN_LOOPS(ENTRY)};
    int i = 0;

    while (loops[i]->is_here && !loops[i]->is_here())
        i++;
    return loops[i];
}

static sp_status cpu_plan_build(cpu_plan_builder *b, const int32_t *coords,
                                const int32_t *sample_row)
{
    int bits = 0, above = b->spec->n_levels + 3;

    assert(b->spec->n_levels >= 1 && b->spec->n_levels <= SP_MAX_LEVELS);
    memset(b->plan, 0, sizeof *b->plan);
    SP_TRY(plan_check_rows(sample_row, b->n_samples));
    SP_TRY(sort_samples(b, coords, sample_row, &bits));
    /* The pyramid ends with one voxel per sample, the root; three levels above the
     * network's are needed for kernels of edge 7. A dilated level may reach one voxel
     * beyond the highest parent. */
    bits += sp_plan_first_dilated(b->spec) < b->spec->n_levels;
    b->n_levels = above > bits + 1 ? above : bits + 1;
    SP_TRY(build_pyramid(b));
    cpu_plan_publish_levels(b);
    return sp_cpu_plan_maps(b);
}

/* Builds a plan with the arena's scratch, or with a scratch of its own. */
static sp_status build_with(const plan_loops *loops, const sp_plan_spec *spec,
                            const int32_t *coords, const int32_t *sample_row,
                            int n_samples, sp_arena *arena, sp_plan *plan)
{
    sp_arena own = {0};
    cpu_plan_builder b = {.spec = spec,
                          .arena = arena,
                          .scratch = arena->scratch ? arena->scratch : &own,
                          .plan = plan,
                          .n_samples = n_samples,
                          .loops = loops};
    size_t mark;
    sp_status rc = SP_OK;

    if (b.scratch == &own)
        rc = sp_arena_create(&own, 0, "plan scratch");
    mark = b.scratch->used;
    if (rc == SP_OK)
        rc = cpu_plan_build(&b, coords, sample_row);
    sp_arena_rewind(b.scratch, mark);
    sp_arena_destroy(&own);
    return rc;
}

sp_status sp_cpu_plan_build(sp_backend *be, const sp_plan_spec *spec,
                            const int32_t *coords, const int32_t *sample_row,
                            int n_samples, sp_arena *arena, sp_plan *plan)
{
    (void)be;
    return build_with(best_loops(), spec, coords, sample_row, n_samples, arena, plan);
}

sp_status sp_cpu_plan_build_portable(sp_backend *be, const sp_plan_spec *spec,
                                     const int32_t *coords, const int32_t *sample_row,
                                     int n_samples, sp_arena *arena, sp_plan *plan)
{
    (void)be;
    return build_with(&sp_cpu_plan_portable, spec, coords, sample_row, n_samples, arena,
                      plan);
}

/* ---- memory ---- */

/* Sets the voxels of each level: the network's as counted, and `above` of those above,
 * as many on the finer ones as a level can have. */
static void set_rows(cpu_plan_builder *b, const sp_plan_counts *counts)
{
    int64_t above = counts->above, n = 0;

    for (int l = 0; l < b->n_levels; l++) {
        const bool is_above = l >= b->spec->n_levels;

        n = is_above ? sp_least(n, above) : counts->voxels[l];
        above -= is_above ? n : 0;
        b->level[l].n = (int32_t)sp_least(n, INT32_MAX);
    }
}

/* Counts all levels that there can be. */
sp_plan_bytes sp_cpu_plan_bytes(const sp_plan_spec *spec, const sp_plan_counts *counts)
{
    sp_arena arena = sp_arena_counter(), scratch = sp_arena_counter();
    sp_plan plan = {0};
    cpu_plan_builder b = {.spec = spec,
                          .arena = &arena,
                          .scratch = &scratch,
                          .plan = &plan,
                          .counts = counts,
                          .n_samples = counts->n_samples,
                          .n_levels = PLAN_LEVELS};
    plan_sort sort;
    int32_t *order;
    sp_status rc;

    set_rows(&b, counts);
    rc = alloc_rows(&b, b.level[0].n, &sort, &order);
    sp_arena_rewind(&scratch, 0);
    if (rc == SP_OK)
        rc = build_pyramid(&b);
    if (rc == SP_OK)
        rc = sp_cpu_plan_maps(&b);
    assert(rc == SP_OK && "a counter has memory for all");
    return (sp_plan_bytes){(int64_t)arena.used, (int64_t)scratch.high};
}
