#include "data/sp_voxel.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/sp_rng.h"
#include "compute/sp_backend.h"
#include "data/sp_crop.h"

sp_status sp_voxel_factor(const sp_config *config, const sp_dataset *set,
                          double *factor)
{
    const double want = config->data.voxel_size, ratio = want / set->voxel_size;

    assert(set->voxel_size > 0 && factor);
    *factor = rint(ratio);
    /* Coordinates have 20 bits, so at a larger multiple all voxels would become one. */
    if (*factor < 1 || ratio > 1 << 20 || fabs(ratio - *factor) > 1e-6 * ratio)
        return SP_FAIL(
            SP_EDATA,
            "%s%s: voxel_size %g, data.voxel_size = %g: expected the same or a "
            "multiple up to 1048576 times it",
            sp_config_where(config, "data.voxel_size"), set->shard[0].path,
            set->voxel_size, want);
    return SP_OK;
}

/* ---- scratch ---- */

enum { BATCH = 256 /* rows that get random numbers at a time */ };

typedef struct work {
    const sp_sample *in;
    const sp_augment *aug;
    sp_voxels *out;
    int32_t n; /* number of stored rows */
    sp_moved moved;
    int32_t *table; /* [mask + 1] number of a voxel + 1; 0: empty */
    uint32_t mask;
    int shift;
    int32_t *count;        /* [n] number of rows of each voxel */
    int32_t *start, *list; /* the rows of voxels that have several, by voxel */
    int32_t *votes;        /* [largest label + 1] votes of a voxel */
} work;

/* ---- rows to voxels ---- */

/* The place in the table where the search for c begins. Cells of a 2^3 block begin next
 * to each other, so that rows that are neighbours share cache lines. */
static uint32_t begin_of(const work *w, const int32_t *c)
{
    uint64_t x = (uint64_t)(c[0] + SP_COORD_LIMIT),
             y = (uint64_t)(c[1] + SP_COORD_LIMIT),
             z = (uint64_t)(c[2] + SP_COORD_LIMIT);
    uint64_t block = (x >> 1) << 40 | (y >> 1) << 20 | z >> 1;
    uint64_t cell = (x & 1) << 2 | (y & 1) << 1 | (z & 1);

    return (uint32_t)((block * 0x9e3779b97f4a7c15u) >> w->shift << 3 | cell);
}

/* The number of the voxel at c: one that the table has, or n for a new one. */
static int32_t find_or_add(work *w, const int32_t *c, uint32_t place, int32_t n)
{
    const int32_t *coords = w->out->coords, *d;

    for (; w->table[place]; place = (place + 1) & w->mask) {
        d = coords + 3 * (int64_t)(w->table[place] - 1);
        if (!((c[0] ^ d[0]) | (c[1] ^ d[1]) | (c[2] ^ d[2])))
            return w->table[place] - 1;
    }
    w->table[place] = n + 1;
    return n;
}

/* Finds which of the m rows from `first` on are dropped: by chance, or since they are
 * outside of the range. */
static void find_dropped(const work *w, int32_t first, int32_t m, bool *is_dropped)
{
    const sp_augment *aug = w->aug;
    sp_rng rng = sp_rng_open(aug->seed, SP_RNG_VOXEL_DROP, aug->epoch, aug->sample);
    uint32_t words[BATCH];

    memset(is_dropped, 0, (size_t)m * sizeof *is_dropped);
    if (aug->drop > 0)
        sp_rng_words(&rng, (uint64_t)first, m, words);
    for (int32_t i = 0; aug->drop > 0 && i < m; i++)
        is_dropped[i] = sp_rng_to_unit(words[i]) < aug->drop;
    for (int32_t i = 0; aug->range && i < m; i++)
        is_dropped[i] =
            is_dropped[i] ||
            !sp_crop_is_within(aug->range, aug->stored_edge, w->in, first + i);
}

/* Numbers the voxels in the order of their first rows: sets row_of, coords and n of the
 * output, and count. */
static void number_voxels(work *w)
{
    const int32_t *c;
    sp_voxels *out = w->out;
    uint32_t place[BATCH];
    bool is_dropped[BATCH];
    int32_t m, v, n = 0;

    for (int32_t first = 0; first < w->n; first += BATCH) {
        m = w->n - first < BATCH ? w->n - first : BATCH;
        c = w->moved.coords + 3 * (int64_t)first;
        find_dropped(w, first, m, is_dropped);
        for (int32_t i = 0; w->moved.is_merged && i < m; i++) {
            place[i] = begin_of(w, c + 3 * i);
            __builtin_prefetch(&w->table[place[i]], 1);
        }
        for (int32_t i = 0; i < m; i++, c += 3) {
            if (is_dropped[i]) {
                out->row_of[first + i] = -1;
                continue;
            }
            v = w->moved.is_merged ? find_or_add(w, c, place[i], n) : n;
            out->row_of[first + i] = v;
            if (v == n)
                memcpy(out->coords + 3 * (int64_t)n++, c, 3 * sizeof *c);
            if (w->moved.is_merged)
                w->count[v]++;
        }
    }
    out->n = n;
}

/* Copies a row without the call of memcpy. */
static inline void copy_row(float *to, const float *from, int c)
{
    for (int a = 0; a < c; a++)
        to[a] = from[a];
}

/* The label of most of the m rows; SP_IGNORE if two labels are equally frequent. */
static int32_t majority(const int32_t *labels, const int32_t *rows, int32_t m,
                        int32_t *votes)
{
    int32_t best = 0, winner = SP_IGNORE, label;

    for (int32_t i = 0; i < m; i++)
        if (labels[rows[i]] >= 0)
            votes[labels[rows[i]]]++;
    for (int32_t i = 0; i < m; i++) {
        label = labels[rows[i]];
        if (label < 0 || votes[label] == 0)
            continue;
        if (votes[label] >= best)
            winner = votes[label] > best ? label : SP_IGNORE;
        best = votes[label] > best ? votes[label] : best;
        /* The label is counted, and its entry is 0 for the next voxel. */
        votes[label] = 0;
    }
    return winner;
}

/* Copies the rows of voxels that have a single one, and lists the rows of the others by
 * voxel in stored order (a counting sort). start[v] becomes the end of the list of v.
 */
static void copy_single_rows(work *w, int c)
{
    const sp_sample *in = w->in;
    const sp_voxels *out = w->out;
    int32_t v, at = 0;

    for (v = 0; v < out->n; v++) {
        w->start[v] = at;
        at += w->count[v] > 1 ? w->count[v] : 0;
    }
    for (int32_t i = 0; i < w->n; i++) {
        v = out->row_of[i];
        if (v < 0)
            continue;
        if (w->count[v] > 1) {
            w->list[w->start[v]++] = i;
            continue;
        }
        out->labels[v] = in->labels[i];
        copy_row(out->features + (int64_t)v * c, in->features + (int64_t)i * c, c);
    }
}

static void mean_of_rows(const float *from, const int32_t *rows, int32_t m, int c,
                         float *to)
{
    for (int a = 0; a < c; a++) {
        double sum = 0;

        for (int32_t j = 0; j < m; j++)
            sum += from[(int64_t)rows[j] * c + a];
        to[a] = (float)(sum / m);
    }
}

static sp_status merge_rows(work *w, int c, sp_arena *arena)
{
    const int32_t *labels = w->in->labels, *rows;
    int32_t largest = 0;

    SP_TRY(SP_ALLOC(arena, (int64_t)w->out->n, &w->start));
    SP_TRY(SP_ALLOC(arena, (int64_t)w->n, &w->list));
    for (int32_t i = 0; i < w->n; i++)
        largest = labels[i] > largest ? labels[i] : largest;
    SP_TRY(SP_ALLOC(arena, (int64_t)largest + 1, &w->votes));
    memset(w->votes, 0, ((size_t)largest + 1) * sizeof *w->votes);
    copy_single_rows(w, c);
    for (int32_t v = 0; v < w->out->n; v++) {
        if (w->count[v] == 1)
            continue;
        rows = w->list + w->start[v] - w->count[v];
        w->out->labels[v] = majority(labels, rows, w->count[v], w->votes);
        mean_of_rows(w->in->features, rows, w->count[v], c,
                     w->out->features + (int64_t)v * c);
    }
    return SP_OK;
}

/* Replaces the displacements of rows by the mean of each voxel's. A voxel's number is
 * at most its first row's, and that row's displacement has been read by then. */
static void merge_displacements(work *w)
{
    float *d = w->moved.displacement;
    int32_t v, next = 0;

    for (int32_t i = 0; i < w->n; i++) {
        v = w->out->row_of[i];
        if (v < 0)
            continue;
        for (int a = 0; a < 3; a++)
            d[3 * (int64_t)v + a] =
                d[3 * (int64_t)i + a] + (v == next ? 0 : d[3 * (int64_t)v + a]);
        next += v == next;
    }
    for (v = 0; v < w->out->n; v++)
        for (int a = 0; a < 3; a++)
            d[3 * (int64_t)v + a] /= (float)w->count[v];
}

/* Copies rows if nothing merges: each voxel is one row. */
static void copy_rows(work *w, int c)
{
    size_t bytes = (size_t)c * sizeof(float);
    int32_t v;

    if (w->out->n == w->n) { /* no row is dropped, so row_of is the identity */
        memcpy(w->out->labels, w->in->labels, (size_t)w->n * sizeof *w->out->labels);
        memcpy(w->out->features, w->in->features, (size_t)w->n * bytes);
        return;
    }
    for (int32_t i = 0; i < w->n; i++) {
        v = w->out->row_of[i];
        if (v < 0)
            continue;
        w->out->labels[v] = w->in->labels[i];
        copy_row(w->out->features + (int64_t)v * c, w->in->features + (int64_t)i * c,
                 c);
    }
}

/* ---- features ---- */

static void normalize(float *features, int64_t n, int c, const double *mean,
                      const double *std)
{
    for (int a = 0; a < c; a++) {
        double centre = mean[a], width = std[a] > 0 ? std[a] : 1;

        for (int64_t i = a; i < n * c; i += c)
            features[i] = (float)((features[i] - centre) / width);
    }
}

/* ---- the sample ---- */

static sp_status allocate_outputs(const sp_sample *in, int c, sp_arena *arena,
                                  sp_voxels *out)
{
    memset(out, 0, sizeof *out);
    SP_TRY(SP_ALLOC(arena, 3 * in->n, &out->coords));
    SP_TRY(SP_ALLOC(arena, in->n * c, &out->features));
    SP_TRY(SP_ALLOC(arena, in->n, &out->labels));
    return SP_ALLOC(arena, in->n, &out->row_of);
}

static sp_status allocate_table(work *w, sp_arena *arena)
{
    int bits = 4;

    while ((int64_t)1 << bits < 2 * (int64_t)w->n)
        bits++;
    w->mask = ((uint32_t)1 << bits) - 1;
    w->shift = 64 - (bits - 3);
    SP_TRY(SP_ALLOC(arena, (size_t)1 << bits, &w->table));
    memset(w->table, 0, sizeof *w->table << bits);
    SP_TRY(SP_ALLOC(arena, (int64_t)w->n, &w->count));
    memset(w->count, 0, (size_t)w->n * sizeof *w->count);
    return SP_OK;
}

static sp_status voxelize(work *w, double factor, int c, const double *mean,
                          sp_arena *arena)
{
    const sp_rows rows = {.id = w->in->id,
                          .n = w->n,
                          .coords = w->in->coords,
                          .subvoxel = w->in->subvoxel};

    SP_TRY(sp_augment_move(w->aug, &rows, factor, arena, &w->moved));
    w->moved.is_merged = w->moved.is_merged || w->aug->is_mixed;
    if (w->moved.is_merged)
        SP_TRY(allocate_table(w, arena));
    number_voxels(w);
    if (w->moved.is_merged)
        SP_TRY(merge_rows(w, c, arena));
    else
        copy_rows(w, c);
    sp_augment_turn(w->aug, w->out->features, w->out->n, c, mean);
    if (w->moved.displacement && w->aug->vectors) {
        merge_displacements(w);
        sp_augment_displace(w->aug, w->moved.displacement, w->out->features, w->out->n,
                            c);
    }
    return SP_OK;
}

sp_status sp_voxelize(const sp_sample *in, const sp_augment *aug, double factor, int c,
                      const double *mean, const double *std, sp_arena *arena,
                      sp_voxels *out)
{
    work w = {.in = in, .aug = aug, .out = out, .n = (int32_t)in->n};
    size_t used;

    assert(in && aug && out && c > 0 && arena);
    assert(!mean == !std);
    assert(0 <= aug->drop && aug->drop <= 1 && aug->scale > 0);
    if (in->n > INT32_MAX / 4)
        return SP_FAIL(SP_EDATA, "sample %lld: %lld voxels, at most %d are possible",
                       (long long)in->id, (long long)in->n, INT32_MAX / 4);
    SP_TRY(allocate_outputs(in, c, arena, out));
    used = arena->used;
    SP_TRY(voxelize(&w, factor, c, mean, arena));
    sp_arena_rewind(arena, used);
    if (aug->colors)
        sp_color_change(&aug->color, aug->colors, out->features, out->n, c);
    if (mean && std)
        normalize(out->features, out->n, c, mean, std);
    sp_augment_jitter(aug, out->features, (int64_t)out->n * c);
    return SP_OK;
}
