/* Inside of the CPU plan: what cpu_plan.c (keys, sort, pyramid), cpu_plan_tables.c
 * (neighbours) and cpu_plan_maps.c (kernel maps) share.
 *
 * Nothing is searched. The neighbours of a voxel are children of its ancestors'
 * neighbours, so every look-up goes down from a root of one voxel per sample. Roots of
 * different samples are not neighbours: samples never meet.
 *
 *     level l+1   27 neighbours of P:  row, or n for none
 *     level l     children of each:    first row << 8 | mask of the 8 children
 *
 * Arena: | order, levels, tiles, starts | child words, tables, pairs by tile |  while
 * built | order, levels, tiles, starts | in, out of each map |                 in the
 * end
 */
#ifndef CPU_PLAN_H
#define CPU_PLAN_H

#include "sp_plan.h"

enum {
    PLAN_LEVELS = 22, /* of 20 bits a coordinate, and roots above them */
    PLAN_NBR = 32,    /* pitch of a neighbour table: 27 rows, 5 times none */
    PLAN_MAX_ROWS = (1 << 24) - 1, /* a child word holds 24 bits of row */
    PLAN_MAX_K = SP_MAX_KERNEL * SP_MAX_KERNEL * SP_MAX_KERNEL
};

typedef struct plan_level {
    int32_t n;
    uint64_t *key;       /* [n] Morton key relative to the sample's base */
    int32_t *parent;     /* [n] */
    int32_t *sample_row; /* [n_samples + 1] */
    uint32_t *child; /* [n + 1] first row of the finer level << 8 | mask; [n] is 0 */
    int32_t *nbr;    /* [n][PLAN_NBR], 64-byte aligned; NULL where not needed */
} plan_level;

typedef struct plan_builder {
    const sp_plan_spec *spec;
    sp_arena *arena;
    sp_plan *plan;
    int n_samples;
    int n_levels; /* with those above the network's, up to one voxel per sample */
    plan_level level[PLAN_LEVELS];
    int32_t *start[SP_MAX_MAPS]; /* of each map, to be filled */
} plan_builder;

/* The pairs of one tile by offset. */
typedef struct plan_stage {
    int count[PLAN_MAX_K];
    int32_t *in, *out; /* [K][SP_TILE] */
} plan_stage;

static inline void plan_put(plan_stage *stage, int k, int32_t in, int32_t out)
{
    size_t at = (size_t)k * SP_TILE + (size_t)stage->count[k]++;

    stage->in[at] = in;
    stage->out[at] = out;
}

/* One map seen as look-ups: output rows of level `to`, partners in level `from`, found
 * from the neighbour table of level `top`, where every partner is within one step. */
typedef struct plan_lookup {
    const plan_level *level; /* of the builder */
    int to, from, top;
    int kernel;
    int shift;       /* log2 of the stride: positions are in steps of the finer level */
    bool is_swapped; /* output rows are the finer ones */
} plan_lookup;

/* Room to sort a sample in. */
typedef struct plan_sort {
    uint64_t *a, *b; /* [rows of the largest sample] */
    uint32_t *count;
} plan_sort;

sp_status sp_cpu_plan_sort_open(plan_sort *s, sp_arena *arena, int32_t n_max);
/* Keys of coords c [n][3] relative to a base that is a multiple of the coarsest of
 * n_levels strides, in rising order; key [n], order [n] row in c, bits of a coordinate
 * in the keys. SP_EDATA: coordinate out of range or standing twice. */
sp_status sp_cpu_plan_sort(const int32_t *c, int32_t n, int sample, int n_levels,
                           const plan_sort *s, uint64_t *key, int32_t *order,
                           int *bits);

/* Neighbour tables of levels >= `lowest`, from the roots down. */
sp_status sp_cpu_plan_tables(plan_builder *b, int lowest);
/* The lowest level whose neighbour table the spec's maps are looked up in. */
int sp_cpu_plan_lowest_table(const plan_builder *b);
/* What is known of the maps before they are built: tiles, and room for `start`. */
sp_status sp_cpu_plan_take_maps(plan_builder *b);
/* Every map of the spec; then the arena holds its first `keep` bytes and the pairs. */
sp_status sp_cpu_plan_maps(plan_builder *b, size_t keep);

/* Pairs of output rows first .. last - 1 (one tile) put into the empty stage: of any
 * kernel, and of the 2^3 kernel of stride 2. */
void sp_cpu_plan_rows(const plan_lookup *q, int32_t first, int32_t last,
                      plan_stage *stage);
void sp_cpu_plan_children(const plan_lookup *q, int32_t first, int32_t last,
                          plan_stage *stage);

/* Number of bits set in a byte. */
extern const uint8_t sp_cpu_plan_bits[256];

/* Row of child `digit` given the child word, -1 if absent. */
static inline int32_t plan_child(uint32_t word, uint32_t digit)
{
    if (!(word >> digit & 1))
        return -1;
    return (int32_t)((word >> 8) + sp_cpu_plan_bits[word & ((1u << digit) - 1)]);
}

/* The low 20 bits of v, two zeros between each: every third bit of a Morton key. */
static inline uint64_t plan_spread(uint32_t v)
{
    uint64_t x = v & 0xfffff;

    x = (x | x << 32) & 0x001f00000000ffff;
    x = (x | x << 16) & 0x001f0000ff0000ff;
    x = (x | x << 8) & 0x100f00f00f00f00f;
    x = (x | x << 4) & 0x10c30c30c30c30c3;
    return (x | x << 2) & 0x1249249249249249;
}

/* The inverse of plan_spread. */
static inline int plan_gather(uint64_t key)
{
    uint64_t x = key & 0x1249249249249249;

    x = (x | x >> 2) & 0x10c30c30c30c30c3;
    x = (x | x >> 4) & 0x100f00f00f00f00f;
    x = (x | x >> 8) & 0x001f0000ff0000ff;
    x = (x | x >> 16) & 0x001f00000000ffff;
    return (int)((x | x >> 32) & 0xfffff);
}

#endif
