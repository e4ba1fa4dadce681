#include "api/memory/sp_budget_internal.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"
#include "base/sp_log.h"

enum { EVAL_PART = 8 };

int64_t sp_budgets_memory_of(int64_t device_bytes)
{
    const int64_t mib = 1 << 20, gib = 1024 * mib, small = device_bytes / 8;
    int64_t reserved = device_bytes / 16;

    assert(device_bytes >= 0);
    if (reserved < gib)
        reserved = small < gib ? small : gib;
    return (device_bytes - reserved) / mib * mib;
}

/* ---- the need ---- */

/* Opens a budget for each sampler of the evaluations. */
static sp_status budgets_open_evals(sp_budgets *budgets, const sp_estimated_run *what,
                                    sp_sampler *sampler)
{
    sp_budget *b = &budgets->eval;

    SP_TRY(sp_budget_open(b, what, sampler, false));
    while (sampler && (sampler = sampler->next)) {
        SP_TRY(SP_NEW(&b->next, 1, "the estimates of an evaluation"));
        b = b->next;
        SP_TRY(sp_budget_open(b, what, sampler, false));
    }
    return SP_OK;
}

static sp_status open_both(sp_budgets *budgets, const sp_estimated_run *what,
                           sp_sampler *train, sp_sampler *eval)
{
    SP_TRY(sp_budget_open(&budgets->train, what, train, true));
    SP_TRY(budgets_open_evals(budgets, what, eval));
    if (budgets->memory)
        SP_TRY(sp_estimate_fit(what, train, budgets->memory, NULL));
    return sp_estimate_fixed(
        train ? &budgets->train.estimator : &budgets->eval.estimator, &budgets->fixed);
}

static int64_t rest_of(const sp_budget *b)
{
    return b->costliest[SP_BATCHES] + b->costliest[SP_SCRATCH];
}

int64_t sp_budgets_need(const sp_budgets *budgets)
{
    return sp_budgets_fixed(budgets) +
           sp_most(budgets->train.costliest[SP_ACTIVATIONS],
                   budgets->eval.costliest[SP_ACTIVATIONS]) +
           rest_of(&budgets->train) + rest_of(&budgets->eval);
}

/* Raises the need of the first evaluation to the most of all of them. */
static void budgets_raise_costliest(sp_budgets *budgets)
{
    sp_budget *first = &budgets->eval;

    for (const sp_budget *b = first->next; b; b = b->next)
        for (int p = 0; p < SP_PARTS; p++)
            first->costliest[p] = sp_most(first->costliest[p], b->costliest[p]);
}

/* Finds the greatest need of all budgets, each multiplied by its excess, as the deck
 * cuts its steps. */
static void find_need(sp_budgets *budgets)
{
    sp_budget_find_costliest(&budgets->train);
    for (sp_budget *b = &budgets->eval; b; b = b->next)
        sp_budget_find_costliest(b);
    budgets_raise_costliest(budgets);
}

/* Runs a function on the evaluations' budgets (sp_budget_read). Collective. */
static sp_status budgets_read_evals(sp_budgets *budgets, sp_comm *comm,
                                    sp_status (*what_of)(sp_budget *b,
                                                         const sp_budgets *budgets))
{
    for (sp_budget *b = &budgets->eval; b; b = b->next)
        SP_TRY(sp_budget_read(b, budgets, comm, what_of));
    return SP_OK;
}

/* ---- bounds ---- */

/* Finds the largest samples of the evaluations. Returns the budget with the greatest
 * need of a sample, and in *worst that sample; the first budget's `largest` becomes the
 * most of all. */
static const sp_budget *find_largest_evals(sp_budgets *budgets, int64_t room,
                                           int64_t *worst)
{
    const sp_budget *at = &budgets->eval;
    int64_t most = -1;

    for (sp_budget *b = &budgets->eval; b && b->sampler; b = b->next) {
        int64_t sample, need;

        sp_budget_find_largest(b, room, &sample);
        need = b->largest[0] + b->largest[SP_REST];
        if (need > most) {
            most = need;
            at = b;
            *worst = sample;
        }
    }
    for (const sp_budget *b = budgets->eval.next; b; b = b->next)
        for (int i = 0; i < 2; i++)
            budgets->eval.largest[i] = sp_most(budgets->eval.largest[i], b->largest[i]);
    return at;
}

/* The need of the training's largest sample with train.recompute; 0: it would not fit
 * either. */
static int64_t budgets_recomputed(sp_budgets *budgets, int64_t sample)
{
    const int64_t need = sp_budgets_fixed(budgets) +
                         sp_most(sp_budget_recomputed(&budgets->train, sample),
                                 budgets->eval.largest[0]) +
                         budgets->train.largest[SP_REST] +
                         budgets->eval.largest[SP_REST];

    return need <= budgets->memory ? need : 0;
}

/* Finds the largest samples. On the host it fails if training's and evaluation's do not
 * fit into the memory together. */
static sp_status check_largest(sp_budgets *budgets)
{
    const int64_t room = budgets->memory - sp_budgets_fixed(budgets);
    const sp_budget *b = &budgets->train, *eval;
    int64_t worst[2] = {0, 0}, need[2];

    if (budgets->train.sampler)
        sp_budget_find_largest(&budgets->train, room, &worst[0]);
    eval = find_largest_evals(budgets, room, &worst[1]);
    if (!sp_budget_is_host(b->sampler ? b : &budgets->eval))
        return SP_OK;
    need[0] = budgets->train.largest[0] + budgets->train.largest[SP_REST];
    need[1] = budgets->eval.largest[0] + budgets->eval.largest[SP_REST];
    if (sp_most(budgets->train.largest[0], budgets->eval.largest[0]) +
            budgets->train.largest[SP_REST] + budgets->eval.largest[SP_REST] <=
        room)
        return SP_OK;
    if (need[1] > need[0])
        return sp_budget_refuse(eval, worst[1],
                                sp_budgets_fixed(budgets) + need[1] +
                                    budgets->train.largest[SP_REST],
                                0, budgets->memory);
    return sp_budget_refuse(&budgets->train, worst[0],
                            sp_budgets_fixed(budgets) + need[0] +
                                budgets->eval.largest[SP_REST],
                            budgets_recomputed(budgets, worst[0]), budgets->memory);
}

static int64_t cut_between(int64_t x, int64_t least, int64_t most)
{
    return sp_most(sp_least(x, most), least);
}

/* Divides the room between activations and the rest in the ratio that the largest
 * sample has. Each part is at least any sample's need of it, and the worst step's need
 * if that step fits at all. */
static void budget_divide(sp_budget *b, int64_t activations, int64_t room)
{
    const int64_t act = sp_most(activations, b->largest[0]);
    int64_t part[SP_PARTS], least = act, most = room - b->largest[SP_REST];

    sp_budget_bytes_of_load(b, &b->reference, part);
    if (b->costliest[0] + rest_of(b) <= room) {
        least = sp_most(least, b->costliest[0]);
        most = sp_least(most, room - rest_of(b));
    }
    b->room[0] =
        cut_between((int64_t)((double)room * ratio(part[0], sp_budget_sum(part))),
                    sp_most(sp_least(least, room - 1), 1), sp_most(most, 1));
    b->room[SP_REST] = sp_most(room - b->room[0], 1);
}

static void limit(sp_budget *b)
{
    const sp_bound bound = {b->room[0] + b->room[SP_REST], sp_budget_of_sample, b};
    int64_t bytes;

    if (!b->sampler || b->set->n_samples == 0)
        return;
    b->part = SP_PARTS;
    sp_sampler_limit(b->sampler, &bound);
    sp_sampler_costliest(b->sampler, &bytes, &b->n_micro);
}

static void make_rooms(sp_budgets *budgets)
{
    const int64_t room = sp_most(budgets->memory - sp_budgets_fixed(budgets), 2);
    sp_budget *train = &budgets->train, *eval = &budgets->eval;
    int64_t for_eval = rest_of(eval);

    if (!train->sampler) {
        budget_divide(eval, 0, room);
    } else {
        if (for_eval > room / EVAL_PART)
            for_eval = sp_most(room / EVAL_PART, eval->largest[SP_REST]);
        if (sp_budget_is_host(train)) /* a device may still have room */
            for_eval =
                sp_least(for_eval, room - sp_most(train->largest[0], eval->largest[0]) -
                                       train->largest[SP_REST]);
        budget_divide(train, eval->largest[0], room - for_eval);
        eval->room[0] = train->room[0];
        eval->room[SP_REST] = sp_most(for_eval, 1);
    }
    limit(train);
    limit(eval);
    for (sp_budget *b = eval->next; b; b = b->next) {
        memcpy(b->room, eval->room, sizeof b->room);
        limit(b);
    }
}

/* ---- opening and closing ---- */

/* All ranks estimate for the rank with most threads, so that they cut steps alike. */
static sp_status agree_threads(sp_estimated_run *what, sp_comm *comm)
{
    int64_t n = what->backend->threads;

    SP_TRY(sp_comm_allreduce(comm, SP_SCOPE_WORLD, &n, 1, SP_I64, SP_MAX));
    what->n_threads = (int)n;
    return SP_OK;
}

sp_status sp_budgets_estimate(sp_budgets *budgets, const sp_estimated_run *what,
                              sp_sampler *train, sp_sampler *eval, sp_comm *comm)
{
    sp_estimated_run own = *what;

    assert(train || eval);
    memset(budgets, 0, sizeof *budgets);
    SP_TRY(agree_threads(&own, comm));
    SP_TRY(sp_comm_agree(comm, open_both(budgets, &own, train, eval)));
    SP_TRY(sp_budget_read(&budgets->train, budgets, comm, sp_budget_plan_largest));
    SP_TRY(sp_budget_read(&budgets->train, budgets, comm, sp_budget_plan_some));
    SP_TRY(budgets_read_evals(budgets, comm, sp_budget_plan_largest));
    SP_TRY(budgets_read_evals(budgets, comm, sp_budget_plan_some));
    SP_TRY(sp_budget_simulate(&budgets->train, comm));
    for (sp_budget *b = &budgets->eval; b; b = b->next)
        SP_TRY(sp_budget_simulate(b, comm));
    budgets_raise_costliest(budgets);
    return SP_OK;
}

sp_status sp_budgets_open(sp_budgets *budgets, const sp_estimated_run *what,
                          sp_sampler *train, sp_sampler *eval, sp_comm *comm,
                          int64_t memory)
{
    sp_estimated_run own = *what;

    assert(memory >= 0 && (train || eval));
    memset(budgets, 0, sizeof *budgets);
    budgets->memory = memory;
    if (memory == 0)
        return SP_OK;
    if (what->config->train.deterministic == SP_DET_WORLD)
        own.n_local = 2; /* the same cuts on any number of ranks */
    SP_TRY(agree_threads(&own, comm));
    SP_TRY(sp_comm_agree(comm, open_both(budgets, &own, train, eval)));
    SP_TRY(sp_budget_read(&budgets->train, budgets, comm, sp_budget_plan_largest));
    SP_TRY(budgets_read_evals(budgets, comm, sp_budget_plan_largest));
    find_need(budgets); /* with excess still SP_BUDGET_GENEROUS */
    if (sp_budgets_need(budgets) <= memory) {
        budgets->train.excess = SP_BUDGET_MARGIN;
        for (sp_budget *b = &budgets->eval; b; b = b->next)
            b->excess = SP_BUDGET_MARGIN;
        find_need(budgets);
        return SP_OK;
    }
    for (sp_budget *b = &budgets->eval; b && b->sampler; b = b->next)
        sp_budget_set_slots(b, SP_LOADER_MOST_SLOTS);
    SP_TRY(sp_budget_read(&budgets->train, budgets, comm, sp_budget_compare));
    SP_TRY(budgets_read_evals(budgets, comm, sp_budget_compare));
    find_need(budgets);
    SP_TRY(sp_comm_agree(comm, check_largest(budgets)));
    make_rooms(budgets);
    return SP_OK;
}

void sp_budgets_close(sp_budgets *budgets)
{
    sp_budget_close(&budgets->train);
    sp_budget_close(&budgets->eval);
    memset(budgets, 0, sizeof *budgets);
}

const sp_budget *sp_budgets_eval(const sp_budgets *budgets, const sp_dataset *set)
{
    assert(budgets && set);
    for (const sp_budget *b = &budgets->eval; b; b = b->next)
        if (b->set == set)
            return b;
    return &budgets->eval;
}

/* ---- messages ---- */

static bool has_norm(const sp_graph *graph)
{
    for (int i = 0; i < graph->n_nodes; i++)
        if (graph->node[i].op == SP_OP_BATCHNORM)
            return true;
    return false;
}

void sp_budgets_print(const sp_budgets *budgets, int64_t device_bytes)
{
    const sp_budget *b = budgets->train.sampler ? &budgets->train : &budgets->eval;
    char there[100];

    if (!budgets->memory || !b->sampler)
        return;
    snprintf(there, sizeof there, "%.1f MiB", mib(budgets->memory));
    if (device_bytes)
        snprintf(there, sizeof there, "%.1f of the %.1f MiB that a device has for it",
                 mib(budgets->memory), mib(device_bytes));
    if (b->n_micro <= b->n_micro_asked) {
        sp_log_info("memory: a rank may use %s; the largest step needs about %.1f MiB",
                    there, mib(sp_budgets_need(budgets)));
        return;
    }
    sp_log_warn0("memory: a rank may use %s, and the largest step needs about %.1f "
                 "MiB: steps are cut into micro-batches, the largest into %d%s",
                 there, mib(sp_budgets_need(budgets)), b->n_micro,
                 b->estimator.is_training && has_norm(b->estimator.what.graph)
                     ? "; batch statistics are computed for each micro-batch"
                     : "");
    if (sp_budgets_fixed(budgets) + b->largest[0] + b->largest[SP_REST] >
        budgets->memory)
        sp_log_warn0(
            "memory: the largest sample needs about %.1f MiB by itself: such a sample "
            "gets a micro-batch of its own, and the run ends if the device has no "
            "memory for it",
            mib(sp_budgets_fixed(budgets) + b->largest[0] + b->largest[SP_REST]));
}

sp_status sp_budgets_explain(sp_budgets *budgets, const sp_budget *b,
                             const int64_t *sample, int n)
{
    const char *said = sp_error_last()->message;
    int64_t need = sp_budgets_fixed(budgets), voxels = 0, recomputed = 0;
    char other[SP_RECOMPUTED_TEXT];
    const sp_shard *shard;

    assert(n >= 0 && (sample || n == 0));
    assert(sp_error_last()->code == SP_EMEM);
    if (!b->cached || n == 0)
        return SP_EMEM; /* the message is unchanged */
    for (int i = 0; i < n; i++) {
        need += (int64_t)(b->excess *
                          (double)sp_budget_sum(sp_budget_cached(b, sample[i])));
        voxels += sp_dataset_voxels(b->set, sample[i]);
    }
    if (n > 1)
        return SP_FAIL(
            SP_EMEM,
            "%d samples from %lld on (%lld voxels) need about %.1f MiB of %.1f MiB, "
            "but other programs have taken some: set run.memory_mb to less: %s",
            n, (long long)sample[0], (long long)voxels, mib(need), mib(budgets->memory),
            said);
    if (b == &budgets->train && !b->estimator.buffers.rules.is_recomputed)
        recomputed = budgets_recomputed(budgets, sample[0]);
    shard = &b->set->shard[sp_dataset_shard_of(b->set, sample[0])];
    return SP_FAIL(SP_EMEM,
                   "sample %lld of %s (%lld voxels) needs about %.1f MiB by itself, "
                   "expected at most the %.1f MiB of a rank%s: %s",
                   (long long)(sample[0] - shard->first_sample), shard->path,
                   (long long)voxels, mib(need), mib(budgets->memory),
                   sp_budget_print_recomputed(other, recomputed), said);
}
