/* The CPU's plan builder: declarations that its files share.
 *
 *     cpu_plan.c       the pyramid    cpu_plan_sort.c    Morton keys and their order
 *     cpu_plan_maps.c  kernel maps    cpu_plan_lanes.c   tables, small kernels
 *     cpu_plan_rows.c  any kernel     cpu_plan_avx512.c  the same loops with vectors
 *     cpu_plan_dilated.c  levels with voxels that no finer voxel lies in
 *
 * No hash table and no search is needed. The neighbours of a voxel are children of its
 * ancestors' neighbours, so every look-up goes down from a root of one voxel per
 * sample. Roots of different samples are not neighbours, so samples never meet.
 *
 *     level l+1   27 neighbours of P:  a mask of those that exist, and their rows
 *     level l     children of each:    first row << 8 | mask of the 8 children
 *
 *     arena    | order, levels, tiles, starts | in, out of each map |
 *     scratch  | child words, tables, levels above | a tile | out of one map |
 *
 * The least that a plan moves is its coordinates, 12 bytes a voxel; keys, parents and
 * order, 12 to 16 bytes a voxel of each level; and pairs, 8 bytes each. For a lidar
 * scan of 94,444 voxels and minkunet18 that is 28 MB (24 MB of pairs): 1 ms at 30 GB/s.
 * Sorting moves 6 MB more, neighbour tables 4 MB (20 to 40 bytes a row), twice, and
 * `out` of maps that are counted late 8 MB, twice. A plan needs more time than its
 * bytes, since it waits for gathers and mispredicted loops: about 100 cycles a row for
 * the pairs of 5^3, and 40 for a row of a table.
 *
 * An estimate of the memory (sp_cpu_plan_bytes) runs the same code from estimated
 * numbers on arenas that only count: it allocates, and fills nothing.
 *
 * The scratch is the arena's own (sp_arena.scratch), or one that exists only while the
 * plan is built. Neighbour tables that no map reads exist only while the next finer one
 * is computed, so their levels share the memory of two tables. */
#ifndef CPU_PLAN_H
#define CPU_PLAN_H

#include "compute/sp_plan.h"

enum {
    PLAN_LEVELS = 22, /* 20 bits a coordinate, and the roots above them */
    PLAN_NEAR = 27,   /* neighbours of a row, itself included */
    PLAN_NBR = 32,    /* words around an ancestor: 27, and 5 times "none" */
    PLAN_MAX_ROWS = (1 << 24) - 1, /* a child word holds 24 bits of row */
    PLAN_REACHED = 8, /* voxels of a dilated level that the children of one reach */
    PLAN_MAX_K = SP_MAX_KERNEL * SP_MAX_KERNEL * SP_MAX_KERNEL,
    PLAN_TAG = 16, /* bits of the offset in a tag, see plan_stage */
    /* Offsets of the largest kernel that plan_lanes serves, 5^3, and padding. */
    PLAN_LANES = 128
};

/* The neighbours of one row in a neighbour table: most do not exist, and a table of all
 * 27 would be several times as large. */
typedef struct plan_near {
    uint32_t mask; /* bit d: the neighbour at offset d of the 3^3 kernel exists */
    int32_t at;    /* the rows of these begin here in cpu_plan_level.nbr */
} plan_near;

/* One level of the pyramid under construction. */
typedef struct cpu_plan_level {
    int32_t n;           /* voxels */
    uint64_t *key;       /* [n] Morton key relative to the sample's base */
    int32_t *parent;     /* [n] row in the next coarser level */
    int32_t *sample_row; /* [n_samples + 1] */
    /* [n + 1] first row in the finer level << 8 | mask of children; [n] is 0 */
    uint32_t *child;
    /* The neighbour table: [n], and [n_nbr] with room for PLAN_NEAR of each row and
     * two vectors more. NULL if no look-up needs it. */
    plan_near *near;
    int32_t *nbr;
    int32_t n_nbr;
} cpu_plan_level;

typedef struct plan_loops plan_loops;

/* The state of one plan under construction. */
typedef struct cpu_plan_builder {
    const sp_plan_spec *spec; /* borrowed, like the pointers that follow */
    sp_arena *arena, *scratch;
    sp_plan *plan;
    const plan_loops *loops;
    /* Of an estimate: the numbers, which level[].n follow; else NULL. All that is
     * allocated is NULL then. */
    const sp_plan_counts *counts;
    int n_samples;
    int n_levels; /* the network's levels and those above, up to one voxel per sample */
    cpu_plan_level level[PLAN_LEVELS];
    /* [n_samples][3] the coordinate where each sample's keys are 0 */
    int32_t (*base)[3];
    int32_t *start[SP_MAX_MAPS]; /* the maps' sp_map.start, still writable */
} cpu_plan_builder;

/* Scratch of one tile: its pairs in the order they are found, by rising output row.
 * They are sorted here, since a sort writes to many places at once, and the pairs'
 * final memory is not in a cache. */
typedef struct plan_stage {
    int32_t n, first; /* number of pairs; first output row of the tile */
    /* [n] tag << 32 | input row, tag = (output row - first) << PLAN_TAG | offset */
    uint64_t *found;
    uint64_t *sorted; /* [n] output row << 32 | input row */
} plan_stage;

/* One tile of a map: output rows first .. last - 1 and, once it is filled, its n pairs,
 * by offset, then by rising output row. It is filled where the pairs stay, in two
 * calls: the first finds n and may write `out`, the second writes what is missing. */
typedef struct plan_tile {
    int32_t first, last, n;
    int32_t count[PLAN_MAX_K]; /* pairs of each offset */
    int32_t *out; /* [n] with room for all offsets of all rows and one vector more */
    int32_t *in;  /* [n] set before the second call */
} plan_tile;

static inline uint32_t plan_tag(const plan_stage *stage, int32_t out, int k)
{
    return (uint32_t)(out - stage->first) << PLAN_TAG | (uint32_t)k;
}

static inline void plan_put(plan_stage *stage, int k, int32_t in, int32_t out)
{
    stage->found[stage->n++] = (uint64_t)plan_tag(stage, out, k) << 32 | (uint32_t)in;
}

/* Describes the look-ups of one map: output rows of level `to` have partners in level
 * `from`, which are found from the neighbour table of level `top`, where every partner
 * is at most one step away. */
typedef struct plan_lookup {
    const cpu_plan_level *level; /* of the builder */
    int to, from, top;
    int kernel;
    int shift;       /* log2 of the stride; positions are in steps of the finer level */
    bool is_swapped; /* the output rows are on the finer level */
} plan_lookup;

/* Buffers to sort a sample in. */
typedef struct plan_sort {
    const plan_loops *loops;
    uint64_t *a, *b; /* [rows of the largest sample] */
    uint32_t *count; /* histograms of the radix sort */
} plan_sort;

/* Takes the buffers for samples of at most n_max rows from the arena. SP_EMEM. */
sp_status sp_cpu_plan_sort_open(plan_sort *s, const plan_loops *loops, sp_arena *arena,
                                int64_t n_max);
/* Writes the Morton keys of coords c [n][3] in rising order. Keys are relative to a
 * base that is a multiple of the coarsest of n_levels strides. key [n], order [n] row
 * in c, *bits the bits of a coordinate in the keys. SP_EDATA: a coordinate is out of
 * range or occurs twice. */
sp_status sp_cpu_plan_sort(const int32_t *c, int32_t n, int sample, int n_levels,
                           const plan_sort *s, uint64_t *key, int32_t *order,
                           int32_t base[3], int *bits);
/* Sorts the n keys in s->a, which have at most `bits` bits; returns s->a or s->b, which
 * has the result. */
uint64_t *sp_cpu_plan_sort_keys(const plan_sort *s, int32_t n, int bits);

/* Builds level l, which is dilated, from the finer one: its rows, keys and child words,
 * and the finer level's parents. Keys and parents are taken from the plan's arena,
 * words from the scratch. SP_EDATA: more than PLAN_MAX_ROWS rows; SP_EMEM. */
sp_status sp_cpu_plan_dilate_level(cpu_plan_builder *b, int l);

/* Takes the memory of the neighbour tables of levels `lowest` and above. Those up to
 * `highest` stay; the others share two memories by turns. */
sp_status sp_cpu_plan_alloc_tables(cpu_plan_builder *b, int lowest, int highest);
/* Takes from the arena the arrays of a size known before the maps are built: tiles and
 * `start`. */
sp_status sp_cpu_plan_alloc_maps(cpu_plan_builder *b);
/* Builds the neighbour tables and every map of the spec. */
sp_status sp_cpu_plan_maps(cpu_plan_builder *b);

/* The look-ups of a row along one axis, by offset along that axis: `cell` is the
 * ancestor's neighbour that holds the partner (0, 1, 2; -1: the partner would not lie
 * on the lattice), `path` the way down from that neighbour to the partner, a bit per
 * level. */
typedef struct plan_axis {
    int cell[SP_MAX_KERNEL];
    uint64_t path[SP_MAX_KERNEL]; /* bits at distance 3, as in a Morton key */
} plan_axis;

/* Fills *a for a row at `position` within its ancestor at level q->top, in steps of the
 * finer level. */
void sp_cpu_plan_aim(const plan_lookup *q, int position, int axis, plan_axis *a);

/* Stages and counts the pairs of a tile, for any kernel and stride. */
void sp_cpu_plan_rows(const plan_lookup *q, plan_stage *stage, plan_tile *tile);
/* Counts the pairs of the stage by offset 0 .. K - 1; sorts them into the tile. */
void sp_cpu_plan_count_stage(const plan_stage *stage, int K, plan_tile *tile);
void sp_cpu_plan_sort_stage(const plan_stage *stage, int K, plan_tile *tile);

/* One of the words around an ancestor, as a row at one child position sees it: the
 * offsets of the children that it names, and which of them are in the kernel. */
typedef struct plan_word {
    uint8_t offset[8], in_kernel;
} plan_word;

/* Look-ups that go at most one level up and one down, with all offsets of a row
 * computed side by side: lane k of a row at child position c reads word from_word[c][k]
 * of the 32 words of its ancestor. The word is a neighbour's child word, and the
 * partner is its child `bit`; if is_leaf, the word is the partner itself. */
typedef struct plan_lanes {
    const cpu_plan_level *to, *top, *from;
    int K;
    bool is_up;    /* the ancestor is the row's parent, else the row itself */
    bool is_leaf;  /* partners are of level `top`, else of the level below */
    bool is_table; /* lane k reads word k: the table's rows are the answer, and
                    * plan_loops.table has staged them */
    uint32_t from_word[8][PLAN_LANES];
    uint32_t bit[8][PLAN_LANES], below[8][PLAN_LANES]; /* bit - 1 */
    /* The same by word, filled if the kernel has more than PLAN_NBR offsets. A word
     * that is the partner itself counts as its child 0. */
    plan_word word[8][PLAN_NBR];
} plan_lanes;

/* Returns false if the look-up goes further than that. */
bool sp_cpu_plan_lanes_open(plan_lanes *lanes, const plan_lookup *q);
/* Opens the look-up that writes the neighbour table of level l from the table of the
 * level above. False for the roots; their table is written at once. */
bool sp_cpu_plan_open_table(cpu_plan_builder *b, int l, plan_lanes *lanes);

/* Loops that exist in portable C and with AVX-512, with the same results. */
struct plan_loops {
    bool (*is_here)(void); /* has this processor them? NULL: every processor has */
    /* word[i] = the Morton key of c[i] - base, above the row i in the lowest `shift`
     * bits. c [n][3], with differences of at most 20 bits. */
    void (*keys)(const int32_t *c, int32_t n, const int32_t base[3], int shift,
                 uint64_t *word);
    /* Find the pairs of a tile by plan_lanes, in the tile's two calls; the second has
     * the stage of the first. */
    void (*find_lanes)(const plan_lanes *lanes, plan_stage *stage, plan_tile *tile);
    void (*put_lanes)(const plan_lanes *lanes, const plan_stage *stage,
                      plan_tile *tile);
    /* Writes `out` and `in` of a tile of the 2^3 kernel of stride 2 at once, since the
     * number of these pairs is known. */
    void (*children)(const plan_lookup *q, plan_stage *stage, plan_tile *tile);
    /* Appends rows first .. last - 1 to the neighbour table of level lanes->to by a
     * look-up of kernel 3. With a stage they are the rows of a tile; find_lanes then
     * finds its pairs by a look-up that is_table. */
    void (*table)(const plan_lanes *lanes, cpu_plan_level *level, int32_t first,
                  int32_t last, plan_stage *stage);
};

/* This build's loops are listed in SP_PLAN_LOOPS of config.h. */
extern const plan_loops sp_cpu_plan_portable, sp_cpu_plan_avx512;

/* Number of bits set in a byte. */
extern const uint8_t sp_cpu_plan_bits[256];

/* Row of child `digit`, given the parent's child word; -1 if there is no such child. */
static inline int32_t plan_child(uint32_t word, uint32_t digit)
{
    if (!(word >> digit & 1))
        return -1;
    return (int32_t)((word >> 8) + sp_cpu_plan_bits[word & ((1u << digit) - 1)]);
}

#endif
