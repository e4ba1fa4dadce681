#include "memory/sp_budget.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/sp_loader.h"
#include "process/sp_pulse.h"

/* Samples whose plans are compared with what the index foresees: the largest, in some
 * epochs, and others evenly over the set. */
enum { N_EPOCHS = 4, N_OTHERS = 8 };

#define MARGIN   1.0625 /* over the worst of them */
#define GENEROUS 2.0    /* taken instead where even that fits: no plan is made */

enum { ARENAS = 15, PAGE_BYTES = 2 << 20 };
static const int64_t PROGRAM_BYTES = 50 << 20; /* MPI, HDF5, buffers of messages */

int64_t sp_budget_fixed(const sp_foresight *what, bool is_training)
{
    return (int64_t)(sp_foresee_weights(what, is_training) +
                     sp_foresee_packed(what, is_training)) +
           (what->backend->ops->is_host ? PROGRAM_BYTES : ARENAS * PAGE_BYTES);
}

/* ---- one sample ---- */

static double bytes_of(const sp_budget *b, const sp_load *load)
{
    double bytes = b->share * sp_foresee_activations(&b->what, load, b->is_training) +
                   SP_LOADER_SLOTS * sp_foresee_batch(&b->what, load);

    return b->is_training ? bytes + sp_foresee_scratch(&b->what, load) : bytes;
}

/* The column of /cost that has the network's finest level; -1: none has. */
static int first_column(const sp_budget *b)
{
    const double factor = b->what.config->data.voxel_size / b->set->voxel_size;

    for (int i = 0; b->set->cost && i < SP_COST_COLUMNS - 1; i++)
        if (rint(factor) == (double)(1 << i))
            return i;
    return -1;
}

static double ratio(int64_t a, int64_t b)
{
    return b > 0 ? (double)a / (double)b : 1;
}

/* Voxels and pairs by the index. Levels that /cost lacks thin out as in the plan that
 * is known. */
static void foresee(const sp_budget *b, int64_t sample, sp_load *load)
{
    const sp_plan_spec *spec = &b->what.graph->spec;
    const int column = first_column(b);
    double voxels = (double)sp_dataset_voxels(b->set, sample) *
                    ratio(b->like.voxels[0], b->like_voxels);

    memset(load, 0, sizeof *load);
    load->n_samples = 1;
    for (int l = 0; l < spec->n_levels; l++) {
        if (l)
            voxels *= ratio(b->like.voxels[l], b->like.voxels[l - 1]);
        if (column >= 0 && column + l < SP_COST_COLUMNS - 1)
            voxels = (double)b->set->cost[sample * SP_COST_COLUMNS + column + l];
        load->voxels[l] = (int64_t)ceil(voxels);
    }
    for (int m = 0; m < spec->n_maps; m++) {
        const int out = spec->map[m].level_out;

        load->pairs[m] = (int64_t)ceil((double)load->voxels[out] *
                                       ratio(b->like.pairs[m], b->like.voxels[out]));
    }
}

static int64_t compute(const sp_budget *b, int64_t sample)
{
    sp_load load;

    foresee(b, sample, &load);
    return 1 + (int64_t)(b->excess * bytes_of(b, &load));
}

int64_t sp_budget_of_sample(void *budget, int64_t sample)
{
    sp_budget *b = budget;

    if (!b->known[sample])
        b->known[sample] = compute(b, sample);
    return b->known[sample];
}

/* ---- plans of some samples ---- */

static int64_t largest_sample(const sp_dataset *set)
{
    int64_t at = 0;

    for (int64_t i = 1; i < set->n_samples; i++)
        if (sp_dataset_voxels(set, i) > sp_dataset_voxels(set, at))
            at = i;
    return at;
}

static int64_t other_sample(const sp_budget *b, int64_t i)
{
    return b->set->n_samples <= N_OTHERS ? i : i * b->set->n_samples / N_OTHERS;
}

/* What data.on_error = "skip" leaves out takes nothing. */
static sp_status load_of(const sp_budget *b, int64_t sample, int64_t epoch,
                         sp_load *load)
{
    const bool is_skipping = strcmp(b->what.config->data.on_error, "skip") == 0;
    const sp_status rc = sp_foresee_load(&b->what, b->set, sample, epoch, load);

    return is_skipping && rc != SP_EMEM ? SP_OK : rc;
}

static sp_status compare(sp_budget *b, int64_t sample, int64_t epoch)
{
    sp_load load, foreseen;
    double excess;

    sp_pulse_beat();
    SP_TRY(load_of(b, sample, b->is_training ? epoch : -1, &load));
    foresee(b, sample, &foreseen);
    if (load.voxels[0] == 0 || foreseen.voxels[0] == 0)
        return SP_OK;
    excess = MARGIN * bytes_of(b, &load) / bytes_of(b, &foreseen);
    b->excess = excess > b->excess ? excess : b->excess;
    return SP_OK;
}

static sp_status compare_some(sp_budget *b)
{
    const int64_t n = b->set->n_samples;

    b->excess = 0;
    for (int64_t e = 0; e < (b->is_training ? N_EPOCHS : 1); e++)
        SP_TRY(compare(b, largest_sample(b->set), e));
    for (int64_t i = 0; i < N_OTHERS && i < n; i++)
        SP_TRY(compare(b, other_sample(b, i), 0));
    b->excess = b->excess > 0 ? b->excess : MARGIN;
    return SP_OK;
}

/* Or another one, where that was left out. */
static sp_status plan_largest(sp_budget *b)
{
    const int64_t n = b->set->n_samples;
    int64_t sample = largest_sample(b->set);

    SP_TRY(load_of(b, sample, -1, &b->like));
    for (int64_t i = 0; i < N_OTHERS && i < n && b->like.voxels[0] == 0; i++) {
        sample = other_sample(b, i);
        SP_TRY(load_of(b, sample, -1, &b->like));
    }
    b->like_voxels = sp_dataset_voxels(b->set, sample);
    return SP_OK;
}

/* ---- the bound ---- */

static void forget(sp_budget *b)
{
    memset(b->known, 0, (size_t)b->set->n_samples * sizeof *b->known);
}

/* Rank 0 reads for all: what_of is plan_largest or compare_some. */
static sp_status read_for_all(sp_budget *b, sp_comm *comm,
                              sp_status (*what_of)(sp_budget *b), int *who)
{
    SP_TRY(sp_comm_agree(comm, comm->rank == 0 ? what_of(b) : SP_OK, who));
    SP_TRY(sp_comm_bcast(comm, &b->like, sizeof b->like, 0));
    SP_TRY(sp_comm_bcast(comm, &b->like_voxels, sizeof b->like_voxels, 0));
    return sp_comm_bcast(comm, &b->excess, sizeof b->excess, 0);
}

static void limit(sp_budget *b, sp_sampler *sampler)
{
    const sp_bound bound = {b->room, sp_budget_of_sample, b};

    sp_sampler_limit(sampler, &bound);
    sp_sampler_dearest(sampler, &b->dearest_bytes, &b->n_micro);
    b->largest_bytes = sp_budget_of_sample(b, largest_sample(b->set));
}

sp_status sp_budget_open(sp_budget *budget, const sp_foresight *what,
                         sp_sampler *sampler, sp_comm *comm, bool is_training,
                         double share, int64_t room, int *who)
{
    sp_budget *b = budget;
    const sp_bound none = {0};
    sp_status rc = SP_OK;

    memset(b, 0, sizeof *b);
    b->what = *what;
    b->set = sampler->set;
    b->is_training = is_training;
    b->share = share;
    b->excess = GENEROUS;
    b->known = calloc((size_t)b->set->n_samples + 1, sizeof *b->known);
    if (!b->known)
        rc = SP_FAIL(SP_EMEM, "memory of %lld samples: out of memory",
                     (long long)b->set->n_samples);
    SP_TRY(sp_comm_agree(comm, rc, who));
    if (b->set->n_samples == 0)
        return SP_OK;
    SP_TRY(read_for_all(b, comm, plan_largest, who));
    limit(b, sampler); /* no room yet: what there would be without a bound */
    b->n_micro_asked = b->n_micro;
    b->is_bound = b->dearest_bytes > room;
    b->room = room > 1 ? room : 1;
    if (!b->is_bound) {
        b->excess = MARGIN;
        b->dearest_bytes = (int64_t)((double)b->dearest_bytes * MARGIN / GENEROUS);
        sp_sampler_limit(sampler, &none);
        return SP_OK;
    }
    SP_TRY(read_for_all(b, comm, compare_some, who));
    forget(b);
    limit(b, sampler);
    return SP_OK;
}

void sp_budget_close(sp_budget *budget)
{
    free(budget->known);
    memset(budget, 0, sizeof *budget);
}

static double mib(int64_t bytes)
{
    return (double)bytes / (1 << 20);
}

sp_status sp_budget_explain(sp_budget *budget, int64_t memory, const int64_t *sample,
                            int n)
{
    const char *said = sp_error_last()->message;
    int64_t need, voxels = 0;

    if (!budget->known || n == 0)
        return SP_EMEM; /* as it was said */
    need = sp_budget_fixed(&budget->what, budget->is_training);
    for (int i = 0; i < n; i++) {
        need += compute(budget, sample[i]); /* the planner may be at work on known */
        voxels += sp_dataset_voxels(budget->set, sample[i]);
    }
    if (n > 1)
        return SP_FAIL(SP_EMEM,
                       "%d samples from %lld on (%lld voxels) need about %.1f MiB, of "
                       "%.1f there: less than foreseen remains; set run.memory_mb: %s",
                       n, (long long)sample[0], (long long)voxels, mib(need),
                       mib(memory), said);
    return SP_FAIL(SP_EMEM,
                   "sample %lld of %s (%lld voxels) needs about %.1f MiB by itself, of "
                   "%.1f there: %s",
                   (long long)sample[0],
                   budget->set->shard[sp_dataset_shard_of(budget->set, sample[0])].path,
                   (long long)voxels, mib(need), mib(memory), said);
}
