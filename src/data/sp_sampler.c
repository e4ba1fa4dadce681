#include "data/sp_sampler.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"
#include "base/sp_log.h"
#include "base/sp_number.h"
#include "base/sp_rng.h"
#include "data/sp_crop.h"
#include "data/sp_mix.h"
#include "data/sp_paste.h"
#include "data/sp_shard.h"

/* A position of a step. */
typedef struct item {
    int64_t sample;
    int64_t partner; /* that is mixed into it, or -1 */
    int64_t cost;
    int64_t voxels, bytes; /* the most; of both samples */
    int32_t at;            /* position within the step */
    int32_t rank;          /* the rank that the sample is dealt to */
} item;

/* One rank's samples of a micro-batch, summed. */
typedef struct share {
    int64_t cost, voxels, bytes;
    int count; /* samples */
} share;

struct sp_sampler_scratch {
    int n_groups;    /* as the sampler's */
    int *first_rank; /* [n_groups + 1] first index of a group's ranks in `member` */
    int *member;     /* [comm size] ranks by group, rising */
    sp_position at;  /* the position of the step that `step` holds */
    int n, n_micro;
    item *step; /* [effective] the step by position */
    /* [effective] the positions of one group in one micro-batch, by cost. */
    item *sorted;
    item *heap;    /* [comm size] the ranks of a group, the least loaded one first */
    share *share;  /* [comm size] of the micro-batch that was dealt last */
    int64_t *mine; /* [effective] ids of this rank's samples */
    bool has_warned;
};

/* ---- order of an epoch ---- */

/* A keyed permutation of 0 .. n-1: a balanced Feistel network on the smallest even
 * number of bits that hold n, repeated until the value is below n again (fewer than 4
 * times on average). A position needs no table, so that any step of any epoch can be
 * the first of a run. */
static uint64_t permute(uint64_t x, uint64_t n, uint64_t seed, uint64_t epoch)
{
    enum { ROUNDS = 8 };
    sp_rng rng = sp_rng_open(seed, SP_RNG_SHUFFLE, epoch, 0);
    uint64_t key = (uint64_t)rng.hi[1] << 32 | rng.hi[0], mask, left, right, swap;
    int half = 1;

    while (half < 31 && (uint64_t)1 << 2 * half < n)
        half++;
    mask = ((uint64_t)1 << half) - 1;
    do {
        left = x >> half;
        right = x & mask;
        for (int i = 0; i < ROUNDS; i++) {
            swap = left ^ (sp_rng_mix(key + 0x9e3779b97f4a7c15u * (uint64_t)(i + 1) +
                                      (right << 8)) >>
                               17 &
                           mask);
            left = right;
            right = swap;
        }
        x = left << half | right;
    } while (x >= n);
    return x;
}

int64_t sp_sampler_at(const sp_sampler *sampler, int64_t epoch, int64_t position)
{
    assert(position >= 0 && position < sampler->set->n_samples);
    if (!sampler->is_shuffled)
        return position;
    return (int64_t)permute((uint64_t)position, (uint64_t)sampler->set->n_samples,
                            sampler->seed, (uint64_t)epoch);
}

static sp_mix draw_mix(const sp_sampler *sampler, int64_t epoch, int64_t sample)
{
    return sp_mix_draw(sampler->mixing, sampler->set->has_subvoxel,
                       sampler->set->n_samples, (uint64_t)epoch, sample);
}

int64_t sp_sampler_partner(const sp_sampler *sampler, int64_t epoch, int64_t sample)
{
    return sampler->mixing ? draw_mix(sampler, epoch, sample).partner : -1;
}

/* ---- dealing ---- */

/* True if a is dealt before b: the longer one, of equals the one with the lower
 * position. */
static bool is_before(const item *a, const item *b)
{
    return a->cost != b->cost ? a->cost > b->cost : a->at < b->at;
}

/* Restores the heap below `root`: the first entry of a heap is the one that is_before
 * puts last. */
static void sink(item *items, int root, int n)
{
    item moved = items[root];
    int child;

    for (; (child = 2 * root + 1) < n; root = child) {
        if (child + 1 < n && is_before(&items[child], &items[child + 1]))
            child++;
        if (!is_before(&moved, &items[child]))
            break;
        items[root] = items[child];
    }
    items[root] = moved;
}

/* Sorts by a heap, since qsort may allocate. The order is total, so a stable sort is
 * not needed. */
static void sort_items(item *items, int n)
{
    item last;

    for (int i = n / 2 - 1; i >= 0; i--)
        sink(items, i, n);
    for (int i = n - 1; i > 0; i--) {
        last = items[i];
        items[i] = items[0];
        items[0] = last;
        sink(items, 0, i);
    }
}

/* Deals items[0 .. n-1] to the ranks of a group, by cost or in equal runs. */
static void deal_group(const sp_sampler *sampler, item *items, int n, const int *member,
                       int n_members)
{
    struct sp_sampler_scratch *s = sampler->scratch;

    if (!sampler->balance || n_members == 1) {
        for (int i = 0; i < n_members; i++) {
            int at = (int)((int64_t)n * i / n_members);
            int end = (int)((int64_t)n * (i + 1) / n_members);

            for (; at < end; at++)
                items[at].rank = member[i];
        }
        return;
    }
    /* The lowest of equally loaded ranks gets the next sample: it is to come first, so
     * its position is the greatest. Ranks rise, so the list is a heap already. */
    for (int i = 0; i < n_members; i++)
        s->heap[i] = (item){.at = -member[i], .rank = member[i]};
    memcpy(s->sorted, items, (size_t)n * sizeof *items);
    sort_items(s->sorted, n);
    for (int i = 0; i < n; i++) {
        items[s->sorted[i].at - items[0].at].rank = s->heap[0].rank;
        s->heap[0].cost += s->sorted[i].cost;
        sink(s->heap, 0, n_members);
    }
}

/* Sets the positions first .. end-1 of the step that group g computes in a micro-batch.
 */
static void group_run(const struct sp_sampler_scratch *s, int n_micro, int micro, int g,
                      int *first, int *end)
{
    int64_t from = (int64_t)s->n * g / s->n_groups;
    int64_t length = (int64_t)s->n * (g + 1) / s->n_groups - from;

    *first = (int)(from + length * micro / n_micro);
    *end = (int)(from + length * (micro + 1) / n_micro);
}

/* Deals one micro-batch of the step to all ranks and fills `share`. */
static void deal_micro(const sp_sampler *sampler, int n_micro, int micro)
{
    struct sp_sampler_scratch *s = sampler->scratch;
    int first, end;

    memset(s->share, 0, (size_t)sampler->comm->size * sizeof *s->share);
    for (int g = 0; g < s->n_groups; g++) {
        group_run(s, n_micro, micro, g, &first, &end);
        deal_group(sampler, s->step + first, end - first, s->member + s->first_rank[g],
                   s->first_rank[g + 1] - s->first_rank[g]);
        for (int i = first; i < end; i++) {
            const item *dealt = &s->step[i];
            share *to = &s->share[dealt->rank];

            to->cost += dealt->cost;
            to->voxels += dealt->voxels;
            to->bytes += dealt->bytes;
            to->count++;
        }
    }
}

/* ---- micro-batches ---- */

static int longest_group(const struct sp_sampler_scratch *s)
{
    int longest = 0;

    for (int g = 0; g < s->n_groups; g++) {
        int n = (int)((int64_t)s->n * (g + 1) / s->n_groups -
                      (int64_t)s->n * g / s->n_groups);
        longest = n > longest ? n : longest;
    }
    return longest;
}

/* True if a rank is over a bound. A sample that is over it by itself is not: it cannot
 * be divided. */
static bool is_over(const sp_sampler *sampler, const share *of)
{
    return of->count > 1 &&
           ((sampler->voxel_budget > 0 && of->voxels > sampler->voxel_budget) ||
            (sampler->bound.bytes > 0 && of->bytes > sampler->bound.bytes));
}

/* True if no rank holds more than the bounds allow. */
static bool fits_bounds(const sp_sampler *sampler, int n_micro)
{
    const struct sp_sampler_scratch *s = sampler->scratch;

    for (int micro = 0; micro < n_micro; micro++) {
        share all = {0};

        deal_micro(sampler, n_micro, micro);
        for (int r = 0; r < sampler->comm->size; r++) {
            if (is_over(sampler, &s->share[r]))
                return false;
            all.voxels += s->share[r].voxels;
            all.bytes += s->share[r].bytes;
            all.count += s->share[r].count;
        }
        if (sampler->is_whole && is_over(sampler, &all))
            return false;
    }
    return true;
}

static void warn_once(const sp_sampler *sampler)
{
    struct sp_sampler_scratch *s = sampler->scratch;

    for (int i = 0; i < s->n && !s->has_warned; i++)
        if (s->step[i].voxels > sampler->voxel_budget) {
            sp_log_warn0(
                "sample %lld has %lld voxels%s, more than batch.voxel_budget = "
                "%lld: it gets a micro-batch of its own (reported once)",
                (long long)s->step[i].sample, (long long)s->step[i].voxels,
                s->step[i].partner < 0 ? "" : " with that mixed into it",
                (long long)sampler->voxel_budget);
            s->has_warned = true;
        }
}

/* A lower limit for the number of micro-batches that one bound needs: each sample over
 * the bound occupies a rank by itself, the others fill ranks at best. */
static int64_t least_micro(const sp_sampler *sampler, int64_t most, bool is_bytes)
{
    const struct sp_sampler_scratch *s = sampler->scratch;
    int64_t alone = 0, rest = 0, n_ranks = sampler->is_whole ? 1 : sampler->comm->size;

    for (int i = 0; i < s->n; i++) {
        const int64_t mine = is_bytes ? s->step[i].bytes : s->step[i].voxels;

        if (mine > most)
            alone++;
        else if (__builtin_add_overflow(rest, mine, &rest))
            rest = INT64_MAX;
    }
    return (alone + rest / most + (rest % most != 0) + n_ranks - 1) / n_ranks;
}

/* The smallest number of micro-batches from `accumulate` on that fits the bounds. One
 * sample of each group at a time always fits. */
static int count_micro(const sp_sampler *sampler)
{
    const struct sp_sampler_scratch *s = sampler->scratch;
    int longest = longest_group(s);
    int64_t k = sampler->accumulate < longest ? sampler->accumulate : longest, least;

    if (sampler->voxel_budget <= 0 && sampler->bound.bytes <= 0)
        return (int)k;
    if (sampler->voxel_budget > 0) {
        warn_once(sampler);
        least = least_micro(sampler, sampler->voxel_budget, false);
        k = least > k ? least : k;
    }
    if (sampler->bound.bytes > 0) {
        least = least_micro(sampler, sampler->bound.bytes, true);
        k = least > k ? least : k;
    }
    k = k < longest ? k : longest;
    while (k < longest && !fits_bounds(sampler, (int)k))
        k++;
    return (int)k;
}

/* The most voxels of a sample that a rank computes. */
static int64_t sampler_voxels(const sp_sampler *sampler, int64_t id)
{
    return sp_crop_most(sampler->cropping, sp_dataset_voxels(sampler->set, id));
}

/* Adds a sample to the memory that an item is bounded by. */
static void add_sample(const sp_sampler *sampler, int64_t id, item *to)
{
    const sp_bound *bound = &sampler->bound;

    to->voxels += sampler_voxels(sampler, id) + sampler->pasted;
    to->bytes += bound->of_sample ? bound->of_sample(bound->arg, id) : 0;
}

static item make_item(const sp_sampler *sampler, int64_t id, int at)
{
    item made = {.sample = id, .partner = -1, .at = at};

    made.cost = sp_crop_cost(sampler->cropping, sampler->set, id);
    add_sample(sampler, id, &made);
    return made;
}

/* Mixes a sample of the epoch with its partner, if it has one. */
static void mix_item(const sp_sampler *sampler, int64_t epoch, item *of)
{
    sp_mix mix;

    if (!sampler->mixing)
        return;
    mix = draw_mix(sampler, epoch, of->sample);
    if (mix.partner < 0)
        return;
    of->partner = mix.partner;
    of->cost = sp_mix_cost(&mix, of->cost,
                           sp_crop_cost(sampler->cropping, sampler->set, mix.partner));
    add_sample(sampler, mix.partner, of);
}

/* Fills the scratch memory with the step at `at`, unless it holds that step. */
static void load_step(const sp_sampler *sampler, sp_position at)
{
    struct sp_sampler_scratch *s = sampler->scratch;
    int64_t left = sampler->set->n_samples - at.position;

    if (s->at.epoch == at.epoch && s->at.position == at.position)
        return;
    s->at = at;
    s->n = left < sampler->effective ? (int)left : sampler->effective;
    s->n_micro = 0;
    if (s->n <= 0) {
        s->n = 0;
        return;
    }
    for (int i = 0; i < s->n; i++) {
        s->step[i] =
            make_item(sampler, sp_sampler_at(sampler, at.epoch, at.position + i), i);
        mix_item(sampler, at.epoch, &s->step[i]);
    }
    s->n_micro = count_micro(sampler);
}

int sp_sampler_step(const sp_sampler *sampler, sp_position at, int *n_micro)
{
    assert(at.epoch >= 0 && at.position >= 0);
    assert(n_micro);
    load_step(sampler, at);
    *n_micro = sampler->scratch->n_micro;
    return sampler->scratch->n;
}

void sp_sampler_assign(const sp_sampler *sampler, sp_position at, int micro,
                       sp_assignment *assigned)
{
    struct sp_sampler_scratch *s = sampler->scratch;
    int first, end;

    assert(assigned);
    load_step(sampler, at);
    assert(micro >= 0 && micro < s->n_micro);
    memset(assigned, 0, sizeof *assigned);
    deal_micro(sampler, s->n_micro, micro);
    for (int g = 0; g < s->n_groups; g++) {
        group_run(s, s->n_micro, micro, g, &first, &end);
        for (int i = first; i < end; i++)
            if (s->step[i].rank == sampler->comm->rank)
                s->mine[assigned->n_samples++] = s->step[i].sample;
    }
    assigned->sample = s->mine;
    for (int r = 0; r < sampler->comm->size; r++) {
        const int64_t cost = s->share[r].cost;

        assigned->cost_sum += cost;
        assigned->cost_max = cost > assigned->cost_max ? cost : assigned->cost_max;
    }
}

/* Fills s->step with the samples that have the most voxels, by a heap; its root has the
 * fewest found so far. */
static void load_costliest(const sp_sampler *sampler)
{
    struct sp_sampler_scratch *s = sampler->scratch;
    const int64_t n_samples = sampler->set->n_samples;

    s->at = (sp_position){-1, -1};
    s->n = n_samples < sampler->effective ? (int)n_samples : sampler->effective;
    for (int i = 0; i < s->n; i++)
        s->sorted[i] =
            (item){.sample = i, .cost = sp_dataset_voxels(sampler->set, i), .at = i};
    for (int i = s->n / 2 - 1; i >= 0; i--)
        sink(s->sorted, i, s->n);
    for (int64_t id = s->n; s->n && id < n_samples; id++) {
        const int64_t voxels = sp_dataset_voxels(sampler->set, id);

        if (voxels <= s->sorted[0].cost)
            continue;
        s->sorted[0] = (item){.sample = id, .cost = voxels, .at = (int)(id % INT_MAX)};
        sink(s->sorted, 0, s->n);
    }
    sort_items(s->sorted, s->n);
    for (int i = 0; i < s->n; i++) {
        s->step[i] = make_item(sampler, s->sorted[i].sample, i);
        if (sampler->mixing)
            add_sample(sampler, s->sorted[0].sample, &s->step[i]);
    }
}

void sp_sampler_costliest(const sp_sampler *sampler, int64_t *bytes, int *n_micro)
{
    struct sp_sampler_scratch *s = sampler->scratch;
    int k;

    assert(sampler->bound.of_sample);
    load_costliest(sampler);
    *bytes = 0;
    *n_micro = count_micro(sampler);
    k = longest_group(s);
    k = sampler->accumulate < k ? sampler->accumulate : k;
    for (int micro = 0; micro < k; micro++) {
        int64_t sum = 0;

        deal_micro(sampler, k, micro);
        for (int r = 0; r < sampler->comm->size; r++) {
            sum = s->share[r].bytes + (sampler->is_whole ? sum : 0);
            *bytes = sum > *bytes ? sum : *bytes;
        }
    }
}

int64_t sp_sampler_steps_per_epoch(const sp_sampler *sampler)
{
    assert(sampler->effective > 0);
    return (sampler->set->n_samples + sampler->effective - 1) / sampler->effective;
}

int64_t sp_sampler_samples(const sp_sampler *sampler, int64_t position, int64_t n_steps)
{
    const int64_t n_samples = sampler->set->n_samples, batch = sampler->effective;
    const int64_t rest = n_samples - position;
    const int64_t steps_of_rest = (rest + batch - 1) / batch;
    int64_t later, sum;

    assert(n_samples > 0 && batch > 0 && rest >= 0 && n_steps >= 0);
    /* Only the last step of an epoch is short. */
    if (n_steps < steps_of_rest)
        return n_steps * batch;
    later = n_steps - steps_of_rest;
    if (__builtin_mul_overflow(later / sp_sampler_steps_per_epoch(sampler), n_samples,
                               &sum))
        return INT64_MAX;
    later = later % sp_sampler_steps_per_epoch(sampler) * batch;
    if (__builtin_add_overflow(sum, rest + later, &sum))
        return INT64_MAX;
    return sum;
}

/* ---- open and close ---- */

/* Lists the ranks by group: the world, each node, or each rank. */
static void fill_groups(const sp_sampler *sampler)
{
    struct sp_sampler_scratch *s = sampler->scratch;
    const sp_comm *comm = sampler->comm;
    int at = 0;

    for (int g = 0; g < s->n_groups; g++) {
        s->first_rank[g] = at;
        for (int r = 0; r < comm->size; r++)
            if (s->n_groups == 1 ||
                (sampler->per == SP_PER_RANK ? r : comm->node_of_rank[r]) == g)
                s->member[at++] = r;
    }
    s->first_rank[s->n_groups] = at;
    assert(at == comm->size);
}

static sp_status allocate(sp_sampler *sampler)
{
    struct sp_sampler_scratch *s;
    size_t n = (size_t)sampler->effective, n_ranks = (size_t)sampler->comm->size;
    int n_groups = sampler->n_groups;

    SP_TRY(SP_NEW(&sampler->scratch, 1, "the steps of an epoch"));
    s = sampler->scratch;
    s->n_groups = n_groups;
    s->at.epoch = s->at.position = -1;
    SP_TRY(SP_NEW(&s->first_rank, n_groups, "the steps of an epoch"));
    SP_TRY(SP_NEW(&s->member, n_ranks, "the steps of an epoch"));
    SP_TRY(SP_NEW(&s->step, n, "the steps of an epoch"));
    SP_TRY(SP_NEW(&s->sorted, n, "the steps of an epoch"));
    SP_TRY(SP_NEW(&s->heap, n_ranks, "the steps of an epoch"));
    SP_TRY(SP_NEW(&s->share, n_ranks, "the steps of an epoch"));
    SP_TRY(SP_NEW(&s->mine, n, "the steps of an epoch"));
    return SP_OK;
}

sp_status sp_sampler_open(sp_sampler *sampler, const sp_dataset *set,
                          const sp_comm *comm, const sp_config *config,
                          bool is_training)
{
    int n_groups = 1;

    assert(set && comm && config);
    memset(sampler, 0, sizeof *sampler);
    sampler->set = set;
    sampler->comm = comm;
    sampler->seed = (uint64_t)config->train.seed;
    sampler->is_shuffled = is_training;
    if (is_training && config->augment.mix != SP_MIX_NONE && config->augment.mix_p > 0)
        sampler->mixing = config;
    if (is_training)
        sampler->pasted = sp_paste_most(config);
    if (is_training && sp_crop_is_on(config))
        sampler->cropping = config;
    sampler->per = is_training ? config->batch.per : SP_PER_WORLD;
    sampler->size = is_training ? config->batch.size : config->batch.eval_size;
    sampler->accumulate = is_training ? config->batch.accumulate : 1;
    sampler->balance = config->batch.balance;
    sampler->voxel_budget = config->batch.voxel_budget;
    sampler->is_whole = is_training && config->train.deterministic == SP_DET_WORLD;
    if (sampler->per != SP_PER_WORLD)
        n_groups = sampler->per == SP_PER_NODE ? comm->n_nodes : comm->size;
    if (sampler->size < 1 || sampler->accumulate < 1)
        return SP_FAIL(SP_EUSAGE,
                       "batch of %d samples in %d micro-batches: expected 1 "
                       "or more of both",
                       sampler->size, sampler->accumulate);
    if (sampler->size > INT_MAX / n_groups)
        return SP_FAIL(SP_EUSAGE,
                       "batch.size = %d times %d exceeds the largest batch, %d",
                       sampler->size, n_groups, INT_MAX);
    sampler->n_groups = n_groups;
    sampler->effective = (int)sp_least((int64_t)sampler->size * n_groups,
                                       set->n_samples > 0 ? set->n_samples : 1);
    SP_TRY(allocate(sampler));
    fill_groups(sampler);
    return SP_OK;
}

void sp_sampler_limit(sp_sampler *sampler, const sp_bound *bound)
{
    assert(bound->bytes >= 0);
    sampler->bound = *bound;
    sampler->scratch->at = (sp_position){-1, -1};
}

void sp_sampler_close(sp_sampler *sampler)
{
    struct sp_sampler_scratch *s = sampler->scratch;

    if (s) {
        free(s->first_rank);
        free(s->member);
        free(s->step);
        free(s->sorted);
        free(s->heap);
        free(s->share);
        free(s->mine);
        free(s);
    }
    memset(sampler, 0, sizeof *sampler);
}
