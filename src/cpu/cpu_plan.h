/* Inside of the CPU plan: what cpu_plan.c (keys, pyramid), cpu_plan_sort.c,
 * cpu_plan_lanes.c (neighbours) and cpu_plan_maps.c (kernel maps) share.
 *
 * Nothing is searched. The neighbours of a voxel are children of its ancestors'
 * neighbours, so every look-up goes down from a root of one voxel per sample. Roots of
 * different samples are not neighbours: samples never meet.
 *
 *     level l+1   27 neighbours of P:  row, or n for none
 *     level l     children of each:    first row << 8 | mask of the 8 children
 *
 *     arena    | order, levels, tiles, starts | in, out of each map |
 *     scratch  | child words, tables, levels above | a tile | out of one map |
 *
 * The scratch is the arena's own (sp_arena.scratch), or one that lives as long as the
 * building. Of levels above those that maps are looked up in, two tables are there at a
 * time.
 */
#ifndef CPU_PLAN_H
#define CPU_PLAN_H

#include "compute/sp_plan.h"

enum {
    PLAN_LEVELS = 22, /* of 20 bits a coordinate, and roots above them */
    PLAN_NBR = 32,    /* pitch of a neighbour table: 27 rows, 5 times none */
    PLAN_MAX_ROWS = (1 << 24) - 1, /* a child word holds 24 bits of row */
    PLAN_MAX_K = SP_MAX_KERNEL * SP_MAX_KERNEL * SP_MAX_KERNEL,
    PLAN_TAG = 16,   /* bits of an offset beside its row */
    PLAN_LANES = 128 /* offsets of the largest kernel done by lanes, 5^3, and padding */
};

typedef struct plan_level {
    int32_t n;
    uint64_t *key;       /* [n] Morton key relative to the sample's base */
    int32_t *parent;     /* [n] */
    int32_t *sample_row; /* [n_samples + 1] */
    uint32_t *child; /* [n + 1] first row of the finer level << 8 | mask; [n] is 0 */
    int32_t *nbr;    /* [n][PLAN_NBR], 64-byte aligned; NULL where not needed */
} plan_level;

typedef struct plan_loops plan_loops;

typedef struct plan_builder {
    const sp_plan_spec *spec;
    sp_arena *arena, *scratch;
    sp_plan *plan;
    const plan_loops *loops;
    int n_samples;
    int n_levels; /* with those above the network's, up to one voxel per sample */
    plan_level level[PLAN_LEVELS];
    int32_t *start[SP_MAX_MAPS]; /* of each map, to be filled */
} plan_builder;

/* Scratch of a tile: its pairs as they are found, by rising output row, then offset. */
typedef struct plan_stage {
    int32_t n, first; /* pairs; first output row of the tile */
    int32_t *in;      /* [n] */
    uint32_t *tag; /* [n] output row - first above, offset in the low PLAN_TAG bits */
} plan_stage;

/* One tile of a map: output rows first .. last - 1 and, once filled, its n pairs by
 * offset, then rising output row. */
typedef struct plan_tile {
    int32_t first, last, n;
    int32_t count[PLAN_MAX_K]; /* pairs of each offset */
    int32_t *pair; /* [2 n] out, then in; room for every offset and a vector beyond */
} plan_tile;

static inline void plan_put(plan_stage *stage, int k, int32_t in, int32_t out)
{
    stage->in[stage->n] = in;
    stage->tag[stage->n++] = (uint32_t)(out - stage->first) << PLAN_TAG | (uint32_t)k;
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

/* Neighbour tables from the roots down; those of the range stay. */
sp_status sp_cpu_plan_tables(plan_builder *b);
/* The levels whose neighbour tables the spec's maps are looked up in: from lowest to
 * highest; highest < lowest: none is. */
void sp_cpu_plan_table_range(const plan_builder *b, int *lowest, int *highest);
/* What is known of the maps before they are built: tiles, and room for `start`. */
sp_status sp_cpu_plan_take_maps(plan_builder *b);
/* Every map of the spec. */
sp_status sp_cpu_plan_maps(plan_builder *b);

/* Where a look-up at one position along one axis goes: which neighbour of the ancestor
 * (0, 1, 2; -1: the partner would not lie on the lattice), and the way down from it to
 * the partner, a bit per level. By offset along the axis. */
typedef struct plan_axis {
    int cell[SP_MAX_KERNEL];
    uint64_t path[SP_MAX_KERNEL]; /* every third bit */
} plan_axis;

/* position: of the row within its ancestor at level q->top, in steps of the finer
 * level. */
void sp_cpu_plan_aim(const plan_lookup *q, int position, int axis, plan_axis *a);

/* Pairs of the tile, of any kernel. */
void sp_cpu_plan_rows(const plan_lookup *q, plan_stage *stage, plan_tile *tile);
/* Sort what stands in the stage by offset 0 .. K - 1 into the tile. */
void sp_cpu_plan_sort_stage(const plan_stage *stage, int K, plan_tile *tile);

/* Look-ups that go at most one level up and one down, all offsets of a row side by
 * side: lane k of a row at child position c takes word from[c][k] of its ancestor's 32.
 * A word is a neighbour's child word, and the partner its child `bit`; or, with
 * is_leaf, it is the partner itself. */
typedef struct plan_lanes {
    const plan_level *to, *top, *from;
    int K;
    bool is_up;    /* the ancestor is the row's parent, else the row itself */
    bool is_leaf;  /* partners are of level `top`, else of the one below */
    bool is_table; /* lane k is word k: the table's rows are the answer */
    uint32_t from_word[8][PLAN_LANES];
    uint32_t bit[8][PLAN_LANES], below[8][PLAN_LANES]; /* bit - 1 */
} plan_lanes;

/* False where the look-up is none of that kind. */
bool sp_cpu_plan_lanes_open(plan_lanes *lanes, const plan_lookup *q);

/* Loops that exist portable and with vectors, with the same results. */
struct plan_loops {
    /* The pairs of a tile: of lanes, and of the 2^3 kernel of stride 2. */
    void (*lanes)(const plan_lanes *lanes, plan_stage *stage, plan_tile *tile);
    void (*children)(const plan_lookup *q, plan_stage *stage, plan_tile *tile);
    /* The whole table of level lanes->to, of a 3^3 look-up. */
    void (*table)(const plan_lanes *lanes, int32_t *nbr);
};

extern const plan_loops sp_cpu_plan_portable, sp_cpu_plan_avx512;

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
