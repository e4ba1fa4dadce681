/* The memory of the samples of a data set, estimated from the index and some plans. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "api/memory/sp_budget_internal.h"
#include "base/sp_list.h"
#include "base/sp_liveness.h"
#include "base/sp_machine.h"
#include "data/sp_crop.h"
#include "data/sp_paste.h"
#include "data/sp_voxel.h"

/* The plans that are compared with the estimate from the index: the largest sample's in
 * N_EPOCHS epochs, and N_OTHERS samples' at equal distances in the set. */
enum { N_EPOCHS = 4, N_OTHERS = SP_BUDGET_SOME, MOST_CACHED = 1 << 16 };

bool sp_budget_is_host(const sp_budget *b)
{
    return b->estimator.what.backend->ops->is_host;
}

int64_t sp_budget_sum(const int64_t part[SP_PARTS])
{
    return part[SP_ACTIVATIONS] + part[SP_BATCHES] + part[SP_SCRATCH];
}

int64_t sp_budgets_fixed(const sp_budgets *budgets)
{
    int64_t eval = 0;

    for (const sp_budget *b = &budgets->eval; b; b = b->next)
        eval = sp_most(eval, sp_budget_sum(b->empty));
    return budgets->fixed.program + budgets->fixed.weights +
           sp_budget_sum(budgets->train.empty) + eval;
}

/* ---- one sample ---- */

void sp_budget_bytes_of_load(sp_budget *b, const sp_load *load, int64_t part[SP_PARTS])
{
    sp_estimate_step(&b->estimator, load, part);
    for (int i = 0; i < SP_PARTS; i++)
        part[i] -= b->empty[i];
}

/* Sets `empty`, so that sp_budget_bytes_of_load from now on gives the bytes that
 * samples add to it. */
static void weigh_nothing(sp_budget *b)
{
    const sp_load none = {0};
    int64_t part[SP_PARTS];

    memset(b->empty, 0, sizeof b->empty);
    sp_budget_bytes_of_load(b, &none, part);
    memcpy(b->empty, part, sizeof part);
}

/* The batches that the loader makes of a micro-batch. */
int sp_budget_views(const sp_budget *b)
{
    const int n_views = b->estimator.what.n_views;

    return b->estimator.is_training || n_views < 1 ? 1 : n_views;
}

/* An evaluation of fewer batches than the loader has slots does not fill all of them.
 * Once its steps are cut, it does. */
void sp_budget_set_slots(sp_budget *b, int64_t n_batches)
{
    assert(b->cached && n_batches >= 0);
    sp_estimate_set_batches(&b->estimator, sp_most(n_batches, 1));
    memset(b->cached, 0, (size_t)b->n_cached * sizeof *b->cached);
    weigh_nothing(b);
}

/* The column of /cost with the voxels of the network's finest level, or -1. */
static int first_column(const sp_budget *b)
{
    for (int i = 0; b->set->has_cost && i < SP_COST_COLUMNS - 1; i++)
        if (b->estimator.what.factor == (double)(1 << i))
            return i;
    return -1;
}

/* The part of a sample's voxels that a crop leaves at most. */
static double budget_part_left(const sp_budget *b, int64_t stored)
{
    const sp_config *config = b->estimator.what.config;

    return b->estimator.is_training && stored > 0
               ? (double)sp_crop_most(config, stored) / (double)stored
               : 1;
}

/* Adds the most that is pasted into a sample, with the largest sample's ratio of voxels
 * of coarse levels. */
static void budget_add_pasted(const sp_budget *b, sp_load *load)
{
    const int64_t n =
        b->estimator.is_training ? sp_paste_most(b->estimator.what.config) : 0;

    load->stored += n;
    for (int l = 0; n && l < b->estimator.what.graph->spec.n_levels; l++)
        load->plan.voxels[l] +=
            (int64_t)ceil((double)n * fmin(1, ratio(b->reference.plan.voxels[l],
                                                    b->reference.stored)));
}

/* Estimates a sample from the index. If /cost lacks a level, as it does dilated ones,
 * the ratio of its voxels to the preceding level's is taken from the largest sample. */
static void budget_estimate_load(const sp_budget *b, int64_t sample, sp_load *load)
{
    const sp_plan_spec *spec = &b->estimator.what.graph->spec;
    const sp_plan_counts *known = &b->reference.plan;
    const int column = first_column(b), coarsest = spec->n_levels - 1;
    const int64_t stored = sp_dataset_voxels(b->set, sample);
    const double part = budget_part_left(b, stored);
    double voxels = (double)stored * ratio(known->voxels[0], b->reference.stored);
    sp_plan_counts *plan = &load->plan;

    *load = (sp_load){.plan.n_samples = 1, .stored = stored};
    load->points = sp_dataset_points(b->set, sample);
    load->context = sp_estimate_context(&b->estimator.what, b->set, sample);
    for (int l = 0; l < spec->n_levels; l++) {
        if (l)
            voxels *= ratio(known->voxels[l], known->voxels[l - 1]);
        if (column >= 0 && column + l < SP_COST_COLUMNS - 1 &&
            l < sp_plan_first_dilated(spec))
            voxels = (double)sp_dataset_cost_column(b->set, sample, column + l);
        plan->voxels[l] = (int64_t)ceil(part * voxels);
    }
    budget_add_pasted(b, load);
    plan->above = (int64_t)ceil((double)plan->voxels[coarsest] *
                                ratio(known->above, known->voxels[coarsest]));
    for (int m = 0; m < spec->n_maps; m++) {
        const int out = spec->map[m].level_out;

        plan->pairs[m] = (int64_t)ceil((double)plan->voxels[out] *
                                       ratio(known->pairs[m], known->voxels[out]));
    }
}

static int64_t other_sample(const sp_budget *b, int64_t i)
{
    return b->set->n_samples <= N_OTHERS ? i : i * b->set->n_samples / N_OTHERS;
}

/* The load of a sample that was planned, or NULL. */
static const sp_load *planned_load(const sp_budget *b, int64_t sample)
{
    for (int64_t i = 0; i < b->n_some; i++)
        if (other_sample(b, i) == sample)
            return &b->some[i];
    return NULL;
}

const int64_t *sp_budget_estimate(sp_budget *b, int64_t sample)
{
    sp_sample_estimate *e = &b->cached[sample % b->n_cached];
    const sp_load *planned;
    sp_load load;

    if (e->part[SP_ACTIVATIONS] && e->sample == sample)
        return e->part;
    planned = planned_load(b, sample);
    if (planned)
        load = *planned;
    else
        budget_estimate_load(b, sample, &load);
    sp_budget_bytes_of_load(b, &load, e->part);
    e->part[SP_ACTIVATIONS]++;
    e->sample = sample;
    return e->part;
}

const int64_t *sp_budget_cached(const sp_budget *b, int64_t sample)
{
    static const int64_t none[SP_PARTS];
    const sp_sample_estimate *e = &b->cached[sample % b->n_cached];

    return e->sample == sample ? e->part : none;
}

int64_t sp_budget_of_sample(void *budget, int64_t sample)
{
    sp_budget *b = budget;
    const int64_t *part = sp_budget_estimate(b, sample);
    double act = b->excess * (double)part[SP_ACTIVATIONS], rest;

    assert(0 <= sample && sample < b->set->n_samples);
    if (b->part < SP_PARTS)
        return 1 + (int64_t)(b->excess * (double)part[b->part]);
    rest = b->excess * (double)(part[SP_BATCHES] + part[SP_SCRATCH]);
    return 1 +
           (int64_t)((double)(b->room[0] + b->room[SP_REST]) *
                     fmax(act / (double)b->room[0], rest / (double)b->room[SP_REST]));
}

/* ---- a data set ---- */

static int64_t largest_sample(const sp_dataset *set)
{
    int64_t at = 0;

    for (int64_t i = 1; i < set->n_samples; i++)
        if (sp_dataset_voxels(set, i) > sp_dataset_voxels(set, at))
            at = i;
    return at;
}

int64_t sp_budget_recomputed(sp_budget *b, int64_t sample)
{
    bool *is_recomputed = &b->estimator.buffers.rules.is_recomputed;
    const bool was = *is_recomputed;
    int64_t part[SP_PARTS];
    sp_load load;

    budget_estimate_load(b, sample, &load);
    *is_recomputed = true;
    sp_budget_bytes_of_load(b, &load, part);
    *is_recomputed = was;
    return 1 + (int64_t)(b->excess * (double)part[SP_ACTIVATIONS]);
}

const char *sp_budget_print_recomputed(char text[SP_RECOMPUTED_TEXT], int64_t bytes)
{
    *text = '\0';
    if (bytes)
        snprintf(text, SP_RECOMPUTED_TEXT,
                 ", or set train.recompute = true: it then needs about %.1f MiB",
                 mib(bytes));
    return text;
}

sp_status sp_budget_refuse(const sp_budget *b, int64_t sample, int64_t need,
                           int64_t recomputed, int64_t memory)
{
    const sp_shard *shard = &b->set->shard[sp_dataset_shard_of(b->set, sample)];
    char text[48] = "", other[SP_RECOMPUTED_TEXT];

    assert(0 <= sample && sample < b->set->n_samples);
    assert(memory > 0 && need >= 0);
    if (need)
        snprintf(text, sizeof text, "about %.1f MiB by itself, ", mib(need));
    return SP_FAIL(
        SP_EMEM,
        "sample %lld of %s (%lld voxels) needs %smore than the %.1f MiB that "
        "run.memory_mb gives a rank: give it more, or cut the scans into "
        "smaller blocks (spvox convert --block)%s",
        (long long)(sample - shard->first_sample), shard->path,
        (long long)sp_dataset_voxels(b->set, sample), text, mib(memory),
        sp_budget_print_recomputed(other, recomputed));
}

/* True if an evaluation leaves voxels out by eval.range. */
static bool is_in_range(const sp_budget *b)
{
    const sp_estimated_run *what = &b->estimator.what;

    return !b->estimator.is_training && !what->is_predicting &&
           what->config->eval.range.n > 0;
}

/* The least that the sample needs, whatever its plan turns out to be: its arrays, and
 * the activations of the levels with voxels in the index. In training half of the
 * voxels that are not dropped is assumed, since turning merges some of them. */
static int64_t least_of(sp_budget *b, int64_t sample)
{
    const int column = first_column(b);
    sp_load load = {.plan.n_samples = 1, .stored = sp_dataset_voxels(b->set, sample)};
    int64_t part[SP_PARTS];
    double kept = 1;

    if (b->estimator.is_training)
        kept = 0.5 * (1 - b->estimator.what.config->augment.drop) *
               budget_part_left(b, load.stored);
    if (is_in_range(b) ||
        (b->estimator.is_training && sp_crop_is_vague(b->estimator.what.config)))
        kept = 0;
    if (column < 0 && b->estimator.what.factor == 1)
        load.plan.voxels[0] = (int64_t)(kept * (double)load.stored);
    for (int l = 0; column >= 0 && l < b->estimator.what.graph->spec.n_levels &&
                    column + l < SP_COST_COLUMNS - 1;
         l++)
        load.plan.voxels[l] = (int64_t)(kept * (double)sp_dataset_cost_column(
                                                   b->set, sample, column + l));
    sp_budget_bytes_of_load(b, &load, part);
    return part[SP_ACTIVATIONS] + part[SP_BATCHES] / b->estimator.n_slots +
           part[SP_SCRATCH];
}

/* Plans a sample. One that cannot be read and that data.on_error = "skip" leaves out
 * has an empty load. */
static sp_status load_of(sp_budget *b, const sp_budgets *budgets, const sp_planned *of,
                         sp_load *load)
{
    const sp_on_error on_error = b->estimator.what.config->data.on_error;
    const int64_t there = sp_least(budgets->memory, (int64_t)sp_machine_memory());
    const int64_t room =
        sp_budget_is_host(b) && budgets->memory ? there - sp_budgets_fixed(budgets) : 0;
    sp_status rc;

    sp_liveness_count();
    if (room && least_of(b, of->sample) > room)
        return sp_budget_refuse(b, of->sample,
                                sp_budgets_fixed(budgets) + least_of(b, of->sample), 0,
                                budgets->memory);
    rc = sp_estimate_load(&b->estimator.what, b->set, of, room, load);
    if (rc == SP_EMEM && room)
        return sp_budget_refuse(b, of->sample, 0, 0, budgets->memory);
    return on_error == SP_ON_ERROR_SKIP && rc != SP_EMEM ? SP_OK : rc;
}

/* Another sample is the reference if the largest one was left out. */
sp_status sp_budget_plan_largest(sp_budget *b, const sp_budgets *budgets)
{
    const int64_t n = b->set->n_samples;

    assert(b->sampler && n > 0);
    SP_TRY(load_of(b, budgets, &(sp_planned){largest_sample(b->set), -1, -1, false},
                   &b->reference));
    for (int64_t i = 0; i < N_OTHERS && i < n && b->reference.plan.voxels[0] == 0; i++)
        SP_TRY(load_of(b, budgets, &(sp_planned){other_sample(b, i), -1, -1, false},
                       &b->reference));
    return SP_OK;
}

/* True if samples are planned otherwise than stored; scaled views are as the
 * augmentation leaves samples. */
static bool is_moved(const sp_budget *b)
{
    return b->estimator.is_training || b->estimator.what.has_scaled_views;
}

/* Plans a sample, and compares its need with its estimate from the index. */
static sp_status compare_one(sp_budget *b, const sp_budgets *budgets,
                             const sp_planned *of, sp_load *load)
{
    int64_t is[SP_PARTS], was[SP_PARTS], more[SP_PARTS] = {0};
    sp_load estimated;
    double excess;

    SP_TRY(load_of(b, budgets, of, load));
    budget_estimate_load(b, of->sample, &estimated);
    if (load->plan.voxels[0] == 0 || estimated.plan.voxels[0] == 0)
        return SP_OK;
    sp_budget_bytes_of_load(b, load, is);
    sp_budget_bytes_of_load(b, &estimated, was);
    if (of->partner >= 0) {
        budget_estimate_load(b, of->partner, &estimated);
        sp_budget_bytes_of_load(b, &estimated, more);
    }
    excess =
        (double)sp_budget_sum(is) / (double)(sp_budget_sum(was) + sp_budget_sum(more));
    b->excess = excess > b->excess ? excess : b->excess;
    return SP_OK;
}

/* Compares a single sample and, if samples are mixed, with its partner of that epoch:
 * mixed, the two have more pairs of neighbours than apart, and fewer voxels of coarse
 * levels. Epoch -1: the sample as stored. */
static sp_status budget_compare(sp_budget *b, const sp_budgets *budgets, int64_t sample,
                                int64_t epoch)
{
    sp_planned of = {sample, epoch, -1, is_in_range(b)};
    sp_load load;

    SP_TRY(compare_one(b, budgets, &of, &load));
    if (!b->sampler->mixing)
        return SP_OK;
    of.partner = sp_estimate_partner(&b->estimator.what, b->set, sample, epoch);
    return of.partner < 0 ? SP_OK : compare_one(b, budgets, &of, &load);
}

static sp_status compare_largest(sp_budget *b, const sp_budgets *budgets)
{
    const bool is_training = b->estimator.is_training;

    assert(b->sampler && b->set->n_samples > 0);
    b->excess = 0;
    for (int64_t e = is_training ? 0 : -1; e < (is_moved(b) ? N_EPOCHS : 0); e++)
        SP_TRY(budget_compare(b, budgets, largest_sample(b->set), e));
    /* A sample that a crop leaves little of is no measure of the others, and nothing is
     * pasted into a sample that is planned here. */
    if (is_in_range(b) || (is_training && (sp_crop_is_on(b->estimator.what.config) ||
                                           sp_paste_is_on(b->estimator.what.config))))
        b->excess = fmax(b->excess, 1);
    b->excess = b->excess > 0 ? b->excess : 1;
    return SP_OK;
}

sp_status sp_budget_compare(sp_budget *b, const sp_budgets *budgets)
{
    SP_TRY(compare_largest(b, budgets));
    for (int64_t i = 0; i < N_OTHERS && i < b->set->n_samples; i++)
        SP_TRY(budget_compare(b, budgets, other_sample(b, i), is_moved(b) ? 0 : -1));
    b->excess *= SP_BUDGET_MARGIN;
    return SP_OK;
}

/* Plans some samples as stored; the excess is of those that are not planned. */
static sp_status plan_stored(sp_budget *b, const sp_budgets *budgets)
{
    const int64_t n = sp_least(b->set->n_samples, N_OTHERS);

    assert(b->n_some == 0);
    b->excess = 1;
    for (int64_t i = 0; i < n; i++)
        SP_TRY(compare_one(b, budgets,
                           &(sp_planned){other_sample(b, i), -1, -1, is_in_range(b)},
                           &b->some[i]));
    b->n_some = n;
    if (n == b->set->n_samples)
        b->excess = 1;
    return SP_OK;
}

sp_status sp_budget_plan_some(sp_budget *b, const sp_budgets *budgets)
{
    double others;

    assert(b->sampler);
    if (b->estimator.is_training)
        return compare_largest(b, budgets);
    SP_TRY(plan_stored(b, budgets));
    if (!is_moved(b))
        return SP_OK;
    others = b->excess;
    SP_TRY(compare_largest(b, budgets));
    b->excess = fmax(b->excess, others);
    return SP_OK;
}

sp_status sp_budget_read(sp_budget *b, const sp_budgets *budgets, sp_comm *comm,
                         sp_status (*what_of)(sp_budget *b, const sp_budgets *budgets))
{
    assert(what_of && comm);
    if (!b->sampler || b->set->n_samples == 0)
        return SP_OK;
    SP_TRY(sp_comm_agree(comm, comm->rank == 0 ? what_of(b, budgets) : SP_OK));
    SP_TRY(sp_comm_bcast(comm, &b->reference, sizeof b->reference, 0));
    SP_TRY(sp_comm_bcast(comm, &b->n_some, sizeof b->n_some, 0));
    SP_TRY(sp_comm_bcast(comm, b->some, sizeof b->some, 0));
    return sp_comm_bcast(comm, &b->excess, sizeof b->excess, 0);
}

void sp_budget_find_costliest(sp_budget *b)
{
    const sp_bound unbound = {0, sp_budget_of_sample, b}, none = {0};

    if (!b->sampler || b->set->n_samples == 0)
        return;
    sp_sampler_limit(b->sampler, &unbound);
    for (b->part = 0; b->part < SP_PARTS; b->part++)
        sp_sampler_costliest(b->sampler, &b->costliest[b->part], &b->n_micro_asked);
    b->n_micro = b->n_micro_asked;
    sp_sampler_limit(b->sampler, &none);
}

sp_status sp_budget_open(sp_budget *b, const sp_estimated_run *what,
                         sp_sampler *sampler, bool is_training)
{
    sp_estimated_run own = *what;

    if (!sampler)
        return SP_OK;
    b->sampler = sampler;
    b->set = sampler->set;
    b->excess = SP_BUDGET_GENEROUS;
    own.has_subvoxel = b->set->has_subvoxel;
    SP_TRY(sp_voxel_factor(what->config, b->set, &own.factor));
    b->n_cached = sp_least(b->set->n_samples + 1, MOST_CACHED);
    SP_TRY(SP_NEW(&b->cached, b->n_cached, "the estimates of samples"));
    SP_TRY(sp_estimate_open(&b->estimator, &own, is_training));
    sp_budget_set_slots(b, is_training ? SP_LOADER_MOST_SLOTS
                                       : sp_sampler_steps_per_epoch(sampler) *
                                             sp_budget_views(b));
    return SP_OK;
}

/* The largest bytes of two samples; `second` is mixed into `first`. */
typedef struct pair {
    int64_t first, second;
} pair;

static void put_into(pair *p, int64_t bytes)
{
    p->second = sp_most(p->second, sp_least(p->first, bytes));
    p->first = sp_most(p->first, bytes);
}

/* The bytes of the largest sample, mixed with the next one if samples are mixed. */
static int64_t budget_largest_of(const sp_budget *b, const pair *p)
{
    const int64_t second = b->set->n_samples > 1 ? p->second : p->first;
    const int64_t bytes = p->first + (b->sampler->mixing ? second : 0);

    return (int64_t)(b->excess * (double)bytes);
}

void sp_budget_find_largest(sp_budget *b, int64_t room, int64_t *worst)
{
    const int64_t n = b->sampler ? b->set->n_samples : 0;
    sp_load all = {.plan.n_samples = 1}, one;
    int64_t part[SP_PARTS], most = 0;
    pair act, rest;

    for (int64_t i = 0; i < n; i++) {
        budget_estimate_load(b, i, &one);
        all.stored = sp_most(all.stored, one.stored);
        all.points = sp_most(all.points, one.points);
        all.context = sp_most(all.context, one.context);
        all.plan.above = sp_most(all.plan.above, one.plan.above);
        for (int l = 0; l < SP_MAX_LEVELS; l++)
            all.plan.voxels[l] = sp_most(all.plan.voxels[l], one.plan.voxels[l]);
        for (int m = 0; m < SP_MAX_MAPS; m++)
            all.plan.pairs[m] = sp_most(all.plan.pairs[m], one.plan.pairs[m]);
    }
    *worst = 0;
    if (n == 0)
        return;
    sp_budget_bytes_of_load(b, &all, part);
    act = (pair){part[0], part[0]};
    rest = (pair){sp_budget_sum(part) - part[0], sp_budget_sum(part) - part[0]};
    b->largest[0] = budget_largest_of(b, &act);
    b->largest[SP_REST] = budget_largest_of(b, &rest);
    if (b->largest[0] + b->largest[SP_REST] <= room / 2)
        return;
    act = rest = (pair){0, 0};
    for (int64_t i = 0; i < n; i++) {
        const int64_t *own = sp_budget_estimate(b, i), sum = sp_budget_sum(own);

        put_into(&act, own[0]);
        put_into(&rest, sum - own[0]);
        *worst = sum > most ? i : *worst;
        most = sp_most(most, sum);
    }
    b->largest[0] = budget_largest_of(b, &act);
    b->largest[SP_REST] = budget_largest_of(b, &rest);
}

void sp_budget_close(sp_budget *b)
{
    const sp_bound none = {0};

    if (b->next) { /* its sampler may be dealt from once the budget is freed */
        if (b->next->sampler)
            sp_sampler_limit(b->next->sampler, &none);
        sp_budget_close(b->next);
    }
    free(b->next);
    free(b->cached);
    sp_estimate_close(&b->estimator);
}
