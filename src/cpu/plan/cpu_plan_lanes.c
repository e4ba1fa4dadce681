/* Look-ups one level up and down, and neighbour tables, in portable C.
 *
 * A voxel at position c (0 or 1) of its parent has its neighbour at step d in the
 * parent's neighbour floor((c + d) / 2), as child (c + d) & 1; this holds for each of
 * the three axes. Steps from -2 to 2 stay within one neighbour of the parent. */
#include "cpu/plan/cpu_plan.h"

#include <assert.h>

/* ---- lanes ---- */

/* Makes lane k find nothing: the last of the ancestor's 32 words is always "none". */
static void clear_lane(plan_lanes *w, int c, int k)
{
    w->from_word[c][k] = PLAN_NBR - 1;
    w->bit[c][k] = 1;
    w->below[c][k] = 0;
}

static void aim_position(plan_lanes *w, const plan_lookup *q, int c)
{
    plan_axis a[3];
    /* Vectors and tables read lanes beyond the kernel. */
    int n = q->kernel, used = w->K <= PLAN_NBR ? PLAN_NBR : PLAN_LANES;

    for (int axis = 0; axis < 3; axis++)
        sp_cpu_plan_aim(q, w->is_up ? c >> axis & 1 : 0, axis, &a[axis]);
    for (int k = 0; k < used; k++) {
        int x = k % n, y = k / n % n, z = k / (n * n);
        clear_lane(w, c, k);
        if (k >= w->K || (a[0].cell[x] | a[1].cell[y] | a[2].cell[z]) < 0)
            continue;
        w->from_word[c][k] =
            (uint32_t)(a[0].cell[x] + 3 * a[1].cell[y] + 9 * a[2].cell[z]);
        w->bit[c][k] = 1u << (a[0].path[x] | a[1].path[y] | a[2].path[z]);
        w->below[c][k] = w->bit[c][k] - 1;
    }
}

/* Lists the lanes of one child position by the word that they read. */
static void plan_lanes_list_words(plan_lanes *w, int c)
{
    for (int i = 0; i < PLAN_NBR; i++)
        w->word[c][i] = (plan_word){{0}, 0};
    for (int k = 0; k < w->K; k++) {
        const uint32_t bit = w->is_leaf ? 1 : w->bit[c][k];
        plan_word *word = &w->word[c][w->from_word[c][k]];

        if (w->from_word[c][k] == PLAN_NBR - 1)
            continue;
        word->offset[__builtin_ctz(bit)] = (uint8_t)k;
        word->in_kernel |= (uint8_t)bit;
    }
}

bool sp_cpu_plan_lanes_open(plan_lanes *w, const plan_lookup *q)
{
    bool is_odd = q->kernel % 2 != 0;

    if (q->shift > 1 || q->top - q->to > 1 || q->top - q->from > 1 ||
        (q->shift == 1 && !is_odd))
        return false;
    w->to = &q->level[q->to];
    w->top = &q->level[q->top];
    w->from = &q->level[q->from];
    w->K = q->kernel * q->kernel * q->kernel;
    w->is_up = q->top > q->to;
    w->is_leaf = q->top == q->from;
    w->is_table = q->kernel == 3 && q->top == q->to && w->is_leaf && !q->is_swapped;
    for (int c = 0; c < (w->is_up ? 8 : 1); c++) {
        aim_position(w, q, c);
        if (w->K > PLAN_NBR)
            plan_lanes_list_words(w, c);
    }
    return true;
}

/* ---- loops ---- */

static void portable_keys(const int32_t *c, int32_t n, const int32_t base[3], int shift,
                          uint64_t *word)
{
    for (int32_t i = 0; i < n; i++)
        word[i] = sp_morton_key(c + 3 * (size_t)i, base) << shift | (uint64_t)i;
}

/* Loads the 32 words around an ancestor: its neighbours' rows or child words. */
static inline void plan_lanes_load_words(const plan_lanes *w, int32_t ancestor,
                                         uint32_t *word)
{
    const plan_near near = w->top->near[ancestor];
    const int32_t *nbr = w->top->nbr + near.at;

    for (int i = 0; i < PLAN_NBR; i++)
        word[i] = w->is_leaf ? (uint32_t)w->from->n : 0;
    for (uint32_t set = near.mask; set; set &= set - 1, nbr++)
        word[__builtin_ctz(set)] = w->is_leaf ? (uint32_t)*nbr : w->top->child[*nbr];
}

/* The partner at lane k, or n of the partners' level if there is none. */
static inline uint32_t lane_partner(const plan_lanes *w, const uint32_t *word, int c,
                                    int k)
{
    uint32_t v = word[w->from_word[c][k]];

    if (w->is_leaf)
        return v;
    return v & w->bit[c][k] ? (v >> 8) + sp_cpu_plan_bits[v & w->below[c][k]]
                            : (uint32_t)w->from->n;
}

static void portable_find_lanes(const plan_lanes *w, plan_stage *stage, plan_tile *tile)
{
    uint32_t word[PLAN_NBR], none = (uint32_t)w->from->n;
    int32_t now = -1;

    stage->n = 0;
    stage->first = tile->first;
    for (int32_t i = tile->first; i < tile->last; i++) {
        int32_t up = w->is_up ? w->to->parent[i] : i;
        int c = w->is_up ? (int)(w->to->key[i] & 7) : 0;
        if (up != now)
            plan_lanes_load_words(w, up, word);
        now = up;
        for (int k = 0; k < w->K; k++) {
            /* A pair is always written and stays if it exists: there is no branch. */
            uint32_t partner = lane_partner(w, word, c, k);
            plan_put(stage, k, (int32_t)partner, i);
            stage->n -= partner == none;
        }
    }
    sp_cpu_plan_count_stage(stage, w->K, tile);
}

static void portable_put_lanes(const plan_lanes *w, const plan_stage *stage,
                               plan_tile *tile)
{
    sp_cpu_plan_sort_stage(stage, w->K, tile);
}

/* The 2^3 kernel of stride 2: the position of a child is its offset. */
static void portable_children(const plan_lookup *q, plan_stage *stage, plan_tile *tile)
{
    const cpu_plan_level *to = &q->level[q->to];

    stage->n = 0;
    stage->first = tile->first;
    for (int32_t i = tile->first; i < tile->last; i++) {
        uint32_t word, row;
        if (q->is_swapped) {
            plan_put(stage, (int)(to->key[i] & 7), to->parent[i], i);
            continue;
        }
        word = to->child[i];
        row = word >> 8;
        for (uint32_t set = word & 255; set; set &= set - 1)
            plan_put(stage, __builtin_ctz(set), (int32_t)row++, i);
    }
    sp_cpu_plan_count_stage(stage, 8, tile);
    sp_cpu_plan_sort_stage(stage, 8, tile);
}

static void portable_table(const plan_lanes *w, cpu_plan_level *level, int32_t first,
                           int32_t last, plan_stage *stage)
{
    uint32_t word[PLAN_NBR], none = (uint32_t)w->from->n;
    int32_t now = -1;

    for (int32_t i = first; i < last; i++) {
        int32_t up = w->to->parent[i];
        int c = (int)(w->to->key[i] & 7);
        if (up != now)
            plan_lanes_load_words(w, up, word);
        now = up;
        level->near[i] = (plan_near){0, level->n_nbr};
        for (int k = 0; k < PLAN_NEAR; k++) {
            uint32_t partner = lane_partner(w, word, c, k);
            level->nbr[level->n_nbr] = (int32_t)partner;
            level->n_nbr += partner != none;
            level->near[i].mask |= (uint32_t)(partner != none) << k;
        }
    }
    (void)stage; /* find_lanes reads the table itself */
}

const plan_loops sp_cpu_plan_portable = {.keys = portable_keys,
                                         .find_lanes = portable_find_lanes,
                                         .put_lanes = portable_put_lanes,
                                         .children = portable_children,
                                         .table = portable_table};

/* ---- tables ---- */

/* A root has itself as its only neighbour. */
static void root_table(cpu_plan_level *root)
{
    for (int32_t i = 0; i < root->n; i++) {
        root->near[i] = (plan_near){1u << PLAN_NEAR / 2, i};
        root->nbr[i] = i;
    }
    root->n_nbr = root->n;
}

static sp_status lanes_alloc_table(cpu_plan_builder *b, cpu_plan_level *level)
{
    enum { VECTOR = 16 };

    SP_TRY(SP_ALLOC(b->scratch, level->n, &level->near));
    return SP_ALLOC(b->scratch, (size_t)level->n * PLAN_NEAR + 2 * VECTOR, &level->nbr);
}

sp_status sp_cpu_plan_alloc_tables(cpu_plan_builder *b, int lowest, int highest)
{
    assert(lowest >= 0);
    for (int l = lowest; l < b->n_levels; l++) {
        cpu_plan_level *at = &b->level[l];

        /* The lowest of those that share the memory is the largest. */
        if (l <= highest + 2) {
            SP_TRY(lanes_alloc_table(b, at));
            continue;
        }
        at->near = b->level[l - 2].near;
        at->nbr = b->level[l - 2].nbr;
    }
    return SP_OK;
}

bool sp_cpu_plan_open_table(cpu_plan_builder *b, int l, plan_lanes *lanes)
{
    const plan_lookup q = {
        .level = b->level, .to = l, .from = l, .top = l + 1, .kernel = 3};

    assert(0 <= l && l < b->n_levels);
    if (l < b->n_levels - 1)
        return sp_cpu_plan_lanes_open(lanes, &q);
    root_table(&b->level[l]);
    return false;
}
